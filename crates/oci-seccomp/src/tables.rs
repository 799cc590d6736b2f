//! Which number a call has on which architecture. Made by tables.py: do not edit.

/// How many names there are.
pub(super) const COUNT: usize = 508;
/// No such call on this architecture.
pub(super) const NONE: u16 = 0xffff;
/// Numbers from here on are ARM's private calls, 0xf0000 and up.
pub(super) const ARM_PRIVATE: u16 = 0xf000;

/// Every call's name, in order, each ended by a space.
pub(super) const NAMES: &str = "\
_llseek _newselect _sysctl accept accept4 access acct add_key adjtimex afs_syscall alarm \
arch_prctl arm_fadvise64_64 arm_sync_file_range atomic_barrier atomic_cmpxchg_32 bdflush bind bpf \
break breakpoint brk cachectl cacheflush cachestat capget capset chdir chmod chown chown32 chroot \
clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 \
clock_nanosleep clock_nanosleep_time64 clock_settime clock_settime64 clone clone3 close \
close_range connect copy_file_range creat create_module delete_module dup dup2 dup3 epoll_create \
epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd \
eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate \
fanotify_init fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl \
fcntl64 fdatasync fgetxattr file_getattr file_setattr finit_module flistxattr flock fork \
fremovexattr fsconfig fsetxattr fsmount fsopen fspick fstat fstat64 fstatat64 fstatfs fstatfs64 \
fsync ftime ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv \
futex_wake futimesat get_kernel_syms get_mempolicy get_robust_list get_thread_area get_tls getcpu \
getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups \
getgroups32 getitimer getpagesize getpeername getpgid getpgrp getpid getpmsg getppid getpriority \
getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname \
getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat gtty idle init_module \
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents \
io_pgetevents io_pgetevents_time64 io_setup io_submit io_uring_enter io_uring_register \
io_uring_setup ioctl ioperm iopl ioprio_get ioprio_set ipc kcmp kexec_file_load kexec_load keyctl \
kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr \
link linkat listen listmount listns listxattr listxattrat llistxattr lock lookup_dcookie \
lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules lsm_set_self_attr lstat lstat64 \
madvise map_shadow_stack mbind membarrier memfd_create memfd_secret migrate_pages mincore mkdir \
mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt mount mount_setattr move_mount \
move_pages mprotect mpx mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 \
mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync \
multiplexer munlock munlockall munmap name_to_handle_at nanosleep newfstatat nfsservctl nice \
oldfstat oldlstat oldolduname oldstat olduname open open_by_handle_at open_tree open_tree_attr \
openat openat2 pause pciconfig_iobase pciconfig_read pciconfig_write perf_event_open personality \
pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pivot_root pkey_alloc pkey_free pkey_mprotect \
poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease \
process_vm_readv process_vm_writev prof profil pselect6 pselect6_time64 ptrace putpmsg pwrite64 \
pwritev pwritev2 query_module quotactl quotactl_fd read readahead readdir readlink readlinkat \
readv reboot recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr \
removexattrat rename renameat renameat2 request_key restart_syscall riscv_flush_icache \
riscv_hwprobe rmdir rseq rseq_slice_yield rt_sigaction rt_sigpending rt_sigprocmask \
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 \
rt_tgsigqueueinfo rtas s390_guarded_storage s390_pci_mmio_read s390_pci_mmio_write \
s390_runtime_instr s390_sthyi sched_get_priority_max sched_get_priority_min sched_getaffinity \
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 \
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp security \
select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg \
sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area set_tid_address \
set_tls setdomainname setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups \
setgroups32 sethostname setitimer setns setpgid setpriority setregid setregid32 setresgid \
setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt settimeofday \
setuid setuid32 setxattr setxattrat sgetmask shmat shmctl shmdt shmget shutdown sigaction \
sigaltstack signal signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend socket \
socketcall socketpair splice spu_create spu_run ssetmask stat stat64 statfs statfs64 statmount \
statx stime stty subpage_prot swapcontext swapoff swapon switch_endian symlink symlinkat sync \
sync_file_range sync_file_range2 syncfs sys_debug_setcontext syscall sysfs sysinfo syslog sysmips \
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 \
timer_settime timer_settime64 timerfd timerfd_create timerfd_gettime timerfd_gettime64 \
timerfd_settime timerfd_settime64 times tkill truncate truncate64 tuxcall ugetrlimit ulimit umask \
umount umount2 uname unlink unlinkat unshare uprobe uretprobe uselib userfaultfd usr26 usr32 ustat \
utime utimensat utimensat_time64 utimes vfork vhangup vm86 vm86old vmsplice vserver wait4 waitid \
waitpid write writev ";

/// By name: 0, or its socketcall(2) selector, or 100 more than its ipc(2) selector.
pub(super) static MULTIPLEXED: [u8; COUNT] = [
    0, 0, 0, 5, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 6, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 114, 113,
    112, 111, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    10, 12, 19, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 103, 102, 101, 104, 0, 9, 0, 0, 20, 16, 11, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 121,
    124, 122, 123, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// By name: its number on X86_64, counted from the architecture's base.
pub(super) static X86_64: [u16; COUNT] = [
    NONE, NONE, 156, 43, 288, 21, 163, 248, 159, 183, 37, 158, NONE, NONE, NONE, NONE, NONE, 49, 321, NONE,
    NONE, 12, NONE, NONE, 451, 125, 126, 80, 90, 92, NONE, 161, 305, NONE, 229, NONE, 228, NONE, 230, NONE,
    227, NONE, 56, 435, 3, 436, 42, 326, 85, 174, 176, 32, 33, 292, 213, 291, 233, 214, 281, 441, 232, 215,
    284, 290, 59, 322, 60, 231, 269, 439, 221, NONE, 285, 300, 301, 81, 91, 268, 452, 93, NONE, 260, 72,
    NONE, 75, 193, 468, 469, 313, 196, 73, 57, 199, 431, 190, 432, 430, 433, 5, NONE, NONE, 138, NONE, 74,
    NONE, 77, NONE, 202, 456, NONE, 455, 449, 454, 261, 177, 239, 274, 211, NONE, 309, 79, 78, 217, 108,
    NONE, 107, NONE, 104, NONE, 115, NONE, 36, NONE, 52, 121, 111, 39, 181, 110, 140, 318, 120, NONE, 118,
    NONE, 97, 98, 124, 51, 55, 186, 96, 102, NONE, 191, 464, NONE, NONE, 175, 254, 253, 294, 255, 210, 207,
    208, 333, NONE, 206, 209, 426, 427, 425, 16, 173, 172, 252, 251, NONE, 312, 320, 246, 250, 62, 445, 444,
    446, 94, NONE, 192, 86, 265, 50, 458, 470, 194, 465, 195, NONE, 212, 198, 8, 189, 459, 461, 460, 6, NONE,
    28, 453, 237, 324, 319, 447, 256, 27, 83, 258, 133, 259, 149, 325, 151, 9, NONE, 154, 165, 442, 429, 279,
    10, NONE, 245, 244, 240, 243, NONE, 242, NONE, 241, 25, 462, 71, 68, 70, 69, 26, NONE, 150, 152, 11, 303,
    35, 262, 180, NONE, NONE, NONE, NONE, NONE, NONE, 2, 304, 428, 467, 257, 437, 34, NONE, NONE, NONE, 298,
    135, 438, 434, 424, 22, 293, 155, 330, 331, 329, 7, 271, NONE, 157, 17, 295, 327, 302, 440, 448, 310,
    311, NONE, NONE, 270, NONE, 101, 182, 18, 296, 328, 178, 179, 443, 0, 187, NONE, 89, 267, 19, 169, NONE,
    45, 299, NONE, 47, 216, 197, 466, 82, 264, 316, 249, 219, NONE, NONE, 84, 334, 471, 13, 127, 14, 129, 15,
    130, 128, NONE, 297, NONE, NONE, NONE, NONE, NONE, NONE, 146, 147, 204, 315, 143, 145, 148, NONE, 203,
    314, 142, 144, 24, 317, 185, 23, 66, 64, 65, 220, NONE, NONE, 40, NONE, 307, 46, 44, 238, 450, 273, 205,
    218, NONE, 171, 123, NONE, 122, NONE, 106, NONE, 116, NONE, 170, 38, 308, 109, 141, 114, NONE, 119, NONE,
    117, NONE, 113, NONE, 160, 112, 54, 164, 105, NONE, 188, 463, NONE, 30, 31, 67, 29, 48, NONE, 131, NONE,
    282, 289, NONE, NONE, NONE, NONE, 41, NONE, 53, 275, NONE, NONE, NONE, 4, NONE, 137, NONE, 457, 332,
    NONE, NONE, NONE, NONE, 168, 167, NONE, 88, 266, 162, 277, NONE, 306, NONE, NONE, 139, 99, 103, NONE,
    276, 234, 201, 222, 226, 225, 224, NONE, 223, NONE, NONE, 283, 287, NONE, 286, NONE, 100, 200, 76, NONE,
    184, NONE, NONE, 95, NONE, 166, 63, 87, 263, 272, 336, 335, 134, 323, NONE, NONE, 136, 132, 280, NONE,
    235, 58, 153, NONE, NONE, 278, 236, 61, 247, NONE, 1, 20,
];

/// By name: its number on X86, counted from the architecture's base.
pub(super) static X86: [u16; COUNT] = [
    140, 142, 149, NONE, 364, 33, 51, 286, 124, 137, 27, 384, NONE, NONE, NONE, NONE, 134, 361, 357, 17,
    NONE, 45, NONE, NONE, 451, 184, 185, 12, 15, 182, 212, 61, 343, 405, 266, 406, 265, 403, 267, 407, 264,
    404, 120, 435, 6, 436, 362, 377, 8, 127, 129, 41, 63, 330, 254, 329, 255, NONE, 319, 441, 256, NONE, 323,
    328, 11, 358, 1, 252, 307, 439, 250, 272, 324, 338, 339, 133, 94, 306, 452, 95, 207, 298, 55, 221, 148,
    231, 468, 469, 350, 234, 143, 2, 237, 431, 228, 432, 430, 433, 108, 197, 300, 100, 269, 118, 35, 93, 194,
    240, 456, 422, 455, 449, 454, 299, 130, 275, 312, 244, NONE, 318, 183, 141, 220, 50, 202, 49, 201, 47,
    200, 80, 205, 105, NONE, 368, 132, 65, 20, 188, 64, 96, 355, 171, 211, 165, 209, 76, 77, 147, 367, 365,
    224, 78, 24, 199, 229, 464, 32, 112, 128, 292, 291, 332, 293, 249, 246, 247, 385, 416, 245, 248, 426,
    427, 425, 54, 101, 110, 290, 289, 117, 349, NONE, 283, 288, 37, 445, 444, 446, 16, 198, 230, 9, 303, 363,
    458, 470, 232, 465, 233, 53, 253, 236, 19, 227, 459, 461, 460, 107, 196, 219, 453, 274, 375, 356, 447,
    294, 218, 39, 296, 14, 297, 150, 376, 152, 90, 192, 123, 21, 442, 429, 317, 125, 56, 282, 281, 277, 280,
    419, 279, 418, 278, 163, 462, 402, 399, 401, 400, 144, NONE, 151, 153, 91, 341, 162, NONE, 169, 34, 28,
    84, 59, 18, 109, 5, 342, 428, 467, 295, 437, 29, NONE, NONE, NONE, 336, 136, 438, 434, 424, 42, 331, 217,
    381, 382, 380, 168, 309, 414, 172, 180, 333, 378, 340, 440, 448, 347, 348, 44, 98, 308, 413, 26, 189,
    181, 334, 379, 167, 131, 443, 3, 225, 89, 85, 305, 145, 88, NONE, 371, 337, 417, 372, 257, 235, 466, 38,
    302, 353, 287, 0, NONE, NONE, 40, 386, 471, 174, 176, 175, 178, 173, 179, 177, 421, 335, NONE, NONE,
    NONE, NONE, NONE, NONE, 159, 160, 242, 352, 155, 157, 161, 423, 241, 351, 154, 156, 158, 354, NONE, 82,
    394, 393, NONE, NONE, 420, NONE, 187, 239, 345, 370, 369, 276, 450, 311, 243, 258, NONE, 121, 139, 216,
    138, 215, 46, 214, 81, 206, 74, 104, 346, 57, 97, 71, 204, 170, 210, 164, 208, 70, 203, 75, 66, 366, 79,
    23, 213, 226, 463, 68, 397, 396, 398, 395, 373, 67, 186, 48, 321, 327, 73, 126, 119, 72, 359, 102, 360,
    313, NONE, NONE, 69, 106, 195, 99, 268, 457, 383, 25, 31, NONE, NONE, 115, 87, NONE, 83, 304, 36, 314,
    NONE, 344, NONE, NONE, 135, 116, 103, NONE, 315, 270, 13, 259, 263, 262, 261, 408, 260, 409, NONE, 322,
    326, 410, 325, 411, 43, 238, 92, 193, NONE, 191, 58, 60, 22, 52, 122, 10, 301, 310, NONE, NONE, 86, 374,
    NONE, NONE, 62, 30, 320, 412, 271, 190, 111, 166, 113, 316, 273, 114, 284, 7, 4, 146,
];

/// By name: its number on X32, counted from the architecture's base.
pub(super) static X32: [u16; COUNT] = [
    NONE, NONE, NONE, 43, 288, 21, 163, 248, 159, 183, 37, 158, NONE, NONE, NONE, NONE, NONE, 49, 321, NONE,
    NONE, 12, NONE, NONE, 451, 125, 126, 80, 90, 92, NONE, 161, 305, NONE, 229, NONE, 228, NONE, 230, NONE,
    227, NONE, 56, 435, 3, 436, 42, 326, 85, NONE, 176, 32, 33, 292, 213, 291, 233, NONE, 281, 441, 232,
    NONE, 284, 290, 520, 545, 60, 231, 269, 439, 221, NONE, 285, 300, 301, 81, 91, 268, 452, 93, NONE, 260,
    72, NONE, 75, 193, 468, 469, 313, 196, 73, 57, 199, 431, 190, 432, 430, 433, 5, NONE, NONE, 138, NONE,
    74, NONE, 77, NONE, 202, 456, NONE, 455, 449, 454, 261, NONE, 239, 531, NONE, NONE, 309, 79, 78, 217,
    108, NONE, 107, NONE, 104, NONE, 115, NONE, 36, NONE, 52, 121, 111, 39, 181, 110, 140, 318, 120, NONE,
    118, NONE, 97, 98, 124, 51, 542, 186, 96, 102, NONE, 191, 464, NONE, NONE, 175, 254, 253, 294, 255, 210,
    207, 208, 333, NONE, 543, 544, 426, 427, 425, 514, 173, 172, 252, 251, NONE, 312, 320, 528, 250, 62, 445,
    444, 446, 94, NONE, 192, 86, 265, 50, 458, 470, 194, 465, 195, NONE, 212, 198, 8, 189, 459, 461, 460, 6,
    NONE, 28, 453, 237, 324, 319, 447, 256, 27, 83, 258, 133, 259, 149, 325, 151, 9, NONE, 154, 165, 442,
    429, 533, 10, NONE, 245, 527, 240, 243, NONE, 242, NONE, 241, 25, 462, 71, 68, 70, 69, 26, NONE, 150,
    152, 11, 303, 35, 262, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 2, 304, 428, 467, 257, 437, 34, NONE,
    NONE, NONE, 298, 135, 438, 434, 424, 22, 293, 155, 330, 331, 329, 7, 271, NONE, 157, 17, 534, 546, 302,
    440, 448, 539, 540, NONE, NONE, 270, NONE, 521, 182, 18, 535, 547, NONE, 179, 443, 0, 187, NONE, 89, 267,
    515, 169, NONE, 517, 537, NONE, 519, 216, 197, 466, 82, 264, 316, 249, 219, NONE, NONE, 84, 334, 471,
    512, 522, 14, 524, 513, 130, 523, NONE, 536, NONE, NONE, NONE, NONE, NONE, NONE, 146, 147, 204, 315, 143,
    145, 148, NONE, 203, 314, 142, 144, 24, 317, 185, 23, 66, 64, 65, 220, NONE, NONE, 40, NONE, 538, 518,
    44, 238, 450, 530, NONE, 218, NONE, 171, 123, NONE, 122, NONE, 106, NONE, 116, NONE, 170, 38, 308, 109,
    141, 114, NONE, 119, NONE, 117, NONE, 113, NONE, 160, 112, 541, 164, 105, NONE, 188, 463, NONE, 30, 31,
    67, 29, 48, NONE, 525, NONE, 282, 289, NONE, NONE, NONE, NONE, 41, NONE, 53, 275, NONE, NONE, NONE, 4,
    NONE, 137, NONE, 457, 332, NONE, NONE, NONE, NONE, 168, 167, NONE, 88, 266, 162, 277, NONE, 306, NONE,
    NONE, 139, 99, 103, NONE, 276, 234, 201, 526, 226, 225, 224, NONE, 223, NONE, NONE, 283, 287, NONE, 286,
    NONE, 100, 200, 76, NONE, 184, NONE, NONE, 95, NONE, 166, 63, 87, 263, 272, 336, 335, NONE, 323, NONE,
    NONE, 136, 132, 280, NONE, 235, 58, 153, NONE, NONE, 532, NONE, 61, 529, NONE, 1, 516,
];

/// By name: its number on AARCH64, counted from the architecture's base.
pub(super) static AARCH64: [u16; COUNT] = [
    NONE, NONE, NONE, 202, 242, NONE, 89, 217, 171, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 200, 280,
    NONE, NONE, 214, NONE, NONE, 451, 90, 91, 49, NONE, NONE, NONE, 51, 266, NONE, 114, NONE, 113, NONE, 115,
    NONE, 112, NONE, 220, 435, 57, 436, 203, 285, NONE, NONE, 106, 23, NONE, 24, NONE, 20, 21, NONE, 22, 441,
    NONE, NONE, NONE, 19, 221, 281, 93, 94, 48, 439, 223, NONE, 47, 262, 263, 50, 52, 53, 452, 55, NONE, 54,
    25, NONE, 83, 10, 468, 469, 273, 13, 32, NONE, 16, 431, 7, 432, 430, 433, 80, NONE, NONE, 44, NONE, 82,
    NONE, 46, NONE, 98, 456, NONE, 455, 449, 454, NONE, NONE, 236, 100, NONE, NONE, 168, 17, NONE, 61, 177,
    NONE, 175, NONE, 176, NONE, 158, NONE, 102, NONE, 205, 155, NONE, 172, NONE, 173, 141, 278, 150, NONE,
    148, NONE, 163, 165, 156, 204, 209, 178, 169, 174, NONE, 8, 464, NONE, NONE, 105, 27, NONE, 26, 28, 3, 1,
    4, 292, NONE, 0, 2, 426, 427, 425, 29, NONE, NONE, 31, 30, NONE, 272, 294, 104, 219, 129, 445, 444, 446,
    NONE, NONE, 9, NONE, 37, 201, 458, 470, 11, 465, 12, NONE, 18, 15, 62, 6, 459, 461, 460, NONE, NONE, 233,
    453, 235, 283, 279, 447, 238, 232, NONE, 34, NONE, 33, 228, 284, 230, 222, NONE, NONE, 40, 442, 429, 239,
    226, NONE, 185, 184, 180, 183, NONE, 182, NONE, 181, 216, 462, 187, 186, 188, 189, 227, NONE, 229, 231,
    215, 264, 101, 79, 42, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 265, 428, 467, 56, 437, NONE, NONE,
    NONE, NONE, 241, 92, 438, 434, 424, NONE, 59, 41, 289, 290, 288, NONE, 73, NONE, 167, 67, 69, 286, 261,
    440, 448, 270, 271, NONE, NONE, 72, NONE, 117, NONE, 68, 70, 287, NONE, 60, 443, 63, 213, NONE, NONE, 78,
    65, 142, NONE, 207, 243, NONE, 212, 234, 14, 466, NONE, 38, 276, 218, 128, NONE, NONE, NONE, 293, 471,
    134, 136, 135, 138, 139, 133, 137, NONE, 240, NONE, NONE, NONE, NONE, NONE, NONE, 125, 126, 123, 275,
    121, 120, 127, NONE, 122, 274, 118, 119, 124, 277, NONE, NONE, 191, 190, 193, 192, NONE, NONE, 71, NONE,
    269, 211, 206, 237, 450, 99, NONE, 96, NONE, 162, 152, NONE, 151, NONE, 144, NONE, 159, NONE, 161, 103,
    268, 154, 140, 143, NONE, 149, NONE, 147, NONE, 145, NONE, 164, 157, 208, 170, 146, NONE, 5, 463, NONE,
    196, 195, 197, 194, 210, NONE, 132, NONE, NONE, 74, NONE, NONE, NONE, NONE, 198, NONE, 199, 76, NONE,
    NONE, NONE, NONE, NONE, 43, NONE, 457, 291, NONE, NONE, NONE, NONE, 225, 224, NONE, NONE, 36, 81, 84,
    NONE, 267, NONE, NONE, NONE, 179, 116, NONE, 77, 131, NONE, 107, 111, 109, 108, NONE, 110, NONE, NONE,
    85, 87, NONE, 86, NONE, 153, 130, 45, NONE, NONE, NONE, NONE, 166, NONE, 39, 160, NONE, 35, 97, NONE,
    NONE, NONE, 282, NONE, NONE, NONE, NONE, 88, NONE, NONE, NONE, 58, NONE, NONE, 75, NONE, 260, 95, NONE,
    64, 66,
];

/// By name: its number on ARM, counted from the architecture's base.
pub(super) static ARM: [u16; COUNT] = [
    140, 142, 149, 285, 366, 33, 51, 309, 124, NONE, NONE, NONE, 270, 341, NONE, NONE, 134, 282, 386, NONE,
    61441, 45, NONE, 61442, 451, 184, 185, 12, 15, 182, 212, 61, 372, 405, 264, 406, 263, 403, 265, 407, 262,
    404, 120, 435, 6, 436, 283, 391, 8, NONE, 129, 41, 63, 358, 250, 357, 251, NONE, 346, 441, 252, NONE,
    351, 356, 11, 387, 1, 248, 334, 439, NONE, NONE, 352, 367, 368, 133, 94, 333, 452, 95, 207, 325, 55, 221,
    148, 231, 468, 469, 379, 234, 143, 2, 237, 431, 228, 432, 430, 433, 108, 197, 327, 100, 267, 118, NONE,
    93, 194, 240, 456, 422, 455, 449, 454, 326, NONE, 320, 339, NONE, 61446, 345, 183, 141, 217, 50, 202, 49,
    201, 47, 200, 80, 205, 105, NONE, 287, 132, 65, 20, NONE, 64, 96, 384, 171, 211, 165, 209, NONE, 77, 147,
    286, 295, 224, 78, 24, 199, 229, 464, NONE, NONE, 128, 317, 316, 360, 318, 247, 244, 245, 399, 416, 243,
    246, 426, 427, 425, 54, NONE, NONE, 315, 314, NONE, 378, 401, 347, 311, 37, 445, 444, 446, 16, 198, 230,
    9, 330, 284, 458, 470, 232, 465, 233, NONE, 249, 236, 19, 227, 459, 461, 460, 107, 196, 220, 453, 319,
    389, 385, NONE, 400, 219, 39, 323, 14, 324, 150, 390, 152, NONE, 192, NONE, 21, 442, 429, 344, 125, NONE,
    279, 278, 274, 277, 419, 276, 418, 275, 163, 462, 304, 303, 302, 301, 144, NONE, 151, 153, 91, 370, 162,
    NONE, 169, 34, NONE, NONE, NONE, NONE, NONE, 5, 371, 428, 467, 322, 437, 29, 271, 272, 273, 364, 136,
    438, 434, 424, 42, 359, 218, 395, 396, 394, 168, 336, 414, 172, 180, 361, 392, 369, 440, 448, 376, 377,
    NONE, NONE, 335, 413, 26, NONE, 181, 362, 393, NONE, 131, 443, 3, 225, NONE, 85, 332, 145, 88, 291, 292,
    365, 417, 297, 253, 235, 466, 38, 329, 382, 310, 0, NONE, NONE, 40, 398, 471, 174, 176, 175, 178, 173,
    179, 177, 421, 363, NONE, NONE, NONE, NONE, NONE, NONE, 159, 160, 242, 381, 155, 157, 161, 423, 241, 380,
    154, 156, 158, 383, NONE, NONE, 300, 299, 298, 312, 420, 289, 187, 239, 374, 296, 290, 321, 450, 338,
    NONE, 256, 61445, 121, 139, 216, 138, 215, 46, 214, 81, 206, 74, 104, 375, 57, 97, 71, 204, 170, 210,
    164, 208, 70, 203, 75, 66, 294, 79, 23, 213, 226, 463, NONE, 305, 308, 306, 307, 293, 67, 186, NONE, 349,
    355, 73, 126, 119, 72, 281, NONE, 288, 340, NONE, NONE, NONE, 106, 195, 99, 266, 457, 397, NONE, NONE,
    NONE, NONE, 115, 87, NONE, 83, 331, 36, NONE, 341, 373, NONE, NONE, 135, 116, 103, NONE, 342, 268, NONE,
    257, 261, 260, 259, 408, 258, 409, NONE, 350, 354, 410, 353, 411, 43, 238, 92, 193, NONE, 191, NONE, 60,
    NONE, 52, 122, 10, 328, 337, NONE, NONE, 86, 388, 61443, 61444, 62, NONE, 348, 412, 269, 190, 111, NONE,
    NONE, 343, 313, 114, 280, NONE, 4, 146,
];

/// By name: its number on RISCV64, counted from the architecture's base.
pub(super) static RISCV64: [u16; COUNT] = [
    NONE, NONE, NONE, 202, 242, NONE, 89, 217, 171, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 200, 280,
    NONE, NONE, 214, NONE, NONE, 451, 90, 91, 49, NONE, NONE, NONE, 51, 266, NONE, 114, NONE, 113, NONE, 115,
    NONE, 112, NONE, 220, 435, 57, 436, 203, 285, NONE, NONE, 106, 23, NONE, 24, NONE, 20, 21, NONE, 22, 441,
    NONE, NONE, NONE, 19, 221, 281, 93, 94, 48, 439, 223, NONE, 47, 262, 263, 50, 52, 53, 452, 55, NONE, 54,
    25, NONE, 83, 10, 468, 469, 273, 13, 32, NONE, 16, 431, 7, 432, 430, 433, 80, NONE, NONE, 44, NONE, 82,
    NONE, 46, NONE, 98, 456, NONE, 455, 449, 454, NONE, NONE, 236, 100, NONE, NONE, 168, 17, NONE, 61, 177,
    NONE, 175, NONE, 176, NONE, 158, NONE, 102, NONE, 205, 155, NONE, 172, NONE, 173, 141, 278, 150, NONE,
    148, NONE, 163, 165, 156, 204, 209, 178, 169, 174, NONE, 8, 464, NONE, NONE, 105, 27, NONE, 26, 28, 3, 1,
    4, 292, NONE, 0, 2, 426, 427, 425, 29, NONE, NONE, 31, 30, NONE, 272, 294, 104, 219, 129, 445, 444, 446,
    NONE, NONE, 9, NONE, 37, 201, 458, 470, 11, 465, 12, NONE, 18, 15, 62, 6, 459, 461, 460, NONE, NONE, 233,
    453, 235, 283, 279, 447, 238, 232, NONE, 34, NONE, 33, 228, 284, 230, 222, NONE, NONE, 40, 442, 429, 239,
    226, NONE, 185, 184, 180, 183, NONE, 182, NONE, 181, 216, 462, 187, 186, 188, 189, 227, NONE, 229, 231,
    215, 264, 101, 79, 42, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 265, 428, 467, 56, 437, NONE, NONE,
    NONE, NONE, 241, 92, 438, 434, 424, NONE, 59, 41, 289, 290, 288, NONE, 73, NONE, 167, 67, 69, 286, 261,
    440, 448, 270, 271, NONE, NONE, 72, NONE, 117, NONE, 68, 70, 287, NONE, 60, 443, 63, 213, NONE, NONE, 78,
    65, 142, NONE, 207, 243, NONE, 212, 234, 14, 466, NONE, NONE, 276, 218, 128, 259, 258, NONE, 293, 471,
    134, 136, 135, 138, 139, 133, 137, NONE, 240, NONE, NONE, NONE, NONE, NONE, NONE, 125, 126, 123, 275,
    121, 120, 127, NONE, 122, 274, 118, 119, 124, 277, NONE, NONE, 191, 190, 193, 192, NONE, NONE, 71, NONE,
    269, 211, 206, 237, 450, 99, NONE, 96, NONE, 162, 152, NONE, 151, NONE, 144, NONE, 159, NONE, 161, 103,
    268, 154, 140, 143, NONE, 149, NONE, 147, NONE, 145, NONE, 164, 157, 208, 170, 146, NONE, 5, 463, NONE,
    196, 195, 197, 194, 210, NONE, 132, NONE, NONE, 74, NONE, NONE, NONE, NONE, 198, NONE, 199, 76, NONE,
    NONE, NONE, NONE, NONE, 43, NONE, 457, 291, NONE, NONE, NONE, NONE, 225, 224, NONE, NONE, 36, 81, 84,
    NONE, 267, NONE, NONE, NONE, 179, 116, NONE, 77, 131, NONE, 107, 111, 109, 108, NONE, 110, NONE, NONE,
    85, 87, NONE, 86, NONE, 153, 130, 45, NONE, NONE, NONE, NONE, 166, NONE, 39, 160, NONE, 35, 97, NONE,
    NONE, NONE, 282, NONE, NONE, NONE, NONE, 88, NONE, NONE, NONE, 58, NONE, NONE, 75, NONE, 260, 95, NONE,
    64, 66,
];

/// By name: its number on LOONGARCH64, counted from the architecture's base.
pub(super) static LOONGARCH64: [u16; COUNT] = [
    NONE, NONE, NONE, 202, 242, NONE, 89, 217, 171, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 200, 280,
    NONE, NONE, 214, NONE, NONE, 451, 90, 91, 49, NONE, NONE, NONE, 51, 266, NONE, 114, NONE, 113, NONE, 115,
    NONE, 112, NONE, 220, 435, 57, 436, 203, 285, NONE, NONE, 106, 23, NONE, 24, NONE, 20, 21, NONE, 22, 441,
    NONE, NONE, NONE, 19, 221, 281, 93, 94, 48, 439, 223, NONE, 47, 262, 263, 50, 52, 53, 452, 55, NONE, 54,
    25, NONE, 83, 10, 468, 469, 273, 13, 32, NONE, 16, 431, 7, 432, 430, 433, 80, NONE, NONE, 44, NONE, 82,
    NONE, 46, NONE, 98, 456, NONE, 455, 449, 454, NONE, NONE, 236, 100, NONE, NONE, 168, 17, NONE, 61, 177,
    NONE, 175, NONE, 176, NONE, 158, NONE, 102, NONE, 205, 155, NONE, 172, NONE, 173, 141, 278, 150, NONE,
    148, NONE, NONE, 165, 156, 204, 209, 178, 169, 174, NONE, 8, 464, NONE, NONE, 105, 27, NONE, 26, 28, 3,
    1, 4, 292, NONE, 0, 2, 426, 427, 425, 29, NONE, NONE, 31, 30, NONE, 272, 294, 104, 219, 129, 445, 444,
    446, NONE, NONE, 9, NONE, 37, 201, 458, 470, 11, 465, 12, NONE, 18, 15, 62, 6, 459, 461, 460, NONE, NONE,
    233, 453, 235, 283, 279, 447, 238, 232, NONE, 34, NONE, 33, 228, 284, 230, 222, NONE, NONE, 40, 442, 429,
    239, 226, NONE, 185, 184, 180, 183, NONE, 182, NONE, 181, 216, 462, 187, 186, 188, 189, 227, NONE, 229,
    231, 215, 264, 101, 79, 42, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 265, 428, 467, 56, 437, NONE, NONE,
    NONE, NONE, 241, 92, 438, 434, 424, NONE, 59, 41, 289, 290, 288, NONE, 73, NONE, 167, 67, 69, 286, 261,
    440, 448, 270, 271, NONE, NONE, 72, NONE, 117, NONE, 68, 70, 287, NONE, 60, 443, 63, 213, NONE, NONE, 78,
    65, 142, NONE, 207, 243, NONE, 212, 234, 14, 466, NONE, NONE, 276, 218, 128, NONE, NONE, NONE, 293, 471,
    134, 136, 135, 138, 139, 133, 137, NONE, 240, NONE, NONE, NONE, NONE, NONE, NONE, 125, 126, 123, 275,
    121, 120, 127, NONE, 122, 274, 118, 119, 124, 277, NONE, NONE, 191, 190, 193, 192, NONE, NONE, 71, NONE,
    269, 211, 206, 237, 450, 99, NONE, 96, NONE, 162, 152, NONE, 151, NONE, 144, NONE, 159, NONE, 161, 103,
    268, 154, 140, 143, NONE, 149, NONE, 147, NONE, 145, NONE, NONE, 157, 208, 170, 146, NONE, 5, 463, NONE,
    196, 195, 197, 194, 210, NONE, 132, NONE, NONE, 74, NONE, NONE, NONE, NONE, 198, NONE, 199, 76, NONE,
    NONE, NONE, NONE, NONE, 43, NONE, 457, 291, NONE, NONE, NONE, NONE, 225, 224, NONE, NONE, 36, 81, 84,
    NONE, 267, NONE, NONE, NONE, 179, 116, NONE, 77, 131, NONE, 107, 111, 109, 108, NONE, 110, NONE, NONE,
    85, 87, NONE, 86, NONE, 153, 130, 45, NONE, NONE, NONE, NONE, 166, NONE, 39, 160, NONE, 35, 97, NONE,
    NONE, NONE, 282, NONE, NONE, NONE, NONE, 88, NONE, NONE, NONE, 58, NONE, NONE, 75, NONE, 260, 95, NONE,
    64, 66,
];

/// By name: its number on PPC64, counted from the architecture's base.
pub(super) static PPC64: [u16; COUNT] = [
    140, 142, 149, 330, 344, 33, 51, 269, 124, 137, 27, NONE, NONE, NONE, NONE, NONE, 134, 327, 361, 17,
    NONE, 45, NONE, NONE, 451, 183, 184, 12, 15, 181, NONE, 61, 347, NONE, 247, NONE, 246, NONE, 248, NONE,
    245, NONE, 120, 435, 6, 436, 328, 379, 8, 127, 129, 41, 63, 316, 236, 315, 237, NONE, 303, 441, 238,
    NONE, 307, 314, 11, 362, 1, 234, 298, 439, 233, NONE, 309, 323, 324, 133, 94, 297, 452, 95, NONE, 289,
    55, NONE, 148, 214, 468, 469, 353, 217, 143, 2, 220, 431, 211, 432, 430, 433, 108, NONE, NONE, 100, 253,
    118, 35, 93, NONE, 221, 456, NONE, 455, 449, 454, 290, 130, 260, 299, NONE, NONE, 302, 182, 141, 202, 50,
    NONE, 49, NONE, 47, NONE, 80, NONE, 105, NONE, 332, 132, 65, 20, 187, 64, 96, 359, 170, NONE, 165, NONE,
    76, 77, 147, 331, 340, 207, 78, 24, NONE, 212, 464, 32, 112, 128, 276, 275, 318, 277, 231, 228, 229, 388,
    NONE, 227, 230, 426, 427, 425, 54, 101, 110, 274, 273, 117, 354, 382, 268, 271, 37, 445, 444, 446, 16,
    NONE, 213, 9, 294, 329, 458, 470, 215, 465, 216, 53, 235, 219, 19, 210, 459, 461, 460, 107, NONE, 205,
    453, 259, 365, 360, NONE, 258, 206, 39, 287, 14, 288, 150, 378, 152, 90, NONE, 123, 21, 442, 429, 301,
    125, 56, 267, 266, 262, 265, NONE, 264, NONE, 263, 163, 462, 402, 399, 401, 400, 144, 201, 151, 153, 91,
    345, 162, 291, 168, 34, 28, 84, 59, 18, 109, 5, 346, 428, 467, 286, 437, 29, 200, 198, 199, 319, 136,
    438, 434, 424, 42, 317, 203, 384, 385, 386, 167, 281, NONE, 171, 179, 320, 380, 325, 440, 448, 351, 352,
    44, 98, 280, NONE, 26, 188, 180, 321, 381, 166, 131, 443, 3, 191, 89, 85, 296, 145, 88, 336, 337, 343,
    NONE, 342, 239, 218, 466, 38, 293, 357, 270, 0, NONE, NONE, 40, 387, 471, 173, 175, 174, 177, 172, 178,
    176, NONE, 322, 255, NONE, NONE, NONE, NONE, NONE, 159, 160, 223, 356, 155, 157, 161, NONE, 222, 355,
    154, 156, 158, 358, NONE, 82, 394, 393, NONE, 392, NONE, 334, 186, NONE, 349, 341, 335, 261, 450, 300,
    NONE, 232, NONE, 121, 139, NONE, 138, NONE, 46, NONE, 81, NONE, 74, 104, 350, 57, 97, 71, NONE, 169,
    NONE, 164, NONE, 70, NONE, 75, 66, 339, 79, 23, NONE, 209, 463, 68, 397, 396, 398, 395, 338, 67, 185, 48,
    305, 313, 73, 126, 119, 72, 326, 102, 333, 283, 279, 278, 69, 106, NONE, 99, 252, 457, 383, 25, 31, 310,
    249, 115, 87, 363, 83, 295, 36, NONE, 308, 348, 256, NONE, 135, 116, 103, NONE, 284, 250, 13, 240, 244,
    243, 242, NONE, 241, NONE, NONE, 306, 312, NONE, 311, NONE, 43, 208, 92, NONE, 225, 190, 58, 60, 22, 52,
    122, 10, 292, 282, NONE, NONE, 86, 364, NONE, NONE, 62, 30, 304, NONE, 251, 189, 111, 113, NONE, 285,
    NONE, 114, 272, 7, 4, 146,
];

/// By name: its number on PPC, counted from the architecture's base.
pub(super) static PPC: [u16; COUNT] = [
    140, 142, 149, 330, 344, 33, 51, 269, 124, 137, 27, NONE, NONE, NONE, NONE, NONE, 134, 327, 361, 17,
    NONE, 45, NONE, NONE, 451, 183, 184, 12, 15, 181, NONE, 61, 347, 405, 247, 406, 246, 403, 248, 407, 245,
    404, 120, 435, 6, 436, 328, 379, 8, 127, 129, 41, 63, 316, 236, 315, 237, NONE, 303, 441, 238, NONE, 307,
    314, 11, 362, 1, 234, 298, 439, 233, 254, 309, 323, 324, 133, 94, 297, 452, 95, NONE, 289, 55, 204, 148,
    214, 468, 469, 353, 217, 143, 2, 220, 431, 211, 432, 430, 433, 108, 197, 291, 100, 253, 118, 35, 93, 194,
    221, 456, 422, 455, 449, 454, 290, 130, 260, 299, NONE, NONE, 302, 182, 141, 202, 50, NONE, 49, NONE, 47,
    NONE, 80, NONE, 105, NONE, 332, 132, 65, 20, 187, 64, 96, 359, 170, NONE, 165, NONE, 76, 77, 147, 331,
    340, 207, 78, 24, NONE, 212, 464, 32, 112, 128, 276, 275, 318, 277, 231, 228, 229, 388, 416, 227, 230,
    426, 427, 425, 54, 101, 110, 274, 273, 117, 354, 382, 268, 271, 37, 445, 444, 446, 16, NONE, 213, 9, 294,
    329, 458, 470, 215, 465, 216, 53, 235, 219, 19, 210, 459, 461, 460, 107, 196, 205, 453, 259, 365, 360,
    NONE, 258, 206, 39, 287, 14, 288, 150, 378, 152, 90, 192, 123, 21, 442, 429, 301, 125, 56, 267, 266, 262,
    265, 419, 264, 418, 263, 163, 462, 402, 399, 401, 400, 144, 201, 151, 153, 91, 345, 162, NONE, 168, 34,
    28, 84, 59, 18, 109, 5, 346, 428, 467, 286, 437, 29, 200, 198, 199, 319, 136, 438, 434, 424, 42, 317,
    203, 384, 385, 386, 167, 281, 414, 171, 179, 320, 380, 325, 440, 448, 351, 352, 44, 98, 280, 413, 26,
    188, 180, 321, 381, 166, 131, 443, 3, 191, 89, 85, 296, 145, 88, 336, 337, 343, 417, 342, 239, 218, 466,
    38, 293, 357, 270, 0, NONE, NONE, 40, 387, 471, 173, 175, 174, 177, 172, 178, 176, 421, 322, 255, NONE,
    NONE, NONE, NONE, NONE, 159, 160, 223, 356, 155, 157, 161, 423, 222, 355, 154, 156, 158, 358, NONE, 82,
    394, 393, NONE, NONE, 420, 334, 186, 226, 349, 341, 335, 261, 450, 300, NONE, 232, NONE, 121, 139, NONE,
    138, NONE, 46, NONE, 81, NONE, 74, 104, 350, 57, 97, 71, NONE, 169, NONE, 164, NONE, 70, NONE, 75, 66,
    339, 79, 23, NONE, 209, 463, 68, 397, 396, 398, 395, 338, 67, 185, 48, 305, 313, 73, 126, 119, 72, 326,
    102, 333, 283, 279, 278, 69, 106, 195, 99, 252, 457, 383, 25, 31, 310, 249, 115, 87, 363, 83, 295, 36,
    NONE, 308, 348, 256, NONE, 135, 116, 103, NONE, 284, 250, 13, 240, 244, 243, 242, 408, 241, 409, NONE,
    306, 312, 410, 311, 411, 43, 208, 92, 193, 225, 190, 58, 60, 22, 52, 122, 10, 292, 282, NONE, NONE, 86,
    364, NONE, NONE, 62, 30, 304, 412, 251, 189, 111, 113, NONE, 285, NONE, 114, 272, 7, 4, 146,
];

/// By name: its number on S390X, counted from the architecture's base.
pub(super) static S390X: [u16; COUNT] = [
    NONE, NONE, 149, NONE, 364, 33, 51, 278, 124, 137, 27, NONE, NONE, NONE, NONE, NONE, 134, 361, 351, NONE,
    NONE, 45, NONE, NONE, 451, 184, 185, 12, 15, 212, NONE, 61, 337, NONE, 261, NONE, 260, NONE, 262, NONE,
    259, NONE, 120, 435, 6, 436, 362, 375, 8, 127, 129, 41, 63, 326, 249, 327, 250, NONE, 312, 441, 251,
    NONE, 318, 323, 11, 354, 1, 248, 300, 439, 253, NONE, 314, 332, 333, 133, 94, 299, 452, 207, NONE, 291,
    55, NONE, 148, 229, 468, 469, 344, 232, 143, 2, 235, 431, 226, 432, 430, 433, 108, NONE, NONE, 100, 266,
    118, NONE, 93, NONE, 238, 456, NONE, 455, 449, 454, 292, 130, 269, 305, NONE, NONE, 311, 183, 141, 220,
    202, NONE, 201, NONE, 200, NONE, 205, NONE, 105, NONE, 368, 132, 65, 20, 188, 64, 96, 349, 211, NONE,
    209, NONE, 191, 77, 147, 367, 365, 236, 78, 199, NONE, 227, 464, NONE, 112, 128, 285, 284, 324, 286, 247,
    244, 245, 382, NONE, 243, 246, 426, 427, 425, 54, NONE, NONE, 283, 282, 117, 343, 381, 277, 280, 37, 445,
    444, 446, 198, NONE, 228, 9, 296, 363, 458, 470, 230, 465, 231, NONE, 110, 234, 19, 225, 459, 461, 460,
    107, NONE, 219, 453, 268, 356, 350, 447, 287, 218, 39, 289, 14, 290, 150, 374, 152, 90, NONE, NONE, 21,
    442, 429, 310, 125, NONE, 276, 275, 271, 274, NONE, 273, NONE, 272, 163, 462, 402, 399, 401, 400, 144,
    NONE, 151, 153, 91, 335, 162, 293, 169, 34, NONE, NONE, NONE, NONE, NONE, 5, 336, 428, 467, 288, 437, 29,
    NONE, NONE, NONE, 331, 136, 438, 434, 424, 42, 325, 217, 385, 386, 384, 168, 302, NONE, 172, 180, 328,
    376, 334, 440, 448, 340, 341, NONE, NONE, 301, NONE, 26, 189, 181, 329, 377, 167, 131, 443, 3, 222, 89,
    85, 298, 145, 88, NONE, 371, 357, NONE, 372, 267, 233, 466, 38, 295, 347, 279, 7, NONE, NONE, 40, 383,
    471, 174, 176, 175, 178, 173, 179, 177, NONE, 330, NONE, 378, 353, 352, 342, 380, 159, 160, 240, 346,
    155, 157, 161, NONE, 239, 345, 154, 156, 158, 348, NONE, 142, 394, 393, NONE, 392, NONE, NONE, 187, NONE,
    358, 370, 369, 270, 450, 304, NONE, 252, NONE, 121, 216, NONE, 215, NONE, 214, NONE, 206, NONE, 74, 104,
    339, 57, 97, 204, NONE, 210, NONE, 208, NONE, 203, NONE, 75, 66, 366, 79, 213, NONE, 224, 463, NONE, 397,
    396, 398, 395, 373, 67, 186, 48, 316, 322, 73, 126, 119, 72, 359, 102, 360, 306, NONE, NONE, NONE, 106,
    NONE, 99, 265, 457, 379, NONE, NONE, NONE, NONE, 115, 87, NONE, 83, 297, 36, 307, NONE, 338, NONE, NONE,
    135, 116, 103, NONE, 308, 241, NONE, 254, 258, 257, 256, NONE, 255, NONE, 317, 319, 321, NONE, 320, NONE,
    43, 237, 92, NONE, NONE, NONE, NONE, 60, 22, 52, 122, 10, 294, 303, NONE, NONE, 86, 355, NONE, NONE, 62,
    30, 315, NONE, 313, 190, 111, NONE, NONE, 309, NONE, 114, 281, NONE, 4, 146,
];

/// By name: its number on S390, counted from the architecture's base.
pub(super) static S390: [u16; COUNT] = [
    140, 142, 149, NONE, 364, 33, 51, 278, 124, 137, 27, NONE, NONE, NONE, NONE, NONE, 134, 361, 351, NONE,
    NONE, 45, NONE, NONE, 451, 184, 185, 12, 15, 182, 212, 61, 337, 405, 261, 406, 260, 403, 262, 407, 259,
    404, 120, 435, 6, 436, 362, 375, 8, 127, 129, 41, 63, 326, 249, 327, 250, NONE, 312, 441, 251, NONE, 318,
    323, 11, 354, 1, 248, 300, 439, 253, 264, 314, 332, 333, 133, 94, 299, 452, 95, 207, 291, 55, 221, 148,
    229, 468, 469, 344, 232, 143, 2, 235, 431, 226, 432, 430, 433, 108, 197, 293, 100, 266, 118, NONE, 93,
    194, 238, 456, 422, 455, 449, 454, 292, 130, 269, 305, NONE, NONE, 311, 183, 141, 220, 50, 202, 49, 201,
    47, 200, 80, 205, 105, NONE, 368, 132, 65, 20, 188, 64, 96, 349, 171, 211, 165, 209, 76, 77, 147, 367,
    365, 236, 78, 24, 199, 227, 464, NONE, 112, 128, 285, 284, 324, 286, 247, 244, 245, 382, 416, 243, 246,
    426, 427, 425, 54, 101, NONE, 283, 282, 117, 343, 381, 277, 280, 37, 445, 444, 446, 16, 198, 228, 9, 296,
    363, 458, 470, 230, 465, 231, NONE, 110, 234, 19, 225, 459, 461, 460, 107, 196, 219, 453, 268, 356, 350,
    447, 287, 218, 39, 289, 14, 290, 150, 374, 152, 90, 192, NONE, 21, 442, 429, 310, 125, NONE, 276, 275,
    271, 274, 419, 273, 418, 272, 163, 462, 402, 399, 401, 400, 144, NONE, 151, 153, 91, 335, 162, NONE, 169,
    34, NONE, NONE, NONE, NONE, NONE, 5, 336, 428, 467, 288, 437, 29, NONE, NONE, NONE, 331, 136, 438, 434,
    424, 42, 325, 217, 385, 386, 384, 168, 302, 414, 172, 180, 328, 376, 334, 440, 448, 340, 341, NONE, NONE,
    301, 413, 26, 189, 181, 329, 377, 167, 131, 443, 3, 222, 89, 85, 298, 145, 88, NONE, 371, 357, 417, 372,
    267, 233, 466, 38, 295, 347, 279, 7, NONE, NONE, 40, 383, 471, 174, 176, 175, 178, 173, 179, 177, 421,
    330, NONE, 378, 353, 352, 342, 380, 159, 160, 240, 346, 155, 157, 161, 423, 239, 345, 154, 156, 158, 348,
    NONE, NONE, 394, 393, NONE, NONE, 420, NONE, 187, 223, 358, 370, 369, 270, 450, 304, NONE, 252, NONE,
    121, 139, 216, 138, 215, 46, 214, 81, 206, 74, 104, 339, 57, 97, 71, 204, 170, 210, 164, 208, 70, 203,
    75, 66, 366, 79, 23, 213, 224, 463, NONE, 397, 396, 398, 395, 373, 67, 186, 48, 316, 322, 73, 126, 119,
    72, 359, 102, 360, 306, NONE, NONE, NONE, 106, 195, 99, 265, 457, 379, 25, NONE, NONE, NONE, 115, 87,
    NONE, 83, 297, 36, 307, NONE, 338, NONE, NONE, 135, 116, 103, NONE, 308, 241, 13, 254, 258, 257, 256,
    408, 255, 409, 317, 319, 321, 410, 320, 411, 43, 237, 92, 193, NONE, 191, NONE, 60, 22, 52, 122, 10, 294,
    303, NONE, NONE, 86, 355, NONE, NONE, 62, 30, 315, 412, 313, 190, 111, NONE, NONE, 309, NONE, 114, 281,
    NONE, 4, 146,
];

/// By name: its number on MIPS, counted from the architecture's base.
pub(super) static MIPS: [u16; COUNT] = [
    140, 142, 153, 168, 334, 33, 51, 280, 124, 137, 27, NONE, NONE, NONE, NONE, NONE, 134, 169, 355, 17,
    NONE, 45, 148, 147, 451, 204, 205, 12, 15, 202, NONE, 61, 341, 405, 264, 406, 263, 403, 265, 407, 262,
    404, 120, 435, 6, 436, 170, 360, 8, 127, 129, 41, 63, 327, 248, 326, 249, NONE, 313, 441, 250, NONE, 319,
    325, 11, 356, 1, 246, 300, 439, 254, NONE, 320, 336, 337, 133, 94, 299, 452, 95, NONE, 291, 55, 220, 152,
    229, 468, 469, 348, 232, 143, 2, 235, 431, 226, 432, 430, 433, 108, 215, 293, 100, 256, 118, 35, 93, 212,
    238, 456, 422, 455, 449, 454, 292, 130, 269, 310, NONE, NONE, 312, 203, 141, 219, 50, NONE, 49, NONE, 47,
    NONE, 80, NONE, 105, NONE, 171, 132, 65, 20, 208, 64, 96, 353, 191, NONE, 186, NONE, 76, 77, 151, 172,
    173, 222, 78, 24, NONE, 227, 464, 32, 112, 128, 285, 284, 329, 286, 245, 242, 243, 368, 416, 241, 244,
    426, 427, 425, 54, 101, 110, 315, 314, 117, 347, NONE, 311, 282, 37, 445, 444, 446, 16, NONE, 228, 9,
    296, 174, 458, 470, 230, 465, 231, 53, 247, 234, 19, 225, 459, 461, 460, 107, 214, 218, 453, 268, 358,
    354, NONE, 287, 217, 39, 289, 14, 290, 154, 359, 156, 90, 210, 123, 21, 442, 429, 308, 125, 56, 276, 275,
    271, 274, 419, 273, 418, 272, 167, 462, 402, 399, 401, 400, 144, NONE, 155, 157, 91, 339, 166, NONE, 189,
    34, NONE, NONE, NONE, NONE, NONE, 5, 340, 428, 467, 288, 437, 29, NONE, NONE, NONE, 333, 136, 438, 434,
    424, 42, 328, 216, 364, 365, 363, 188, 302, 414, 192, 200, 330, 361, 338, 440, 448, 345, 346, 44, 98,
    301, 413, 26, 209, 201, 331, 362, 187, 131, 443, 3, 223, 89, 85, 298, 145, 88, 175, 176, 335, 417, 177,
    251, 233, 466, 38, 295, 351, 281, 253, NONE, NONE, 40, 367, 471, 194, 196, 195, 198, 193, 199, 197, 421,
    332, NONE, NONE, NONE, NONE, NONE, NONE, 163, 164, 240, 350, 159, 161, 165, 423, 239, 349, 158, 160, 162,
    352, NONE, NONE, 394, 393, NONE, NONE, 420, 178, 207, 237, 343, 179, 180, 270, 450, 309, 283, 252, NONE,
    121, 139, NONE, 138, NONE, 46, NONE, 81, NONE, 74, 104, 344, 57, 97, 71, NONE, 190, NONE, 185, NONE, 70,
    NONE, 75, 66, 181, 79, 23, NONE, 224, 463, 68, 397, 396, 398, 395, 182, 67, 206, 48, 317, 324, 73, 126,
    119, 72, 183, 102, 184, 304, NONE, NONE, 69, 106, 213, 99, 255, 457, 366, 25, 31, NONE, NONE, 115, 87,
    NONE, 83, 297, 36, 305, NONE, 342, NONE, 0, 135, 116, 103, 149, 306, 266, 13, 257, 261, 260, 259, 408,
    258, 409, 318, 321, 322, 410, 323, 411, 43, 236, 92, 211, NONE, NONE, 58, 60, 22, 52, 122, 10, 294, 303,
    NONE, NONE, 86, 357, NONE, NONE, 62, 30, 316, 412, 267, NONE, 111, 113, NONE, 307, 277, 114, 278, 7, 4,
    146,
];

/// By name: its number on MIPS64, counted from the architecture's base.
pub(super) static MIPS64: [u16; COUNT] = [
    NONE, 22, 152, 42, 293, 20, 158, 239, 154, 176, 37, NONE, NONE, NONE, NONE, NONE, NONE, 48, 315, NONE,
    NONE, 12, 198, 197, 451, 123, 124, 78, 88, 90, NONE, 156, 300, NONE, 223, NONE, 222, NONE, 224, NONE,
    221, NONE, 55, 435, 3, 436, 41, 320, 83, 167, 169, 31, 32, 286, 207, 285, 208, NONE, 272, 441, 209, NONE,
    278, 284, 57, 316, 58, 205, 259, 439, 215, NONE, 279, 295, 296, 79, 89, 258, 452, 91, NONE, 250, 70,
    NONE, 73, 185, 468, 469, 307, 188, 71, 56, 191, 431, 182, 432, 430, 433, 5, NONE, NONE, 135, NONE, 72,
    NONE, 75, NONE, 194, 456, NONE, 455, 449, 454, 251, 170, 228, 269, NONE, NONE, 271, 77, 76, 308, 106,
    NONE, 105, NONE, 102, NONE, 113, NONE, 35, NONE, 51, 119, 109, 38, 174, 108, 137, 313, 118, NONE, 116,
    NONE, 95, 96, 122, 50, 54, 178, 94, 100, NONE, 183, 464, NONE, NONE, 168, 244, 243, 288, 245, 204, 201,
    202, 328, NONE, 200, 203, 426, 427, 425, 15, NONE, NONE, 274, 273, NONE, 306, NONE, 270, 241, 60, 445,
    444, 446, 92, NONE, 184, 84, 255, 49, 458, 470, 186, 465, 187, NONE, 206, 190, 8, 181, 459, 461, 460, 6,
    NONE, 27, 453, 227, 318, 314, NONE, 246, 26, 81, 248, 131, 249, 146, 319, 148, 9, NONE, NONE, 160, 442,
    429, 267, 10, NONE, 235, 234, 230, 233, NONE, 232, NONE, 231, 24, 462, 69, 66, 68, 67, 25, NONE, 147,
    149, 11, 298, 34, 252, 173, NONE, NONE, NONE, NONE, NONE, NONE, 2, 299, 428, 467, 247, 437, 33, NONE,
    NONE, NONE, 292, 132, 438, 434, 424, 21, 287, 151, 324, 325, 323, 7, 261, NONE, 153, 16, 289, 321, 297,
    440, 448, 304, 305, NONE, NONE, 260, NONE, 99, 175, 17, 290, 322, 171, 172, 443, 0, 179, NONE, 87, 257,
    18, 164, NONE, 44, 294, NONE, 46, 210, 189, 466, 80, 254, 311, 240, 213, NONE, NONE, 82, 327, 471, 13,
    125, 14, 127, 211, 128, 126, NONE, 291, NONE, NONE, NONE, NONE, NONE, NONE, 143, 144, 196, 310, 140, 142,
    145, NONE, 195, 309, 139, 141, 23, 312, NONE, NONE, 64, 62, 63, 214, NONE, NONE, 39, NONE, 302, 45, 43,
    229, 450, 268, 242, 212, NONE, 166, 121, NONE, 120, NONE, 104, NONE, 114, NONE, 165, 36, 303, 107, 138,
    112, NONE, 117, NONE, 115, NONE, 111, NONE, 155, 110, 53, 159, 103, NONE, 180, 463, NONE, 29, 30, 65, 28,
    47, NONE, 129, NONE, 276, 283, NONE, NONE, NONE, NONE, 40, NONE, 52, 263, NONE, NONE, NONE, 4, NONE, 134,
    NONE, 457, 326, NONE, NONE, NONE, NONE, 163, 162, NONE, 86, 256, 157, 264, NONE, 301, NONE, NONE, 136,
    97, 101, 199, 265, 225, NONE, 216, 220, 219, 218, NONE, 217, NONE, 277, 280, 281, NONE, 282, NONE, 98,
    192, 74, NONE, NONE, NONE, NONE, 93, NONE, 161, 61, 85, 253, 262, NONE, NONE, NONE, 317, NONE, NONE, 133,
    130, 275, NONE, 226, NONE, 150, NONE, NONE, 266, 236, 59, 237, NONE, 1, 19,
];

/// By name: its number on MIPS64N32, counted from the architecture's base.
pub(super) static MIPS64N32: [u16; COUNT] = [
    NONE, 22, 152, 42, 297, 20, 158, 243, 154, 176, 37, NONE, NONE, NONE, NONE, NONE, NONE, 48, 319, NONE,
    NONE, 12, 198, 197, 451, 123, 124, 78, 88, 90, NONE, 156, 305, 405, 227, 406, 226, 403, 228, 407, 225,
    404, 55, 435, 3, 436, 41, 324, 83, 167, 169, 31, 32, 290, 207, 289, 208, NONE, 276, 441, 209, NONE, 282,
    288, 57, 320, 58, 205, 263, 439, 216, NONE, 283, 300, 301, 79, 89, 262, 452, 91, NONE, 254, 70, 212, 73,
    185, 468, 469, 312, 188, 71, 56, 191, 431, 182, 432, 430, 433, 5, NONE, NONE, 135, 218, 72, NONE, 75,
    NONE, 194, 456, 422, 455, 449, 454, 255, 170, 232, 273, NONE, NONE, 275, 77, 76, 299, 106, NONE, 105,
    NONE, 102, NONE, 113, NONE, 35, NONE, 51, 119, 109, 38, 174, 108, 137, 317, 118, NONE, 116, NONE, 95, 96,
    122, 50, 54, 178, 94, 100, NONE, 183, 464, NONE, NONE, 168, 248, 247, 292, 249, 204, 201, 202, 332, 416,
    200, 203, 426, 427, 425, 15, NONE, NONE, 278, 277, NONE, 311, NONE, 274, 245, 60, 445, 444, 446, 92,
    NONE, 184, 84, 259, 49, 458, 470, 186, 465, 187, NONE, 206, 190, 8, 181, 459, 461, 460, 6, NONE, 27, 453,
    231, 322, 318, NONE, 250, 26, 81, 252, 131, 253, 146, 323, 148, 9, NONE, NONE, 160, 442, 429, 271, 10,
    NONE, 239, 238, 234, 237, 419, 236, 418, 235, 24, 462, 69, 66, 68, 67, 25, NONE, 147, 149, 11, 303, 34,
    256, 173, NONE, NONE, NONE, NONE, NONE, NONE, 2, 304, 428, 467, 251, 437, 33, NONE, NONE, NONE, 296, 132,
    438, 434, 424, 21, 291, 151, 328, 329, 327, 7, 265, 414, 153, 16, 293, 325, 302, 440, 448, 309, 310,
    NONE, NONE, 264, 413, 99, 175, 17, 294, 326, 171, 172, 443, 0, 179, NONE, 87, 261, 18, 164, NONE, 44,
    298, 417, 46, 210, 189, 466, 80, 258, 315, 244, 214, NONE, NONE, 82, 331, 471, 13, 125, 14, 127, 211,
    128, 126, 421, 295, NONE, NONE, NONE, NONE, NONE, NONE, 143, 144, 196, 314, 140, 142, 145, 423, 195, 313,
    139, 141, 23, 316, NONE, NONE, 64, 62, 63, 215, 420, NONE, 39, 219, 307, 45, 43, 233, 450, 272, 246, 213,
    NONE, 166, 121, NONE, 120, NONE, 104, NONE, 114, NONE, 165, 36, 308, 107, 138, 112, NONE, 117, NONE, 115,
    NONE, 111, NONE, 155, 110, 53, 159, 103, NONE, 180, 463, NONE, 29, 30, 65, 28, 47, NONE, 129, NONE, 280,
    287, NONE, NONE, NONE, NONE, 40, NONE, 52, 267, NONE, NONE, NONE, 4, NONE, 134, 217, 457, 330, NONE,
    NONE, NONE, NONE, 163, 162, NONE, 86, 260, 157, 268, NONE, 306, NONE, NONE, 136, 97, 101, 199, 269, 229,
    NONE, 220, 224, 223, 222, 408, 221, 409, 281, 284, 285, 410, 286, 411, 98, 192, 74, NONE, NONE, NONE,
    NONE, 93, NONE, 161, 61, 85, 257, 266, NONE, NONE, NONE, 321, NONE, NONE, 133, 130, 279, 412, 230, NONE,
    150, NONE, NONE, 270, 240, 59, 241, NONE, 1, 19,
];

/// By name: its number on PARISC, counted from the architecture's base.
pub(super) static PARISC: [u16; COUNT] = [
    140, 142, 149, 35, 320, 33, 51, 264, 124, NONE, 27, NONE, NONE, NONE, NONE, NONE, 134, 22, 341, NONE,
    NONE, 45, NONE, 356, 451, 106, 107, 12, 15, 180, NONE, 61, 324, 405, 257, 406, 256, 403, 258, 407, 255,
    404, 120, 435, 6, 436, 31, 346, 8, NONE, 129, 41, 63, 312, 224, 311, 225, NONE, 297, 441, 226, NONE, 304,
    310, 11, 342, 1, 222, 287, 439, NONE, 236, 305, 322, 323, 133, 94, 286, 452, 95, NONE, 278, 55, 202, 148,
    243, 468, 469, 333, 246, 143, 2, 249, 431, 240, 432, 430, 433, 28, 112, 280, 100, 299, 118, NONE, 93,
    200, 210, 456, 422, 455, 449, 454, 279, NONE, 261, 290, NONE, NONE, 296, 110, 141, 201, 50, NONE, 49,
    NONE, 47, NONE, 80, NONE, 105, NONE, 53, 132, 65, 20, NONE, 64, 96, 339, 171, NONE, 165, NONE, 76, 77,
    147, 44, 182, 206, 78, 24, NONE, 241, 464, NONE, NONE, 128, 270, 269, 314, 271, 219, 216, 217, 350, 416,
    215, 218, 426, 427, 425, 54, NONE, NONE, 268, 267, NONE, 332, 355, 300, 266, 37, 445, 444, 446, 16, NONE,
    242, 9, 283, 32, 458, 470, 244, 465, 245, NONE, 223, 248, 19, 239, 459, 461, 460, 84, 198, 119, 453, 260,
    343, 340, NONE, 272, 72, 39, 276, 14, 277, 150, 345, 152, 90, 89, NONE, 21, 442, 429, 295, 125, NONE,
    234, 233, 229, 232, 419, 231, 418, 230, 163, 462, 191, 190, 189, 188, 144, NONE, 151, 153, 91, 325, 162,
    NONE, NONE, 34, NONE, NONE, NONE, NONE, NONE, 5, 326, 428, 467, 275, 437, 29, NONE, NONE, NONE, 318, 136,
    438, 434, 424, 42, 313, 67, 352, 353, 351, 168, 274, 414, 172, 108, 315, 347, 321, 440, 448, 330, 331,
    NONE, NONE, 273, 413, 26, NONE, 109, 316, 348, NONE, 131, 443, 3, 207, NONE, 85, 285, 145, 88, 98, 123,
    319, 417, 184, 227, 247, 466, 38, 282, 337, 265, 0, NONE, NONE, 40, 354, 471, 174, 176, 175, 178, 173,
    179, 177, 421, 317, NONE, NONE, NONE, NONE, NONE, NONE, 159, 160, 212, 335, 155, 157, 161, 423, 211, 334,
    154, 156, 158, 338, NONE, NONE, 187, 186, 185, 228, 420, 58, 122, 209, 329, 183, 82, 262, 450, 289, NONE,
    237, NONE, 121, 139, NONE, 138, NONE, 46, NONE, 81, NONE, 74, 104, 328, 57, 97, 71, NONE, 170, NONE, 164,
    NONE, 70, NONE, 75, 66, 181, 79, 23, NONE, 238, 463, 68, 192, 195, 193, 194, 117, NONE, 166, 48, 302,
    309, 73, 126, NONE, NONE, 17, NONE, 56, 291, NONE, NONE, 69, 18, 101, 99, 298, 457, 349, 25, NONE, NONE,
    NONE, 115, 87, NONE, 83, 284, 36, 292, NONE, 327, NONE, NONE, 135, 116, 103, NONE, 293, 259, 13, 250,
    254, 253, 252, 408, 251, 409, NONE, 306, 308, 410, 307, 411, 43, 208, 92, 199, NONE, NONE, NONE, 60,
    NONE, 52, 59, 10, 281, 288, NONE, NONE, 86, 344, NONE, NONE, 62, 30, 301, 412, 336, 113, 111, NONE, NONE,
    294, NONE, 114, 235, 7, 4, 146,
];

/// By name: its number on PARISC64, counted from the architecture's base.
pub(super) static PARISC64: [u16; COUNT] = [
    NONE, 142, 149, 35, 320, 33, 51, 264, 124, NONE, 27, NONE, NONE, NONE, NONE, NONE, 134, 22, 341, NONE,
    NONE, 45, NONE, 356, 451, 106, 107, 12, 15, 180, NONE, 61, 324, NONE, 257, NONE, 256, NONE, 258, NONE,
    255, NONE, 120, 435, 6, 436, 31, 346, 8, NONE, 129, 41, 63, 312, 224, 311, 225, NONE, 297, 441, 226,
    NONE, 304, 310, 11, 342, 1, 222, 287, 439, NONE, 236, 305, 322, 323, 133, 94, 286, 452, 95, NONE, 278,
    55, 202, 148, 243, 468, 469, 333, 246, 143, 2, 249, 431, 240, 432, 430, 433, 28, 112, 280, 100, 299, 118,
    NONE, 93, 200, 210, 456, NONE, 455, 449, 454, 279, NONE, 261, 290, NONE, NONE, 296, 110, 141, 201, 50,
    NONE, 49, NONE, 47, NONE, 80, NONE, 105, NONE, 53, 132, 65, 20, NONE, 64, 96, 339, 171, NONE, 165, NONE,
    76, 77, 147, 44, 182, 206, 78, 24, NONE, 241, 464, NONE, NONE, 128, 270, 269, 314, 271, 219, 216, 217,
    350, NONE, 215, 218, 426, 427, 425, 54, NONE, NONE, 268, 267, NONE, 332, 355, 300, 266, 37, 445, 444,
    446, 16, NONE, 242, 9, 283, 32, 458, 470, 244, 465, 245, NONE, 223, 248, 19, 239, 459, 461, 460, 84, 198,
    119, 453, 260, 343, 340, NONE, 272, 72, 39, 276, 14, 277, 150, 345, 152, 90, 89, NONE, 21, 442, 429, 295,
    125, NONE, 234, 233, 229, 232, NONE, 231, NONE, 230, 163, 462, 191, 190, 189, 188, 144, NONE, 151, 153,
    91, 325, 162, NONE, NONE, 34, NONE, NONE, NONE, NONE, NONE, 5, 326, 428, 467, 275, 437, 29, NONE, NONE,
    NONE, 318, 136, 438, 434, 424, 42, 313, 67, 352, 353, 351, 168, 274, NONE, 172, 108, 315, 347, 321, 440,
    448, 330, 331, NONE, NONE, 273, NONE, 26, NONE, 109, 316, 348, NONE, 131, 443, 3, 207, NONE, 85, 285,
    145, 88, 98, 123, 319, NONE, 184, 227, 247, 466, 38, 282, 337, 265, 0, NONE, NONE, 40, 354, 471, 174,
    176, 175, 178, 173, 179, 177, NONE, 317, NONE, NONE, NONE, NONE, NONE, NONE, 159, 160, 212, 335, 155,
    157, 161, NONE, 211, 334, 154, 156, 158, 338, NONE, NONE, 187, 186, 185, 228, NONE, 58, 122, 209, 329,
    183, 82, 262, 450, 289, NONE, 237, NONE, 121, 139, NONE, 138, NONE, 46, NONE, 81, NONE, 74, 104, 328, 57,
    97, 71, NONE, 170, NONE, 164, NONE, 70, NONE, 75, 66, 181, 79, 23, NONE, 238, 463, 68, 192, 195, 193,
    194, 117, NONE, 166, 48, 302, 309, 73, 126, NONE, NONE, 17, NONE, 56, 291, NONE, NONE, 69, 18, 101, 99,
    298, 457, 349, 25, NONE, NONE, NONE, 115, 87, NONE, 83, 284, 36, 292, NONE, 327, NONE, NONE, 135, 116,
    103, NONE, 293, 259, 13, 250, 254, 253, 252, NONE, 251, NONE, NONE, 306, 308, NONE, 307, NONE, 43, 208,
    92, 199, NONE, NONE, NONE, 60, NONE, 52, 59, 10, 281, 288, NONE, NONE, 86, 344, NONE, NONE, 62, 30, 301,
    NONE, 336, 113, 111, NONE, NONE, 294, NONE, 114, 235, 7, 4, 146,
];

/// By name: its number on M68K, counted from the architecture's base.
pub(super) static M68K: [u16; COUNT] = [
    140, 142, 149, NONE, 361, 33, 51, 279, 124, NONE, 27, NONE, NONE, NONE, 336, 335, 134, 358, 354, NONE,
    NONE, 45, NONE, 123, 451, 184, 185, 12, 15, 16, 198, 61, 342, 405, 261, 406, 260, 403, 262, 407, 259,
    404, 120, 435, 6, 436, 359, 376, 8, 127, 129, 41, 63, 326, 249, 325, 250, NONE, 315, 441, 251, NONE, 319,
    324, 11, 355, 1, 247, 300, 439, 246, 267, 320, 337, 338, 133, 94, 299, 452, 95, 207, 291, 55, 239, 148,
    228, 468, 469, 348, 231, 143, 2, 234, 431, 225, 432, 430, 433, 108, 197, 293, 100, 264, 118, NONE, 93,
    194, 235, 456, 422, 455, 449, 454, 292, 130, 269, 305, 333, NONE, 314, 183, 141, 220, 50, 202, 49, 201,
    47, 200, 80, 205, 105, 166, 365, 132, 65, 20, 188, 64, 96, 352, 171, 211, 165, 209, 76, 77, 147, 364,
    362, 221, 78, 24, 199, 226, 464, NONE, NONE, 128, 285, 284, 328, 286, 245, 242, 243, NONE, 416, 241, 244,
    426, 427, 425, 54, NONE, NONE, 283, 282, 117, 347, NONE, 313, 281, 37, 445, 444, 446, 182, 212, 227, 9,
    296, 360, 458, 470, 229, 465, 230, NONE, 248, 233, 19, 224, 459, 461, 460, 107, 196, 238, 453, 268, 374,
    353, NONE, 287, 237, 39, 289, 14, 290, 150, 375, 152, 90, 192, NONE, 21, 442, 429, 310, 125, NONE, 276,
    275, 271, 274, 419, 273, 418, 272, 163, 462, 402, 399, 401, 400, 144, NONE, 151, 153, 91, 340, 162, NONE,
    169, 34, 28, 84, NONE, 18, NONE, 5, 341, 428, 467, 288, 437, 29, NONE, NONE, NONE, 332, 136, 438, 434,
    424, 42, 327, 217, 382, 383, 381, 168, 302, 414, 172, 180, 329, 377, 339, 440, 448, 345, 346, NONE, NONE,
    301, 413, 26, 189, 181, 330, 378, 167, 131, 443, 3, 240, 89, 85, 298, 145, 88, NONE, 368, 371, 417, 369,
    252, 232, 466, 38, 295, 351, 280, 0, NONE, NONE, 40, 384, 471, 174, 176, 175, 178, 173, 179, 177, 421,
    331, NONE, NONE, NONE, NONE, NONE, NONE, 159, 160, 312, 350, 155, 157, 161, 423, 311, 349, 154, 156, 158,
    380, NONE, 82, 394, 393, NONE, NONE, 420, NONE, 187, 236, 372, 367, 366, 270, 450, 304, 334, 253, NONE,
    121, 139, 216, 138, 215, 46, 214, 81, 206, 74, 104, 344, 57, 97, 71, 204, 170, 210, 164, 208, 70, 203,
    75, 66, 363, 79, 23, 213, 223, 463, 68, 397, 396, 398, 395, 370, 67, 186, 48, 317, 323, 73, 126, 119, 72,
    356, 102, 357, 306, NONE, NONE, 69, 106, 195, 99, 263, 457, 379, 25, NONE, NONE, NONE, 115, 87, NONE, 83,
    297, 36, 307, NONE, 343, NONE, NONE, 135, 116, 103, NONE, 308, 265, 13, 254, 258, 257, 256, 408, 255,
    409, NONE, 318, 322, 410, 321, 411, 43, 222, 92, 193, NONE, 191, NONE, 60, 22, 52, 122, 10, 294, 303,
    NONE, NONE, 86, 373, NONE, NONE, 62, 30, 316, 412, 266, 190, 111, NONE, NONE, 309, NONE, 114, 277, 7, 4,
    146,
];

/// By name: its number on SH, counted from the architecture's base.
pub(super) static SH: [u16; COUNT] = [
    140, 142, 149, 344, 358, 33, 51, 285, 124, NONE, 27, NONE, NONE, NONE, NONE, NONE, 134, 341, 375, NONE,
    NONE, 45, NONE, 123, 451, 184, 185, 12, 15, 182, 212, 61, 361, 405, 266, 406, 265, 403, 267, 407, 264,
    404, 120, NONE, 6, 436, 342, 380, 8, NONE, 129, 41, 63, 330, 254, 329, 255, NONE, 319, 441, 256, NONE,
    323, 328, 11, 376, 1, 252, 307, 439, 250, 272, 324, 337, 338, 133, 94, 306, 452, 95, 207, 298, 55, 221,
    148, 231, 468, 469, 368, 234, 143, 2, 237, 431, 228, 432, 430, 433, 108, 197, 300, 100, 269, 118, NONE,
    93, 194, 240, 456, 422, 455, 449, 454, 299, NONE, 275, 312, NONE, NONE, 318, 183, 141, 220, 50, 202, 49,
    201, 47, 200, 80, 205, 105, NONE, 346, 132, 65, 20, NONE, 64, 96, 373, 171, 211, 165, 209, 76, 77, 147,
    345, 354, 224, 78, 24, 199, 229, 464, NONE, NONE, 128, 291, 290, 332, 292, 249, 246, 247, NONE, 416, 245,
    248, 426, 427, 425, 54, NONE, NONE, 289, 288, 117, 367, NONE, 283, 287, 37, 445, 444, 446, 16, 198, 230,
    9, 303, 343, 458, 470, 232, 465, 233, NONE, 253, 236, 19, 227, 459, 461, 460, 107, 196, 219, 453, 274,
    378, 374, NONE, 294, 218, 39, 296, 14, 297, 150, 379, 152, 90, 192, NONE, 21, 442, 429, 317, 125, NONE,
    282, 281, 277, 280, 419, 279, 418, 278, 163, 462, 402, 399, 401, 400, 144, NONE, 151, 153, 91, 359, 162,
    NONE, 169, 34, 28, 84, NONE, 18, 109, 5, 360, 428, 467, 295, 437, 29, NONE, NONE, NONE, 336, 136, 438,
    434, 424, 42, 331, 217, 385, 386, 384, 168, 309, 414, 172, 180, 333, 381, 339, 440, 448, 365, 366, NONE,
    NONE, 308, 413, 26, NONE, 181, 334, 382, NONE, 131, 443, 3, 225, 89, 85, 305, 145, 88, 350, 351, 357,
    417, 356, 257, 235, 466, 38, 302, 371, 286, 0, NONE, NONE, 40, 387, 471, 174, 176, 175, 178, 173, 179,
    177, 421, 335, NONE, NONE, NONE, NONE, NONE, NONE, 159, 160, 242, 369, 155, 157, 161, 423, 241, 370, 154,
    156, 158, 372, NONE, NONE, 394, 393, NONE, NONE, 420, 348, 187, 239, 363, 355, 349, 276, 450, 311, NONE,
    258, NONE, 121, 139, 216, 138, 215, 46, 214, 81, 206, 74, 104, 364, 57, 97, 71, 204, 170, 210, 164, 208,
    70, 203, 75, 66, 353, 79, 23, 213, 226, 463, 68, 397, 396, 398, 395, 352, 67, 186, 48, 321, 327, 73, 126,
    119, 72, 340, 102, 347, 313, NONE, NONE, 69, 106, 195, 99, 268, 457, 383, 25, NONE, NONE, NONE, 115, 87,
    NONE, 83, 304, 36, 314, 388, 362, NONE, NONE, 135, 116, 103, NONE, 315, 270, 13, 259, 263, 262, 261, 408,
    260, 409, NONE, 322, 326, 410, 325, 411, 43, 238, 92, 193, NONE, 191, NONE, 60, 22, 52, 122, 10, 301,
    310, NONE, NONE, 86, 377, NONE, NONE, 62, 30, 320, 412, 271, 190, 111, NONE, NONE, 316, NONE, 114, 284,
    7, 4, 146,
];
