// What a program may have when it is checkpointed, a case each: "cases NAME" makes it, says "ready", waits until /out/go is there,
// and looks whether everything is as it was. The exit code is 0 where it is, and a line on standard error says what is not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static void nap(void) { nanosleep(&(struct timespec){ 0, 10000000 }, NULL); }

static void until_gone(void)
{
	struct stat s;
	while (stat("/out/go", &s) != 0)
		nap();
}

static void stay(void)
{
	printf("ready\n");
	fflush(stdout);
	until_gone();
}

// Never the same descriptors, and children that have some, too, and end.
static void busy(void)
{
	struct stat s;
	printf("ready\n");
	fflush(stdout);
	for (int n = 0; stat("/out/go", &s) != 0; n++) {
		int fds[50];
		for (int k = 0; k < 50; k++)
			MUST((fds[k] = open((n + k) % 2 ? "/bin/busybox" : "/dev/null", O_RDONLY)) >= 0);
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0)
			_exit(0);
		for (int k = 0; k < 50; k++)
			MUST(close(fds[(k * 7) % 50]) == 0);
		MUST(waitpid(child, NULL, 0) == child);
	}
}

static void *for_ever(void *unused)
{
	for (;;)
		nap();
	return unused;
}

// The program's only child with a second thread, whose number is `skipped` above the first one's that there could be.
static void number(int skipped)
{
	pthread_t thread;
	int status, ends[2];
	char byte;
	pid_t child;
	for (int n = 0; n < skipped; n++) {
		MUST((child = fork()) >= 0);
		if (child == 0)
			_exit(0);
		MUST(waitpid(child, NULL, 0) == child);
	}
	MUST(pipe(ends) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		if (pthread_create(&thread, NULL, for_ever, NULL) != 0 || write(ends[1], "1", 1) != 1)
			_exit(1);
		for_ever(NULL);
	}
	MUST(read(ends[0], &byte, 1) == 1);
	stay();
	MUST(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
}

// A child that has ended, and is waited for later.
static void ended(void)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(5);
	siginfo_t info;
	MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	stay();
	MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
}

// The same, where no process that lives has a number as high.
static void ended_last(void)
{
	pid_t other = fork();
	if (other == 0) {
		setsid();
		for (;;)
			pause();
	}
	ended();
	MUST(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
}

// Two that have ended and were not waited for, one in the session of the other one.
static void ended_session(void)
{
	siginfo_t info;
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid_t leader = fork();
	if (leader == 0) {
		MUST(setsid() > 0);
		if (fork() == 0) {
			usleep(50000);
			_exit(0);
		}
		_exit(0);
	}
	MUST(waitid(P_PID, leader, &info, WEXITED | WNOWAIT) == 0);
	usleep(300000);
	stay();
}

static void tree(void)
{
	int pipes[2], pair[2], server = socket(AF_UNIX, SOCK_STREAM, 0), status;
	volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "/tmp/socket" };
	char byte;
	MUST(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && shared != MAP_FAILED);
	MUST(bind(server, (void *)&name, sizeof name) == 0 && listen(server, 1) == 0);
	pid_t child = fork();
	if (child == 0) {
		setsid();
		int client = socket(AF_UNIX, SOCK_STREAM, 0);
		MUST(connect(client, (void *)&name, sizeof name) == 0);
		if (fork() == 0) {
			// A grandchild, which counts until it is told to end.
			while (shared[1] == 0) {
				shared[0]++;
				nap();
			}
			_exit(0);
		}
		MUST(read(pipes[0], &byte, 1) == 1 && byte == 'p');
		MUST(write(pair[1], "s", 1) == 1 && write(client, "u", 1) == 1);
		MUST(wait(&status) > 0 && status == 0);
		_exit(3);
	}
	int peer = accept(server, NULL, NULL);
	MUST(write(pipes[1], "p", 0) == 0);
	while (shared[0] == 0)
		nap();
	stay();
	int seen = shared[0];
	while (shared[0] == seen)
		nap();
	MUST(write(pipes[1], "p", 1) == 1 && read(pair[0], &byte, 1) == 1 && byte == 's');
	MUST(read(peer, &byte, 1) == 1 && byte == 'u');
	shared[1] = 1;
	MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
}

static volatile int turns[4], stop;
static void *turn(void *n)
{
	while (!stop) {
		turns[(long)n]++;
		nap();
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];
	for (long n = 0; n < 4; n++)
		MUST(pthread_create(&all[n], NULL, turn, (void *)n) == 0);
	stay();
	for (int n = 0; n < 4; n++) {
		int seen = turns[n];
		while (turns[n] == seen)
			nap();
	}
	stop = 1;
	for (int n = 0; n < 4; n++)
		MUST(pthread_join(all[n], NULL) == 0);
}

static int file_with(const char *path, int flags)
{
	int fd = open(path, flags | O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && write(fd, "0123456789", 10) == 10 && lseek(fd, 5, SEEK_SET) == 5);
	return fd;
}

static void five(int fd)
{
	char byte;
	MUST(read(fd, &byte, 1) == 1 && byte == '5');
}

static void files(void)
{
	struct stat s;
	int image = open("/bin/cases", O_RDONLY), bind = file_with("/out/file", O_TRUNC), memory = file_with("/tmp/file", 0);
	int shm = file_with("/dev/shm/mapped", 0);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shm, 0);
	MUST(image >= 0 && map != MAP_FAILED && lseek(image, 1, SEEK_SET) == 1);
	MUST(mkdir("/tmp/dir", 0500) == 0 && symlink("x", "/tmp/link") == 0 && mkfifo("/tmp/fifo", 0640) == 0);
	MUST(chdir("/tmp/dir") == 0);
	stay();
	char byte;
	MUST(read(image, &byte, 1) == 1 && byte == 'E');
	five(bind), five(memory), five(shm);
	map[0] = 'x';
	MUST(pread(shm, &byte, 1, 0) == 1 && byte == 'x');
	MUST(stat(".", &s) == 0 && (s.st_mode & 07777) == 0500);
	MUST(lstat("/tmp/fifo", &s) == 0 && S_ISFIFO(s.st_mode) && readlink("/tmp/link", &byte, 1) == 1 && byte == 'x');
}

static void removed(void)
{
	int memory = file_with("/tmp/removed", 0), bind = file_with("/out/removed", O_TRUNC);
	MUST(unlink("/tmp/removed") == 0 && unlink("/out/removed") == 0);
	stay();
	five(memory), five(bind);
}

static void events(void)
{
	int epoll = epoll_create1(0), event = eventfd(7, 0), signals;
	struct epoll_event wanted = { .events = EPOLLIN, .data.fd = event }, got;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, 0);
	MUST(epoll >= 0 && event >= 0 && signals >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0);
	int self = syscall(SYS_pidfd_open, getpid(), 0);
	MUST(self >= 0);
	stay();
	uint64_t count;
	struct signalfd_siginfo info;
	MUST(epoll_wait(epoll, &got, 1, 0) == 1 && got.data.fd == event && read(event, &count, 8) == 8 && count == 7);
	MUST(syscall(SYS_pidfd_send_signal, self, SIGUSR2, NULL, 0) == 0);
	MUST(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2);
}

static volatile int ticks;
static void tick(int n) { ticks += n > 0; }

static void timers(void)
{
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec far = { { 0, 0 }, { 1000, 0 } }, left;
	signal(SIGALRM, tick);
	MUST(setitimer(ITIMER_REAL, &often, NULL) == 0 && timerfd_settime(timer, 0, &far, NULL) == 0);
	stay();
	int seen = ticks;
	while (ticks == seen)
		nap();
	MUST(timerfd_gettime(timer, &left) == 0 && left.it_value.tv_sec > 900);
}

static void memory_files(void)
{
	int open_one = memfd_create("open", 0), mapped = memfd_create("mapped", 0);
	MUST(write(open_one, "0123456789", 10) == 10 && lseek(open_one, 5, SEEK_SET) == 5 && ftruncate(mapped, 4096) == 0);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
	MUST(map != MAP_FAILED && close(mapped) == 0);
	strcpy(map, "kept");
	stay();
	five(open_one);
	MUST(strcmp(map, "kept") == 0);
}

static void locks(void)
{
	int whole = file_with("/out/flock", O_TRUNC), range = file_with("/out/range", O_TRUNC);
	struct flock lock = { .l_type = F_WRLCK, .l_start = 2, .l_len = 3 };
	MUST(flock(whole, LOCK_EX) == 0 && fcntl(range, F_SETLK, &lock) == 0);
	stay();
	int other = open("/out/flock", O_RDWR);
	MUST(flock(other, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
	int status;
	if (fork() == 0) {
		struct flock ask = { .l_type = F_WRLCK, .l_start = 2, .l_len = 3 };
		_exit(fcntl(open("/out/range", O_RDWR), F_GETLK, &ask) == 0 && ask.l_type == F_WRLCK ? 0 : 1);
	}
	MUST(wait(&status) > 0 && status == 0);
}

static void watch(void)
{
	char event[4096];
	MUST(mkdir("/tmp/watched", 0700) == 0);
	int watcher = inotify_init();
	MUST(inotify_add_watch(watcher, "/tmp/watched", IN_CREATE) > 0);
	stay();
	MUST(close(open("/tmp/watched/new", O_CREAT | O_WRONLY, 0600)) == 0 && read(watcher, event, sizeof event) > 0);
}

// What nobody has open: a program that looks after a tree of files.
static void watch_tree(void)
{
	const char *dirs[] = { "tree", "tree/d", "tree/d/e" };
	char event[4096], name[64];
	int watcher = inotify_init1(IN_NONBLOCK);
	MUST(chdir("/out") == 0 && watcher >= 0);
	for (int n = 0; n < 3; n++)
		MUST(mkdir(dirs[n], 0700) == 0 && inotify_add_watch(watcher, dirs[n], IN_CLOSE_WRITE) > 0);
	stay();
	for (int n = 0; n < 3; n++) {
		snprintf(name, sizeof name, "%s/new", dirs[n]);
		MUST(close(open(name, O_CREAT | O_WRONLY, 0600)) == 0 && read(watcher, event, sizeof event) > 0);
	}
}

// Three places, in one of which others can mount something.
static void watch_mounts(void)
{
	const char *dirs[] = { "/dev/shm", "/out" };
	char event[4096], name[64];
	int watcher = inotify_init1(IN_NONBLOCK);
	MUST(inotify_add_watch(watcher, "/", IN_CREATE) > 0);
	for (int n = 0; n < 2; n++)
		MUST(inotify_add_watch(watcher, dirs[n], IN_CREATE) > 0);
	stay();
	for (int n = 0; n < 2; n++) {
		snprintf(name, sizeof name, "%s/new", dirs[n]);
		MUST(close(open(name, O_CREAT | O_WRONLY, 0600)) == 0 && read(watcher, event, sizeof event) > 0);
	}
}

// Far below, where it is found late.
static void watch_deep(void)
{
	char event[4096], path[64] = "/dev/shm";
	int watcher = inotify_init1(IN_NONBLOCK);
	for (int n = 0; n < 5; n++)
		MUST(mkdir(strcat(path, "/d"), 0700) == 0);
	MUST(inotify_add_watch(watcher, path, IN_CREATE) > 0);
	stay();
	MUST(mkdir(strcat(path, "/new"), 0700) == 0 && read(watcher, event, sizeof event) > 0);
}

static int bound(int kind, struct sockaddr_in *address)
{
	socklen_t length = sizeof *address;
	int one = socket(AF_INET, kind, 0);
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	MUST(bind(one, (void *)address, sizeof *address) == 0 && getsockname(one, (void *)address, &length) == 0);
	return one;
}

// A socket with a name that leads through a link, as /var/run is one.
static const struct sockaddr_un through_link = { AF_UNIX, "/out/link/socket" };

static int bind_through_link(void)
{
	int server = socket(AF_UNIX, SOCK_STREAM, 0);
	MUST(mkdir("/out/directory", 0755) == 0 && symlink("directory", "/out/link") == 0);
	MUST(bind(server, (void *)&through_link, sizeof through_link) == 0 && listen(server, 1) == 0);
	return server;
}

static void named_socket(void)
{
	struct sockaddr_un name = through_link;
	int server = bind_through_link(), client = socket(AF_UNIX, SOCK_STREAM, 0);
	stay();
	MUST(connect(client, (void *)&name, sizeof name) == 0 && accept(server, NULL, NULL) >= 0);
	MUST(unlink("/out/link/socket") == 0 && rmdir("/out/directory") == 0 && unlink("/out/link") == 0);
}

static void sockets(void)
{
	struct sockaddr_in datagrams, streams;
	int receiver = bound(SOCK_DGRAM, &datagrams), server = bound(SOCK_STREAM, &streams), sender = socket(AF_INET, SOCK_DGRAM, 0);
	char byte;
	MUST(listen(server, 1) == 0);
	stay();
	MUST(sendto(sender, "d", 1, 0, (void *)&datagrams, sizeof datagrams) == 1 && read(receiver, &byte, 1) == 1 && byte == 'd');
	int client = socket(AF_INET, SOCK_STREAM, 0);
	MUST(connect(client, (void *)&streams, sizeof streams) == 0 && accept(server, NULL, NULL) >= 0);
}

static void connection(void)
{
	struct sockaddr_in streams;
	int server = bound(SOCK_STREAM, &streams), client = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	MUST(listen(server, 1) == 0 && connect(client, (void *)&streams, sizeof streams) == 0);
	int peer = accept(server, NULL, NULL);
	stay();
	MUST(write(client, "c", 1) == 1 && read(peer, &byte, 1) == 1 && byte == 'c');
}

// Counts to 150 on standard output, in three seconds.
static void count(void)
{
	for (int n = 0; n < 150; n++) {
		printf("%d\n", n);
		fflush(stdout);
		nap(), nap();
	}
}

// Answers each line of standard input with the next number.
static void answers(void)
{
	char line[100];
	for (int n = 0; fgets(line, sizeof line, stdin); n++) {
		printf("%d %s", n, line);
		fflush(stdout);
	}
}

// What cannot be kept.

static void filter(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	stay();
}

// A file in memory that is open and mapped, by two processes.
static void memfd_twice(void)
{
	int fd = memfd_create("twice", 0), read_only, status;
	char path[32], byte;
	MUST(ftruncate(fd, 5000) == 0 && snprintf(path, sizeof path, "/proc/self/fd/%d", fd) > 0);
	char *map = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST((read_only = open(path, O_RDONLY)) >= 0 && map != MAP_FAILED);
	strcpy(map + 4096, "kept");
	pid_t child = fork();
	if (child == 0) {
		MUST(close(fd) == 0 && close(read_only) == 0);
		while (map[0] != 'x')
			nap();
		map[1] = 'y';
		_exit(map[4096] == 'k' ? 0 : 1);
	}
	stay();
	MUST(strcmp(map + 4096, "kept") == 0);
	map[0] = 'x';
	MUST(waitpid(child, &status, 0) == child && status == 0);
	MUST(pread(fd, &byte, 1, 1) == 1 && byte == 'y' && pread(read_only, &byte, 1, 0) == 1 && byte == 'x');
	MUST(lseek(fd, 0, SEEK_END) == 5000);
}

// The same, of which one page alone is mapped.
static void memfd_in_parts(void)
{
	int fd = memfd_create("parts", 0);
	MUST(ftruncate(fd, 8192) == 0);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), byte;
	MUST(map != MAP_FAILED);
	stay();
	map[0] = 'x';
	MUST(pread(fd, &byte, 1, 0) == 1 && byte == 'x');
}

// A file in memory that is mapped, and that nobody can write to any more: seals of it, and pages that only read it.
static void memfd_sealed(void)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING), seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	MUST(write(fd, "kept", 5) == 5 && ftruncate(fd, 5000) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	const char *map = mmap(NULL, 5000, PROT_READ, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED);
	int child = fork(), status;
	if (child == 0) {
		MUST(close(fd) == 0);
		until_gone();
		_exit(strcmp(map, "kept") == 0 ? 0 : 1);
	}
	stay();
	MUST(strcmp(map, "kept") == 0 && fcntl(fd, F_GET_SEALS) == seals && write(fd, "new", 3) < 0 && errno == EPERM);
	MUST(mprotect((void *)map, 5000, PROT_READ | PROT_WRITE) != 0);
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// The same, where what was mapped before can be written to.
static void memfd_sealed_later(void)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING), seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	MUST(ftruncate(fd, 5000) == 0);
	char *map = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && fcntl(fd, F_ADD_SEALS, seals) == 0);
	const char *read_only = mmap(NULL, 5000, PROT_READ, MAP_SHARED, fd, 0);
	MUST(read_only != MAP_FAILED);
	stay();
	strcpy(map, "new");
	MUST(strcmp(read_only, "new") == 0 && fcntl(fd, F_GET_SEALS) == seals && write(fd, "no", 2) < 0 && errno == EPERM);
}

// Shared memory, the first part of which is not mapped any more. Something else is behind it.
static void shared_rest(void)
{
	char *map = mmap(NULL, 12 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(map != MAP_FAILED);
	memset(map, '-', 12 * 4096);
	MUST(mmap(map, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map);
	for (int page = 0; page < 8; page++)
		map[page * 4096] = 'a' + page;
	MUST(munmap(map, 4 * 4096) == 0);
	stay();
	for (int page = 4; page < 8; page++)
		MUST(map[page * 4096] == 'a' + page);
}

static void unread_tick(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec often = { { 0, 1000000 }, { 0, 1000000 } };
	uint64_t count;
	MUST(timerfd_settime(timer, 0, &often, NULL) == 0);
	nap(), nap();
	stay();
	MUST(read(timer, &count, 8) == 8 && read(timer, &count, 8) == 8);
}

// Closes a descriptor that is on its way through a socket then, whose other end is returned.
static int pass(int fd)
{
	int ends[2];
	char byte = 'x', space[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && sendmsg(ends[0], &message, 0) == 1 && close(fd) == 0);
	return ends[1];
}

static int receive(int from)
{
	int fd;
	char byte, space[CMSG_SPACE(sizeof fd)];
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	MUST(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

// What the image has in a file system in memory, and the program has changed or removed.
static void copied_up(void)
{
	char text[16] = "";
	int fd = open("/up/changed", O_RDWR | O_TRUNC);
	MUST(fd >= 0 && write(fd, "new", 3) == 3 && unlink("/up/removed") == 0 && rename("/up/dir/moved", "/up/moved") == 0);
	MUST(close(fd) == 0);
	stay();
	fd = open("/up/changed", O_RDONLY);
	MUST(fd >= 0 && read(fd, text, sizeof text) == 3 && strcmp(text, "new") == 0);
	MUST(access("/up/removed", F_OK) != 0 && access("/up/dir/moved", F_OK) != 0 && access("/up/moved", F_OK) == 0);
	MUST(access("/up/bound/here", F_OK) == 0);
}

// Memory of a removed file that two processes share, as Python's semaphores are. One of them waits for the other.
static void *removed_memory(size_t size, int *fd, const char *name)
{
	MUST((*fd = name ? shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600) : open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0);
	MUST(lseek(*fd, size - 1, SEEK_SET) >= 0 && write(*fd, "", 1) == 1);
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	MUST(map != MAP_FAILED && (!name || shm_unlink(name) == 0));
	return map;
}

static void removed_shared(bool is_open, const char *name)
{
	int fd, status;
	struct {
		sem_t begin, end;
		char text[200000];
	} *map = removed_memory(sizeof *map, &fd, name);
	MUST(sem_init(&map->begin, 1, 0) == 0 && sem_init(&map->end, 1, 0) == 0);
	strcpy(map->text + 150000, "kept");
	int again = dup(fd);
	MUST(lseek(fd, 7, SEEK_SET) == 7);
	if (!is_open)
		MUST(close(fd) == 0 && close(again) == 0);
	pid_t child = fork();
	if (child == 0) {
		MUST(sem_wait(&map->begin) == 0);
		strcpy(map->text, "child");
		MUST(!is_open || lseek(fd, 9, SEEK_SET) == 9);
		MUST(sem_post(&map->end) == 0);
		_exit(strcmp(map->text + 150000, "kept") == 0 ? 0 : 1);
	}
	stay();
	MUST(strcmp(map->text + 150000, "kept") == 0);
	MUST(sem_post(&map->begin) == 0 && sem_wait(&map->end) == 0 && strcmp(map->text, "child") == 0);
	MUST(waitpid(child, &status, 0) == child && status == 0);
	if (is_open) {
		struct stat stat;
		char text[6];
		MUST(fstat(fd, &stat) == 0 && stat.st_size == sizeof *map && (stat.st_mode & 07777) == 0600 && stat.st_nlink == 0);
		MUST(pread(fd, text, 6, map->text - (char *)map) == 6 && strcmp(text, "child") == 0);
		// Where Yama lets no process have descriptors of another one, each has a position of its own.
		char yama = '0';
		int scope = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY);
		MUST(scope < 0 || read(scope, &yama, 1) == 1);
		MUST(lseek(again, 0, SEEK_CUR) == (yama == '0' ? 9 : 7));
		MUST(lseek(fd, 7, SEEK_SET) == 7 && lseek(again, 0, SEEK_CUR) == 7);
		MUST(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(again, F_GETFD) == 0);
	}
}

static void removed_mapping(void) { removed_shared(false, "/removed"); }
static void removed_open(void) { removed_shared(true, "/removed"); }
static void removed_unnamed(void) { removed_shared(true, NULL); }
static void removed_twice(void) { removed_shared(true, "/removed (deleted)"); }
static void removed_newline(void) { removed_shared(true, "/re\nmoved"); }

// Memory that a file keeps whose name here is removed, and which has another one: a semaphore, in the process that sem_open(3) makes it in.
static sem_t *named(const char *name, int flags)
{
	sem_t *semaphore = sem_open(name, flags, 0600, 0);
	MUST(semaphore != SEM_FAILED);
	return semaphore;
}

static void take(sem_t *semaphore)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	MUST(sem_timedwait(semaphore, &until) == 0);
}

static void removed_semaphore(void)
{
	sem_t *begin = named("/begin", O_CREAT | O_EXCL), *end = named("/end", O_CREAT | O_EXCL);
	int status;
	pid_t child = fork();
	if (child == 0) {
		// Opened anew, as by a process that was not forked by the creator.
		MUST(sem_close(begin) == 0 && sem_close(end) == 0);
		begin = named("/begin", 0), end = named("/end", 0);
		MUST(sem_post(end) == 0 && sem_wait(begin) == 0 && sem_post(end) == 0);
		_exit(0);
	}
	take(end);
	stay();
	MUST(sem_post(begin) == 0);
	take(end);
	MUST(waitpid(child, &status, 0) == child && status == 0 && (child = fork()) >= 0);
	if (child == 0) {
		execl("/bin/cases", "cases", "removed-semaphore-later", NULL);
		_exit(1);
	}
	take(end);
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// Who opens it when the checkpoint is over.
static void removed_semaphore_later(void) { MUST(sem_post(named("/end", 0)) == 0); }

// One file with two names, both of which are removed.
static void removed_names(void)
{
	const char *names[] = { "/dev/shm/one", "/dev/shm/other" };
	char *maps[2];
	MUST(close(file_with(names[0], O_EXCL)) == 0 && link(names[0], names[1]) == 0);
	for (int n = 0; n < 2; n++) {
		int fd = open(names[n], O_RDWR);
		maps[n] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		MUST(fd >= 0 && maps[n] != MAP_FAILED && close(fd) == 0);
	}
	MUST(unlink(names[0]) == 0 && unlink(names[1]) == 0);
	stay();
	MUST(maps[0][9] == '9' && maps[1][9] == '9');
	strcpy(maps[0], "new");
	MUST(strcmp(maps[1], "new") == 0);
}

// Its other name is where nobody but the owner of the directory can look.
static void removed_elsewhere(void)
{
	int fd = file_with("/dev/shm/one", O_EXCL);
	MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	MUST(link("/dev/shm/one", "/dev/shm/evil/other") == 0 && unlink("/dev/shm/one") == 0);
	stay();
}

// It was in directories of its own, which are removed, too.
static void removed_below(void)
{
	const char *dirs[] = { "/dev/shm/job", "/dev/shm/job/d", "/dev/shm/job/d/e" };
	for (int n = 0; n < 3; n++)
		MUST(mkdir(dirs[n], 0755) == 0);
	int fd = file_with("/dev/shm/job/d/e/one", O_EXCL);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && close(fd) == 0 && unlink("/dev/shm/job/d/e/one") == 0);
	for (int n = 2; n >= 0; n--)
		MUST(rmdir(dirs[n]) == 0);
	stay();
	MUST(map[9] == '9');
}

// What it has is in a directory of another user's.
static void evil_open(void)
{
	MUST(open("/dev/shm/evil/f/x", O_RDONLY) >= 0);
	stay();
}

static void evil_mapped(void)
{
	int fd = open("/dev/shm/evil/f/x", O_RDONLY);
	MUST(fd >= 0 && mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED && close(fd) == 0);
	stay();
}

// A descriptor of it that no process has, for it is on its way.
static void removed_passed(void)
{
	int fd;
	char *map = removed_memory(4096, &fd, "/removed");
	int from = pass(fd);
	stay();
	char *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, receive(from), 0);
	MUST(again != MAP_FAILED);
	strcpy(map, "new");
	MUST(strcmp(again, "new") == 0);
}

// A child that may map nothing more, for whatever it maps is locked.
static void removed_locked(void)
{
	int fd, status, ends[2];
	char *map = removed_memory(1 << 20, &fd, "/removed"), byte = 'x';
	MUST(close(fd) == 0 && pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		MUST(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ 65536, 65536 }) == 0 && mlockall(MCL_FUTURE) == 0);
		map[1] = 'x';
		MUST(read(ends[0], &byte, 1) == 1);
		_exit(strcmp(map, "new") == 0 ? 0 : 1);
	}
	while (map[1] != 'x')
		nap();
	stay();
	strcpy(map, "new");
	MUST(write(ends[1], &byte, 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
}

// A lock by the name that the file has still.
static void removed_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_len = 1 };
	int status;
	named("/lock", O_CREAT | O_EXCL);
	int fd = open("/dev/shm/sem.lock", O_RDWR);
	MUST(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
	stay();
	pid_t child = fork();
	if (child == 0) {
		MUST(fcntl(fd, F_GETLK, &lock) == 0);
		_exit(lock.l_type == F_WRLCK ? 0 : 1);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// What is said of a descriptor of it.
static void removed_with(int flags)
{
	int fd;
	char path[40];
	removed_memory(4096, &fd, "/removed");
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR | flags), before = fcntl(again, F_GETFL);
	MUST(again >= 0 && (before & flags) == flags);
	stay();
	MUST(fcntl(again, F_GETFL) == before && write(again, "line", 4) == 4);
	MUST(lseek(again, 0, SEEK_CUR) == (flags & O_APPEND ? 4100 : 4));
}

static void removed_flags(void) { removed_with(O_APPEND | O_DSYNC); }
static void removed_signals(void) { removed_with(O_ASYNC); }

// Nobody has it open, and it is shorter than what is mapped.
static void line_of(const void *address, char *line, int size)
{
	char start[40];
	FILE *maps = fopen("/proc/self/maps", "r");
	snprintf(start, sizeof start, "%lx-", (unsigned long)address);
	MUST(maps != NULL);
	do
		MUST(fgets(line, size, maps) != NULL);
	while (strncmp(line, start, strlen(start)) != 0);
	fclose(maps);
}

static void removed_longer(void)
{
	int fd = shm_open("/removed", O_RDWR | O_CREAT | O_EXCL, 0600);
	char before[500], after[500];
	MUST(fd >= 0 && ftruncate(fd, 4096) == 0);
	char *map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && shm_unlink("/removed") == 0 && close(fd) == 0);
	strcpy(map, "kept");
	line_of(map, before, sizeof before);
	stay();
	line_of(map, after, sizeof after);
	MUST(strcmp(map, "kept") == 0 && strcmp(before, after) == 0);
}

// More than its file system has place for, of which two pages are written.
static void removed_sparse_one(bool is_open)
{
	int fd;
	size_t size = 200 << 20;
	char *map = removed_memory(size, &fd, "/removed");
	MUST(is_open || close(fd) == 0);
	strcpy(map, "first"), strcpy(map + size - 4096, "last");
	stay();
	MUST(strcmp(map, "first") == 0 && strcmp(map + size - 4096, "last") == 0);
}

static void removed_sparse(void) { removed_sparse_one(false); }
static void removed_sparse_open(void) { removed_sparse_one(true); }

// All of it is written.
static void removed_heavy(void)
{
	int fd;
	size_t size = 40 << 20;
	char *map = removed_memory(size, &fd, "/removed");
	for (size_t at = 0; at < size; at += 4096)
		memset(map + at, 1 + at / 4096 % 100, 4096);
	stay();
	for (size_t at = 0; at < size; at++)
		MUST(map[at] == (char)(1 + at / 4096 % 100));
}

// All of it is in memory, which takes the kernel a while to free.
static void removed_room(void)
{
	int fd;
	size_t size = (size_t)2 << 30;
	char *map = removed_memory(size, &fd, "/removed");
	MUST(posix_fallocate(fd, 0, size) == 0);
	strcpy(map, "kept");
	stay();
	MUST(strcmp(map, "kept") == 0);
}

// Many of them, in two processes, which say so where they share one no more; the end of one of them is none of that.
static void removed_many(void)
{
	enum { MANY = 10 };
	struct { sem_t begin, end; int number; } *maps[MANY];
	int fd, status;
	for (int n = 0; n < MANY; n++) {
		char name[20];
		snprintf(name, sizeof name, "/removed-%d", n);
		maps[n] = removed_memory(sizeof *maps[n], &fd, name);
		MUST(close(fd) == 0 && sem_init(&maps[n]->begin, 1, 0) == 0 && sem_init(&maps[n]->end, 1, 0) == 0);
	}
	pid_t child = fork();
	if (child == 0) {
		for (int n = 0; n < MANY; n++) {
			while (sem_wait(&maps[n]->begin) != 0)
				MUST(errno == EINTR);
			maps[n]->number = n;
			MUST(sem_post(&maps[n]->end) == 0);
		}
		_exit(0);
	}
	stay();
	for (int n = 0; n < MANY; n++) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 2;
		MUST(sem_post(&maps[n]->begin) == 0);
		if (sem_timedwait(&maps[n]->end, &until) == 0 && maps[n]->number == n)
			continue;
		if (waitpid(child, &status, WNOHANG) == child)
			exit(1);
		fprintf(stderr, "memory %d is not shared any more\n", n);
		kill(child, SIGKILL);
		exit(1);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// What the program does when it gets SIGTRAP stays as it is, whether it blocks it or not.
static void removed_trap(void)
{
	struct sigaction action = { .sa_handler = tick }, now;
	sigset_t signals;
	int fd, status;
	removed_memory(4096, &fd, "/removed");
	MUST(sigaction(SIGTRAP, &action, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		sigemptyset(&signals);
		sigaddset(&signals, SIGTRAP);
		MUST(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
		while (access("/out/go", F_OK) != 0)
			nap();
		MUST(raise(SIGTRAP) == 0 && ticks == 0 && sigprocmask(SIG_UNBLOCK, &signals, NULL) == 0 && ticks == 1);
		_exit(0);
	}
	stay();
	MUST(sigaction(SIGTRAP, NULL, &now) == 0 && now.sa_handler == tick && raise(SIGTRAP) == 0 && ticks == 1);
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// Where a process that has it open finds FIFOs in its own root, in the place of the descriptors of the one that maps it.
static void removed_fifo(void)
{
	int fd, begun[2];
	char name[100], byte, *map = removed_memory(4096, &fd, NULL);
	MUST(pipe(begun) == 0 && munmap(map, 4096) == 0);
	pid_t child = fork();
	if (child == 0) {
		MUST(mkdir("/tmp/root", 0700) == 0 && mkdir("/tmp/root/proc", 0700) == 0);
		snprintf(name, sizeof name, "/tmp/root/proc/%d", getppid());
		MUST(mkdir(name, 0700) == 0);
		snprintf(name, sizeof name, "/tmp/root/proc/%d/fd", getppid());
		MUST(mkdir(name, 0700) == 0);
		for (int n = 0; n < 64; n++) {
			snprintf(name, sizeof name, "/tmp/root/proc/%d/fd/%d", getppid(), n);
			MUST(mkfifo(name, 0600) == 0);
		}
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		int for_reading = open(name, O_RDONLY);
		MUST(for_reading >= 0 && close(fd) == 0 && chroot("/tmp/root") == 0 && write(begun[1], "", 1) == 1);
		for (;;)
			pause();
	}
	MUST(read(begun[0], &byte, 1) == 1 && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	stay();
	MUST(kill(child, 0) == 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

// A file that is called as the kernel's code is.
static void removed_vdso(void)
{
	int fd, file = open("/tmp/[vdso]", O_RDWR | O_CREAT, 0700);
	char *map = removed_memory(4096, &fd, "/removed");
	strcpy(map, "kept");
	MUST(file >= 0 && ftruncate(file, 1 << 21) == 0);
	// Below all else that is mapped.
	MUST(mmap((void *)0x10000, 1 << 21, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0) == (void *)0x10000);
	stay();
	MUST(strcmp(map, "kept") == 0);
}

// A program that answers its system calls itself, as Wine does.
static char dispatches;
static volatile sig_atomic_t dispatched;
static void answer(int number) { (void)number; dispatches = 0; dispatched++; }
static void removed_dispatch(void)
{
	int fd;
	struct sigaction action = { .sa_handler = answer };
	struct stat stat;
	removed_memory(4096, &fd, "/removed");
	MUST(sigaction(SIGSYS, &action, NULL) == 0);
	// PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON: for all code, while the byte is 1.
	MUST(prctl(59, 1, 0, 0, &dispatches) == 0);
	MUST(write(1, "ready\n", 6) == 6);
	do {
		dispatches = 1;
		for (volatile long n = 0; n < 100000000; n++)
			;
		dispatched = 0;
		int there = lstat("/out/go", &stat); // not made, and answered once
		MUST(dispatched == 1);
		there = lstat("/out/go", &stat);
		if (there == 0)
			return;
	} while (true);
}

// What cannot be kept of it: a part, and what a process outside has, too.
static void removed_outside(void)
{
	int fd = open("/dev/shm/outside", O_RDWR);
	MUST(fd >= 0 && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED && unlink("/dev/shm/outside") == 0);
	MUST(close(fd) == 0);
	stay();
}

// Memory of a file that keeps its name, in which one process counts, and nobody else.
static void shared_file(void)
{
	long own = 0;
	int status, fd = shm_open("/named", O_RDWR | O_CREAT | O_EXCL, 0640), held = open("/out/held", O_RDWR | O_CREAT, 0600);
	struct {
		long count, child;
		char text[4 << 20];
	} *map;
	MUST(held >= 0 && fd >= 0 && ftruncate(fd, sizeof *map) == 0);
	MUST((map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED && close(fd) == 0);
	strcpy(map->text + 3000000, "kept");
	pid_t child = fork();
	if (child == 0) {
		until_gone();
		map->child = 7;
		_exit(strcmp(map->text + 3000000, "kept") != 0);
	}
	printf("ready\n");
	fflush(stdout);
	while (access("/out/go", F_OK) != 0) {
		volatile long *count = &map->count;
		MUST(*count == own);
		*count = ++own;
		nap();
	}
	struct stat s;
	MUST(waitpid(child, &status, 0) == child && status == 0 && map->child == 7);
	MUST(stat("/dev/shm/named", &s) == 0 && (s.st_mode & 07777) == 0640 && s.st_size == sizeof *map && s.st_blocks < 1000);
}

// One that is mapped for reading alone is a file as others are.
static void shared_file_to_read(void)
{
	int fd = shm_open("/named", O_RDWR | O_CREAT | O_EXCL, 0600);
	MUST(fd >= 0 && ftruncate(fd, 4096) == 0 && close(fd) == 0 && (fd = shm_open("/named", O_RDONLY, 0)) >= 0);
	char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && close(fd) == 0);
	stay();
	MUST(map[0] == 'x');
}

static void removed_part(void)
{
	int fd;
	char *map = removed_memory(8192, &fd, "/removed");
	MUST(munmap(map, 4096) == 0);
	stay();
}

static void system_v(void)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);
	MUST(id >= 0 && shmat(id, NULL, 0) != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
	stay();
}

static void semaphore(void)
{
	MUST(semget(IPC_PRIVATE, 1, 0600) >= 0);
	stay();
}

static void queue(void)
{
	MUST(mq_open("/queue", O_CREAT | O_RDWR, 0600, NULL) >= 0);
	stay();
}

static void uring(void)
{
	char parameters[256] = { 0 };
	MUST(syscall(SYS_io_uring_setup, 4, parameters) >= 0);
	stay();
}

static void outside(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "/server/server" };
	MUST(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name) == 0);
	stay();
}

// Files of /proc, of the machine and of the process.
static void proc_file(void)
{
	char byte;
	int machine = open("/proc/meminfo", O_RDONLY), own = open("/proc/self/comm", O_RDONLY);
	MUST(machine >= 0 && own >= 0);
	stay();
	MUST(read(machine, &byte, 1) == 1 && byte == 'M' && read(own, &byte, 1) == 1 && byte == 'c');
}

// A file of /proc of its youngest child, which has ended.
static void proc_of_ended(void)
{
	char path[40], byte;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0)
		for_ever(NULL);
	snprintf(path, sizeof path, "/proc/%d/stat", child);
	int fd = open(path, O_RDONLY);
	MUST(fd >= 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	stay();
	MUST(read(fd, &byte, 1) < 0 && errno == ESRCH);
}

// A directory of /proc that no descriptor leads to: the working directory, and one that is on its way through a socket.
static void proc_cwd(void)
{
	MUST(chdir("/proc/sys/kernel") == 0);
	stay();
}

static void proc_passed(void)
{
	int dir = open("/proc/sys", O_RDONLY | O_DIRECTORY);
	MUST(dir >= 0);
	pass(dir);
	stay();
}

// A directory that somebody may replace while this process does not run.
static void directory(void)
{
	MUST(mkdir("/out/d", 0755) == 0 || errno == EEXIST);
	int fd = open("/out/d", O_RDONLY | O_DIRECTORY);
	MUST(fd >= 0);
	stay();
	if (faccessat(fd, "etc/passwd", F_OK, 0) == 0)
		exit(42); // The host's: its standard error may be nobody's.
}

// The same of a directory that is watched, and of one in which a socket has a name that begins in the working directory.
static void directory_watched(void)
{
	char text[4096];
	int fd = inotify_init1(IN_NONBLOCK);
	MUST(mkdir("/out/d", 0755) == 0 && fd >= 0 && inotify_add_watch(fd, "/out/d", IN_CREATE | IN_OPEN) >= 0);
	stay();
	for (int n = 0; n < 50; n++, nap())
		if (read(fd, text, sizeof text) > 0)
			exit(42);
}

static void directory_of_socket(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "d/s" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	MUST(mkdir("/out/d", 0755) == 0 && chdir("/out") == 0 && bind(fd, (void *)&name, sizeof name) == 0 && listen(fd, 1) == 0);
	stay();
}

// Sockets with names: clients find them after a restore, too.
static void named_sockets(void)
{
	struct sockaddr_un names[] = { { AF_UNIX, "/tmp/socket" }, { AF_UNIX, "/out/socket" } };
	int servers[2];
	for (int n = 0; n < 2; n++) {
		servers[n] = socket(AF_UNIX, SOCK_STREAM, 0);
		MUST(bind(servers[n], (void *)&names[n], sizeof names[n]) == 0 && listen(servers[n], 1) == 0);
	}
	stay();
	for (int n = 0; n < 2; n++)
		MUST(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&names[n], sizeof names[n]) == 0 && accept(servers[n], NULL, NULL) >= 0);
}

// A removed file that takes a while to be written, in a file system that others see.
static void removed_large(void)
{
	int fd = file_with("/out/removed", 0);
	MUST(posix_fallocate(fd, 0, 100 << 20) == 0 && unlink("/out/removed") == 0);
	for (int n = 0; n < 100; n++)
		MUST(pwrite(fd, "x", 1, (off_t)n << 20 | 4096) == 1);
	stay();
	struct stat s;
	MUST(fstat(fd, &s) == 0 && s.st_size == 100 << 20 && s.st_nlink == 0);
	five(fd);
}

// A removed file in a directory that was removed behind it.
static void removed_directory(void)
{
	MUST(mkdir("/out/d", 0755) == 0);
	int fd = file_with("/out/d/removed", 0);
	MUST(unlink("/out/d/removed") == 0 && rmdir("/out/d") == 0);
	stay();
	five(fd);
}

// A file that somebody may replace.
static void replaced(void)
{
	const char *names[] = { "/out/x", "/out/y (deleted)", "/out/z" };
	for (int n = 0; n < 3; n++) {
		int fd = open(names[n], O_RDWR | O_CREAT, 0600);
		MUST(fd >= 0 && write(fd, "text", 4) == 4);
	}
	// Of which another name stays.
	MUST(link("/out/z", "/out/second") == 0 && unlink("/out/z") == 0);
	stay();
}

// A file that it reads, which it removes, and one of its own with the name that the kernel shows of the removed one.
static void namesake(void)
{
	int read_one = open("/out/x", O_RDONLY);
	MUST(read_one >= 0 && unlink("/out/x") == 0);
	int own = open("/out/x (deleted)", O_RDWR | O_CREAT | O_EXCL, 0644);
	MUST(own >= 0 && write(own, "mine", 4) == 4);
	stay();
	struct stat s;
	MUST(pwrite(own, "m", 1, 0) == 1 && fstat(own, &s) == 0);
	if (s.st_uid != getuid())
		exit(42);
}

// A file in a file system in memory to which a link leads.
static void linked_memory(void)
{
	int fd = file_with("/var/run/file", O_EXCL);
	struct stat one, other;
	stay();
	five(fd);
	MUST(fstat(fd, &one) == 0 && stat("/run/file", &other) == 0 && one.st_ino == other.st_ino);
}

// Files in memory with two names, by both of which one is open and mapped; a lock by link(2), as over NFS.
static void two_names(void)
{
	const char *names[][2] = { { "/tmp/file", "/tmp/d/other" }, { "/dev/shm/file", "/dev/shm/other" }, { "/tmp/link", "/tmp/d/link" }, { "/tmp/fifo", "/tmp/d/fifo" } };
	char *maps[2], byte;
	int fds[2], both;
	struct stat one, other;
	MUST(mkdir("/tmp/d", 0700) == 0 && mkfifo("/tmp/fifo", 0600) == 0 && symlink("x", "/tmp/link") == 0);
	close(file_with("/tmp/file", O_EXCL)), close(file_with("/dev/shm/file", O_EXCL));
	for (int n = 0; n < 4; n++)
		MUST(link(names[n][0], names[n][1]) == 0);
	for (int n = 0; n < 2; n++) {
		MUST((fds[n] = open(names[0][n], O_RDWR)) >= 0);
		maps[n] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, both = open(names[1][n], O_RDWR), 0);
		MUST(maps[n] != MAP_FAILED && close(both) == 0);
	}
	stay();
	for (int n = 0; n < 4; n++) {
		MUST(lstat(names[n][0], &one) == 0 && lstat(names[n][1], &other) == 0);
		MUST(one.st_ino == other.st_ino && one.st_nlink == 2 && one.st_mode == other.st_mode);
	}
	MUST(pwrite(fds[0], "x", 1, 0) == 1 && pread(fds[1], &byte, 1, 0) == 1 && byte == 'x');
	maps[0][1] = 'y';
	MUST(maps[1][1] == 'y');
}

// An access list (linux/posix_acl_xattr.h) in which the user may read, too; its length is that of `list`.
static const unsigned char *list_of_user(void)
{
	static unsigned char list[44] = { 2 };
	const unsigned char tags[] = { 1, 2, 4, 0x10, 0x20 }, bits[] = { 6, 4, 0, 4, 0 };
	for (int n = 0; n < 5; n++) {
		unsigned char *entry = list + 4 + 8 * n;
		unsigned id = tags[n] == 2 ? getuid() : -1;
		entry[0] = tags[n], entry[2] = bits[n];
		memcpy(entry + 4, &id, 4);
	}
	return list;
}

// What a program writes to files and directories in memory beside their content.
static void attributes(void)
{
	char value[100];
	const unsigned char *list = list_of_user();
	const char *kinds[] = { "system.posix_acl_access", "system.posix_acl_default" };
	close(file_with("/tmp/plain", O_EXCL)), close(file_with("/tmp/file", O_EXCL));
	MUST(mkdir("/tmp/d", 0700) == 0 && close(open("/tmp/d/plain", O_CREAT | O_WRONLY, 0600)) == 0);
	MUST(setxattr("/tmp/file", "user.k", "value", 5, 0) == 0 && setxattr("/tmp/file", "user.\xff", "", 0, 0) == 0);
	MUST(setxattr("/tmp/d", "user.d", "d", 1, 0) == 0 && setxattr("/tmp", "user.tmp", "t", 1, 0) == 0);
	MUST(setxattr("/tmp/file", kinds[0], list, 44, 0) == 0 && setxattr("/tmp/d", kinds[1], list, 44, 0) == 0);
	MUST(chmod("/tmp/file", 0440) == 0);
	stay();
	MUST(getxattr("/tmp/file", "user.k", value, 100) == 5 && memcmp(value, "value", 5) == 0);
	MUST(getxattr("/tmp/file", "user.\xff", value, 100) == 0 && getxattr("/tmp/d", "user.d", value, 100) == 1);
	MUST(getxattr("/tmp", "user.tmp", value, 100) == 1);
	MUST(getxattr("/tmp/d", kinds[1], value, 100) == 44 && memcmp(value, list, 44) == 0);
	MUST(getxattr("/tmp/file", kinds[0], value, 100) == 44 && value[6] == 4 && value[14] == 4 && value[22] == 0);
	MUST(listxattr("/tmp/plain", value, 100) == 0 && listxattr("/tmp/d/plain", value, 100) == 0);
}

// The log that its caller has given it, opened by its name, too.
static void own_log(void)
{
	char path[4096] = "", byte;
	MUST(readlink("/proc/self/fd/1", path, sizeof path - 1) > 0);
	int fd = open(path, O_RDONLY);
	MUST(fd >= 0);
	stay();
	MUST(read(fd, &byte, 1) == 1 && byte == 'r');
}

// A file whose name another one has got.
static void renewed(void)
{
	struct stat s;
	int old = file_with("/out/x", 0);
	MUST(close(open("/out/new", O_CREAT | O_WRONLY, 0644)) == 0 && rename("/out/new", "/out/x") == 0);
	stay();
	five(old);
	MUST(fstat(old, &s) == 0 && s.st_size == 10 && stat("/out/x", &s) == 0 && s.st_size == 0);
}

// A file that is called as the kernel calls memory that is of none.
static void called_memory(void)
{
	int fd = file_with("/memfd:x (deleted)", O_EXCL);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && close(fd) == 0);
	stay();
	MUST(map[0] == '0');
}

// A mapped file whose name the kernel does not show as it is.
static void newline(void)
{
	int fd = file_with("/out/a\nb", 0);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && close(fd) == 0);
	stay();
	MUST(map[0] == '0');
}

// A server outside, to which it sends without a connection.
static void sends_to(struct sockaddr_un name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	MUST(connect(fd, (void *)&name, sizeof name) == 0);
	stay();
	MUST(send(fd, "line", 4, 0) == 4);
}

static void datagrams(void) { sends_to((struct sockaddr_un){ AF_UNIX, "/out/log" }); }

static void datagrams_below(void) { sends_to((struct sockaddr_un){ AF_UNIX, "/out/d/pub/log" }); }

// What is in the container's memory stays its own.
static void fifo(void)
{
	struct stat fifo, link;
	int fd;
	MUST(mkfifo("/tmp/fifo", 0600) == 0 && symlink("fifo", "/tmp/link") == 0 && (fd = open("/tmp/fifo", O_RDWR)) >= 0);
	stay();
	MUST(lstat("/tmp/fifo", &fifo) == 0 && lstat("/tmp/link", &link) == 0 && fifo.st_uid == getuid() && link.st_uid == getuid());
	char byte;
	MUST(write(fd, "f", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'f');
}

// The memory of a child that executes a set-uid program.
static void memory_of_child(void)
{
	int ends[2], status;
	char path[40], byte;
	struct stat s;
	pid_t child;
	MUST(pipe(ends) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		if (read(ends[0], &byte, 1) == 1)
			execl("/bin/set-uid", "cases", "other", NULL);
		_exit(1);
	}
	snprintf(path, sizeof path, "/proc/%d/mem", child);
	MUST(open(path, O_RDWR) >= 0 && write(ends[1], "x", 1) == 1);
	do {
		nap();
		MUST(stat(path, &s) == 0);
	} while (s.st_uid == getuid());
	stay();
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// Rights are given up, and what was open stays open.
static void become_five(void) { MUST(setgid(5) == 0 && setuid(5) == 0); }

// A daemon's log, which root has opened, beside other files in the container's memory.
static void dropped_log(void)
{
	for (int n = 0; n < 9; n++) {
		char name[20];
		snprintf(name, sizeof name, "/tmp/old%d", n);
		MUST(close(open(name, O_RDWR | O_CREAT, 0600)) == 0 && (n % 2 || unlink(name) == 0));
	}
	int fd = open("/tmp/log", O_RDWR | O_CREAT, 0600);
	become_five();
	stay();
	MUST(fd >= 0 && write(fd, "line", 4) == 4 && open("/tmp/log", O_RDONLY) < 0);
}

// A tmpfs that is another user's by now.
static void dropped_place(void)
{
	struct stat s;
	MUST(chown("/tmp", 5, 5) == 0 && chmod("/tmp", 0700) == 0);
	become_five();
	MUST(chdir("/tmp") == 0);
	stay();
	MUST(stat("/tmp", &s) == 0 && s.st_uid == 5 && (s.st_mode & 07777) == 0700 && open("new", O_RDWR | O_CREAT, 0600) >= 0);
}

static int log_of_root(mode_t mode)
{
	int fd = open("/out/log", O_RDWR | O_CREAT, mode);
	MUST(fd >= 0 && write(fd, "own", 4) == 4);
	become_five();
	return fd;
}

static void dropped_file(void)
{
	log_of_root(0600);
	stay();
	exit(42);
}

static void dropped_map(void)
{
	int fd = log_of_root(0644);
	MUST(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED && close(fd) == 0);
	stay();
	exit(42);
}

// As glibc has its list of character sets.
static void mapped_to_read(void)
{
	int fd = open("/out/cache", O_RDONLY);
	char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	MUST(fd >= 0 && mapped != MAP_FAILED && close(fd) == 0);
	stay();
	MUST(strcmp(mapped, "key") == 0);
	MUST(mprotect(mapped, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
}

static void own_memory(void)
{
	char byte;
	int fd = open("/proc/self/mem", O_RDWR);
	MUST(fd >= 0);
	stay();
	MUST(pread(fd, &byte, 1, (long)&byte) == 1);
}

// A directory in another one.
static void below(void)
{
	int fd = open("/out/d/pub/sub", O_RDONLY | O_DIRECTORY);
	MUST(fd >= 0);
	stay();
	if (faccessat(fd, "secret", F_OK, 0) == 0)
		exit(42);
}

// The name of its server is another's by now.
static void datagrams_renamed(void)
{
	struct sockaddr_un name = { AF_UNIX, "/out/log" };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	MUST(connect(fd, (void *)&name, sizeof name) == 0 && rename("/out/log", "/out/old") == 0 && rename("/out/other", "/out/log") == 0);
	stay();
}

// As tail -f does.
static void follow(void)
{
	char line[400];
	int fd = open("/out/log", O_RDWR | O_CREAT | O_APPEND, 0600), watches = inotify_init1(IN_NONBLOCK);
	MUST(fd >= 0 && watches >= 0 && inotify_add_watch(watches, "/out/log", IN_MODIFY) >= 0);
	stay();
	MUST(write(fd, "line", 4) == 4 && read(watches, line, sizeof line) > 0);
}

static void output_twice(void)
{
	MUST(open("/proc/self/fd/1", O_RDWR) >= 0);
	stay();
}

static void removed_run(void)
{
	char path[10];
	MUST(mkdir("/out/run", 0755) == 0 && chdir("/out/run") == 0 && rmdir("/out/run") == 0);
	stay();
	MUST(getcwd(path, sizeof path) == NULL);
}

static void removed_both(void)
{
	int fd;
	MUST(mkdir("/out/run", 0755) == 0 && chdir("/out/run") == 0 && (fd = open("log", O_RDWR | O_CREAT, 0600)) >= 0);
	MUST(unlink("log") == 0 && rmdir("/out/run") == 0);
	stay();
	MUST(write(fd, "line", 4) == 4);
}

static void removed_long(void)
{
	char name[256];
	memset(name, 'n', 250);
	name[250] = 0;
	MUST(chdir("/out") == 0 && open(name, O_RDWR | O_CREAT, 0600) >= 0 && unlink(name) == 0);
	stay();
}

static cpu_set_t processors(void)
{
	cpu_set_t set;
	MUST(sched_getaffinity(0, sizeof set, &set) == 0);
	return set;
}

// Has this thread run on one processor.
static cpu_set_t choose_one(void)
{
	cpu_set_t set = processors();
	for (int n = CPU_COUNT(&set) - 1, cpu = 0; n > 0; cpu++)
		if (CPU_ISSET(cpu, &set)) {
			CPU_CLR(cpu, &set);
			n--;
		}
	MUST(sched_setaffinity(0, sizeof set, &set) == 0);
	return set;
}

// A thread that has chosen its processor.
static void *on_one_processor(void *result)
{
	cpu_set_t set = choose_one(), now;
	*(int *)result = 1;
	struct stat s;
	while (stat("/out/go", &s) != 0)
		nap();
	now = processors();
	MUST(CPU_EQUAL(&set, &now));
	return NULL;
}

// The first thread, which the others are started by.
static void pinned_first(void)
{
	cpu_set_t set = choose_one(), now;
	stay();
	now = processors();
	MUST(CPU_EQUAL(&set, &now));
}

static void pinned(void)
{
	pthread_t thread;
	volatile int is_pinned = 0;
	MUST(pthread_create(&thread, NULL, on_one_processor, (void *)&is_pinned) == 0);
	while (!is_pinned)
		nap();
	stay();
	MUST(pthread_join(thread, NULL) == 0);
}

// Descriptors and a directory that one thread has alone.
static void *apart(void *unused)
{
	MUST(unshare(CLONE_FILES | CLONE_FS) == 0 && chdir("/out") == 0);
	for (;;)
		nap();
	return unused;
}

static void thread_apart(void)
{
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, apart, NULL) == 0);
	nap();
	stay();
}

static void *stays(void *unused)
{
	stay();
	exit(0);
	return unused;
}

static int told[2];

static void *tells(void *unused)
{
	stay();
	MUST(write(told[1], "1", 1) == 1);
	return unused;
}

// Who has no signal handlers expects no EINTR.
static void polls(void)
{
	pthread_t thread;
	MUST(pipe(told) == 0 && pthread_create(&thread, NULL, tells, NULL) == 0);
	struct pollfd from = { told[0], POLLIN, 0 };
	MUST(poll(&from, 1, -1) == 1 && from.revents == POLLIN);
}

// A call that a signal ends which waits for the program when it is stopped.
static void poll_signalled(void)
{
	struct sigaction action = { .sa_handler = tick };
	MUST(sigaction(SIGUSR2, &action, NULL) == 0);
	printf("ready\n");
	fflush(stdout);
	MUST(poll(NULL, 0, 15000) == -1 && errno == EINTR && ticks == 1);
}

// Calls that wait for SECONDS, and that nothing ends before.
#define SECONDS 5

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void waits_poll(void) { MUST(poll(NULL, 0, SECONDS * 1000) == 0); }
static void waits_nanosleep(void) { MUST(syscall(SYS_nanosleep, &(struct timespec){ SECONDS, 0 }, NULL) == 0); }

static void waits_sleep(void) // as sleep(3)
{
	struct timespec both = { SECONDS, 0 };
	MUST(clock_nanosleep(CLOCK_REALTIME, 0, &both, &both) == 0);
}

static void waits_rest(void)
{
	struct timespec time = { SECONDS, 0 }, rest = { 1000, 0 };
	MUST(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &rest) == 0 && time.tv_sec == SECONDS);
}

static void waits_semaphore(void)
{
	sem_t semaphore;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += SECONDS;
	MUST(sem_init(&semaphore, 0, 0) == 0 && sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
}

static void waits_futex(void)
{
	int word = 0;
	MUST(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){ SECONDS, 0 }, NULL, 0) == -1 && errno == ETIMEDOUT);
}

static void waits_epoll(void)
{
	struct epoll_event got;
	MUST(epoll_wait(epoll_create1(EPOLL_CLOEXEC), &got, 1, SECONDS * 1000) == 0);
}

static void waits_epoll_masked(void)
{
	struct epoll_event got;
	sigset_t before, during;
	sigemptyset(&during);
	sigaddset(&during, SIGUSR1);
	MUST(epoll_pwait(epoll_create1(EPOLL_CLOEXEC), &got, 1, SECONDS * 1000, &during) == 0);
	MUST(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1) == 0);
}

static void waits_signal(void)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR2);
	MUST(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
	MUST(sigtimedwait(&signals, NULL, &(struct timespec){ SECONDS, 0 }) == -1 && errno == EAGAIN);
}

// Sockets with a time limit, of which the kernel says EINTR where it makes the calls of others anew.
static int limited(void)
{
	int pair[2];
	struct timeval limit = { SECONDS, 0 };
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	MUST(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	return pair[0];
}

static void waits_read(void)
{
	char byte;
	MUST(read(limited(), &byte, 1) == -1 && errno == EAGAIN);
}

static void waits_receive(void)
{
	char byte;
	MUST(recv(limited(), &byte, 1, 0) == -1 && errno == EAGAIN);
}

static void waits_message(void)
{
	char byte;
	struct iovec part = { &byte, 1 };
	MUST(recvmsg(limited(), &(struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 }, 0) == -1 && errno == EAGAIN);
}

#ifdef __x86_64__
// Compilers count on arguments that are in their registers after a call.
static void waits_registers(void)
{
	struct timespec time = { SECONDS, 0 }, rest = { 1000, 0 }, *first = &time, *second = &rest;
	long returned;
	asm volatile("mov %3, %%eax; syscall" : "=&a"(returned), "+D"(first), "+S"(second) : "i"(SYS_nanosleep) : "rcx", "r11", "memory");
	MUST(returned == 0 && first == &time && second == &rest && time.tv_sec == SECONDS);
}
#else
#define waits_registers waits_nanosleep
#endif

static void *waits(void *wait)
{
	double begin = now();
	((void (*)(void))wait)();
	MUST(now() - begin > SECONDS - 0.1);
	return NULL;
}

static void begin_all(pthread_t *threads, void (*all[])(void), size_t many)
{
	for (size_t n = 0; n < many; n++)
		MUST(pthread_create(&threads[n], NULL, waits, all[n]) == 0);
}

static void end_all(const pthread_t *threads, size_t many)
{
	for (size_t n = 0; n < many; n++)
		MUST(pthread_join(threads[n], NULL) == 0);
}

// Who has no signal handlers expects no EINTR of any of them, in the first thread, in others, and in a child.
static void calls(void)
{
	void (*all[])(void) = { waits_nanosleep, waits_sleep, waits_rest, waits_semaphore, waits_futex, waits_epoll, waits_epoll_masked,
		waits_signal, waits_read, waits_receive, waits_message, waits_registers, waits_poll };
	enum { MANY = sizeof all / sizeof *all };
	pthread_t threads[MANY];
	int status;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		waits(waits_epoll);
		_exit(0);
	}
	begin_all(threads, all, MANY);
	for (int n = 0; n < 30; n++)
		nap();
	polls();
	end_all(threads, MANY);
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// Calls that have been stopped before, as by rt pause, a terminal's ^Z or a debugger: the kernel goes on with them by restart_syscall(2).
static void calls_stopped(void)
{
	void (*all[])(void) = { waits_sleep, waits_rest, waits_registers, waits_poll };
	enum { MANY = sizeof all / sizeof *all };
	pthread_t threads[MANY];
	int status;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		begin_all(threads, all, MANY);
		end_all(threads, MANY);
		_exit(0);
	}
	for (int n = 0; n < 30; n++)
		nap();
	MUST(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	nap();
	MUST(kill(child, SIGCONT) == 0);
	for (int n = 0; n < 30; n++)
		nap();
	stay();
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

// With a socket by whose name a checkpoint is refused when criu has written everything.
static void calls_refused(void)
{
	bind_through_link();
	calls();
}

// With memory of a removed file that is not kept, as is seen when all is stopped.
static void calls_not_kept(void)
{
	int fd;
	char *map = removed_memory(8192, &fd, "/removed");
	MUST(munmap(map, 4096) == 0);
	calls();
}

static void first_thread_ended(void)
{
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, stays, NULL) == 0);
	pthread_exit(NULL);
}

// A timer continues this process, whoever has stopped it: then what is read-only in the container has to be that already.
static void continued(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT };
	struct itimerspec often = { { 0, 500000 }, { 0, 500000 } };
	struct stat s;
	timer_t timer;
	MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
	printf("ready\n");
	fflush(stdout);
	while (stat("/out/go", &s) != 0 || s.st_size == 0)
		if (open("/proc/sys/kernel/core_pattern", O_WRONLY) >= 0)
			exit(42);
}

// As many megabytes of its own as the environment says, each page another one.
static void large(void)
{
	size_t size = (size_t)atoi(getenv("MEGABYTES")) << 20;
	char *memory = malloc(size);
	MUST(memory != NULL);
	for (size_t at = 0; at < size; at += sizeof at)
		memcpy(memory + at, &at, sizeof at);
	stay();
	for (size_t at = 0; at < size; at += sizeof at)
		MUST(memcmp(memory + at, &at, sizeof at) == 0);
}

// Parents that look whether their children stop: by a signal, as script(1), or by waitid(2), as shells. One of them has still to be told
// of a child that has ended.
static void waits_for_child(void)
{
	siginfo_t info = { 0 };
	pid_t child = fork();
	if (child == 0) {
		until_gone();
		_exit(0);
	}
	MUST(waitid(P_PID, child, &info, WSTOPPED | WEXITED) == 0 && info.si_code == CLD_EXITED);
	_exit(0);
}

static void was_told(const sigset_t *signals)
{
	siginfo_t info = { 0 };
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	if (fork() == 0) {
		until_gone();
		_exit(0);
	}
	until_gone();
	MUST(sigtimedwait(signals, &info, &(struct timespec){ 0 }) == SIGCHLD && info.si_code == CLD_EXITED && info.si_pid == child);
	_exit(0);
}

// The handler of many a book, which waits for a child each time that it is told of one.
static void reaps(int number)
{
	(void)number;
	while (wait(NULL) > 0)
		ticks++;
}

static void told_by_handler(void)
{
	struct sigaction action = { .sa_handler = reaps, .sa_flags = SA_RESTART };
	MUST(sigaction(SIGCHLD, &action, NULL) == 0);
	if (fork() == 0) {
		until_gone();
		for (int n = 0; n < 50; n++)
			nap();
		_exit(0);
	}
	stay();
	MUST(ticks == 0);
}

static void stops_of_children(void)
{
	sigset_t signals;
	struct signalfd_siginfo info;
	struct stat s;
	bool goes = false;
	int status;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	MUST(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
	int fd = signalfd(-1, &signals, SFD_NONBLOCK);
	pid_t waits = fork();
	if (waits == 0)
		waits_for_child();
	pid_t told = fork();
	if (told == 0)
		was_told(&signals);
	nap();
	printf("ready\n");
	fflush(stdout);
	for (int rounds = 0; rounds < 20; rounds += goes) {
		goes = goes || stat("/out/go", &s) == 0;
		MUST(read(fd, &info, sizeof info) != sizeof info || info.ssi_code != CLD_STOPPED);
		nap();
	}
	MUST(waitpid(waits, &status, 0) == waits && status == 0);
	MUST(waitpid(told, &status, 0) == told && status == 0);
}

// Ends when it goes on: what runs without a pause has waited for nothing before.
static void ends_then(void)
{
	struct rusage before, now;
	printf("ready\n");
	fflush(stdout);
	getrusage(RUSAGE_SELF, &before);
	do
		getrusage(RUSAGE_SELF, &now);
	while (now.ru_nvcsw == before.ru_nvcsw);
	_exit(0);
}

// Programs that have a handler for the signal that continues them, or wait for it: nobody sends it.
static void *pauses(void *none)
{
	for (;;)
		pause();
	return none;
}

static void continues(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	sigset_t signals;
	siginfo_t info;
	pthread_t thread;
	int fds[2], status;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCONT);
	MUST(sigaction(SIGCONT, &action, NULL) == 0 && pipe(fds) == 0);
	pid_t polls = fork();
	if (polls == 0) {
		struct pollfd from = { fds[0], POLLIN, 0 };
		MUST(poll(&from, 1, -1) == 1 && ticks == 0);
		_exit(0);
	}
	pid_t blocks = fork();
	if (blocks == 0) {
		MUST(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
		until_gone();
		MUST(sigtimedwait(&signals, &info, &(struct timespec){ 0 }) == -1 && errno == EAGAIN);
		_exit(0);
	}
	MUST(pthread_create(&thread, NULL, pauses, NULL) == 0);
	stay();
	MUST(ticks == 0 && write(fds[1], "", 1) == 1);
	MUST(waitpid(polls, &status, 0) == polls && status == 0);
	MUST(waitpid(blocks, &status, 0) == blocks && status == 0);
	MUST(kill(getpid(), SIGCONT) == 0);
	for (int n = 0; n < 100 && ticks == 0; n++)
		nap();
	MUST(ticks == 1);
}

static void stopped(void)
{
	if (fork() == 0) {
		raise(SIGSTOP);
		_exit(0);
	}
	nap();
	stay();
}

static const struct {
	const char *name;
	void (*run)(void);
} all[] = {
	{ "tree", tree }, { "busy", busy }, { "ended", ended }, { "threads", threads }, { "files", files }, { "removed", removed }, { "events", events },
	{ "timers", timers }, { "memory-files", memory_files }, { "locks", locks }, { "watch", watch }, { "watch-tree", watch_tree }, { "watch-mounts", watch_mounts }, { "watch-deep", watch_deep }, { "sockets", sockets }, { "named-socket", named_socket },
	{ "connection", connection }, { "count", count }, { "answers", answers }, { "filter", filter }, { "memfd-twice", memfd_twice }, { "memfd-in-parts", memfd_in_parts },
	{ "memfd-sealed", memfd_sealed }, { "memfd-sealed-later", memfd_sealed_later }, { "shared-rest", shared_rest }, { "unread-tick", unread_tick },
	{ "removed-mapping", removed_mapping }, { "removed-open", removed_open }, { "removed-unnamed", removed_unnamed }, { "removed-twice", removed_twice }, { "removed-newline", removed_newline }, { "removed-part", removed_part }, { "copied-up", copied_up }, { "removed-fifo", removed_fifo }, { "removed-vdso", removed_vdso }, { "removed-dispatch", removed_dispatch }, { "removed-outside", removed_outside },
	{ "removed-semaphore", removed_semaphore }, { "removed-semaphore-later", removed_semaphore_later }, { "removed-names", removed_names },
	{ "removed-elsewhere", removed_elsewhere }, { "removed-below", removed_below }, { "evil-mapped", evil_mapped }, { "evil-open", evil_open }, { "removed-passed", removed_passed }, { "removed-locked", removed_locked }, { "removed-flags", removed_flags }, { "removed-lock", removed_lock }, { "removed-signals", removed_signals },
	{ "removed-longer", removed_longer }, { "removed-sparse", removed_sparse }, { "removed-sparse-open", removed_sparse_open }, { "removed-many", removed_many }, { "removed-heavy", removed_heavy }, { "removed-room", removed_room },
	{ "shared-file", shared_file }, { "shared-file-to-read", shared_file_to_read },
	{ "system-v", system_v }, { "semaphore", semaphore }, { "queue", queue }, { "uring", uring },
	{ "outside", outside }, { "other", stay }, { "stopped", stopped }, { "stops-of-children", stops_of_children }, { "told-by-handler", told_by_handler }, { "ends-then", ends_then }, { "continues", continues }, { "large", large }, { "proc-cwd", proc_cwd }, { "proc-file", proc_file },
	{ "proc-passed", proc_passed }, { "directory", directory }, { "directory-watched", directory_watched }, { "replaced", replaced },
	{ "thread-apart", thread_apart }, { "first-thread-ended", first_thread_ended }, { "pinned", pinned },
	{ "directory-of-socket", directory_of_socket }, { "continued", continued }, { "named-sockets", named_sockets },
	{ "removed-directory", removed_directory }, { "removed-large", removed_large },
	{ "namesake", namesake }, { "renewed", renewed }, { "called-memory", called_memory }, { "datagrams", datagrams }, { "fifo", fifo },
	{ "memory-of-child", memory_of_child }, { "dropped-log", dropped_log }, { "dropped-place", dropped_place },
	{ "dropped-file", dropped_file }, { "dropped-map", dropped_map }, { "mapped-to-read", mapped_to_read }, { "own-memory", own_memory }, { "below", below },
	{ "datagrams-renamed", datagrams_renamed }, { "follow", follow }, { "output-twice", output_twice },
	{ "removed-run", removed_run }, { "removed-both", removed_both }, { "removed-long", removed_long },
	{ "proc-of-ended", proc_of_ended }, { "newline", newline }, { "pinned-first", pinned_first },
	{ "linked-memory", linked_memory }, { "polls", polls }, { "poll-signalled", poll_signalled }, { "calls", calls }, { "calls-refused", calls_refused }, { "calls-not-kept", calls_not_kept }, { "calls-stopped", calls_stopped }, { "removed-trap", removed_trap }, { "ended-last", ended_last }, { "ended-session", ended_session }, { "datagrams-below", datagrams_below }, { "own-log", own_log },
	{ "two-names", two_names }, { "attributes", attributes },
};

int main(int count, char **words)
{
	for (size_t n = 0; count > 1 && n < sizeof all / sizeof *all; n++)
		if (strcmp(words[1], all[n].name) == 0) {
			all[n].run();
			return 0;
		}
	int skipped;
	if (count > 1 && sscanf(words[1], "number-%d", &skipped) == 1) {
		number(skipped);
		return 0;
	}
	fprintf(stderr, "usage: cases NAME\n");
	return 2;
}
