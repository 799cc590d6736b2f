// A stand-in for libcuda.so.1 and libnvidia-ml.so.1, so that integration/gpu.sh can be tried where there is no GPU: as
// many GPUs as there are files /dev/nvidiaN, memory that is the program's own, and the one kernel of cuda.c. Clients of MPS
// leave their process id in its directory. A thread does what the stand-in for cuda-checkpoint asks for.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION_TEXT(version) #version
#define TEXT(version) VERSION_TEXT(version)

static int gpus(void)
{
	char path[40];
	int count = 0;
	for (int n = 0; n < 8; n++) {
		snprintf(path, sizeof path, "/dev/nvidia%d", n);
		count += access(path, R_OK | W_OK) == 0;
	}
	return access("/dev/nvidiactl", R_OK | W_OK) == 0 ? count : 0;
}

// The calls that reach a GPU wait while somebody else has this.
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static int device = -1;

enum { LOCK = 41, CHECKPOINT, RESTORE, UNLOCK };

static void asked(sigset_t *signals)
{
	sigemptyset(signals);
	for (int number = LOCK; number <= UNLOCK; number++) sigaddset(signals, number);
}

// The thread's name is the state of the process.
static void *keeper(void *unused)
{
	sigset_t signals;
	const char *state = "running";
	asked(&signals);
	for (;;) {
		pthread_setname_np(pthread_self(), state);
		switch (sigwaitinfo(&signals, NULL)) {
		case LOCK: pthread_mutex_lock(&calls), state = "locked"; break;
		case CHECKPOINT: close(device), state = "checkpointed"; break;
		case RESTORE: state = (device = open("/dev/nvidia0", O_RDWR | O_CLOEXEC)) < 0 ? "failed" : "locked"; break;
		case UNLOCK: pthread_mutex_unlock(&calls), state = "running"; break;
		}
	}
	return unused;
}

static void start_keeper(void)
{
	sigset_t signals;
	pthread_t thread;
	asked(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	device = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
	pthread_create(&thread, NULL, keeper, NULL);
}

int cuInit(unsigned flags)
{
	const char *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[4096];
	FILE *clients;
	(void)flags;
	if (mps) {
		snprintf(path, sizeof path, "%s/clients", mps);
		if ((clients = fopen(path, "a"))) {
			fprintf(clients, "%d\n", getpid());
			fclose(clients);
		}
	}
	if (gpus()) start_keeper();
	return gpus() ? 0 : 100;
}
int cuDriverGetVersion(int *version) { return *version = 12020, 0; }
int cuDeviceGetCount(int *count) { return *count = gpus(), 0; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "Stand-in %d", device), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { return *value = which == 75 ? 8 : device * 0, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = NULL, device * 0; }
int cuCtxSetCurrent(void *context) { return context != NULL; }
int cuModuleLoadData(void **module, const char *text) { return *module = NULL, strstr(text, ".entry ") ? 0 : 218; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = strcmp(name, "inc") ? module : (void *)"inc";
	return strcmp(name, "add") && strcmp(name, "inc") ? 500 : 0;
}
int cuMemAlloc_v2(void **at, size_t size) { return *at = malloc(size), *at ? 0 : 2; }
int cuMemAllocHost_v2(void **at, size_t size) { return cuMemAlloc_v2(at, size); }
int cuMemFree_v2(void *at) { return free(at), 0; }
int cuMemFreeHost(void *at) { return free(at), 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size)
{
	pthread_mutex_lock(&calls);
	memcpy(to, from, size);
	return pthread_mutex_unlock(&calls);
}
int cuCtxSynchronize(void) { return 0; }
int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned wide, unsigned high, unsigned deep,
	unsigned shared, void *stream, void **arguments, void **more)
{
	const float *a = *(float **)arguments[0], *b;
	float *out;
	if (kernel) return ++*(unsigned *)a, 0;
	if (y != 1 || z != 1 || high != 1 || deep != 1 || shared || stream || more) return 1;
	b = *(float **)arguments[1], out = *(float **)arguments[2];
	for (unsigned n = 0; n < x * wide && n < *(unsigned *)arguments[3]; n++) out[n] = a[n] + b[n];
	return 0;
}

int nvmlInit_v2(void) { return access("/dev/nvidiactl", R_OK | W_OK) ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "%s", TEXT(VERSION)), 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = gpus(), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **device) { return *device = (char *)1 + n, 0; }
int nvmlDeviceGetName(char *device, char *name, unsigned size)
{
	return snprintf(name, size, "Stand-in %d", (int)(device - (char *)1)), 0;
}
int nvmlDeviceGetUUID(char *device, char *uuid, unsigned size)
{
	return snprintf(uuid, size, "GPU-%d", (int)(device - (char *)1)), 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
	return memory[0] = memory[1] = 1 << 30, memory[2] = device == NULL, 0;
}
