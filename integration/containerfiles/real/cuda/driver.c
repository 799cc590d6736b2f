// A stand-in for libcuda.so.1. With STUB it is what programs are linked with where there is no driver, and answers with an error.
#ifdef STUB
#define DONE 34 // CUDA_ERROR_STUB_LIBRARY
#else
#define DONE 0
#endif
int cuInit(unsigned flags) { return flags ? 1 : DONE; }
int cuDeviceGetCount(int *count) { *count = 1; return DONE; }
int cuDriverGetVersion(int *version) { *version = 12010; return DONE; }
