// CUDA's driver for the programs here. They open the library themselves, so that they are built where there is no driver and no toolkit.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void *function(const char *name)
{
	void *found = dlsym(library, name);
	if (!found) {
		printf("no function %s\n", name);
		exit(1);
	}
	return found;
}

// Calls a function whose arguments are integers and pointers, as all of those used here are.
#define CALL(name, ...) \
	do { \
		int code = ((int (*)())function(name))(__VA_ARGS__); \
		if (code) { \
			printf("%s: error %d\n", name, code); \
			exit(1); \
		} \
	} while (0)

// Opens the library, and prints by lines from here on.
static void open_driver(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("no library: %s\n", dlerror());
		exit(1);
	}
	CALL("cuInit", 0);
}
