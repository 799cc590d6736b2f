//! The names of signals: what `rt kill` takes, and what the completions offer.

/// Linux's signals in the order of their numbers, from 1 on, as on all architectures but alpha, mips, parisc and sparc
/// (signal(7)).
pub const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
