// What an image would have executed: a program or a shared library, without libc, that makes the file /out/trapped.
#include <fcntl.h>
#include <sys/syscall.h>

static long call(long number, long a, long b, long c)
{
	long result;
#if defined(__x86_64__)
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
		      x3 __asm__("x3") = 0600;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	result = x0;
#endif
	return result;
}

static void mark(void)
{
	call(SYS_mkdirat, AT_FDCWD, (long)"/out/trapped", 0700);
}

#ifdef PROGRAM
void _start(void)
{
	mark();
	call(SYS_exit_group, 0, 0, 0);
}
#else
__attribute__((constructor)) static void loaded(void)
{
	mark();
}
#endif
