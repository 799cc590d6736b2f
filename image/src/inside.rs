//! Files of an image by their paths, read without a mount. Links lead nowhere out of the image.

use crate::file::of_image;
use rt_sys::error::Result;
use squashfs::{Body, Filesystem, Inode, Source};
use std::collections::VecDeque;

/// The most links on a path, as the kernel has it (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// What is at `path`, whatever it is; none where nothing is.
pub(crate) fn find(fs: &Filesystem<impl Source>, path: &str) -> Result<Option<Inode>> {
    let mut above = Vec::new();
    let mut at = fs.inode(fs.root()).map_err(of_image)?;
    let mut left: VecDeque<Vec<u8>> = parts(path.as_bytes()).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == b".." {
            // Above the root is the root.
            at = above.pop().unwrap_or(at);
            continue;
        }
        let Body::Directory(directory) = &at.body else { return Ok(None) };
        let Some(found) = fs.find(directory, &name).map_err(of_image)? else { return Ok(None) };
        let found = fs.inode(found).map_err(of_image)?;
        if let Body::Symlink(target) = &found.body {
            links += 1;
            if links > MOST_LINKS {
                return Ok(None);
            }
            if target.starts_with(b"/") {
                at = match above.drain(..).next() {
                    Some(root) => root,
                    None => at,
                };
            }
            parts(target).rev().for_each(|part| left.push_front(part));
            continue;
        }
        above.push(std::mem::replace(&mut at, found));
    }
    Ok(Some(at))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

/// The contents of a regular file of at most `most` bytes.
pub(crate) fn read(fs: &Filesystem<impl Source>, path: &str, most: usize) -> Result<Option<Vec<u8>>> {
    match find(fs, path)? {
        Some(inode) => fs.contents(&inode, most).map_err(of_image),
        None => Ok(None),
    }
}
