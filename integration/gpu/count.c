// A program for CUDA's driver that counts in the memory of the first GPU, and prints each number.
// usage: count MILLISECONDS-BETWEEN LAST
#include "driver.h"
#include <unistd.h>

static const char KERNEL[] =
	".version 6.3\n.target sm_75\n.address_size 64\n"
	".visible .entry inc(.param .u64 at)\n"
	"{\n"
	".reg .b32 %r<2>;\n.reg .b64 %d<2>;\n"
	"ld.param.u64 %d1, [at];\nld.global.u32 %r1, [%d1];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%d1], %r1;\n"
	"ret;\n}\n";

int main(int argc, char **argv)
{
	void *context, *module, *kernel;
	unsigned long long at;
	unsigned now = 0;

	if (argc != 3) return 2;
	open_driver();
	CALL("cuDevicePrimaryCtxRetain", &context, 0);
	CALL("cuCtxSetCurrent", context);
	CALL("cuModuleLoadData", &module, KERNEL);
	CALL("cuModuleGetFunction", &kernel, module, "inc");
	CALL("cuMemAlloc_v2", &at, sizeof now);
	CALL("cuMemcpyHtoD_v2", at, &now, sizeof now);
	void *arguments[] = {&at};
	while (now < (unsigned)atoi(argv[2])) {
		CALL("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
		CALL("cuCtxSynchronize");
		CALL("cuMemcpyDtoH_v2", &now, at, sizeof now);
		printf("%u\n", now);
		usleep(1000 * atoi(argv[1]));
	}
	return 0;
}
