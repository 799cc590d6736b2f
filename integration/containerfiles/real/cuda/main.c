#include "cuda.h"
#include <stdio.h>
int main(void)
{
	int runtime, driver, devices, failed = cudaRuntime(&runtime, &driver, &devices);
	if (failed)
		return fprintf(stderr, "cuda: error %d\n", failed), 1;
	printf("%d device of driver %d of runtime %d\n", devices, driver, runtime);
}
