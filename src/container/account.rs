//! The caller's line in the container's passwd(5) and group(5), where the annotation `rt.passwd` asks for it.
//!
//! The image is not written to and no name service is asked: a copy of each file, with the line, is bound over
//! the image's. The name is `$USER`'s, which nothing trusts: it is a text for `whoami`.

use super::plan::{MountKind, MountPlan};
use oci_spec::runtime::{Mount, MountBuilder};
use rt_spec::{Spec, annotations};
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::rootfs::{MountPoint, Rootfs, Symlink};
use rt_sys::{err, fd};
use rustix::fs::{self, Mode, OFlags};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// Account files of images are not longer.
const MOST: usize = 4 << 20;
/// Home of who has none inside: a place that can be written wherever /tmp can.
const NO_HOME: &str = "/tmp";

/// Who the container's account files show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// The name, if no other account of the image has it.
    pub name: String,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Home directory inside.
    pub home: String,
}

impl Account {
    /// The account that `spec` asks for, of a process with these ids; its home is the caller's where one of
    /// `mounts` shows it.
    pub(super) fn asked_for(spec: &Spec, ids: (u32, u32), mounts: &[MountPlan]) -> Result<Option<Account>> {
        if !annotations::asks_for_account(spec)? {
            return Ok(None);
        }
        // Root has a line in every image, with root's home.
        if ids.0 == 0 {
            return Ok(None);
        }
        let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| caller_variable(spec, name));
        let name = names.into_iter().find(|name| is_name(name)).unwrap_or_else(|| "user".to_owned());
        let above = |home: &String| mounts.iter().rfind(|m| Path::new(home).starts_with(&m.destination));
        let shown = |home: &String| above(home).is_some_and(|m| matches!(m.kind, MountKind::Bind(_)));
        let home = caller_home(spec).filter(shown).unwrap_or_else(|| NO_HOME.to_owned());
        Ok(Some(Account { name, uid: ids.0, gid: ids.1, home }))
    }

    /// passwd(5) of the image with this account's line first, so that it wins over another one of this uid.
    fn passwd(&self, image: &str) -> String {
        let taken = |name: &str| taken(image, name, self.uid);
        let name = free_name(&self.name, 'u', self.uid, taken);
        format!("{name}:x:{}:{}::{}:/bin/sh\n{image}", self.uid, self.gid, self.home)
    }

    /// group(5) of the image, and this account's group where the image has none of that gid.
    fn group(&self, image: &str) -> String {
        let has = image.lines().any(|line| field(line, 2) == Some(self.gid.to_string().as_str()));
        if has {
            return image.to_owned();
        }
        let name = free_name(&self.name, 'g', self.gid, |name| taken(image, name, self.gid));
        let end = if image.is_empty() || image.ends_with('\n') { "" } else { "\n" };
        format!("{image}{end}{name}:x:{}:\n", self.gid)
    }
}

/// A name of the caller's. Where there is none, as below Slurm, the config has the environment of the user's job.
fn caller_variable(spec: &Spec, name: &str) -> Option<String> {
    std::env::var(name).ok().or_else(|| rt_spec::variable(spec, name).map(str::to_owned))
}

/// `$HOME`, if it can stand in passwd(5) and is more than the root. The config's may be its image's word: it counts for a
/// directory of the caller's own only.
fn caller_home(spec: &Spec) -> Option<String> {
    let caller = rustix::process::geteuid().as_raw();
    let is_own = |home: &String| std::fs::metadata(home).is_ok_and(|m| m.is_dir() && m.uid() == caller);
    let fits = |home: &String| home.starts_with('/') && home.len() > 1 && !home.contains([':', '\n']);
    let config = || rt_spec::variable(spec, "HOME").map(str::to_owned).filter(is_own);
    std::env::var("HOME").ok().or_else(config).filter(fits)
}

/// The bind of the caller's home at its own place, where the annotation `rt.home` asks for one and it is there.
pub(super) fn home_mount(spec: &Spec) -> Result<Option<Mount>> {
    if !annotations::asks_for_home(spec)? {
        return Ok(None);
    }
    let Some(home) = caller_home(spec).filter(|home| Path::new(home).is_dir()) else {
        log::debug!("the caller's home directory is not there: it is not mounted");
        return Ok(None);
    };
    let options = ["rbind", "rslave", "nosuid", "nodev"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(&home).source(&home).typ("bind").options(options).build();
    mount.map(Some).map_err(|e| err!("mount {home}: {e}"))
}

/// Binds the account files over the image's, but for one that is among the config's own `mounts`.
pub(super) fn show(rootfs: &mut Rootfs, mounts: &[MountPlan], account: &Account) -> Result<()> {
    let image = |path: &str| {
        // Of a fifo, an open without O_NONBLOCK would wait for ever; a terminal must not become the controlling one.
        let file = rootfs.open(Path::new(path), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        // The host's procfs may be mounted in the container, and a link of the image may lead to a file of it that shows
        // what the container must not know.
        if fd::require_proc(&file).is_ok() {
            return None;
        }
        Some(String::from_utf8_lossy(&fd::read_regular(&file, MOST)?).into_owned())
    };
    let ours = |path: &str| !mounts.iter().any(|m| m.destination == Path::new(path));
    let mut files = Vec::with_capacity(2);
    if ours(PASSWD) {
        files.push((PASSWD, account.passwd(&image(PASSWD).unwrap_or_default())));
    }
    if ours(GROUP) {
        files.push((GROUP, account.group(&image(GROUP).unwrap_or_default())));
    }
    bind_files(rootfs, &files).context(|| "show the caller's account")
}

/// Shows each text as a read-only file at its path in the root.
///
/// Before Linux 6.15, open_tree(2) copies only what is mounted in this mount namespace. The tmpfs that holds the files is
/// therefore mounted on the root for a moment, where no other process of the container can see it yet. The binds keep
/// the file system in existence after it has been unmounted.
fn bind_files(rootfs: &mut Rootfs, files: &[(&str, String)]) -> Result<()> {
    let params = [Param::Value("mode".into(), "755".into())];
    let attr = mount::ATTR_NOSUID | mount::ATTR_NODEV | mount::ATTR_NOEXEC;
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &params, attr)?;
    for (path, text) in files {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&tmpfs, name_of(path), flags, Mode::from_raw_mode(0o644))?;
        fd::write_all(&file, text.as_bytes())?;
    }
    mount::attach(&tmpfs, rootfs.as_fd())?;
    // The trees are detached copies, which the unmount does not reach.
    let trees: Vec<_> = files
        .iter()
        .map(|(path, _)| {
            let tree = mount::clone_entry(&tmpfs, name_of(path), Recursive::No)?;
            mount::set_attr(&tree, Recursive::No, Attr::READONLY)?;
            Ok((Path::new(*path), tree))
        })
        .collect::<Result<_>>()?;
    // umount2(2) takes a path. "." is the mount itself, whatever the path of the root is by now. MNT_DETACH, since the
    // working directory is in it.
    rootfs.enter(&tmpfs)?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    for (path, tree) in trees {
        rootfs
            .place(path, MountPoint::File, Symlink::Follow)?
            .attach(&tree)
            .context(|| path.display().to_string())?;
    }
    Ok(())
}

fn name_of(path: &str) -> &OsStr {
    Path::new(path).file_name().unwrap_or_default()
}

/// useradd(8)'s names, which no reader of the files takes for anything else.
fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.len() <= 32 && name.starts_with(first) && name.chars().all(rest)
}

fn field(line: &str, n: usize) -> Option<&str> {
    line.split(':').nth(n)
}

/// True where `name` belongs to another id.
fn taken(file: &str, name: &str, id: u32) -> bool {
    let id = id.to_string();
    file.lines().any(|line| field(line, 0) == Some(name) && field(line, 2) != Some(id.as_str()))
}

/// `name`, or one made of the id where it is taken.
fn free_name(name: &str, letter: char, id: u32, taken: impl Fn(&str) -> bool) -> String {
    if taken(name) { format!("{letter}{id}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> Account {
        Account { name: name.into(), uid: 1000, gid: 100, home: "/home/me".into() }
    }

    #[test]
    fn the_callers_line_wins() {
        let image = "root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash";
        let passwd = account("me").passwd(image);
        assert_eq!(passwd, format!("me:x:1000:100::/home/me:/bin/sh\n{image}"));
        // A name of somebody else's is not taken over.
        assert!(account("root").passwd(image).starts_with("u1000:x:1000:100:"));
        assert!(account("ubuntu").passwd(image).starts_with("ubuntu:x:1000:100:"));
    }

    #[test]
    fn a_group_that_the_image_has_stays() {
        let image = "root:x:0:\nusers:x:100:";
        assert_eq!(account("me").group(image), image);
        assert_eq!(account("me").group("root:x:0:"), "root:x:0:\nme:x:100:\n");
        assert_eq!(account("me").group("me:x:7:\n"), "me:x:7:\ng100:x:100:\n");
        assert_eq!(account("me").group(""), "me:x:100:\n");
    }

    #[test]
    fn names_are_those_of_accounts() {
        assert!(["me", "_apt", "a.b-c", "User1"].into_iter().all(is_name));
        assert!(!["", "1x", "a:b", "a b", "a\nb", "-x", "ä", &"x".repeat(33)].into_iter().any(is_name));
    }
}
