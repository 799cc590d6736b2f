//! What a cache without room lacks: bytes, inodes, or the caller's quota.

use rt_sys::error::Error;
use std::path::Path;

/// What helps.
const CACHE_REMEDY: &str = "rt cache prune makes room, and RT_CACHE or --cache names another place";

/// The error of a pull, with what is to be done about the cache where that is full. Of the bundle's own file system the
/// error of the file says it.
pub(crate) fn explain(error: Error, cache: Option<&Path>) -> Error {
    let lacks = match (error.errno(), cache) {
        (Some(libc::ENOSPC), Some(cache)) => lack(cache),
        (Some(libc::EDQUOT), Some(cache)) => {
            Some(format!("a quota is used up, and the cache is {}", cache.display()))
        }
        _ => None,
    };
    match lacks {
        Some(lacks) => error.hint(format!("{lacks}: {CACHE_REMEDY}")),
        None => error,
    }
}

/// What the file system of `dir` has next to none of: what had been written of the blob is removed by now.
fn lack(dir: &Path) -> Option<String> {
    const FEW: u64 = 16;
    const LITTLE: u64 = 16 << 20;
    let stat = rustix::fs::statvfs(dir).ok()?;
    let (shown, bytes) = (dir.display(), stat.f_bavail.saturating_mul(stat.f_frsize));
    // Some file systems count no inodes, and say 0 of 0.
    if stat.f_files > 0 && stat.f_favail < FEW {
        Some(format!("the cache {shown} has {} inodes free, and {} MiB", stat.f_favail, bytes >> 20))
    } else if bytes < LITTLE {
        Some(format!("the cache {shown} has {} KiB free", bytes >> 10))
    } else {
        None
    }
}
