//! That restored processes reach nothing but their container.
//!
//! criu opens the files and directories of a program by the paths that they had. Whoever writes to a directory of the container, as
//! the program itself after a checkpoint, can have put a link there that leads through procfs to what a process of the host has
//! open. So no path of an image may lead through a link, criu has nothing of the host open (`Criu::open_apart`), and of what it
//! has made each descriptor, directory, program and mapping is compared with the container's mounts before it runs.

use super::image::Image;
use super::numbers;
use super::preflight::{Descriptor, descriptors_of};
use super::processes::{Process, mapped_in};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::Mounted;
use rt_sys::{bail, disk, err, fd, mount};
use rustix::fd::AsFd;
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How long criu's list of open files may be, in bytes.
const MOST: usize = 64 << 20;
/// criu's list of open files that had been removed.
const REMOVED: &str = "remap-fpath.img";
/// FileEntry.reg.id and .ext (regfile.proto); RemapFilePathEntry.orig_id (remap-file-path.proto) has the number of the first, too.
const ID: u64 = 1;
const FILE_IS_CALLERS: u64 = 9;
/// criu's file of what is on its way through sockets.
const QUEUES: &str = "sk-queues.img";

/// What is mapped of no file that has a path: memory that processes share, and that of asynchronous I/O. The kernel shows each of
/// them as removed.
const NAMELESS: [&str; 5] = ["/memfd:", "/dev/zero", "/anon_hugepage", "/SYSV", "/[aio]"];

/// Follows each path of the files that `image` has, from the container's root.
///
/// # Errors
/// One leads through a link. The kernel has shown them without any when the image was written.
pub(super) fn check_paths(image: &Image) -> Result<()> {
    let Some(text) = image.file(numbers::FILES, MOST)? else { return Ok(()) };
    let paths = paths(&text).ok_or_else(|| unknown_form(image, numbers::FILES))?;
    for (path, resolve) in paths {
        let path = Path::new(OsStr::from_bytes(path));
        // What is missing is made in the directory above: a file that had been removed, or a socket.
        let looked = path.ancestors().map(|path| open(path, resolve));
        if let Some(Err(Errno::LOOP)) = looked.into_iter().find(|looked| !matches!(looked, Err(Errno::NOENT)))
        {
            return Err(err!(
                "{}: a link has taken the place of a file or a directory of the program",
                path.display()
            )
            .hint("it could lead out of the container"));
        }
    }
    Ok(())
}

fn open(path: &Path, resolve: ResolveFlags) -> Result<rustix::fd::OwnedFd, Errno> {
    fs::openat2(fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// All paths in a list of open files, messages (FileEntry of criu's fdinfo.proto), and by which links none may lead; none for what is no
/// such list.
fn paths(text: &[u8]) -> Option<Vec<(&[u8], ResolveFlags)>> {
    /// FileEntry.usk, and .name and .name_dir of that (sk-unix.proto).
    const SOCKET: u64 = 16;
    const SOCKET_NAMES: [u64; 2] = [11, 14];
    let mut found = Vec::new();
    for entry in numbers::messages(text)? {
        for file in numbers::fields(text, entry.clone(), numbers::FILE)? {
            if is_callers(text, &file)? {
                continue;
            }
            // As the kernel has resolved it.
            let names = numbers::fields(text, file, numbers::FILE_NAME)?.into_iter();
            found.extend(names.map(|name| (&text[name], ResolveFlags::NO_SYMLINKS)));
        }
        for socket in numbers::fields(text, entry, SOCKET)? {
            for field in SOCKET_NAMES {
                // As the program has named it: by links, too, but not by those of procfs to what processes have open.
                let names = numbers::fields(text, socket.clone(), field)?.into_iter();
                found.extend(names.map(|name| (&text[name], ResolveFlags::NO_MAGICLINKS)));
            }
        }
    }
    // For criu the name of a socket ends with its first zero byte, and an abstract one begins with it.
    let named = found
        .into_iter()
        .map(|(path, resolve)| (path.split(|byte| *byte == 0).next().unwrap_or(path), resolve));
    Some(named.filter(|(path, _)| path.starts_with(b"/")).collect())
}

/// The first file or directory that `image` has open, and that is not there. A file that had been removed is not looked for: criu makes it.
pub(super) fn missing(image: &Image) -> Result<Option<PathBuf>> {
    let (files, removed) = (image.file(numbers::FILES, MOST)?, image.file(REMOVED, MOST)?);
    let unknown = || unknown_form(image, numbers::FILES);
    let files = files.map_or(Some(Vec::new()), |text| named(&text)).ok_or_else(unknown)?;
    let removed = removed.map_or(Some(Vec::new()), |text| numbers_of(&text)).ok_or_else(unknown)?;
    let is_missing = |path: &Path| matches!(fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR));
    Ok(files.into_iter().filter(|(id, _)| !removed.contains(id)).map(|(_, path)| path).find(|path| {
        // Files of processes that are not there yet.
        !path.starts_with("/proc") && is_missing(path)
    }))
}

/// The number and the path of each file in a list of open files that is not the caller's.
fn named(text: &[u8]) -> Option<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in numbers::messages(text)? {
        for file in numbers::fields(text, entry, numbers::FILE)? {
            if is_callers(text, &file)? {
                continue;
            }
            let id = numbers::number(text, numbers::fields(text, file.clone(), ID)?.pop()?)?;
            let name = numbers::fields(text, file, numbers::FILE_NAME)?.pop()?;
            if text[name.clone()].starts_with(b"/") {
                found.push((id, PathBuf::from(OsStr::from_bytes(&text[name]))));
            }
        }
    }
    Some(found)
}

/// The numbers of the files in a list of those that had been removed.
fn numbers_of(text: &[u8]) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for entry in numbers::messages(text)? {
        found.push(numbers::number(text, numbers::fields(text, entry, ID)?.pop()?)?);
    }
    Some(found)
}

/// True for an open file (RegFileEntry) that comes from the call that restores.
fn is_callers(text: &[u8], file: &Range<usize>) -> Option<bool> {
    Some(numbers::fields(text, file.clone(), FILE_IS_CALLERS)?.pop().is_some_and(|is| text[is] != [0]))
}

/// Looks through what is on its way through sockets.
///
/// # Errors
/// A descriptor is, which nobody could look at when it is restored.
pub(super) fn check_queues(image: &Image) -> Result<()> {
    let Some(text) = image.file(QUEUES, MOST)? else { return Ok(()) };
    match passes_descriptors(&text).ok_or_else(|| unknown_form(image, QUEUES))? {
        false => Ok(()),
        true => Err(err!("a descriptor is on its way through a socket, and the program is process 1")
            .hint("have it received before, or start the program with --init")),
    }
}

fn unknown_form(image: &Image, name: &str) -> Error {
    err!("{}/{name}: it has a form that rt does not know", image.path.display())
}

/// Whether a packet has descriptors; none for no sequence of packets: messages (SkPacketEntry of criu's sk-packet.proto), each behind
/// its length and before the packet's data.
fn passes_descriptors(text: &[u8]) -> Option<bool> {
    /// SkPacketEntry.length and .scm.
    const LENGTH: u64 = 2;
    const SCM: u64 = 4;
    let mut at = numbers::MAGIC;
    while at < text.len() {
        let packet = numbers::message_at(text, at)?;
        if !numbers::fields(text, packet.clone(), SCM)?.is_empty() {
            return Some(true);
        }
        let data = numbers::number(text, numbers::fields(text, packet.clone(), LENGTH)?.pop()?)?;
        at = packet.end.checked_add(usize::try_from(data).ok()?)?;
    }
    Some(false)
}

/// What a restored process may have.
pub(super) struct Reach {
    /// The container's mounts.
    mounts: Vec<Mounted>,
    /// Device and inode of this call's standard streams, which take the place of the old caller's.
    streams: Vec<(u64, u64)>,
    /// Lines of files that are mapped and have been looked at.
    mapped: BTreeSet<String>,
}

impl Reach {
    /// That of a container whose root is this process's, which has the standard streams that criu was given.
    pub(super) fn of_container() -> Result<Reach> {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let streams = own.iter().map(|stream| fd::stat(stream).map(|stat| (stat.st_dev, stat.st_ino)));
        Ok(Reach {
            mounts: mount::table()?,
            streams: streams.collect::<Result<_>>()?,
            mapped: BTreeSet::new(),
        })
    }

    /// Looks at `process`.
    ///
    /// # Errors
    /// What of it lies elsewhere.
    pub(super) fn check(&mut self, process: &Process) -> Result<()> {
        for descriptor in descriptors_of(process)? {
            self.check_descriptor(&descriptor)?;
        }
        for (name, what) in [("cwd", "working directory"), ("root", "root"), ("exe", "program")] {
            let path = process.dir().join(name);
            let opened = fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let opened = opened.context(|| format!("look at the {what} of {}", process.shown()))?;
            let mount = disk::mount_id(opened.as_fd());
            if !mount.is_some_and(|id| self.has(id)) {
                bail!("its {what} is not in the container");
            }
        }
        self.check_maps(process)
    }

    fn has(&self, id: u64) -> bool {
        self.mounts.iter().any(|mount| mount.id == id)
    }

    fn check_descriptor(&self, descriptor: &Descriptor<'_>) -> Result<()> {
        // Pipes, sockets and others without a path are of the kernel's own mounts.
        if !descriptor.target.is_absolute() || descriptor.mount().is_some_and(|id| self.has(id)) {
            return Ok(());
        }
        let stat = fs::stat(descriptor.path()).context(|| format!("look at {}", descriptor.text()))?;
        let is_memory = stat.st_nlink == 0 && descriptor.text().starts_with("/memfd:");
        if is_memory || self.streams.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        bail!(
            "its descriptor {} is {}, which is no file of the container",
            descriptor.number,
            descriptor.text()
        )
    }

    /// Looks at files that are mapped. Nobody but root can open what another process has mapped, so the path that the kernel shows
    /// has to lead to the same file here.
    fn check_maps(&mut self, process: &Process) -> Result<()> {
        let shown = || format!("look at the memory of {}", process.shown());
        let text = fd::read_file(&process.dir().join("maps")).context(shown)?;
        for mapped in mapped_in(&String::from_utf8_lossy(&text)) {
            let path = mapped.path;
            let is_nameless =
                path.ends_with(" (deleted)") && NAMELESS.iter().any(|name| path.starts_with(name));
            if mapped.inode == "0" || is_nameless || self.mapped.contains(mapped.file) {
                continue;
            }
            if !open(Path::new(path), ResolveFlags::NO_SYMLINKS)
                .is_ok_and(|opened| is_file(&opened, mapped.device, mapped.inode))
            {
                bail!("it has {path} in its memory, which is no file of the container");
            }
            self.mapped.insert(mapped.file.to_owned());
        }
        Ok(())
    }
}

/// True where `opened` has that device and inode, as procfs writes them (proc_pid_maps(5)).
fn is_file(opened: impl AsFd, device: &str, inode: &str) -> bool {
    let Ok(stat) = fs::fstat(opened) else { return false };
    let own = format!("{:02x}:{:02x}", fs::major(stat.st_dev), fs::minor(stat.st_dev));
    own == device && stat.st_ino.to_string() == inode
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One FileEntry of type 1 with the id 7, and what is opened in it: a field and its message.
    fn entry(field: &[u8], opened: &[u8]) -> Vec<u8> {
        let entry = [&[8, 1, 16, 7], field, &[opened.len() as u8], opened].concat();
        [&(entry.len() as u32).to_le_bytes()[..], &entry].concat()
    }

    #[test]
    fn paths_are_found() {
        let name = |key: u8, name: &[u8]| [&[8, 7, key, name.len() as u8], name].concat();
        let (file, socket) = (&[26][..], &[130, 1][..]);
        let callers = [&name(50, b"/home/out")[..], &[72, 1]].concat();
        let text = [
            vec![0; 8],
            entry(file, &name(50, b"/work/d")),
            entry(file, &name(50, b"x")),
            entry(file, &callers),
            entry(socket, &name(90, b"/var/run/socket\0x")),
        ];
        let text = text.concat();
        let expected: [(&[u8], _); 2] =
            [(b"/work/d", ResolveFlags::NO_SYMLINKS), (b"/var/run/socket", ResolveFlags::NO_MAGICLINKS)];
        assert_eq!(paths(&text).unwrap(), expected);
        for cut in 0..text.len() {
            paths(&text[..cut]);
        }
    }

    #[test]
    fn files_have_numbers_and_paths() {
        let name = |name: &[u8]| [&[8, 7, 50, name.len() as u8], name].concat();
        let callers = [&name(b"/home/out")[..], &[72, 1]].concat();
        let text = [vec![0; 8], entry(&[26], &name(b"/work/d")), entry(&[26], &callers)].concat();
        assert_eq!(named(&text).unwrap(), [(7, PathBuf::from("/work/d"))]);
        let removed = [&[0; numbers::MAGIC][..], &[4, 0, 0, 0, 8, 7, 16, 9]].concat();
        assert_eq!(numbers_of(&removed).unwrap(), [7]);
        for cut in 0..text.len() {
            named(&text[..cut]);
        }
    }

    #[test]
    fn descriptors_on_their_way_are_found() {
        let plain = [&[0; numbers::MAGIC][..], &[4, 0, 0, 0, 8, 1, 16, 3], b"abc"].concat();
        assert_eq!(passes_descriptors(&plain), Some(false));
        let passed = [&plain[..], &[10, 0, 0, 0, 8, 1, 16, 1, 34, 4, 8, 1, 16, 7, b'x']].concat();
        assert_eq!(passes_descriptors(&passed), Some(true));
        for cut in numbers::MAGIC + 1..numbers::MAGIC + 8 {
            assert_eq!(passes_descriptors(&plain[..cut]), None, "{cut}");
        }
    }
}
