//! Directories: can they be written, is there room, can programs be executed there.

use super::Check;
use rt_sys::error::Result;
use rt_sys::look;
use rustix::fs::{StatVfs, StatVfsMountFlags};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Less room than this is worth a word: an image of a gigabyte is a common one.
const LITTLE: u64 = 1 << 30;
/// Fewer files than this are.
const FEW: u64 = 50_000;

pub(super) fn checks(root: Option<&Path>) -> Vec<Check> {
    let mut all = Vec::new();
    if let Some(root) = root {
        all.extend(place("state directory", root, 1 << 20, 16));
    }
    if let Ok(dir) = std::env::current_dir() {
        let check = place("bundles here", &dir, LITTLE, FEW);
        let executable = |stat: &StatVfs| !stat.f_flag.contains(StatVfsMountFlags::NOEXEC);
        match rustix::fs::statvfs(&dir) {
            Ok(stat) if !executable(&stat) => all.push(
                Check::note(
                    "bundles here",
                    format!("{} is mounted noexec: no program of a bundle there starts", dir.display()),
                )
                .remedy("keep bundles on another file system, or have it mounted with exec"),
            ),
            _ => all.extend(check),
        }
    }
    match cache() {
        Ok(dir) => all.extend(place("image cache", &dir, LITTLE, 16)),
        Err(e) => {
            all.push(Check::problem("image cache", e.to_string()).remedy("RT_CACHE names another place"))
        }
    }
    all
}

/// The cache of rt-pull: as configured, or its default.
fn cache() -> Result<PathBuf> {
    let config = rt_config::Config::read(&rt_config::own_variable).unwrap_or_default();
    match config.text(&rt_config::CACHE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => rt_image_store::place::default_cache(),
    }
}

/// The directory itself, or the nearest one above it that exists.
pub(super) fn nearest(dir: &Path) -> Result<Option<&Path>> {
    for dir in dir.ancestors() {
        if look::is_dir(dir)? {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

/// Looks at a directory, or at the nearest one above it that exists.
fn place(name: &'static str, dir: &Path, room: u64, files: u64) -> Option<Check> {
    let shown = dir.display();
    let found = match nearest(dir) {
        Ok(found) => found?,
        Err(e) => return Some(Check::note(name, format!("{shown}: {e}"))),
    };
    let stat = match rustix::fs::statvfs(found) {
        Ok(stat) => stat,
        Err(e) => return Some(Check::note(name, format!("{shown}: {}", rt_sys::error::Error::from(e)))),
    };
    if let Err(e) = try_to_write(found) {
        let remedy = match e.errno() {
            Some(libc::ENOSPC) if stat.f_bavail > 0 => "no inode is free: remove files",
            Some(libc::ENOSPC) => "the file system is full: remove files",
            Some(libc::EDQUOT) => "your quota is used up: remove files, or choose another place",
            _ if name == "image cache" => "choose another place by RT_CACHE or --cache",
            _ => "choose another place",
        };
        return Some(Check::note(name, format!("{shown} cannot be written: {e}")).remedy(remedy));
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let text = format!("{shown}: {} MiB free", free >> 20);
    // Some file systems count no inodes, and say 0 of 0.
    Some(if free < room {
        Check::note(name, text).remedy("little room: remove what is not needed, or choose another place")
    } else if stat.f_files > 0 && stat.f_favail < files {
        let text = format!("{shown}: room for {} more files", stat.f_favail);
        Check::note(name, text).remedy("few inodes: remove what is not needed, or choose another place")
    } else {
        Check::ok(name, text)
    })
}

/// Writes a little, because a quota shows nowhere else.
fn try_to_write(dir: &Path) -> rt_sys::error::Result<()> {
    let path = dir.join(format!(".rt-doctor-{}", std::process::id()));
    let write = || std::fs::File::create_new(&path)?.write_all(&[0; 4096]);
    let result = write();
    let _ = std::fs::remove_file(&path);
    Ok(result?)
}
