//! What a cache without room lacks: bytes, inodes, or the caller's quota.

use crate::progress::size;
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

/// The error of writing an image where `target` is to be, with what is free there and what helps. `store` is the store of
/// images, where that is the place. To be called while what was written is still there.
pub(crate) fn explain_target(error: Error, target: &Path, store: Option<&Path>) -> Error {
    if !error.is(libc::ENOSPC) && !error.is(libc::EDQUOT) {
        return error;
    }
    let here = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = rt_sys::fd::absolute(store.unwrap_or(here)).unwrap_or_else(|_| here.into());
    let free = match (error.errno(), rustix::fs::statvfs(&place)) {
        (Some(libc::ENOSPC), Ok(stat)) => {
            let bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
            format!("{} has {} free, and {} inodes", place.display(), size(bytes), stat.f_favail)
        }
        // Of a quota only its keeper knows how much is left.
        _ => format!("no room for the caller in {}", place.display()),
    };
    error.hint(match store {
        Some(_) => format!("{free}: rt prune makes room in the store, and RT_IMAGES names another one"),
        None => format!("{free}: rt prune and rt cache prune make room where these are"),
    })
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
