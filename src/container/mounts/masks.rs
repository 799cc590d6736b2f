//! Masked and read-only paths, which are set when everything is mounted.

use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::rootfs::Rootfs;
use rt_sys::{bail, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NULL: &str = "/dev/null";

/// Hides `paths`: files behind the null device, directories behind an empty read-only one. A path that is not there
/// needs no mask.
pub(in crate::container) fn mask(rootfs: &Rootfs<'_>, paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    // The paths are those of files that tell or change what concerns the whole host, and that procfs has no namespace
    // for. They must be found where procfs was mounted, and not where the image's own path leads.
    let proc = rootfs.kernel_fs("/proc");
    let mut masks = Masks { null: host_null()?, empty: None };
    enter(proc)?;
    for path in paths {
        let context = || format!("mask path {:?}", path.display().to_string());
        if let (Some(proc), Some(name)) = (proc, entry_of_proc(path))
            && masks.in_proc(proc, name).context(context)?
        {
            continue;
        }
        match rootfs.resolve_in_kernel_fs(path) {
            Ok(target) => masks.at(target).context(context)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e).context(context),
        }
    }
    Ok(())
}

/// What paths are hidden behind.
struct Masks<'a> {
    null: OwnedFd,
    /// The empty directory that serves all, once there is one.
    empty: Option<Empty<'a>>,
}

enum Empty<'a> {
    /// A mount of its own.
    Mount(OwnedFd),
    /// What is mounted on an entry of the container's own procfs.
    Entry(&'a OwnedFd, &'a OsStr),
}

impl<'a> Masks<'a> {
    /// Hides an entry of the container's own procfs, the working directory, by one mount(2). The root of procfs has no
    /// links that somebody else could have made, so a name needs no look-up before. False where this way cannot be
    /// taken.
    ///
    /// Of the names that configs have, it is known which are directories. The others are looked at: to try the wrong kind
    /// of mount costs the kernel thirty times as much as the right one.
    fn in_proc(&mut self, proc: &'a OwnedFd, name: &'a OsStr) -> Result<bool> {
        let directory = match name.as_bytes() {
            b"acpi" | b"asound" | b"scsi" => true,
            b"kcore" | b"keys" | b"latency_stats" | b"sched_debug" | b"timer_list" | b"timer_stats" => false,
            _ => match fs::statat(proc, name, AtFlags::empty()) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                Err(Errno::NOENT) => return Ok(true),
                Err(_) => return Ok(false),
            },
        };
        let made = match &self.empty {
            _ if !directory => mount::bind(Path::new(NULL), name, Recursive::No).map_err(Error::from),
            // Another directory can be hidden by a copy of the first one's mask, which `at` makes.
            Some(_) => return Ok(fs::statat(proc, name, AtFlags::empty()).err() == Some(Errno::NOENT)),
            None => match mount::mount_new("tmpfs", "tmpfs", &empty_params(), mount::ATTR_RDONLY, name) {
                Some(made) => made,
                None => return Ok(false),
            },
        };
        match made {
            Ok(()) if directory => self.empty = Some(Empty::Entry(proc, name)),
            Ok(()) => {}
            Err(e) => return Ok(e.is(libc::ENOENT)),
        }
        Ok(true)
    }

    /// Hides what `target` stands for.
    fn at(&mut self, target: OwnedFd) -> Result<()> {
        let directory = FileType::from_raw_mode(fd::stat(&target)?.st_mode) == FileType::Directory;
        let tree = match &self.empty {
            _ if !directory => mount::clone_fd(&self.null, Recursive::No)?,
            Some(Empty::Mount(tree)) => mount::clone_fd(tree, Recursive::No)?,
            Some(Empty::Entry(proc, name)) => mount::clone_entry(proc, name, Recursive::No)?,
            None => mount::new_fs("tmpfs", "tmpfs", &empty_params(), mount::ATTR_RDONLY)?,
        };
        mount::attach(&tree, &target)?;
        fd::leave_open(target);
        if directory && self.empty.is_none() {
            self.empty = Some(Empty::Mount(tree));
        } else {
            fd::leave_open(tree);
        }
        Ok(())
    }
}

/// The parameters of an empty file system that stays so. `nr_blocks=1` rather than 0, which means no limit.
fn empty_params() -> [Param; 2] {
    [Param::Value("mode".into(), "755".into()), Param::Value("nr_blocks".into(), "1".into())]
}

/// Makes the container's own procfs the working directory, for mount(2) on its entries by name.
fn enter(proc: Option<&OwnedFd>) -> Result<()> {
    proc.map_or(Ok(()), fd::enter)
}

/// NAME where `path` is /proc/NAME.
fn entry_of_proc(path: &Path) -> Option<&OsStr> {
    let name = path.as_os_str().as_bytes().strip_prefix(b"/proc/")?;
    let plain = !name.is_empty() && !name.contains(&b'/') && !name.starts_with(b".");
    plain.then(|| OsStr::from_bytes(name))
}

/// The host's null device, proven to be it: a mask by an ordinary file would show that file instead.
fn host_null() -> Result<OwnedFd> {
    let null = fs::open(NULL, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(|| "open /dev/null")?;
    if !fd::is_null_device(&fd::stat(&null)?) {
        bail!("/dev/null of this host is not the null device");
    }
    Ok(null)
}

/// Makes `paths` and everything mounted below them read-only: each is bound over itself, since read-only is a property
/// of mounts and not of directories. Recursively, because a mount below keeps its own flags.
pub(in crate::container) fn make_readonly(rootfs: &Rootfs<'_>, paths: &[PathBuf]) -> Result<()> {
    let proc = rootfs.kernel_fs("/proc");
    enter(proc)?;
    for path in paths {
        let context = || format!("make {:?} read-only", path.display().to_string());
        if let (Some(proc), Some(name)) = (proc, entry_of_proc(path)) {
            match mount::bind(Path::new(name), name, Recursive::Yes) {
                Ok(()) => mount::set_attr_at(proc, name, Recursive::Yes, Attr::READONLY).context(context)?,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).context(context),
            }
            continue;
        }
        let target = match rootfs.resolve_in_kernel_fs(path) {
            Ok(target) => target,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e).context(context),
        };
        let tree = mount::clone_fd(&target, Recursive::Yes).context(context)?;
        mount::set_attr(&tree, Recursive::Yes, Attr::READONLY).context(context)?;
        mount::attach(&tree, &target).context(context)?;
        fd::leave_open(tree);
        fd::leave_open(target);
    }
    Ok(())
}
