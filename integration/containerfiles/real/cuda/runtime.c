// A stand-in for libcudart.so.12.
#include "cuda.h"
int cudaRuntime(int *runtime, int *driver, int *devices)
{
	*runtime = 12;
	int failed = cuInit(0);
	if (!failed)
		failed = cuDriverGetVersion(driver);
	return failed ? failed : cuDeviceGetCount(devices);
}
