// What the program and the runtime call of the driver.
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDriverGetVersion(int *version);
// What the program calls of the runtime.
int cudaRuntime(int *runtime, int *driver, int *devices);
