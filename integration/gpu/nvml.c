// What NVML says of the driver and of the GPUs that it sees.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

#define CALL(name, ...) \
	do { \
		int (*function)() = (int (*)())dlsym(library, name); \
		int code = function ? function(__VA_ARGS__) : -1; \
		if (code) { \
			printf("%s: error %d\n", name, code); \
			exit(1); \
		} \
	} while (0)

int main(void)
{
	char driver[100] = "", name[100] = "", uuid[100] = "";
	unsigned count = 0;
	void *device;
	struct { unsigned long long total, free, used; } memory = {0};

	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library) {
		printf("no library: %s\n", dlerror());
		return 1;
	}
	CALL("nvmlInit_v2");
	CALL("nvmlSystemGetDriverVersion", driver, sizeof driver);
	CALL("nvmlDeviceGetCount_v2", &count);
	printf("NVML: driver %s, GPUs: %u\n", driver, count);
	for (unsigned n = 0; n < count; n++) {
		CALL("nvmlDeviceGetHandleByIndex_v2", n, &device);
		CALL("nvmlDeviceGetName", device, name, sizeof name);
		CALL("nvmlDeviceGetUUID", device, uuid, sizeof uuid);
		CALL("nvmlDeviceGetMemoryInfo", device, &memory);
		printf("GPU %u: %s (UUID: %s), %llu MiB\n", n, name, uuid, memory.total >> 20);
	}
	CALL("nvmlShutdown");
	return count == 0;
}
