/*
 * Runs a program as an unprivileged user, instruction by instruction, with the processes that it makes, until each of them executes
 * another program, or the first one ends. Prints each address of the executable once, in hexadecimal behind @, when it is executed for the first time.
 *
 *   step UID PROGRAM ARGUMENT...    as root, which may follow processes into their user namespaces; x86-64
 */
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 0x400000, SIZE = 0x800000 }; /* of an executable at a fixed address */
static unsigned char seen[SIZE];

int main(int argc, char **argv)
{
	int status, execs = 0;
	pid_t pid = argc > 2 ? fork() : -1, first = pid;

	if (pid < 0) return 2;
	if (pid == 0) {
		int id = atoi(argv[1]);
		if (setgroups(0, NULL) || setgid(id) || setuid(id) || ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(2);
		raise(SIGSTOP);
		execv(argv[2], argv + 2);
		_exit(2);
	}
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC);
	ptrace(PTRACE_CONT, pid, 0, 0);
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		struct user_regs_struct now;
		int number = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;

		/* What is left of a container goes on without a tracer. */
		if (!WIFSTOPPED(status) && pid == first) return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (!WIFSTOPPED(status)) continue;
		if (status >> 16 == PTRACE_EVENT_EXEC && execs++) {
			ptrace(PTRACE_DETACH, pid, 0, 0);
			continue;
		}
		if (number == SIGTRAP || number == SIGSTOP) number = 0;
		if (!ptrace(PTRACE_GETREGS, pid, 0, &now) && now.rip - FIRST < SIZE && !seen[now.rip - FIRST]++)
			printf("@%llx\n", now.rip);
		ptrace(PTRACE_SINGLESTEP, pid, 0, number);
	}
	return 0;
}
