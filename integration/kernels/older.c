// Executes a command on a kernel that seems to be older: calls that came later do not exist there (ENOSYS), nor do later
// flags of those that it has. This shows that rt can do without them. It does not show faults that an old kernel had.
// usage: older VERSION COMMAND...   (VERSION: 5.14, 5.10, or 4.18 with what RHEL 8 added; root, since no_new_privs stays as it is)
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DATA(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
// Next instruction where it is equal, else over `skip` instructions.
#define ONLY(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define ANY_OF(bits, skip) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, skip)
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
// Flags of a call of which a bit is set: EINVAL.
#define FLAGS(call, argument, bits) \
	DATA(nr), ONLY(call, 3), DATA(args[argument]), ANY_OF(bits, 1), FAIL(EINVAL)

int main(int argc, char **argv) {
	// The number of the last call. From 424 on it is the same on every machine.
	unsigned last = argc < 3 ? 0 : !strcmp(argv[1], "5.14") ? 447 : !strcmp(argv[1], "5.10") ? 440 : !strcmp(argv[1], "4.18") ? 436 : 0;
	if (!last) {
		fprintf(stderr, "usage: older 5.14|5.10|4.18 COMMAND...\n");
		return 2;
	}
	// RHEL 8 has the calls for mounts (428 to 433) and close_range (436), not pidfd_open (434) and clone3 (435).
	unsigned pidfd_open = last == 436 ? SYS_pidfd_open : ~0u, clone3 = last == 436 ? SYS_clone3 : ~0u;
	struct sock_filter filter[] = {
		DATA(nr),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 0, 1),
		FAIL(ENOSYS),
		ONLY(pidfd_open, 1),
		FAIL(ENOSYS),
		ONLY(clone3, 1),
		FAIL(ENOSYS),
		FLAGS(SYS_move_mount, 4, 0xffffff00),     // MOVE_MOUNT_SET_GROUP: 5.15, MOVE_MOUNT_BENEATH: 6.5
		FLAGS(SYS_pidfd_open, 1, 0x80),           // PIDFD_THREAD: 6.9
		FLAGS(SYS_pidfd_send_signal, 3, ~0u),     // 6.9
		FLAGS(SYS_memfd_create, 1, 0x18),         // MFD_NOEXEC_SEAL, MFD_EXEC: 6.3
		DATA(nr),                                 // ioctl of the file systems of pidfds and namespaces: 6.9 and later
		ONLY(SYS_ioctl, 4),
		DATA(args[1]),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
		ONLY(0xff00, 1),
		FAIL(ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("older: seccomp");
		return 1;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
