/*
 * Which instructions a program executes: one line "ADDRESS" each, in the order of their first execution.
 *
 *   step BELOW PROGRAM [ARG...]     addresses below BELOW (hexadecimal) only; to descriptor 3
 *
 * Single-steps PROGRAM and what it clones with ptrace(2) until an exec(3). Slow: some microseconds a step.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	unsigned long below = strtoul(argv[1], NULL, 16);
	char *seen = calloc(below, 1);
	FILE *out = fdopen(3, "w");
	if (!seen || !out)
		return 2;
	pid_t first = fork();
	if (first == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(argv[2], argv + 2);
		_exit(127);
	}
	int status, code = 0;
	waitpid(first, &status, 0);
	ptrace(PTRACE_SETOPTIONS, first, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEFORK |
		PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
	ptrace(PTRACE_SINGLESTEP, first, 0, 0);
	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);
		if (pid < 0)
			break;
		if (!WIFSTOPPED(status)) {
			if (pid == first)
				code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			continue;
		}
		if (status >> 16 == PTRACE_EVENT_EXEC) {
			ptrace(PTRACE_CONT, pid, 0, 0);
			continue;
		}
		struct user_regs_struct regs;
		if (!ptrace(PTRACE_GETREGS, pid, 0, &regs) && regs.rip < below && !seen[regs.rip]) {
			seen[regs.rip] = 1;
			fprintf(out, "%llx\n", regs.rip);
		}
		int signal = WSTOPSIG(status);
		ptrace(PTRACE_SINGLESTEP, pid, 0, signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
	}
	fclose(out);
	return code;
}
