//! Where stores of images are.

use rt_sys::caller;
use rt_sys::err;
use rt_sys::error::{Error, Result};
use rt_sys::owned;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Who has chosen the place of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// The caller or the site, by name: the store may belong to somebody else.
    ByCaller,
    /// The configuration, by a path in which variables stand: whoever is first to make a directory there must not choose
    /// what the caller runs, so it must be the caller's or root's, and no link.
    ForCaller,
    /// [`places`]: the store must be the caller's or root's.
    ByDefault,
}

/// A place where a store may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub path: PathBuf,
    /// Who says so.
    pub chosen: Chosen,
}

/// The places where images are looked for, in order: the list in RT_IMAGES, else `configured` (each with whether variables
/// stand in its path), else the caller's data
/// directory. New images go into the first of them that the caller can write.
///
/// # Errors
/// None of them says anything, as for a user without a home directory.
pub fn places(configured: &[(PathBuf, bool)]) -> Result<Vec<Place>> {
    let by_caller = |path: PathBuf| Place { path, chosen: Chosen::ByCaller };
    if let Some(list) = caller::path("RT_IMAGES") {
        let parts = list.as_os_str().as_bytes().split(|&b| b == b':').filter(|part| !part.is_empty());
        let absolute = parts.map(|part| Ok(std::path::absolute(std::ffi::OsStr::from_bytes(part))?));
        return Ok(absolute.collect::<Result<Vec<_>>>()?.into_iter().map(by_caller).collect());
    }
    if !configured.is_empty() {
        let by_site = |(path, expanded): &(PathBuf, bool)| Place {
            path: path.clone(),
            chosen: if *expanded { Chosen::ForCaller } else { Chosen::ByCaller },
        };
        return Ok(configured.iter().map(by_site).collect());
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let data = match caller::own_dir("XDG_DATA_HOME")?.filter(absolute) {
        Some(data) => Some(data),
        None => caller::own_dir("HOME")?.filter(absolute).map(|home| home.join(".local/share")),
    };
    match data {
        Some(data) => Ok(vec![Place { path: data.join("rt/images"), chosen: Chosen::ByDefault }]),
        None => Err(no_home()?.hint("name a directory for them in RT_IMAGES")),
    }
}

/// Where the cache of blobs is when nothing else is said: below XDG_CACHE_HOME, HOME or /tmp. A directory that others can have made
/// does not count.
///
/// # Errors
/// The kernel does not say whose a directory is.
pub fn default_cache() -> Result<PathBuf> {
    if let Some(dir) = caller::own_dir("XDG_CACHE_HOME")? {
        return Ok(dir.join("rt"));
    }
    Ok(match caller::own_dir("HOME")? {
        Some(home) => home.join(".cache/rt"),
        None => format!("/tmp/rt-cache-{}", caller::uid()).into(),
    })
}

/// Why there is no home directory to keep images in.
fn no_home() -> Result<Error> {
    let place = caller::path("HOME").map(|home| owned::strangers_directory(&home)).transpose()?.flatten();
    Ok(match place {
        Some(place) => err!("no images in HOME: others than root and the caller can change {place}"),
        None => err!("no home directory to keep images in"),
    })
}
