//! Groups that a container does not know.
//!
//! In a directory with the set-group-ID bit, as the directories of projects are, a file gets the directory's group (inode(7)). A container
//! of one group id shows it as nobody's, by a number that criu could give to no file: removed files and sockets, which criu makes anew,
//! get the container's own group.

use super::image::Image;
use super::left;
use super::numbers;
use super::places::{Removed, removed_in};
use super::reach::unknown_form;
use rt_sys::error::{Context, Result};
use rt_sys::{err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::ops::Range;

/// FileEntry.usk.file_perms (fdinfo.proto, sk-unix.proto), and .gid of that.
const PERMISSIONS: [u64; 2] = [16, 13];
const GROUP_OF_SOCKET: u64 = 3;
/// GhostFileEntry.gid (ghost-file.proto).
const GROUP_OF_REMOVED: u64 = 2;

/// Changes them in `image`. `known` are the container's group ids, of each range the first and how many there are.
///
/// # Errors
/// The container's group is a number with more digits than there is room for.
pub(super) fn give(image: &Image, known: &[[u32; 2]]) -> Result<()> {
    let Some(files) = image.file(numbers::FILES)? else { return Ok(()) };
    let unknown = || unknown_form(image, numbers::FILES);
    let mut places = Vec::new();
    for entry in numbers::messages(&files).ok_or_else(unknown)? {
        for part in numbers::nested(&files, entry, &PERMISSIONS).ok_or_else(unknown)? {
            places.extend(numbers::fields(&files, part, GROUP_OF_SOCKET).ok_or_else(unknown)?);
        }
    }
    change(image, numbers::FILES, files, places, known)?;
    for Removed { id, .. } in removed_in(image)? {
        let ((text, _), name) = (left::read_head(image, id)?, left::file_of(id));
        let message = numbers::message_at(&text, numbers::MAGIC);
        let group = message.and_then(|message| numbers::fields(&text, message, GROUP_OF_REMOVED));
        change(image, &name, text, group.ok_or_else(|| unknown_form(image, &name))?, known)?;
    }
    Ok(())
}

/// Writes the first of `known` in each of `places` of the file `name`, which begins with `text`, where another group is.
fn change(
    image: &Image,
    name: &str,
    mut text: Vec<u8>,
    places: Vec<Range<usize>>,
    known: &[[u32; 2]],
) -> Result<()> {
    let mut file: Option<OwnedFd> = None;
    for place in places {
        let group = numbers::number(&text, place.clone()).ok_or_else(|| unknown_form(image, name))?;
        let is_known = |[first, count]: &[u32; 2]| {
            (u64::from(*first)..u64::from(*first) + u64::from(*count)).contains(&group)
        };
        let Some([own, _]) = known.first().filter(|_| !known.iter().any(is_known)) else { continue };
        numbers::replace(&mut text[place.clone()], (*own).into()).ok_or_else(|| {
            err!("a removed file or a socket of the program has a group that the container does not know")
                .hint("have it closed, or made in a directory without the set-group-ID bit")
        })?;
        let shown = || format!("change {}/{name}", image.path.display());
        let file = match &file {
            Some(file) => file,
            None => file.insert(fd::open_entry(&image.dir, name, OFlags::RDWR).context(shown)?),
        };
        numbers::write_at(file, &text, &place).context(shown)?;
    }
    Ok(())
}
