//! Why a host gives no namespaces, and what its administrator can do. It is looked for only after the kernel has refused.

use rt_sys::error::Error;
use rt_sys::ns::{IdMaps, Namespace, Namespaces};

const KINDS: [Namespace; 8] = [
    Namespace::User,
    Namespace::Mount,
    Namespace::Pid,
    Namespace::Ipc,
    Namespace::Uts,
    Namespace::Network,
    Namespace::Cgroup,
    Namespace::Time,
];

/// The error of making the namespaces `new`.
#[cold]
pub(super) fn namespaces(error: Error, new: impl Into<Namespaces>) -> Error {
    let new = new.into();
    let remedy = remedy(&error, new);
    let doing = if new.contains(Namespace::User) {
        "make a user namespace and its namespaces"
    } else {
        "make namespaces"
    };
    with(error.context(doing), remedy)
}

/// What helps where the namespaces `new` cannot be made.
pub(crate) fn remedy(error: &Error, new: Namespaces) -> Option<String> {
    match error.errno() {
        Some(libc::ENOSPC) => exhausted(new, &read),
        Some(libc::EPERM | libc::EACCES) if new.contains(Namespace::User) => forbidden(&read),
        _ => None,
    }
}

/// The error of writing `maps` for a new user namespace. Some hosts let every user make one, and fail here; and so do pods
/// whose root has lost what the kernel asks for since 5.12 (user_namespaces(7)). Inside the new namespace this process has no
/// id any more, so that the maps say who it was.
#[cold]
pub(crate) fn maps(error: Error, maps: &IdMaps) -> Error {
    let remedy = match error.errno() {
        Some(libc::EPERM | libc::EACCES) => apparmor(&read).or_else(|| {
            let of_root = maps.uid.iter().any(|map| map.host == 0);
            of_root.then(|| {
                "only with CAP_SETFCAP can root's id be mapped: give the pod or the container around rt that capability, \
                 or run it as another user"
                    .to_owned()
            })
        }),
        _ => None,
    };
    with(error, remedy)
}

fn with(error: Error, remedy: Option<String>) -> Error {
    match remedy {
        Some(remedy) => error.hint(remedy),
        None => error,
    }
}

/// A file's text; empty where there is none.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// A limit on namespaces (namespaces(7)), as sysctl(8) shows it.
struct Limit {
    key: String,
    value: String,
}

/// The limits that may be reached: those of 0, else all that count for `new`. The kernel does not tell how many
/// namespaces there are.
fn exhausted(new: Namespaces, read: &dyn Fn(&str) -> String) -> Option<String> {
    let asked = KINDS.into_iter().filter(|kind| new.contains(*kind));
    let limits = asked.map(|kind| {
        let key = format!("max_{}_namespaces", kind.file());
        let value = read(&format!("/proc/sys/user/{key}"));
        Limit { key: format!("user.{key}"), value }
    });
    let limits: Vec<Limit> = limits.filter(|limit| !limit.value.is_empty()).collect();
    let listed = |text: &dyn Fn(&Limit) -> Option<String>| {
        limits.iter().filter_map(text).collect::<Vec<_>>().join(" ")
    };
    let zero = listed(&|limit| (limit.value == "0").then(|| format!("{}=15000", limit.key)));
    if !zero.is_empty() {
        return Some(format!("this host forbids it: sysctl -w {zero} allows it"));
    }
    let all = listed(&|limit| Some(format!("{}={}", limit.key, limit.value)));
    let reached = format!("a limit is reached, one of {all}, or namespaces are nested 32 deep");
    (!all.is_empty()).then_some(reached)
}

/// What forbids user namespaces to callers without privilege.
fn forbidden(read: &dyn Fn(&str) -> String) -> Option<String> {
    const DEBIAN: &str = "kernel.unprivileged_userns_clone";
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return Some(format!("this host forbids it: sysctl -w {DEBIAN}=1 allows it"));
    }
    let filtered = || {
        let status = read("/proc/self/status");
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
        (mode == Some("2")).then(|| "a seccomp filter around this process may forbid it".to_owned())
    };
    apparmor(read).or_else(|| confined(read)).or_else(filtered)
}

/// A profile without the rule `userns` denies them, since Linux 6.7. The profile may be that of the program that called.
fn confined(read: &dyn Fn(&str) -> String) -> Option<String> {
    let label = read("/proc/self/attr/current");
    let profile = label.strip_suffix(" (enforce)")?;
    Some(format!(
        "the AppArmor profile {profile} of this process may forbid it: a profile of rt's own, contrib/apparmor/rt, or \
         the rule \"userns,\" in that profile allows it"
    ))
}

/// Ubuntu lets only programs with a profile use what a user namespace gives.
fn apparmor(read: &dyn Fn(&str) -> String) -> Option<String> {
    (read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1").then(|| {
        "this host's AppArmor lets only programs with a profile use user namespaces: install rt's, contrib/apparmor/rt, \
         into /etc/apparmor.d and load it by apparmor_parser -r"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> String + 'a {
        |path| files.iter().find(|(p, _)| *p == path).map_or(String::new(), |(_, text)| (*text).to_owned())
    }

    #[test]
    fn every_exhausted_limit_is_named() {
        let new = Namespaces::from_iter([Namespace::User, Namespace::Uts, Namespace::Network]);
        let (uts, net, pid) = (
            "/proc/sys/user/max_uts_namespaces",
            "/proc/sys/user/max_net_namespaces",
            "/proc/sys/user/max_pid_namespaces",
        );
        let zero = exhausted(new, &host(&[(uts, "0"), (net, "0"), (pid, "0")])).unwrap();
        assert!(zero.contains("user.max_uts_namespaces=15000 user.max_net_namespaces=15000"), "{zero}");
        assert!(!zero.contains("max_pid"), "{zero}");
        let some = exhausted(new, &host(&[(uts, "7"), (net, "9")])).unwrap();
        assert!(some.contains("user.max_uts_namespaces=7 user.max_net_namespaces=9"), "{some}");
        assert_eq!(exhausted(new, &host(&[])), None);
    }

    #[test]
    fn who_forbids_user_namespaces_is_named() {
        let debian = ("/proc/sys/kernel/unprivileged_userns_clone", "0");
        let ubuntu = ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
        let said = |files: &[(&str, &str)]| forbidden(&host(files)).unwrap_or_default();
        assert!(said(&[debian, ubuntu]).contains("kernel.unprivileged_userns_clone=1"));
        let profile = said(&[ubuntu]);
        assert!(profile.contains("/etc/apparmor.d") && !profile.contains("sysctl"), "{profile}");
        let current = "/proc/self/attr/current";
        assert!(said(&[(current, "login//user (enforce)")]).contains("profile login//user of this process"));
        for free in ["unconfined", "rt (unconfined)", "login (complain)", "system_u:system_r:kernel_t:s0"] {
            assert_eq!(said(&[(current, free)]), "");
        }
        assert!(said(&[("/proc/self/status", "Name: x\nSeccomp:\t2")]).contains("seccomp"));
        assert_eq!(said(&[("/proc/self/status", "Seccomp:\t0")]), "");
    }
}
