// What the MPI programs of ranks.sh and mpi.sh do: each rank sends 4 MB to the next one, and looks at what has come. Returns how
// many bytes are wrong.
#include <mpi.h>
#include <stdlib.h>

static int ring(int rank, int size) {
	int n = 4 << 20, wrong = 0, next = (rank + 1) % size, last = (rank + size - 1) % size;
	char *out = malloc(n), *in = malloc(n);
	for (int i = 0; i < n; i++) out[i] = rank + i;
	MPI_Sendrecv(out, n, MPI_CHAR, next, 0, in, n, MPI_CHAR, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++) wrong += in[i] != (char)(last + i);
	return wrong;
}
