// A program for CUDA's driver: each GPU that it sees adds two arrays by a kernel that the driver compiles, and the sums
// are looked at.
// usage: cuda [SECONDS-TO-WAIT-BEFORE-THE-END]
#include "driver.h"
#include <string.h>
#include <unistd.h>

#define COUNT (16u << 20)

static const char *const TARGETS[] = {".version 6.3\n.target sm_75\n", ".version 6.0\n.target sm_50\n"};
static const char KERNEL[] =
	".address_size 64\n"
	".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n)\n"
	"{\n"
	".reg .pred %p;\n.reg .b32 %r<6>;\n.reg .f32 %f<4>;\n.reg .b64 %d<8>;\n"
	"mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
	"mad.lo.s32 %r4, %r1, %r2, %r3;\n"
	"ld.param.u32 %r5, [n];\nsetp.ge.u32 %p, %r4, %r5;\n@%p ret;\n"
	"ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.param.u64 %d3, [out];\n"
	"mul.wide.u32 %d4, %r4, 4;\n"
	"add.u64 %d5, %d1, %d4;\nadd.u64 %d6, %d2, %d4;\nadd.u64 %d7, %d3, %d4;\n"
	"ld.global.f32 %f1, [%d5];\nld.global.f32 %f2, [%d6];\nadd.f32 %f3, %f1, %f2;\nst.global.f32 [%d7], %f3;\n"
	"ret;\n}\n";

static void add_on(int device)
{
	char name[100] = "";
	int major = 0, minor = 0;
	void *context, *module = NULL, *kernel, *pinned;
	unsigned long long a, b, out;
	float *here = malloc(COUNT * sizeof(float));
	size_t bytes = COUNT * sizeof(float);
	unsigned count = COUNT;

	CALL("cuDeviceGetName", name, sizeof name, device);
	CALL("cuDeviceGetAttribute", &major, 75, device);
	CALL("cuDeviceGetAttribute", &minor, 76, device);
	CALL("cuDevicePrimaryCtxRetain", &context, device);
	CALL("cuCtxSetCurrent", context);
	int error = 1;
	for (unsigned n = 0; error && n < sizeof TARGETS / sizeof *TARGETS; n++) {
		char text[4096];
		snprintf(text, sizeof text, "%s%s", TARGETS[n], KERNEL);
		error = ((int (*)(void **, const char *))function("cuModuleLoadData"))(&module, text);
	}
	if (error) {
		printf("cuModuleLoadData: error %d\n", error);
		exit(1);
	}
	CALL("cuModuleGetFunction", &kernel, module, "add");
	CALL("cuMemAlloc_v2", &a, bytes);
	CALL("cuMemAlloc_v2", &b, bytes);
	CALL("cuMemAlloc_v2", &out, bytes);
	// Pages of the container that the GPU reads and writes by itself.
	CALL("cuMemAllocHost_v2", &pinned, bytes);
	for (unsigned n = 0; n < COUNT; n++) here[n] = (float)(n % 4099);
	CALL("cuMemcpyHtoD_v2", a, here, bytes);
	for (unsigned n = 0; n < COUNT; n++) here[n] = (float)(n % 8209);
	CALL("cuMemcpyHtoD_v2", b, here, bytes);
	void *arguments[] = {&a, &b, &out, &count};
	CALL("cuLaunchKernel", kernel, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
	CALL("cuCtxSynchronize");
	CALL("cuMemcpyDtoH_v2", pinned, out, bytes);
	for (unsigned n = 0; n < COUNT; n++) {
		float wanted = (float)(n % 4099) + (float)(n % 8209);
		if (((float *)pinned)[n] != wanted) {
			printf("element %u is %f and not %f\n", n, ((float *)pinned)[n], wanted);
			exit(1);
		}
	}
	CALL("cuMemFreeHost", pinned);
	CALL("cuMemFree_v2", a);
	CALL("cuMemFree_v2", b);
	CALL("cuMemFree_v2", out);
	printf("GPU %d: %s, compute capability %d.%d: %u sums are right\n", device, name, major, minor, COUNT);
	free(here);
}

int main(int argc, char **argv)
{
	int version = 0, devices = 0;

	open_driver();
	CALL("cuDriverGetVersion", &version);
	CALL("cuDeviceGetCount", &devices);
	printf("CUDA %d.%d, GPUs: %d\n", version / 1000, version % 1000 / 10, devices);
	for (int n = 0; n < devices; n++) add_on(n);
	if (argc > 1) sleep(atoi(argv[1]));
	return devices == 0;
}
