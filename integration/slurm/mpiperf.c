/* Two ranks: latency of an 8-byte message and bandwidth of 4 MiB messages, one way, best of several rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double round_trips(char *buffer, int bytes, int count, int rank)
{
	double began;
	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	for (int i = 0; i < count; i++) {
		if (rank == 0) {
			MPI_Send(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
		}
	}
	return (MPI_Wtime() - began) / count / 2;
}

int main(int argc, char **argv)
{
	const int large = 4 << 20;
	double latency = 1, transfer = 1, t;
	char *buffer = malloc(large);
	int rank;
	memset(buffer, 1, large);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < 20; i++) {
		if ((t = round_trips(buffer, 8, 1000, rank)) < latency)
			latency = t;
		if ((t = round_trips(buffer, large, 10, rank)) < transfer)
			transfer = t;
	}
	if (rank == 0)
		printf("latency_us %.2f bandwidth_MBps %.0f\n", latency * 1e6, large / transfer / 1e6);
	MPI_Finalize();
	return 0;
}
