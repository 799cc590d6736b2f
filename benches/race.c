/*
 * Runs the cases of a plan in turns and tells how long each took.
 *
 *   race ROUNDS PLAN
 *
 * PLAN has one word and tab-separated arguments per line; "%" in an argument becomes the round's number:
 *   case NAME       begins a case
 *   first COMMAND   once, before the first round
 *   time COMMAND    in every round, timed from before posix_spawn(3) until its wait4(2) has returned
 *   last COMMAND    once, after the last round
 * Every round runs each case once, in a new order, so that all of them meet the same machine. A tenth of
 * ROUNDS more goes before them and is not counted. A command that fails ends its case. What the commands write
 * to stderr goes to PLAN.log.
 *
 * Prints per case: name, minimum and median (microseconds, the sum of its timed commands), peak resident
 * set of the largest single process (KiB), exit status of the command that failed or 0.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CASES = 64, COMMANDS = 8, ARGS = 96 };

struct command {
	char kind; /* f, t or l */
	char *argv[ARGS];
};

static struct one {
	char *name;
	struct command commands[COMMANDS];
	int count, status;
	long rss;
	double *times;
} cases[CASES];
static int count;

static char *const environment[] = { "PATH=/nonexistent", "HOME=/nonexistent", NULL };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Spawns and waits; returns the microseconds, and -1 where the command failed. */
static double run(struct one *one, struct command *command, int round)
{
	char *argv[ARGS], text[4][256];
	int made = 0;
	for (int i = 0; i < ARGS; i++) {
		argv[i] = command->argv[i];
		char *mark = argv[i] ? strchr(argv[i], '%') : NULL;
		if (mark && made < 4) {
			snprintf(text[made], sizeof text[0], "%.*s%d%s", (int)(mark - argv[i]), argv[i], round, mark + 1);
			argv[i] = text[made++];
		}
		if (!argv[i])
			break;
	}
	struct rusage usage;
	int status;
	pid_t pid;
	double start = now();
	if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environment))
		status = 127 << 8;
	else
		wait4(pid, &status, 0, &usage);
	double took = now() - start;
	if (status) {
		one->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		fprintf(stderr, "race: %s: %s %s: status %d in round %d\n", one->name, argv[0], argv[1] ? argv[1] : "",
			one->status, round);
		return -1;
	}
	if (command->kind == 't' && usage.ru_maxrss > one->rss)
		one->rss = usage.ru_maxrss;
	return took;
}

static void run_all(struct one *one, char kind, int round, double *total)
{
	for (int i = 0; i < one->count && !one->status; i++)
		if (one->commands[i].kind == kind) {
			double took = run(one, &one->commands[i], round);
			if (total)
				*total += took;
		}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void load(const char *path, int rounds)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	if (!file)
		perror(path), exit(2);
	while (getline(&line, &size, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		char *rest = strchr(line, ' ');
		if (!rest)
			continue;
		rest = strdup(rest + 1);
		if (*line == 'c') {
			if (count == CASES)
				fputs("race: too many cases\n", stderr), exit(2);
			cases[count].name = rest;
			cases[count++].times = calloc(rounds, sizeof(double));
			continue;
		}
		struct one *one = &cases[count - 1];
		struct command *command = &one->commands[one->count++];
		command->kind = *line;
		int n = 0;
		for (char *arg; (arg = strsep(&rest, "\t")) && n < ARGS - 1;)
			command->argv[n++] = arg;
	}
	fclose(file);
}

int main(int argc, char **argv)
{
	int rounds = argc == 3 ? atoi(argv[1]) : 0, warm = rounds / 10 + 1;
	if (rounds < 1)
		fputs("usage: race ROUNDS PLAN\n", stderr), exit(2);
	load(argv[2], rounds);
	int null = open("/dev/null", O_RDWR);
	int out = fcntl(1, F_DUPFD_CLOEXEC, 10);
	dup2(null, 0), dup2(null, 1), close(null);
	char path[4096];
	snprintf(path, sizeof path, "%s.log", argv[2]);
	dup2(open(path, O_CREAT | O_TRUNC | O_APPEND | O_WRONLY | O_CLOEXEC, 0600), 2);
	srand(1);
	int order[CASES];
	for (int c = 0; c < count; c++)
		order[c] = c;

	for (int c = 0; c < count; c++)
		run_all(&cases[c], 'f', 0, NULL);
	for (int round = -warm; round < rounds; round++) {
		for (int last = count - 1; last > 0; last--) {
			int other = rand() % (last + 1), swap = order[last];
			order[last] = order[other], order[other] = swap;
		}
		for (int turn = 0; turn < count; turn++) {
			int c = order[turn];
			double total = 0;
			run_all(&cases[c], 't', round + warm, &total);
			if (round >= 0)
				cases[c].times[round] = total;
		}
	}
	for (int c = 0; c < count; c++) {
		struct one *one = &cases[c];
		int failed = one->status;
		one->status = 0;
		run_all(one, 'l', 0, NULL);
		qsort(one->times, rounds, sizeof(double), ascending);
		dprintf(out, "%s\t%.1f\t%.1f\t%ld\t%d\n", one->name, one->times[0], one->times[rounds / 2], one->rss, failed);
	}
	return 0;
}
