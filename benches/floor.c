/*
 * The floor: what the kernel alone costs.
 *
 * The same namespaces, mounts and process settings as the bundle of `runc spec --rootless` asks for,
 * made mount by mount by the fewest and cheapest system calls known, with no JSON, no state, no checks and no libc.
 * (rt does not mount the cgroup tree a second time, which comes with /sys.)
 *
 *   floor run     ROOTFS PROGRAM   pid, ipc, uts, mount and user namespaces; returns the exit code
 *   floor fork    ROOTFS PROGRAM   the same by a plain fork-like clone
 *   floor newapi  ROOTFS PROGRAM   the same by fsopen, open_tree and move_mount
 *   floor inplace ROOTFS PROGRAM   mount and user namespaces only; becomes PROGRAM by exec
 *   floor exec    PID PROGRAM      joins all namespaces of PID
 *   floor join    PID PROGRAM      joins the user and mount namespaces of PID; becomes PROGRAM by exec
 *   floor enter   PID PROGRAM      the same with the config's process settings
 *   floor spawn   PROGRAM          no container at all: clone, exec, wait
 *
 * Built by benches/run with: gcc -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie
 */
#define _GNU_SOURCE
#include <asm/signal.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/wait.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MNT_DETACH 2
#define NEW_ALL (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)
#define KEPT (1u << 29 | 1u << 10 | 1u << 5) /* CAP_AUDIT_WRITE, CAP_NET_BIND_SERVICE, CAP_KILL */
#define NO_SUID_EXEC_DEV (MS_NOSUID | MS_NOEXEC | MS_NODEV)

static char **env;

static long sys(long n, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
	__asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return n;
}
#define SYS(n, a, b, c, d, e) sys(SYS_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

static size_t length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

/* Ends with 200 and a line that names the call and the errno. */
static long check(long result, const char *call)
{
	if (result >= 0)
		return result;
	char number[8] = ": 000\n";
	number[2] += -result / 100, number[3] += -result / 10 % 10, number[4] += -result % 10;
	SYS(write, 2, "floor: ", 7, 0, 0);
	SYS(write, 2, call, length(call), 0, 0);
	SYS(write, 2, number, 6, 0, 0);
	SYS(exit_group, 200, 0, 0, 0, 0);
	__builtin_unreachable();
}
#define DO(n, a, b, c, d, e) check(SYS(n, a, b, c, d, e), #n " " #a " " #b)

static void mount(const char *source, const char *target, const char *type, long flags, const char *data)
{
	check(SYS(mount, source, target, type, flags, data), target);
}

static void write_file(const char *path, const char *text, size_t size)
{
	long fd = check(SYS(open, path, O_WRONLY | O_CLOEXEC, 0, 0, 0), path);
	check(SYS(write, fd, text, size, 0, 0), path);
	/* left open: exec closes it for less than close(2) costs */
}

static void write_map(const char *path, unsigned id)
{
	char line[] = "0           1", *p = line + 11;
	do
		*--p = '0' + id % 10;
	while (id /= 10);
	write_file(path, line, sizeof line - 1);
}

/* Maps container id 0 to the caller. The ids are the caller's: the child may not see them yet. */
static void map_ids(unsigned uid, unsigned gid)
{
	write_file("/proc/self/setgroups", "deny", 4);
	write_map("/proc/self/uid_map", uid);
	write_map("/proc/self/gid_map", gid);
}

static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty" };
static const char *const readonly[] = { "proc/bus", "proc/fs", "proc/irq", "proc/sys" };

static void fill_dev(void)
{
	DO(mkdir, "dev/pts", 0755, 0, 0, 0);
	DO(mkdir, "dev/shm", 0755, 0, 0, 0);
	DO(mkdir, "dev/mqueue", 0755, 0, 0, 0);
	DO(symlink, "pts/ptmx", "dev/ptmx", 0, 0, 0);
	DO(symlink, "/proc/self/fd", "dev/fd", 0, 0, 0);
	DO(symlink, "/proc/self/fd/0", "dev/stdin", 0, 0, 0);
	DO(symlink, "/proc/self/fd/1", "dev/stdout", 0, 0, 0);
	DO(symlink, "/proc/self/fd/2", "dev/stderr", 0, 0, 0);
	for (int i = 0; i < 6; i++)
		DO(mknod, devices[i] + 1, S_IFREG | 0644, 0, 0, 0);
}

static void enter_root(void)
{
	DO(pivot_root, ".", ".", 0, 0, 0);
	DO(umount2, ".", MNT_DETACH, 0, 0, 0);
	/* the working directory is the new root already: "." was it before the pivot */
}

/* The mounts by mount(2). `own` says whether the pid and ipc namespaces are the container's own. */
static void mount_old(const char *rootfs, int own)
{
	/* no MS_SLAVE of "/": a mount namespace made together with its user namespace is all slaves */
	mount(rootfs, rootfs, NULL, MS_BIND | MS_REC, NULL);
	DO(chdir, rootfs, 0, 0, 0, 0);
	if (own)
		mount("proc", "proc", "proc", 0, NULL);
	else
		mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL);
	mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_STRICTATIME, "mode=755,size=65536k");
	fill_dev();
	mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
	mount("shm", "dev/shm", "tmpfs", NO_SUID_EXEC_DEV, "mode=1777,size=65536k");
	if (own)
		mount("mqueue", "dev/mqueue", "mqueue", NO_SUID_EXEC_DEV, NULL);
	mount("/sys", "sys", NULL, MS_BIND | MS_REC, NULL);
	mount(NULL, "sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | NO_SUID_EXEC_DEV, NULL);
	mount("/sys/fs/cgroup", "sys/fs/cgroup", NULL, MS_BIND | MS_REC, NULL);
	mount(NULL, "sys/fs/cgroup", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | NO_SUID_EXEC_DEV, NULL);
	for (int i = 0; i < 6; i++)
		mount(devices[i], devices[i] + 1, NULL, MS_BIND, NULL);
	for (int i = 0; i < 4; i++) {
		mount(readonly[i], readonly[i], NULL, MS_BIND | MS_REC, NULL);
		mount(NULL, readonly[i], NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | (own ? 0 : NO_SUID_EXEC_DEV), NULL);
	}
	mount("tmpfs", "proc/acpi", "tmpfs", MS_RDONLY, "size=0k");
	mount("proc/acpi", "sys/firmware", NULL, MS_BIND, NULL);
	mount("dev/null", "proc/keys", NULL, MS_BIND, NULL);
	mount("dev/null", "proc/timer_list", NULL, MS_BIND, NULL);
	mount(NULL, ".", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
	enter_root();
}

static long file_system(const char *type, const char *const *options, long attributes)
{
	long fs = DO(fsopen, type, FSOPEN_CLOEXEC, 0, 0, 0);
	for (; options && *options; options += 2)
		DO(fsconfig, fs, FSCONFIG_SET_STRING, options[0], options[1], 0);
	DO(fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0);
	return DO(fsmount, fs, FSMOUNT_CLOEXEC, attributes, 0, 0);
}

static long tree(long dir, const char *path, long flags)
{
	return check(SYS(open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags, 0, 0), path);
}

static void attributes(long fd, unsigned long long set)
{
	struct mount_attr attr = { .attr_set = set };
	DO(mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof attr);
}

static void move(long fd, long dir, const char *path)
{
	check(SYS(move_mount, fd, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH), path);
}

/* The mounts by the mount API of Linux 5.2 and 5.12. */
static void mount_new(const char *rootfs)
{
	static const char *const dev_options[] = { "mode", "755", "size", "65536k", NULL };
	static const char *const pts_options[] = { "ptmxmode", "0666", "mode", "0620", NULL };
	static const char *const shm_options[] = { "mode", "1777", "size", "65536k", NULL };
	static const char *const mask_options[] = { "size", "0", NULL };
	long secure = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NODEV;

	long root = tree(AT_FDCWD, rootfs, AT_RECURSIVE);
	move(root, AT_FDCWD, rootfs);
	DO(fchdir, root, 0, 0, 0, 0);
	long proc = file_system("proc", NULL, 0);
	move(proc, root, "proc");
	long dev = file_system("tmpfs", dev_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_STRICTATIME);
	move(dev, root, "dev");
	fill_dev();
	move(file_system("devpts", pts_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC), dev, "pts");
	move(file_system("tmpfs", shm_options, secure), dev, "shm");
	move(file_system("mqueue", NULL, secure), dev, "mqueue");
	long sysfs = tree(AT_FDCWD, "/sys", AT_RECURSIVE);
	attributes(sysfs, MOUNT_ATTR_RDONLY | secure);
	move(sysfs, root, "sys");
	long cgroup = tree(AT_FDCWD, "/sys/fs/cgroup", AT_RECURSIVE);
	attributes(cgroup, MOUNT_ATTR_RDONLY | secure);
	move(cgroup, sysfs, "fs/cgroup");
	for (int i = 0; i < 6; i++)
		move(tree(AT_FDCWD, devices[i], 0), dev, devices[i] + 5);
	for (int i = 0; i < 4; i++) {
		long fd = tree(root, readonly[i], AT_RECURSIVE);
		attributes(fd, MOUNT_ATTR_RDONLY);
		move(fd, root, readonly[i]);
	}
	long mask = file_system("tmpfs", mask_options, MOUNT_ATTR_RDONLY);
	move(tree(mask, "", AT_EMPTY_PATH), sysfs, "firmware");
	move(mask, proc, "acpi");
	move(tree(dev, "null", 0), proc, "keys");
	move(tree(dev, "null", 0), proc, "timer_list");
	attributes(root, MOUNT_ATTR_RDONLY);
	enter_root();
}

/* Resource limit, capabilities and no_new_privs, then the program. */
static void become(const char *program)
{
	struct rlimit64 limit = { 1024, 1024 };
	DO(prlimit64, 0, RLIMIT_NOFILE, &limit, 0, 0);
	for (int cap = 0; cap <= 40; cap++)
		if (cap > 31 || !(KEPT & 1u << cap))
			DO(prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { KEPT, KEPT, KEPT } };
	DO(capset, &header, data, 0, 0, 0);
	DO(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 5, 0, 0);
	DO(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 10, 0, 0);
	DO(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 29, 0, 0);
	DO(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	const char *argv[] = { program, NULL };
	DO(execve, program, argv, env, 0, 0);
}

static char stack[16384] __attribute__((aligned(16)));

static struct job {
	void (*container)(struct job *);
	const char *rootfs, *program;
	unsigned uid, gid;
	int new_api;
} job;

static void contain(struct job *j)
{
	map_ids(j->uid, j->gid);
	DO(sethostname, "runc", 4, 0, 0, 0);
	if (j->new_api)
		mount_new(j->rootfs);
	else
		mount_old(j->rootfs, 1);
	become(j->program);
}

static void enter(struct job *j)
{
	become(j->program);
}

static void only_exec(struct job *j)
{
	const char *argv[] = { j->program, NULL };
	DO(execve, j->program, argv, env, 0, 0);
}

/* clone(2) with memory shared and an own stack: no page table is copied, no page faults follow. */
static long clone_vm(long flags)
{
	long *top = (long *)(stack + sizeof stack) - 1;
	*top = (long)&job;
	register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "pop %%rdi\n\t"
			 "call *(%%rdi)\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "D"(flags | CLONE_VM | SIGCHLD), "S"(top), "d"(0), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return check(result, "clone");
}

static int wait_for(long pid)
{
	int status = 0;
	DO(wait4, pid, &status, 0, 0, 0);
	return status & 0x7f ? 128 + (status & 0x7f) : status >> 8 & 0xff;
}

static int equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

__attribute__((used)) int start(long *args)
{
	char **argv = (char **)(args + 1);
	const char *mode = args[0] > 2 ? argv[1] : "";
	env = argv + args[0] + 1;
	job = (struct job){ contain, argv[2], argv[3], 0, 0, equal(mode, "newapi") };
	if (equal(mode, "spawn")) {
		job.container = only_exec, job.program = argv[2];
		return wait_for(clone_vm(0));
	}
	if (args[0] != 4)
		check(-22, "usage: floor run|fork|newapi|inplace ROOTFS PROGRAM | exec|join|enter PID PROGRAM | spawn PROGRAM");
	if (equal(mode, "exec") || equal(mode, "join") || equal(mode, "enter")) {
		long pid = 0;
		for (const char *p = argv[2]; *p; p++)
			pid = pid * 10 + *p - '0';
		long fd = DO(pidfd_open, pid, 0, 0, 0, 0);
		if (!equal(mode, "exec")) {
			DO(setns, fd, CLONE_NEWUSER | CLONE_NEWNS, 0, 0, 0);
			if (equal(mode, "enter"))
				become(job.program);
			only_exec(&job);
		}
		DO(setns, fd, NEW_ALL, 0, 0, 0);
		job.container = enter;
		return wait_for(clone_vm(0));
	}
	job.uid = SYS(getuid, 0, 0, 0, 0, 0), job.gid = SYS(getgid, 0, 0, 0, 0, 0);
	if (equal(mode, "inplace")) {
		DO(unshare, CLONE_NEWUSER | CLONE_NEWNS, 0, 0, 0, 0);
		map_ids(job.uid, job.gid);
		mount_old(job.rootfs, 0);
		become(job.program);
	}
	if (equal(mode, "fork")) {
		long pid = DO(clone, NEW_ALL | SIGCHLD, 0, 0, 0, 0);
		if (!pid)
			contain(&job);
		return wait_for(pid);
	}
	return wait_for(clone_vm(NEW_ALL));
}

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n\t"
	"mov %eax, %edi\n\tmov $231, %eax\n\tsyscall\n");
