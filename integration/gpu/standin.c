// A stand-in for libcuda.so.1 and libnvidia-ml.so.1, so that integration/gpu.sh can be tried where there is no GPU: as
// many GPUs as there are files /dev/nvidiaN, memory that is the program's own, and the one kernel of cuda.c. Clients of MPS
// leave their process id in its directory.
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
	return gpus() ? 0 : 100;
}
int cuDriverGetVersion(int *version) { return *version = 12020, 0; }
int cuDeviceGetCount(int *count) { return *count = gpus(), 0; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "Stand-in %d", device), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { return *value = which == 75 ? 8 : device * 0, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = NULL, device * 0; }
int cuCtxSetCurrent(void *context) { return context != NULL; }
int cuModuleLoadData(void **module, const char *text) { return *module = NULL, strstr(text, ".entry add") ? 0 : 218; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
	return *function = module, strcmp(name, "add") ? 500 : 0;
}
int cuMemAlloc_v2(void **at, size_t size) { return *at = malloc(size), *at ? 0 : 2; }
int cuMemAllocHost_v2(void **at, size_t size) { return cuMemAlloc_v2(at, size); }
int cuMemFree_v2(void *at) { return free(at), 0; }
int cuMemFreeHost(void *at) { return free(at), 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int cuCtxSynchronize(void) { return 0; }
int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned wide, unsigned high, unsigned deep,
	unsigned shared, void *stream, void **arguments, void **more)
{
	const float *a = *(float **)arguments[0], *b = *(float **)arguments[1];
	float *out = *(float **)arguments[2];
	if (kernel || y != 1 || z != 1 || high != 1 || deep != 1 || shared || stream || more) return 1;
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
