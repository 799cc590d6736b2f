//! That restored processes reach nothing but their container.
//!
//! criu opens the files and directories of a program by the paths that they had. Whoever writes to a directory of the container, as
//! the program itself after a checkpoint, can have put a link there that leads through procfs to what another process has open, or
//! another file. criu follows no link (`links`), and has nothing of the host open (`Criu::open_apart`). Here a link is told before,
//! in a sentence; and of what criu has made each descriptor, directory, program and mapping is compared with the container's mounts,
//! and with whose files they were (`files`), before it runs.

use super::files::{self, Allowed, At, Files, Had, REMOVED};
use super::image::Image;
use super::inside::Inside;
use super::numbers;
use super::places;
use super::preflight::{self, Descriptor, descriptors_of};
use super::processes::{self, Mapped, Process, Rights, mapped_in};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::Mounted;
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{bail, disk, err, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// criu's file of what is on its way through sockets.
const QUEUES: &str = "sk-queues.img";

/// How the kernel calls what is mapped of no file that has a path: memory that processes share, and that of asynchronous I/O. It shows
/// each of them as removed.
const NAMELESS: [&str; 5] = ["/memfd:", "/dev/zero", "/anon_hugepage", "/SYSV", "/[aio]"];

/// The device of memory that processes share, as proc_pid_maps(5) writes it: all of it is on one mount of the kernel's own.
pub(super) fn memory_device() -> Result<String> {
    let file = fs::memfd_create("rt", MemfdFlags::CLOEXEC).context(|| "make a file in memory")?;
    Ok(device_number(fd::stat(&file)?.st_dev))
}

/// True for what is mapped of no file with a path. A file can be called as memory is, so the device counts: `memory`, that of
/// [`memory_device`], or for huge pages and asynchronous I/O one that no mount of the container has, `mounts`, and no disk.
pub(super) fn is_memory(mapped: &Mapped<'_>, memory: &str, mounts: &[Mounted]) -> bool {
    let is_called_so =
        mapped.path.ends_with(REMOVED) && NAMELESS.iter().any(|name| mapped.path.starts_with(name));
    let is_mounted =
        || decimal(mapped.device).is_none_or(|device| mounts.iter().any(|mount| mount.device == device));
    is_called_so && (mapped.device == memory || mapped.device.starts_with("00:") && !is_mounted())
}

/// A device number of proc_pid_maps(5) as mountinfo writes it, in decimal digits; none where it is no number.
pub(super) fn decimal(device: &str) -> Option<Vec<u8>> {
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some(format!("{}:{}", number(major)?, number(minor)?).into_bytes())
}

/// A device number as proc_pid_maps(5) writes it.
pub(super) fn device_number(device: fs::Dev) -> String {
    format!("{:02x}:{:02x}", fs::major(device), fs::minor(device))
}

/// Follows each path of the files that `image` has, from the container's root.
///
/// # Errors
/// One leads through a link. The kernel has shown them without any when the image was written.
pub(super) fn check_paths(image: &Image) -> Result<()> {
    match leads_through_link(image)? {
        None => Ok(()),
        Some(path) => Err(err!(
            "{}: a link has taken the place of a file or a directory of the program",
            path.display()
        )
        .hint("it could lead out of the container")),
    }
}

/// The same when the image has just been written.
///
/// # Errors
/// One leads through a link, as the names of sockets can: nothing is restored by that.
pub(super) fn check_names(image: &Image) -> Result<()> {
    match leads_through_link(image)? {
        None => Ok(()),
        Some(path) => Err(err!("{}: its name leads through a link", path.display())
            .hint("have the program bind its socket by a path without links and `..`")),
    }
}

/// The first path of the files in `image` that leads through a link, in this process's root. One with `..` in it can do so later, when
/// what it begins with is there.
fn leads_through_link(image: &Image) -> Result<Option<PathBuf>> {
    let Some(text) = image.file(numbers::FILES)? else { return Ok(None) };
    let paths = paths(&text).ok_or_else(|| unknown_form(image, numbers::FILES))?;
    Ok(paths.all.into_iter().find(|path| {
        if path.components().any(|part| part == Component::ParentDir) {
            return true;
        }
        // What is missing is made in the directory above: a file that had been removed, or a socket.
        let looked = path.ancestors().map(open);
        let found = looked.into_iter().find(|looked| !matches!(looked, Err(Errno::NOENT)));
        matches!(found, Some(Err(Errno::LOOP)))
    }))
}

/// Opens what is at `path`, to which no link may lead.
fn open(path: &Path) -> Result<rustix::fd::OwnedFd, Errno> {
    fs::openat2(fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Sockets with names, and what somebody watches, by the path in the container.
pub(super) fn without_links(image: &Image) -> Result<Vec<PathBuf>> {
    let Some(text) = image.file(numbers::FILES)? else { return Ok(Vec::new()) };
    Ok(paths(&text).ok_or_else(|| unknown_form(image, numbers::FILES))?.without_links)
}

/// The paths in a list of open files.
#[derive(Debug, Default)]
struct Paths {
    all: Vec<PathBuf>,
    /// Those of them to which procfs has no link: of sockets, and of what is watched.
    without_links: Vec<PathBuf>,
}

/// The paths in a list of open files, messages (FileEntry of criu's fdinfo.proto); none for what is no such list.
fn paths(text: &[u8]) -> Option<Paths> {
    /// FileEntry.reg.ext (regfile.proto).
    const FILE_IS_CALLERS: u64 = 9;
    /// FileEntry.ify.wd.f_handle.path, .ffy.mark.ie.f_handle.path and .ffy.mark.me.path (fsnotify.proto, fh.proto): what is watched.
    const WATCHED: [&[u64]; 3] = [&[13, 5, 7, 4], &[14, 6, 7, 2, 4], &[14, 6, 8, 2]];
    let path = |part: Range<usize>| path_of(&text[part]);
    let mut found = Paths::default();
    for entry in numbers::messages(text)? {
        for file in numbers::fields(text, entry.clone(), numbers::FILE)? {
            // It comes from the call that restores.
            if numbers::fields(text, file.clone(), FILE_IS_CALLERS)?.pop().is_some_and(|is| text[is] != [0]) {
                continue;
            }
            // What is not absolute is no path of the container, such as `pipe:[7]`.
            let names = numbers::fields(text, file, numbers::FILE_NAME)?.into_iter();
            found.all.extend(names.map(path).filter(|path| path.is_absolute()));
        }
        for chain in WATCHED {
            let paths = numbers::nested(text, entry.clone(), chain)?.into_iter().map(path);
            found.without_links.extend(paths.map(|path| Path::new("/").join(path)));
        }
        found.without_links.extend(sockets(text, entry)?.into_iter().map(|socket| socket.path));
    }
    found.all.extend_from_slice(&found.without_links);
    Some(found)
}

/// The path that a field of criu is.
pub(super) fn path_of(field: &[u8]) -> PathBuf {
    // For criu the name of a socket ends with its first zero byte, and an abstract one begins with it.
    let name = field.split(|byte| *byte == 0).next().unwrap_or_default();
    PathBuf::from(OsString::from_vec(name.to_vec()))
}

/// A socket with a path.
pub(super) struct Socket {
    pub path: PathBuf,
    /// criu makes it there. It does not of a stream that is connected.
    pub is_bound: bool,
}

/// The socket with a path that the message `entry` in a list of open files is, if any; none for what is no message.
pub(super) fn sockets(text: &[u8], entry: Range<usize>) -> Option<Vec<Socket>> {
    /// FileEntry.usk, and .type, .state, .name and .name_dir of that (sk-unix.proto).
    const SOCKET: u64 = 16;
    const TYPE: u64 = 3;
    const STATE: u64 = 4;
    const NAME: u64 = 11;
    const DIR: u64 = 14;
    const DATAGRAMS: u64 = libc::SOCK_DGRAM as u64;
    /// TCP_ESTABLISHED.
    const CONNECTED: u64 = 1;
    let mut found = Vec::new();
    for socket in numbers::fields(text, entry, SOCKET)? {
        let last =
            |field| Some(numbers::fields(text, socket.clone(), field)?.pop().map(|at| path_of(&text[at])));
        if let Some(name) = last(NAME)?.filter(|name| !name.as_os_str().is_empty()) {
            let number = |field| numbers::last(text, socket.clone(), field);
            found.push(Socket {
                path: Path::new("/").join(last(DIR)?.unwrap_or_default()).join(name),
                is_bound: number(TYPE)? == Some(DATAGRAMS) || number(STATE)? != Some(CONNECTED),
            });
        }
    }
    Some(found)
}

/// Looks through what is on its way through sockets.
///
/// # Errors
/// A descriptor is, which nobody could look at when it is restored.
pub(super) fn check_queues(image: &Image) -> Result<()> {
    let Some(text) = image.file(QUEUES)? else { return Ok(()) };
    match passes_descriptors(&text).ok_or_else(|| unknown_form(image, QUEUES))? {
        false => Ok(()),
        true => Err(is_on_its_way()),
    }
}

/// What others could put there is not looked at, and what is exchanged is not exchanged there.
pub(super) fn is_on_its_way() -> Error {
    err!("a descriptor is on its way through a socket").hint("have it received before")
}

pub(super) fn unknown_form(image: &Image, name: &str) -> Error {
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

/// A standard stream of this process.
struct Stream {
    stat: fs::Stat,
    /// How it is open, as [`files::may_open`] takes it.
    access: u32,
}

/// What a restored process may have.
pub(super) struct Reach<'a> {
    /// What the program had open.
    files: &'a Files,
    inside: Inside<'a>,
    /// What [`memory_device`] says.
    memory: String,
    /// This call's standard streams, which take the place of the old caller's.
    streams: Vec<Stream>,
    /// Files that are mapped and have been looked at, by what maps says of each; nothing of those that are the kernel's.
    mapped: BTreeMap<String, Option<At>>,
    /// What the kernel has allowed.
    allowed: Allowed,
}

impl<'a> Reach<'a> {
    /// That of a container whose root is this process's, which has the standard streams that criu was given.
    pub(super) fn of_container(files: &'a Files, own: &'a [PathBuf]) -> Result<Self> {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let streams = streams.iter().map(|stream| {
            let stat = fd::stat(stream)?;
            let flags = fs::fcntl_getfl(stream).context(|| "look at a standard stream")?;
            Ok(Stream { stat, access: preflight::bits(flags.bits() as i32) })
        });
        Ok(Reach {
            files,
            inside: Inside::of(Path::new("/proc/self"), own)?,
            memory: memory_device()?,
            streams: streams.collect::<Result<_>>()?,
            mapped: BTreeMap::new(),
            allowed: Allowed::default(),
        })
    }

    /// Looks at `process`, and returns its descriptors.
    ///
    /// # Errors
    /// What of it lies elsewhere.
    pub(super) fn check<'p>(&mut self, process: &'p Process) -> Result<Vec<Descriptor<'p>>> {
        let rights = process.rights()?;
        let descriptors = descriptors_of(process)?;
        for descriptor in &descriptors {
            self.check_descriptor(process, &rights, descriptor)?;
        }
        for (name, what) in [("cwd", "working directory"), ("root", "root"), ("exe", "program")] {
            let path = process.dir().join(name);
            let opened = fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let opened = opened.context(|| format!("look at the {what} of {}", process.shown()))?;
            if !self.inside.has(disk::mount_id(opened.as_fd())) {
                bail!("its {what} is not in the container");
            }
            if name != "root" {
                let shown = || format!("read the link to the {what} of {}", process.shown());
                // It is entered, or executed.
                let had = Had { process, rights: &rights, access: 0o1, allowed: &self.allowed };
                self.files.compare(&self.inside, &had, name, &std::fs::read_link(&path).context(shown)?)?;
            }
        }
        self.check_maps(process, &rights)?;
        Ok(descriptors)
    }

    /// Looks at those of all `descriptors` that send datagrams to programs outside: criu has connected them by names, with all
    /// capabilities of the container's user namespace.
    ///
    /// # Errors
    /// The process itself could not have connected one.
    pub(super) fn check_servers(&self, descriptors: &[Descriptor<'_>]) -> Result<()> {
        if !self.files.has_several_ids() {
            return Ok(());
        }
        let names = places::sockets(Path::new("/proc/self"))?;
        let sockets = preflight::sockets_of(descriptors);
        for (descriptor, socket, server) in preflight::connected_outside(&sockets)? {
            if let Some(name) = names.get(&server.socket).filter(|_| socket.datagrams) {
                places::check_server(&self.inside, descriptor, name, server.file)?;
            }
        }
        Ok(())
    }

    /// How this process has the file with `stat` open as a standard stream, if it has.
    fn given(&self, stat: &fs::Stat) -> Option<u32> {
        let is_it = |stream: &&Stream| files::is_one(&stream.stat, stat);
        self.streams.iter().filter(is_it).map(|stream| stream.access).reduce(|one, other| one | other)
    }

    fn check_descriptor(
        &self,
        process: &Process,
        rights: &Rights,
        descriptor: &Descriptor<'_>,
    ) -> Result<()> {
        // A file is watched by who may read it.
        let watches = Had { process, rights, access: 0o4, allowed: &self.allowed };
        self.files.compare_watches(&self.inside, &descriptor.info, Some(&watches))?;
        // Pipes, sockets and others without a path are of the kernel's own mounts.
        if !descriptor.target.is_absolute() {
            return Ok(());
        }
        let stat = fs::stat(descriptor.path()).context(|| format!("look at {}", descriptor.text()))?;
        let is_here = self.inside.has(descriptor.mount());
        let is_memory = stat.st_nlink == 0 && descriptor.text().starts_with("/memfd:");
        // What the program had open itself is no stream of the caller's, who may have been given its place.
        let given = if self.files.has(process, &descriptor.name()) { None } else { self.given(&stat) };
        if let Some(given) = given {
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            // criu opens it anew, as the program had its own, and with all capabilities.
            if is_file && self.files.has_several_ids() && descriptor.bits() & !given != 0 {
                let (number, text) = (descriptor.number, descriptor.text());
                return Err(err!(
                    "its descriptor {number} is a standard stream, {text}, and it could do more with it than the caller"
                )
                .hint("open it for reading and writing"));
            }
            return Ok(());
        }
        if is_memory && !is_here {
            return Ok(());
        }
        if is_here {
            let had = Had { process, rights, access: descriptor.bits(), allowed: &self.allowed };
            return self.files.compare(&self.inside, &had, &descriptor.name(), &descriptor.target);
        }
        bail!(
            "its descriptor {} is {}, which is no file of the container",
            descriptor.number,
            descriptor.text()
        )
    }

    /// Looks at files that are mapped. Nobody but root can open what another process has mapped, so the path that the kernel shows
    /// has to lead to the same file here.
    fn check_maps(&mut self, process: &Process, rights: &Rights) -> Result<()> {
        let shown = || format!("look at the memory of {}", process.shown());
        let text = processes::maps_of(&process.dir()).context(shown)?;
        let program = fs::stat(process.dir().join("exe")).context(shown)?;
        for mapped in mapped_in(&String::from_utf8_lossy(&text)) {
            let path = mapped.path;
            if mapped.inode == "0" || is_memory(&mapped, &self.memory, &self.inside.mounts) {
                continue;
            }
            if !self.mapped.contains_key(mapped.file) {
                let Some(opened) = open_mapped(&self.inside, &mapped)? else {
                    bail!("it has {path} in its memory, which is no file of the container")
                };
                // Memory without a file, by the device.
                let is_kernels =
                    fd::file_system(&opened)? == PROC_MAGIC || is_zero_device(&fd::stat(&opened)?);
                let found = if is_kernels { None } else { Some(At::of(&self.inside, &opened)?) };
                self.mapped.insert(mapped.file.to_owned(), found);
            }
            let Some(Some(found)) = self.mapped.get(mapped.file) else { continue };
            let compare = |access| {
                let had = Had { process, rights, access, allowed: &self.allowed };
                self.files.compare_mapped(&self.inside, &had, &mapped, found)
            };
            if !mapped.is_shared {
                // Who executes a program need not be able to read it.
                compare(if found.is(&program) { 0o1 } else { 0o4 })?;
            } else if let Err(e) = compare(0o6) {
                // To look through all memory is slow.
                match can_be_written(process, mapped.addresses.start)? {
                    true => return Err(e),
                    false => compare(0o4)?,
                }
            }
        }
        Ok(())
    }
}

fn is_zero_device(stat: &fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == fs::makedev(1, 5)
}

/// The file that `mapped` is of; none where another one is at its path by now.
pub(super) fn open_mapped(inside: &Inside<'_>, mapped: &Mapped<'_>) -> Result<Option<OwnedFd>> {
    let is_wanted = |device| device_number(device) == mapped.device;
    Ok(inside.find(Path::new(mapped.path), is_wanted)?.filter(|opened| is_of(opened, mapped)))
}

/// True where `opened` is the file of `mapped`.
pub(super) fn is_of(opened: &OwnedFd, mapped: &Mapped<'_>) -> bool {
    fs::fstat(opened).is_ok_and(|stat| is_file(&stat, &[mapped.device, mapped.inode]))
}

/// True where what `process` has mapped from the address `start` on goes to a file: it is writable, or can be made so (mprotect(2)), since
/// the file was open for writing, too.
fn can_be_written(process: &Process, start: u64) -> Result<bool> {
    Ok(is_written(&flags_of(process)?, start))
}

/// The same by the `flags` of the process.
pub(super) fn is_written(flags: &BTreeMap<u64, String>, start: u64) -> bool {
    // The kernel calls `mw` what may be written.
    flags.get(&start).is_none_or(|flags| flags.split(' ').any(|flag| flag == "mw"))
}

/// What the kernel says of what `process` has mapped (VmFlags of proc_pid_smaps(5)), by addresses. To look through all memory is slow.
pub(super) fn flags_of(process: &Process) -> Result<BTreeMap<u64, String>> {
    let text = fd::read_file(&process.dir().join("smaps"))
        .context(|| format!("look at the memory of {}", process.shown()))?;
    let text = String::from_utf8_lossy(&text);
    let (mut flags, mut start) = (BTreeMap::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("VmFlags:"), start) {
            (Some(of), Some(start)) => drop(flags.insert(start, of.trim().to_owned())),
            _ => start = line.split_once('-').and_then(|(at, _)| u64::from_str_radix(at, 16).ok()).or(start),
        }
    }
    Ok(flags)
}

/// True where `stat` is of the file with that device and inode, as procfs writes them (proc_pid_maps(5)).
pub(super) fn is_file(stat: &fs::Stat, file: &[impl AsRef<str>; 2]) -> bool {
    is_identity((stat.st_dev, stat.st_ino), file)
}

/// The same of a device and an inode.
pub(super) fn is_identity((device, inode): (u64, u64), file: &[impl AsRef<str>; 2]) -> bool {
    device_number(device) == file[0].as_ref() && inode.to_string() == file[1].as_ref()
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
        let within = |key: u8, inner: &[u8]| [&[8, 7, key, inner.len() as u8], inner].concat();
        let relative = [&name(90, b"d/s")[..], &[114, 4], b"/out"].concat();
        let text = [
            vec![0; 8],
            entry(file, &name(50, b"/work/d")),
            entry(file, &name(50, b"x")),
            entry(file, &callers),
            entry(socket, &name(90, b"/var/run/socket\0x")),
            entry(socket, &name(90, b"\0abstract")),
            entry(socket, &relative),
            entry(&[106], &within(42, &within(58, &name(34, b"watched")))),
            entry(&[114], &within(50, &within(58, &within(18, &name(34, b"/inode"))))),
            entry(&[114], &within(50, &within(66, &name(18, b"/mount")))),
        ];
        let text = text.concat();
        let expected = ["/work/d", "/var/run/socket", "/out/d/s", "/watched", "/inode", "/mount"];
        let found = paths(&text).unwrap();
        assert_eq!(found.all, expected.map(PathBuf::from));
        assert_eq!(found.without_links, found.all[1..]);
        for cut in 0..text.len() {
            paths(&text[..cut]);
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
