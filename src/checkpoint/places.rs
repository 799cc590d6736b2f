//! That nobody else can rename where criu makes files by their names.
//!
//! criu makes the removed files and the sockets of a program again in the directories where they were. Then it gives each its owner,
//! its mode and its times, by its name, with all capabilities of the container's user namespace: whoever can rename there exchanges
//! it for another user's file, which gets them. So such a directory, and each above it, is one in which only root and the program's
//! own users rename. What was mounted for the container alone nobody else comes to: its processes are still being made.
//!
//! Over one user id criu can do nothing that this user cannot.

use super::files::{REMOVED, may_open, opens};
use super::image::Image;
use super::inside::Inside;
use super::left::{self, Ghost};
use super::numbers;
use super::preflight::Descriptor;
use super::reach;
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{err, fd, ns};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// criu's list of what has other names than it was opened by.
const REMAPS: &str = "remap-fpath.img";

/// The longest name of a file, in bytes (limits.h).
const NAME_MAX: usize = 255;

const REMEDY: &str = "criu would give what they put there its owner and mode: that directory has to be root's or the program's user's \
     inside the container, and chmod go-w or +t, or on a tmpfs of the container's own";

/// The directories of a container.
#[derive(Debug)]
pub(super) struct Places<'a> {
    /// Where they are.
    pub(super) inside: &'a Inside<'a>,
    /// The program's users.
    users: &'a BTreeSet<u32>,
}

impl<'a> Places<'a> {
    /// Those `inside`, as the process with the directory `process` in procfs has them; `None` where its user namespace has one user id,
    /// so that criu can do nothing that the program's user cannot.
    pub(super) fn of(
        process: &Path,
        inside: &'a Inside<'a>,
        users: &'a BTreeSet<u32>,
    ) -> Result<Option<Self>> {
        let maps = ns::maps_of(process)?;
        let ids: u64 = maps.uid.iter().map(|map| u64::from(map.size)).sum();
        Ok((ids > 1).then_some(Places::of_several(inside, users)))
    }

    /// The same where it is known to have several.
    pub(super) fn of_several(inside: &'a Inside<'a>, users: &'a BTreeSet<u32>) -> Self {
        Places { inside, users }
    }

    /// What others can do to have criu find something else in the place of the file `path`; `None` where they cannot.
    fn fault(&self, path: &Path) -> Result<Option<String>> {
        let shown = |at: &Path| format!("look at {}", at.display());
        let (mut dir, mut at) = (self.inside.root.try_clone()?, PathBuf::from("/"));
        for part in path.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { continue };
            if !self.is_kept(&dir, Missing::No).context(|| shown(&at))? {
                return Ok(Some(format!("others can rename in {}", at.display())));
            }
            dir = match fs::openat(&dir, part, PLACE, Mode::empty()) {
                // criu makes it, or goes without.
                Err(Errno::NOENT) => {
                    let is_kept = self.is_kept(&dir, Missing::Yes).context(|| shown(&at))?;
                    return Ok(
                        (!is_kept).then(|| format!("others can make {} anew", at.join(part).display()))
                    );
                }
                // A link, which is refused for that.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                opened => opened.context(|| shown(&at.join(part)))?,
            };
            at.push(part);
        }
        let is_kept = self.is_kept(&dir, Missing::No).context(|| shown(&at))?;
        Ok((!is_kept).then(|| format!("others can rename in {}", at.display())))
    }

    /// True where only root and the program's users can rename in `dir`, or make what is missing there.
    fn is_kept(&self, dir: &OwnedFd, what: Missing) -> Result<bool> {
        if self.inside.is_own(dir) {
            return Ok(true);
        }
        let stat = fd::stat(dir)?;
        // Whom the user namespace does not know can be anybody, and not the host's root alone (user_namespaces(7)).
        let is_owned = stat.st_uid == 0 || self.users.contains(&stat.st_uid);
        // In a directory with the sticky bit nobody renames what is another's, but everybody makes names.
        let is_sticky = stat.st_mode & libc::S_ISVTX != 0 && what == Missing::No;
        Ok(is_owned && (stat.st_mode & 0o022 == 0 || is_sticky))
    }

    /// Looks at the removed file or the socket of a descriptor. `sockets` are those with names, by their inodes.
    ///
    /// # Errors
    /// Others can have criu find something else in its place.
    pub(super) fn check(&self, descriptor: &Descriptor<'_>, sockets: &BTreeMap<u64, PathBuf>) -> Result<()> {
        let (what, path) = if let Some(inode) = descriptor.inode("socket") {
            let Some(path) = sockets.get(&inode) else { return Ok(()) };
            ("socket", path.clone())
        } else {
            let Some(stat) = removed_file(descriptor, self.inside)? else { return Ok(()) };
            if !may_open(&stat, &descriptor.users()?, descriptor.bits()) {
                return Err(refused_anew(descriptor, "that the process may not open any more"));
            }
            ("removed file", without_suffix(&descriptor.target))
        };
        match self.fault(&path)? {
            None => Ok(()),
            Some(fault) => {
                Err(descriptor.refused(&format!("the {what} {}, and {fault}", path.display()), REMEDY))
            }
        }
    }

    /// Looks at all that criu makes by names of `image`.
    ///
    /// # Errors
    /// Others can have criu find something else in the place of one.
    pub(super) fn check_image(&self, image: &Image) -> Result<()> {
        for Removed { path, ghost, .. } in removed_in(image)? {
            match ghost.is_directory() {
                true => self.check_directory(&path)?,
                false => self.check_made(&path)?,
            }
        }
        let Some(files) = image.file(numbers::FILES)? else { return Ok(()) };
        let bound = bound(&files).ok_or_else(|| reach::unknown_form(image, numbers::FILES))?;
        bound.iter().try_for_each(|path| self.check_made(path))
    }

    fn check_made(&self, path: &Path) -> Result<()> {
        match self.fault(path)? {
            None => Ok(()),
            Some(fault) => {
                Err(err!("{}: it is a removed file or a socket, and {fault}", path.display()).hint(REMEDY))
            }
        }
    }

    /// criu takes any directory that has the name of a removed one, whoever's it is, and gives it owner and mode.
    fn check_directory(&self, path: &Path) -> Result<()> {
        for above in path.ancestors().skip(1) {
            let Some(dir) = self.inside.find(above, |_| true)? else { continue };
            if self.inside.is_own(&dir) {
                break;
            }
            let (path, above) = (path.display(), above.display());
            return Err(err!(
                "{path}: it is a removed directory, and others can have one of that name in {above}"
            )
            .hint("criu would give that its owner and mode: have the program leave it"));
        }
        self.check_made(path)
    }
}

/// Looks at the removed files and directories of an image that has just been written.
///
/// # Errors
/// criu cannot make one again.
pub(super) fn check_removed(image: &Image) -> Result<()> {
    let found = removed_in(image)?;
    for Removed { id, path, .. } in &found {
        if path.file_name().is_some_and(|name| left::name_of_criu(name, *id).len() > NAME_MAX) {
            return Err(err!("{}: a removed file whose name is too long for criu", path.display())
                .hint("have the program close it"));
        }
    }
    let within = |path: &Path| {
        let mut directories = found.iter().filter(|removed| removed.ghost.is_directory());
        directories.find(|dir| dir.path != path && path.starts_with(&dir.path))
    };
    match found.iter().find_map(|Removed { path, .. }| Some((path, within(path)?))) {
        None => Ok(()),
        Some((path, dir)) => {
            let (path, dir) = (path.display(), dir.path.display());
            Err(err!("{path}: it is removed, as is the directory {dir}, and the program is in both")
                .hint("criu makes them, and cannot remove that directory before the file: have the program leave one"))
        }
    }
}

/// The state of the file of a descriptor, where it has been removed.
fn removed_file(descriptor: &Descriptor<'_>, inside: &Inside<'_>) -> Result<Option<Stat>> {
    if !inside.has(descriptor.mount()) || !descriptor.target.is_absolute() {
        return Ok(None);
    }
    let shown = || format!("look at {}", descriptor.text());
    let link = descriptor.path();
    let stat = fs::stat(&link).context(shown)?;
    let is_removed = stat.st_nlink == 0 && fs::statfs(&link).context(shown)?.f_type as u64 != PROC_MAGIC;
    Ok(is_removed.then_some(stat))
}

/// Looks whose a removed file is that a process of a container with one user id has open: criu gives it to nobody else.
///
/// # Errors
/// It is another user's.
pub(super) fn check_owner(descriptor: &Descriptor<'_>, inside: &Inside<'_>) -> Result<()> {
    match removed_file(descriptor, inside)? {
        Some(stat) if !descriptor.users()?.contains(&stat.st_uid) => {
            Err(refused_anew(descriptor, "of another user"))
        }
        _ => Ok(()),
    }
}

fn refused_anew(descriptor: &Descriptor<'_>, what: &str) -> Error {
    descriptor.refused(
        &format!("{}, a removed file {what}", descriptor.text()),
        "criu makes it anew: have the program close it",
    )
}

/// Looks at a socket of datagrams that is connected to a program outside, by `name`: criu connects it again to what is there. `file` is
/// the inode of the file to which that program's socket was bound.
///
/// # Errors
/// The process itself could not.
pub(super) fn check_server(
    inside: &Inside<'_>,
    descriptor: &Descriptor<'_>,
    name: &Path,
    file: Option<u32>,
) -> Result<()> {
    // The kernel tells 32 bits of it.
    let is_it = |stat: &Stat| file == Some(stat.st_ino as u32);
    if opens(inside, (name, None), &descriptor.process.rights()?, 0o2, is_it)? {
        return Ok(());
    }
    let what = format!("connected to {}, to which the process could not connect any more", name.display());
    Err(descriptor.refused(&what, "criu would connect it anew: have the program close it"))
}

/// Whether something is looked for that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Yes,
    No,
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The path that the kernel shows of a removed file without what it writes behind that.
fn without_suffix(path: &Path) -> PathBuf {
    let text = path.as_os_str().as_bytes();
    PathBuf::from(OsStr::from_bytes(text.strip_suffix(REMOVED.as_bytes()).unwrap_or(text)))
}

/// The sockets with an absolute name of the network of the process with the directory `process` in procfs, by their inodes, but for
/// streams that are connected, which criu gives no name.
pub(super) fn sockets(process: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    match fd::read_file(&process.join("net/unix")) {
        Err(e) if e.is(libc::ENOENT) => Ok(BTreeMap::new()),
        text => {
            Ok(text.context(|| "list sockets")?.split(|byte| *byte == b'\n').filter_map(socket).collect())
        }
    }
}

/// What a line of /proc/net/unix says (proc_pid_net(5)).
fn socket(line: &[u8]) -> Option<(u64, PathBuf)> {
    const DATAGRAM: &[u8] = b"0002";
    const CONNECTED: &[u8] = b"03";
    let (mut fields, mut rest) = (Vec::new(), line);
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        fields.push(&rest[..end]);
        rest = &rest[end..];
    }
    let name = rest.strip_prefix(b" ").filter(|name| name.starts_with(b"/"))?;
    let is_bound = fields[4] == DATAGRAM || fields[5] != CONNECTED;
    let inode = std::str::from_utf8(fields[6]).ok()?.parse().ok()?;
    is_bound.then(|| (inode, PathBuf::from(OsStr::from_bytes(name))))
}

/// A removed file or directory in an image.
pub(super) struct Removed {
    /// criu's number for it.
    pub id: u64,
    /// Where it was.
    pub path: PathBuf,
    pub ghost: Ghost,
}

/// Those that criu makes again.
pub(super) fn removed_in(image: &Image) -> Result<Vec<Removed>> {
    let Some(files) = image.file(numbers::FILES)? else { return Ok(Vec::new()) };
    let found = removed(&files, image.file(REMAPS)?.as_deref());
    let found = found.ok_or_else(|| reach::unknown_form(image, REMAPS))?.into_iter();
    found.map(|(id, path)| Ok(Removed { id, path, ghost: Ghost::read(image, id)? })).collect()
}

/// The removed files that criu makes by their paths, from its lists of open files and of other names: each by its number and its path;
/// none for what is no such list.
fn removed(files: &[u8], remaps: Option<&[u8]>) -> Option<Vec<(u64, PathBuf)>> {
    /// RemapFilePathEntry.orig_id, .remap_id and .remap_type (remap-file-path.proto). Without a type it can be any.
    const FILE_ID: u64 = 1;
    const OWN_ID: u64 = 2;
    const KIND: u64 = 3;
    const GHOST: u64 = 1;
    /// RegFileEntry.id.
    const ID: u64 = 1;
    let Some(text) = remaps else { return Some(Vec::new()) };
    let mut numbers_of = BTreeMap::new();
    for entry in numbers::messages(text)? {
        let number = |field| numbers::last(text, entry.clone(), field);
        if number(KIND)?.is_none_or(|kind| kind == GHOST) {
            numbers_of.insert(number(FILE_ID)??, number(OWN_ID)??);
        }
    }
    let mut found = Vec::new();
    for entry in numbers::messages(files)? {
        for file in numbers::fields(files, entry, numbers::FILE)? {
            let id = numbers::last(files, file.clone(), ID)?;
            if let Some(number) = id.and_then(|id| numbers_of.get(&id)) {
                let names = numbers::fields(files, file, numbers::FILE_NAME)?;
                found.extend(names.into_iter().map(|name| (*number, reach::path_of(&files[name]))));
            }
        }
    }
    Some(found)
}

/// The paths of the sockets that criu makes; none for what is no such list.
fn bound(files: &[u8]) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in numbers::messages(files)? {
        let bound = reach::sockets(files, entry)?.into_iter().filter(|socket| socket.is_bound);
        found.extend(bound.map(|socket| socket.path));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_a_name_are_found() {
        let of =
            |line: &str| socket(line.as_bytes()).map(|(inode, path)| (inode, path.display().to_string()));
        let line = |kind: &str, state: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 00010000 {kind} {state}   123{name}")
        };
        let found = Some((123, "/run/a b".to_owned()));
        assert_eq!(of(&line("0001", "01", " /run/a b")), found);
        assert_eq!(of(&line("0002", "03", " /run/a b")), found);
        let others =
            [("0001", "03", " /run/a b"), ("0001", "01", ""), ("0001", "01", " @x"), ("0001", "01", " d/s")];
        assert!(others.iter().all(|(kind, state, name)| of(&line(kind, state, name)).is_none()));
        assert_eq!(of("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn what_is_made_by_names_is_found() {
        let file = |messages: &[Vec<u8>]| {
            let mut text = vec![0; numbers::MAGIC];
            for message in messages {
                text.extend((message.len() as u32).to_le_bytes());
                text.extend_from_slice(message);
            }
            text
        };
        let within = |key: &[u8], inner: &[u8]| [key, &[inner.len() as u8], inner].concat();
        let reg =
            |id: u8, name: &[u8]| within(&[8, 1, 16, id, 26], &[&[8, id][..], &within(&[50], name)].concat());
        let socket = |kind: u8, state: u8| {
            let name = [&[8, 9, 24, kind, 32, state][..], &within(&[90], b"/s")].concat();
            within(&[8, 1, 16, 9, 130, 1], &name)
        };
        let files = file(&[
            reg(1, b"/kept"),
            reg(2, b"/gone"),
            reg(3, b"/linked"),
            reg(4, b"/old"),
            socket(1, 10),
            socket(1, 1),
            socket(2, 1),
        ]);
        // 2 is a removed file, 3 has another name, and of 4 it is not said.
        let remaps = file(&[vec![8, 2, 16, 1, 24, 1], vec![8, 3, 16, 9, 24, 0], vec![8, 4, 16, 2]]);
        let paths = |names: &[&str]| Some(names.iter().map(PathBuf::from).collect());
        let gone = |remaps| Some(removed(&files, remaps)?.into_iter().map(|(_, path)| path).collect());
        assert_eq!(gone(Some(&remaps[..])), paths(&["/gone", "/old"]));
        assert_eq!(gone(None), paths(&[]));
        assert_eq!(gone(Some(&remaps[..remaps.len() - 1])), None);
        assert_eq!(bound(&files), paths(&["/s", "/s"]));
    }
}
