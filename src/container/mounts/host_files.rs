//! Host files that are copied into a root that its programs may write, in place of a bind.
//!
//! A bind is a mount point, which rename(2) and unlink(2) answer with EBUSY. Package managers replace /etc/localtime,
//! /etc/resolv.conf and their kind. What stays of an earlier start, and what does not, is told by the record of the bundle
//! ([`rt_spec::host_files`]).

use crate::container::plan::Plan;
use rt_spec::host_files::{self, MOST, RECORD, Record};
use rt_sys::error::Result;
use rt_sys::rootfs::Rootfs;
use rt_sys::{bail, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a file is opened that somebody else may have put there: without waiting for a fifo's other end, and without
/// following a link.
const HOSTILE: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Copies the host's file `path` to its own place in the root, unless something stands there that is to stay. False where
/// it cannot be done, so that a bind has to show the file.
pub(super) fn copy(rootfs: &mut Rootfs<'_>, plan: &Plan, path: &Path) -> bool {
    match try_copy(rootfs, plan, path) {
        Ok(done) => done,
        Err(e) => {
            log::debug!("{} is bound and not copied: {e}", path.display());
            false
        }
    }
}

fn try_copy(rootfs: &mut Rootfs<'_>, plan: &Plan, path: &Path) -> Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let Some(text) = fd::read_hostile(path, MOST) else { return Ok(false) };
    if !host_files::fits(path.as_os_str()) {
        return Ok(false);
    }
    let Some(dir) = rootfs.image_dir(parent)? else { return Ok(false) };
    let found = find(rootfs, &dir, path, name)?;
    if matches!(&found, Found::File(there) if *there == text) {
        return Ok(true);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |dir: &Path| fs::open(dir, flags, Mode::empty());
    // The bundle's record knows what the image had, below a layer too. None is kept where nothing keeps the copy.
    let beside = plan.record_dir().map(open).transpose()?;
    let bundle = plan.layer.as_ref().map(|_| open(&plan.bundle)).transpose()?;
    let record = Record::of([read_record(bundle.as_ref())?, read_record(beside.as_ref())?].concat());
    let stays = match &found {
        Found::Nothing => false,
        Found::File(there) => !there.is_empty() && !record.has(path, there),
        // The host's zone would hide the image's. One that was set in the container since is kept.
        Found::Zone => record.knows(path),
        Found::Other => true,
    };
    if stays {
        log::debug!("{} stays as it is in the root", path.display());
        return Ok(true);
    }
    // First the record: a copy that no record knows would pass for somebody's own file.
    if let Some(beside) = beside.filter(|_| !record.has(path, &text)) {
        add_to_record(&beside, path, &text)?;
    }
    replace(&dir, name, &text)?;
    Ok(true)
}

/// What stands at the place of a host file.
enum Found {
    /// Nothing, or a link that leads nowhere.
    Nothing,
    /// A regular file.
    File(Vec<u8>),
    /// A link to a time zone.
    Zone,
    /// Anything else.
    Other,
}

fn find(rootfs: &Rootfs<'_>, dir: &OwnedFd, path: &Path, name: &OsStr) -> Result<Found> {
    let stat = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        stat => stat?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = fs::readlinkat(dir, name, Vec::new())?;
            let leads_nowhere = matches!(rootfs.resolve(path), Err(Errno::NOENT));
            let zone = target.as_bytes().windows(10).any(|part| part == b"/zoneinfo/");
            Ok(if leads_nowhere {
                Found::Nothing
            } else if zone {
                Found::Zone
            } else {
                Found::Other
            })
        }
        FileType::RegularFile => {
            let file = fs::openat(dir, name, OFlags::RDONLY | HOSTILE, Mode::empty())?;
            Ok(fd::read_regular(file, MOST)?.map_or(Found::Other, Found::File))
        }
        _ => Ok(Found::Other),
    }
}

/// The text of the record in a directory, if there is one.
fn read_record(dir: Option<&OwnedFd>) -> Result<Vec<u8>> {
    let Some(dir) = dir else { return Ok(Vec::new()) };
    match fs::openat(dir, RECORD, OFlags::RDONLY | HOSTILE, Mode::empty()) {
        Ok(file) => Ok(fd::read_regular(file, MOST)?.unwrap_or_default()),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

/// Adds a line, by one write(2) to the end, so that lines of several starts do not mix.
fn add_to_record(beside: &OwnedFd, path: &Path, text: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | HOSTILE;
    let file = fs::openat(beside, RECORD, flags, Mode::from_raw_mode(0o644))?;
    // In a bundle of somebody else's, the name may be another one of a file of the caller's.
    let stat = fd::stat(&file)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !own {
        bail!("{RECORD} of the bundle is another's file");
    }
    let line = host_files::line(path, text);
    if rustix::io::write(&file, &line)? != line.len() {
        return Err(Errno::NOSPC.into());
    }
    Ok(())
}

/// Puts a file with `text` at `name` of `dir`, in one step for everybody who looks.
fn replace(dir: &OwnedFd, name: &OsStr, text: &[u8]) -> Result<()> {
    // std seeds each hasher from getrandom(2), so the hash of nothing is a random number.
    let random = format!("{:016x}", RandomState::new().build_hasher().finish());
    let draft = [b".", name.as_bytes(), b".rt-", random.as_bytes()].concat();
    let draft = OsStr::from_bytes(&draft);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::openat(dir, draft, flags, Mode::from_raw_mode(0o644))?;
    let done = fd::write_all(&file, text).and_then(|()| Ok(fs::renameat(dir, draft, dir, name)?));
    if done.is_err() {
        let _ = fs::unlinkat(dir, draft, AtFlags::empty());
    }
    done
}
