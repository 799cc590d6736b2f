//! The caller's line in the container's passwd(5) and group(5), as the plan has it.
//!
//! The image is not written to and no name service is asked: a copy of each file, with the line, is bound over
//! the image's. The name is `$USER`'s, which nothing trusts: it is a text for `whoami`.

use super::plan::{Account, MountPlan};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::rootfs::{MountPoint, Rootfs, Symlink};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// The longest account file that is read, in bytes: those of images are far shorter.
const MOST: usize = 4 << 20;

impl Account {
    /// passwd(5) of the image with this account's line first, so that it wins over another one of this uid. An `x` in the
    /// place of `*` would name a line of shadow(5), without which PAM lets nobody in.
    fn passwd(&self, image: &str) -> String {
        let taken = |name: &str| taken(image, name, self.uid);
        let name = free_name(&self.name, 'u', self.uid, taken);
        format!("{name}:*:{}:{}::{}:/bin/sh\n{image}", self.uid, self.gid, self.home)
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

/// Binds the account files over the image's, but for one that is among the config's own `mounts`.
pub(super) fn show(rootfs: &mut Rootfs, mounts: &[MountPlan], account: &Account) -> Result<()> {
    let ours = |path: &str| !mounts.iter().any(|m| m.destination == Path::new(path));
    let mut files = Vec::with_capacity(2);
    if ours(PASSWD) {
        files.push((PASSWD, account.passwd(&of_image(rootfs, PASSWD)?)));
    }
    if ours(GROUP) {
        files.push((GROUP, account.group(&of_image(rootfs, GROUP)?)));
    }
    bind_files(rootfs, &files).context(|| "show the caller's account")
}

/// The text of an account file of the image; empty where it has no such file, or none that the caller may read.
fn of_image(rootfs: &Rootfs, path: &str) -> Result<String> {
    let doing = || format!("read {path} of the image");
    // An open of a fifo without O_NONBLOCK would wait for ever; a terminal must not become the controlling one.
    let file = match rootfs.open(Path::new(path), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        // ENXIO is said of a socket, and of a device without a driver (open(2)).
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => {
            return Ok(String::new());
        }
        file => file.context(doing)?,
    };
    // The host's procfs may be mounted in the container, and a link of the image may lead to a file of it that shows
    // what the container must not know.
    if fd::file_system(&file)? == fs::PROC_SUPER_MAGIC as u64 {
        return Ok(String::new());
    }
    let text = fd::read_regular(&file, MOST).context(doing)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Shows each text as a read-only file at its path in the root.
pub(super) fn bind_files(rootfs: &mut Rootfs, files: &[(&str, String)]) -> Result<()> {
    let params = [Param::Value("mode".into(), "755".into())];
    let attr = mount::ATTR_NOSUID | mount::ATTR_NODEV | mount::ATTR_NOEXEC;
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &params, attr)?;
    for (path, text) in files {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&tmpfs, name_of(path), flags, Mode::from_raw_mode(0o644))?;
        fd::write_all(&file, text.as_bytes())?;
    }
    let trees = rootfs.clone_from_tmpfs(&tmpfs, files.iter().map(|(path, _)| name_of(path)))?;
    for ((path, _), tree) in files.iter().zip(trees) {
        mount::set_attr(&tree, Recursive::No, Attr::READONLY)?;
        rootfs
            .place(Path::new(path), MountPoint::File, Symlink::Follow)?
            .attach(&tree)
            .context(|| (*path).to_owned())?;
    }
    Ok(())
}

fn name_of(path: &str) -> &OsStr {
    Path::new(path).file_name().unwrap_or_default()
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
        assert_eq!(passwd, format!("me:*:1000:100::/home/me:/bin/sh\n{image}"));
        // A name of somebody else's is not taken over.
        assert!(account("root").passwd(image).starts_with("u1000:*:1000:100:"));
        assert!(account("ubuntu").passwd(image).starts_with("ubuntu:*:1000:100:"));
    }

    #[test]
    fn a_group_that_the_image_has_stays() {
        let image = "root:x:0:\nusers:x:100:";
        assert_eq!(account("me").group(image), image);
        assert_eq!(account("me").group("root:x:0:"), "root:x:0:\nme:x:100:\n");
        assert_eq!(account("me").group("me:x:7:\n"), "me:x:7:\ng100:x:100:\n");
        assert_eq!(account("me").group(""), "me:x:100:\n");
    }
}
