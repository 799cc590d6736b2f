//! The kernel: its version, who may make user namespaces, and what they are good for.

use super::{Check, text_of};
use crate::container::namespaces_remedy;
use rt_sys::caller::Caller;
use rt_sys::error::{Error, Result};
use rt_sys::mount::{self, Attr, Follow, Param, Recursive};
use rt_sys::ns::{IdMap, IdMaps, Namespace, Namespaces, Setgroups};
use rt_sys::process::{self, Memory};
use rt_sys::{bail, fd};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;

/// What kernels before these versions lack.
const SINCE: [(u32, u32, &str); 5] = [
    (5, 3, "pidfd_open(2)"),
    (5, 6, "openat2(2)"),
    (5, 11, "overlays in user namespaces"),
    (5, 12, "mount_setattr(2)"),
    (5, 14, "everything else that rt needs"),
];

pub(super) fn checks() -> Vec<Check> {
    let mut all = vec![version(&rt_sys::kernel_release())];
    all.extend(security_modules());
    let (namespace, works) = user_namespace();
    all.push(namespace);
    if works {
        all.push(mounts());
        all.push(overlay());
        all.push(proc());
    }
    all.push(Check::ok(
        "subordinate ids",
        "not needed: rt maps one id, the caller's (no /etc/subuid, no newuidmap)",
    ));
    all
}

fn version(release: &str) -> Check {
    const NAME: &str = "kernel";
    let Some((major, minor)) = rt_sys::kernel_numbers(release) else {
        return Check::note(NAME, format!("{release}: its version is unknown"));
    };
    let lacks = SINCE.iter().filter(|(m, n, _)| (major, minor) < (*m, *n)).map(|(_, _, what)| *what);
    let lacks: Vec<_> = lacks.collect();
    match lacks.is_empty() {
        true => Check::ok(NAME, format!("Linux {release}")),
        false => Check::problem(NAME, format!("Linux {release} lacks {}", lacks.join(", ")))
            .remedy("a kernel from 5.14 on"),
    }
}

/// What AppArmor and SELinux have to do with user namespaces.
fn security_modules() -> Vec<Check> {
    let mut all = Vec::new();
    let label = || text_of("/proc/self/attr/current");
    if text_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        let text = format!(
            "only programs with a profile may use user namespaces; the label of this one is {}",
            label()
        );
        all.push(Check::ok("AppArmor", text));
    }
    if text_of("/sys/fs/selinux/enforce") == "1" {
        all.push(Check::ok("SELinux", format!("enforcing; the context of this process is {}", label())));
    }
    all
}

/// Does `work` in a child in new namespaces, where the child has the capabilities of a user namespace in which only the
/// caller's id is mapped.
fn inside(new: impl Into<Namespaces>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let new = new.into();
    let (mut answer, to_parent) = std::io::pipe()?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let one = |id| vec![IdMap { container: id, host: id, size: 1 }];
    let maps = IdMaps { uid: one(uid), gid: one(gid) };
    let proc = fd::open_proc()?;
    let child = process::spawn(new, Memory::Copied, || {
        let result = maps.write(&proc, "self", Setgroups::Deny).and_then(|()| work());
        match result {
            Ok(()) => 0,
            Err(e) => {
                // The errno first, so that the parent can decide by it.
                let text = format!("{} {e}", e.errno().unwrap_or(0));
                i32::from((&to_parent).write_all(text.as_bytes()).is_err()) + 1
            }
        }
    });
    let child = child?;
    drop(to_parent);
    let mut said = String::new();
    answer.read_to_string(&mut said)?;
    let status = process::wait(child.pid)?;
    match (process::exit_code(status), said.split_once(' ')) {
        (0, _) => Ok(()),
        (_, Some((errno, text))) => {
            let errno = errno.parse().ok().filter(|errno| *errno != 0);
            Err(Error::from_parts(text.to_owned(), errno))
        }
        (code, None) => bail!("the process that tried it ended with {code}"),
    }
}

fn user_namespace() -> (Check, bool) {
    const NAME: &str = "user namespace";
    let new = [Namespace::User, Namespace::Mount].into_iter().collect::<Namespaces>();
    let tried = inside(new, || Ok(()));
    let root = rustix::process::geteuid().is_root();
    match tried {
        Ok(()) => {
            // Root may do what others may not.
            let zero = ("/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone");
            if root && text_of(zero.0) == "0" {
                let remedy = format!("sysctl -w {}=1", zero.1);
                return (Check::note(NAME, "root can make one, but users cannot").remedy(remedy), true);
            }
            (Check::ok(NAME, "one with a single id can be made"), true)
        }
        Err(e) => {
            let remedy = namespaces_remedy(&e, new);
            let text = format!("none can be made: {e}");
            let is_needed = Caller::current().is_ok_and(|caller| caller.is_unprivileged());
            let check = if is_needed { Check::problem(NAME, text) } else { Check::note(NAME, text) };
            (Check { remedy, ..check }, false)
        }
    }
}

/// A place to mount at in a namespace of one's own: what is there is not seen by anybody else.
const PLACE: &str = "/proc";

fn tmpfs() -> Result<()> {
    let tree = mount::new_fs("tmpfs", "tmpfs", &[Param::Value("mode".into(), "755".into())], 0)?;
    mount::attach_to(&tree, Path::new(PLACE))
}

fn mounts() -> Check {
    const NAME: &str = "mounts";
    let new = [Namespace::User, Namespace::Mount].into_iter().collect::<Namespaces>();
    let step = |what: &'static str| move |e: Error| e.context(what);
    let tried = inside(new, || {
        let root = mount::clone_path(Path::new("/usr"), Recursive::Yes, Follow::Links)
            .map_err(step("a bind of /usr"))?;
        mount::set_attr(&root, Recursive::Yes, Attr::READONLY).map_err(step("a read-only bind"))?;
        let newinstance = Param::Flag("newinstance".to_owned());
        mount::new_fs("devpts", "devpts", &[newinstance], 0).map_err(step("a devpts"))?;
        tmpfs().map_err(step("a tmpfs"))
    });
    match tried {
        Ok(()) => Check::ok(NAME, "binds, read-only binds, tmpfs and devpts can be mounted"),
        Err(e) => Check::problem(NAME, e.to_string())
            .remedy("see which seccomp filter or security module surrounds this process"),
    }
}

fn overlay() -> Check {
    const NAME: &str = "overlay";
    let new = [Namespace::User, Namespace::Mount].into_iter().collect::<Namespaces>();
    let tried = inside(new, || {
        tmpfs()?;
        for dir in ["lower", "upper", "work"] {
            std::fs::create_dir(format!("{PLACE}/{dir}"))?;
        }
        let dir = |key: &str, name: &str| Param::Value(key.to_owned(), format!("{PLACE}/{name}"));
        let params = [dir("lowerdir", "lower"), dir("upperdir", "upper"), dir("workdir", "work")];
        let userxattr = Param::Flag("userxattr".to_owned());
        mount::new_fs("overlay", "overlay", &[&params[..], &[userxattr]].concat(), 0).map(drop)
    });
    match tried {
        Ok(()) => Check::ok(NAME, "can be mounted in a user namespace"),
        Err(e) => Check::note(NAME, format!("cannot be mounted in a user namespace: {e}"))
            .remedy("modprobe overlay; images that are kept as layers, and writable layers, need it"),
    }
}

/// A new proc wants a PID namespace of its own, and that nothing of the host's is hidden.
fn proc() -> Check {
    const NAME: &str = "proc";
    let new = [Namespace::User, Namespace::Mount, Namespace::Pid].into_iter().collect::<Namespaces>();
    match inside(new, || mount::new_fs("proc", "proc", &[], 0).map(drop)) {
        Ok(()) => Check::ok(NAME, "a new one can be mounted in a PID namespace"),
        Err(e) => {
            let over = hidden_parts();
            let text = format!("no new one can be mounted: {e}");
            let remedy = match over.is_empty() {
                true => "rt then shows the host's; the profile hpc needs no new one".to_owned(),
                false => format!(
                    "something is mounted over {}, as in a container; the profile hpc needs no new proc",
                    over.join(", ")
                ),
            };
            Check::note(NAME, text).remedy(remedy)
        }
    }
}

/// What is mounted below /proc, and hides a part of it.
fn hidden_parts() -> Vec<String> {
    let table = mount::table().unwrap_or_default();
    let below = |path: &Path| path.starts_with("/proc") && path.as_os_str() != OsStr::new("/proc");
    let paths = table.iter().map(|mounted| mounted.point.clone());
    let mut all: Vec<String> =
        paths.filter(|path| below(path)).map(|path| path.display().to_string()).collect();
    all.retain(|path| !path.starts_with("/proc/sys/fs/binfmt_misc"));
    all.sort();
    all.dedup();
    all.truncate(4);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn old_kernels_are_told_what_they_lack() {
        assert_eq!(version("6.1.0-13-amd64").status, Status::Ok);
        assert_eq!(version("5.14.0-427.el9").status, Status::Ok);
        let old = version("5.10.0-30-amd64");
        assert_eq!(old.status, Status::Problem);
        assert!(old.text.contains("overlays") && old.text.contains("mount_setattr"), "{}", old.text);
        assert!(!old.text.contains("openat2"), "{}", old.text);
        assert!(!version("5.13.1").text.contains("mount_setattr"));
        // RHEL 8, whose mount API is there without the rest.
        let rhel = version("4.18.0-553.el8_10.x86_64").text;
        assert!(rhel.contains("pidfd_open") && rhel.contains("openat2"), "{rhel}");
        assert_eq!(version("what").status, Status::Note);
    }
}
