//! The system calls that criu makes within a program, under the program's own seccomp filters.
//!
//! It has the program tell what procfs does not, and to write its memory to a pipe. That a filter refuses one of these calls is found when the program is
//! stopped for an image, or, for the last calls of a restore, when the program has ended for good: so the filters, which `rt` has
//! compiled, are asked before. The calls are those of criu 4.2 (compel/plugins/std/infect.c, criu/pie/parasite.c and restorer.c), each tried
//! with a filter that refuses it alone. What may fail, and calls for what few programs have, such as timers, are not among them.

use rt_sys::err;
use rt_sys::error::Result;
use rt_sys::seccomp::{Answer, Filter};

/// A system call, by what it is called in an error, its number, and those of its first arguments that filters tell apart.
type Made = (&'static str, libc::c_long, &'static [u64]);

/// F_GETOWN_EX (linux/fcntl.h).
const GETOWN_EX: u64 = 16;
/// The question for registrations (linux/membarrier.h), which criu asks since Linux 6.3.
const GET_REGISTRATIONS: u32 = 1 << 9;

/// Calls in a program that is dumped.
const DUMPS: &[Made] = &[
    ("memfd_create", libc::SYS_memfd_create, &[]),
    ("mmap", libc::SYS_mmap, &[0, 4096, (libc::PROT_READ | libc::PROT_EXEC) as u64, libc::MAP_SHARED as u64]),
    ("mprotect", libc::SYS_mprotect, &[0, 4096, (libc::PROT_READ | libc::PROT_WRITE) as u64]),
    ("munmap", libc::SYS_munmap, &[]),
    ("close", libc::SYS_close, &[]),
    ("read", libc::SYS_read, &[]),
    ("openat", libc::SYS_openat, &[]),
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open, &[]),
    ("readlinkat", libc::SYS_readlinkat, &[]),
    ("sigaltstack", libc::SYS_sigaltstack, &[]),
    ("rt_sigaction", libc::SYS_rt_sigaction, &[]),
    ("rt_sigreturn", libc::SYS_rt_sigreturn, &[]),
    ("socket(AF_UNIX)", libc::SYS_socket, &[libc::AF_UNIX as u64, libc::SOCK_SEQPACKET as u64]),
    ("connect", libc::SYS_connect, &[]),
    ("sendto", libc::SYS_sendto, &[]),
    ("recvfrom", libc::SYS_recvfrom, &[]),
    ("sendmsg", libc::SYS_sendmsg, &[]),
    ("recvmsg", libc::SYS_recvmsg, &[]),
    ("futex", libc::SYS_futex, &[0, libc::FUTEX_WAKE as u64]),
    ("vmsplice", libc::SYS_vmsplice, &[]),
    ("fcntl(F_GETFD)", libc::SYS_fcntl, &[0, libc::F_GETFD as u64]),
    ("fcntl(F_GETFL)", libc::SYS_fcntl, &[0, libc::F_GETFL as u64]),
    ("fcntl(F_GETOWN_EX)", libc::SYS_fcntl, &[0, GETOWN_EX]),
    ("getitimer", libc::SYS_getitimer, &[]),
    ("brk", libc::SYS_brk, &[]),
    ("umask", libc::SYS_umask, &[]),
    ("getpid", libc::SYS_getpid, &[]),
    ("getsid", libc::SYS_getsid, &[]),
    ("getpgid", libc::SYS_getpgid, &[]),
    ("getgroups", libc::SYS_getgroups, &[]),
    ("getresuid", libc::SYS_getresuid, &[]),
    ("getresgid", libc::SYS_getresgid, &[]),
    ("capget", libc::SYS_capget, &[]),
    ("prctl(PR_GET_TID_ADDRESS)", libc::SYS_prctl, &[libc::PR_GET_TID_ADDRESS as u64]),
    ("prctl(PR_GET_PDEATHSIG)", libc::SYS_prctl, &[libc::PR_GET_PDEATHSIG as u64]),
    ("prctl(PR_GET_NAME)", libc::SYS_prctl, &[libc::PR_GET_NAME as u64]),
    ("prctl(PR_GET_CHILD_SUBREAPER)", libc::SYS_prctl, &[libc::PR_GET_CHILD_SUBREAPER as u64]),
    ("prctl(PR_GET_NO_NEW_PRIVS)", libc::SYS_prctl, &[libc::PR_GET_NO_NEW_PRIVS as u64]),
    ("prctl(PR_GET_SECUREBITS)", libc::SYS_prctl, &[libc::PR_GET_SECUREBITS as u64]),
    ("prctl(PR_CAPBSET_READ)", libc::SYS_prctl, &[libc::PR_CAPBSET_READ as u64]),
    (
        "prctl(PR_CAP_AMBIENT)",
        libc::SYS_prctl,
        &[libc::PR_CAP_AMBIENT as u64, libc::PR_CAP_AMBIENT_IS_SET as u64],
    ),
];

/// The same where the kernel can be asked so.
const REGISTRATIONS: Made = ("membarrier", libc::SYS_membarrier, &[GET_REGISTRATIONS as u64]);

/// Calls in a program that is restored, which has its filters before it has its limits.
const RESTORES: &[Made] = &[
    ("prctl(PR_CAPBSET_DROP)", libc::SYS_prctl, &[libc::PR_CAPBSET_DROP as u64]),
    ("prctl(PR_SET_NO_NEW_PRIVS)", libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as u64, 1]),
    ("prctl(PR_SET_DUMPABLE)", libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 1]),
    ("capset", libc::SYS_capset, &[]),
    ("futex", libc::SYS_futex, &[0, libc::FUTEX_WAKE as u64]),
    ("rt_sigreturn", libc::SYS_rt_sigreturn, &[]),
];

/// Fails where `filters` refuse a call that criu makes when it restores the program, or, where it `dumps` under them, when it does that.
pub(super) fn check(filters: &[Filter], dumps: bool) -> Result<()> {
    if filters.is_empty() {
        return Ok(());
    }
    let registrations = rustix::thread::membarrier_query().bits() & GET_REGISTRATIONS != 0;
    let dumped = DUMPS.iter().chain(registrations.then_some(&REGISTRATIONS)).filter(|_| dumps);
    let mut refused: Vec<&str> = Vec::new();
    for (name, number, arguments) in dumped.chain(RESTORES) {
        if !refused.contains(name) && filters.iter().any(|filter| refuses(filter, *number, arguments)) {
            refused.push(name);
        }
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(err!(
            "the config's seccomp filter refuses criu what it does in the program: {}",
            refused.join(", ")
        )
        .hint("allow that by linux.seccomp of config.json")),
    }
}

fn refuses(filter: &Filter, number: libc::c_long, first: &[u64]) -> bool {
    let Ok(number) = u32::try_from(number) else { return false };
    let mut arguments = [0; 6];
    arguments[..first.len()].copy_from_slice(first);
    match filter.answer(number, arguments) {
        // A feigned success is what the program gets, too; without memfd_create(2) criu does its work otherwise.
        Some(Answer::Failed(0)) | Some(Answer::Done) | None => false,
        Some(Answer::Failed(errno)) => {
            i64::from(number) != libc::SYS_memfd_create || i32::from(errno) != libc::ENOSYS
        }
        Some(Answer::Other) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(section: &str, dumps: bool) -> String {
        let program = oci_seccomp::compile(&serde_json::from_str(section).unwrap()).unwrap();
        let kernels =
            |i: &oci_seccomp::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
        let instructions = program.instructions.iter().map(kernels).collect();
        check(&[Filter { instructions, flags: 0, notifies: false }], dumps)
            .map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn what_filters_refuse_is_said() {
        let with = |names: &str, action: &str, more: &str| {
            format!(
                r#"{{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{{ "names": [{names}], "action": "SCMP_ACT_{action}" {more} }}] }}"#
            )
        };
        let errno = |names: &str, more: &str| with(names, "ERRNO", more);
        assert_eq!(said(&errno(r#""mkdir", "mount""#, ""), true), "");
        assert!(
            said(&errno(r#""mkdir", "vmsplice", "capget""#, ""), true)
                .contains("program: vmsplice, capget (")
        );
        for action in ["KILL", "TRAP", "TRACE"] {
            assert!(
                said(&with(r#""vmsplice""#, action, ""), true).contains("program: vmsplice ("),
                "{action}"
            );
        }
        assert_eq!(said(&with(r#""vmsplice""#, "LOG", ""), true), "");
        // criu suspends filters for root.
        assert_eq!(said(&errno(r#""vmsplice""#, ""), false), "");
        assert!(said(&errno(r#""capset""#, ""), false).contains("program: capset ("));
        // Success is feigned, and what is not there is done without.
        assert_eq!(said(&errno(r#""umask""#, r#", "errnoRet": 0"#), true), "");
        assert_eq!(said(&errno(r#""memfd_create""#, r#", "errnoRet": 38"#), true), "");
        assert!(
            said(&errno(r#""memfd_create""#, r#", "errnoRet": 1"#), true).contains("program: memfd_create (")
        );
        // What has other arguments is another call.
        let of_option =
            |option: i32| format!(r#", "args": [{{ "index": 0, "value": {option}, "op": "SCMP_CMP_EQ" }}]"#);
        assert_eq!(said(&errno(r#""prctl""#, &of_option(libc::PR_SET_NAME)), true), "");
        let refused = said(&errno(r#""prctl""#, &of_option(libc::PR_SET_DUMPABLE)), true);
        assert!(refused.contains("program: prctl(PR_SET_DUMPABLE) ("), "{refused}");
    }
}
