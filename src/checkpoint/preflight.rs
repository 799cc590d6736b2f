//! What cannot be kept, found before criu runs, and once more when it has stopped the tree: criu damages some of it without a
//! word. Each is said with the process, what of it is in the way, and the remedy.

use super::files::{Files, Watched};
use super::inside::Inside;
use super::manifest::Kind;
use super::memory_files::{Part, Shared};
use super::places::{self, Places};
use super::processes::{self, Mapped, Process, Status, Tree, mapped_in};
use super::{memory_fs, reach, removed, shared_files, watches};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Mounted};
use rt_sys::net::UnixSocket;
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{err, fd, look, process};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Devices that have no state: of memory (null, zero, random, ...), and terminals.
const STATELESS: [u32; 2] = [1, 5];
/// Terminals of devpts.
const TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

/// MQUEUE_MAGIC (ipc/mqueue.c of the kernel). Queues are on a mount of the kernel's own.
const MQUEUE: u64 = 0x1980_0202;

/// Kinds of anonymous files that criu keeps.
const KEPT: [&str; 6] = ["eventpoll", "eventfd", "signalfd", "timerfd", "pidfd", "inotify"];

/// The other end of a socket, which is a program's outside.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Server {
    /// The inode of that socket.
    pub socket: u64,
    /// As [`UnixSocket`] has it.
    pub file: Option<u32>,
}

/// What is known of a tree that can be dumped.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// What of the caller the program's standard streams are, by the name that criu is told when it restores; empty what is the
    /// container's own.
    pub streams: [String; 3],
    /// What kinds of files they are.
    pub kinds: [Kind; 3],
    /// Files of the caller that the container does not show, by the name that criu is told when it dumps.
    pub external: BTreeSet<String>,
    /// What is open, mapped or executed, or somebody's working directory, by its path.
    pub files: Files,
    /// The container has several user ids: criu can do more than the program when it restores that.
    pub by_several_ids: bool,
    /// Sockets of datagrams that lead to a program outside, such as syslog's, by their inodes, with those of the others' sockets. They are
    /// connected again by names.
    pub sends_outside: BTreeMap<u64, Server>,
    /// Files and directories are watched by inotify, for which criu looks by paths.
    pub watches: bool,
    /// Their paths.
    pub watched: Vec<(Watched, PathBuf)>,
    /// Memory of files that have been removed is mapped, which `rt` has to change before criu begins: of each the device, the inode and the
    /// name, as procfs writes them.
    pub removed: BTreeSet<[String; 3]>,
    /// The same of what can be written in memory of files that have their names, on a file system in memory that is not the container's
    /// alone.
    pub shared: BTreeSet<[String; 3]>,
    /// The highest number of a process of which a file of procfs is open: where it has ended, criu makes one with that number, too.
    pub highest: i32,
}

/// Whether the tree's network is that of the host, whose connections nobody can take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// The host's.
    Host,
    /// The container's own.
    Own,
}

/// When a tree is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage<'a> {
    /// It runs. What `rt` can change before criu begins is in nobody's way.
    Before,
    /// It is stopped.
    Stopped,
    /// criu has written it, and has found these paths of sockets and of what is watched.
    Dumped(&'a [PathBuf]),
}

/// A descriptor of a process.
pub(super) struct Descriptor<'a> {
    /// Whose it is.
    pub(super) process: &'a Process,
    /// Its number.
    pub(super) number: i32,
    /// What the link in procfs says.
    pub(super) target: PathBuf,
    /// What stands in fdinfo.
    pub(super) info: String,
}

impl Descriptor<'_> {
    /// The error that says what is in the way.
    pub(super) fn refused(&self, what: &str, remedy: &str) -> Error {
        let error = err!("{}: descriptor {} is {what}", self.process.shown(), self.number);
        error.hint(remedy)
    }

    /// What the link in procfs says.
    pub(super) fn text(&self) -> String {
        self.target.display().to_string()
    }

    /// What stands behind `key` in fdinfo.
    pub(super) fn field(&self, key: &str) -> Option<&str> {
        self.info.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
    }

    /// The id of the mount that it is on.
    pub(super) fn mount(&self) -> Option<u64> {
        self.field("mnt_id")?.parse().ok()
    }

    /// Whether it can be read or written: the access mode of open(2).
    fn access(&self) -> i32 {
        let flags = self.field("flags").and_then(|text| i32::from_str_radix(text, 8).ok());
        flags.unwrap_or(0) & libc::O_ACCMODE
    }

    /// The user ids of its process.
    pub(super) fn users(&self) -> Result<Vec<u32>> {
        self.process.users()
    }

    /// The same as the bits that a mode has for others.
    pub(super) fn bits(&self) -> u32 {
        bits(self.access())
    }

    /// The inode of a pipe or a socket.
    pub(super) fn inode(&self, kind: &str) -> Option<u64> {
        let text = self.target.to_str()?;
        text.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
    }

    fn kind(&self) -> Result<Kind> {
        let stat = fs::stat(self.path()).context(|| format!("look at {}", self.text()))?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            _ if fd::is_null_device(&stat) => Kind::Null,
            FileType::RegularFile => Kind::File,
            _ => Kind::Other,
        })
    }

    /// What was found out about it; nothing where the process, which runs, has closed it meanwhile: its link leads nowhere then.
    fn unless_closed<T: Default>(&self, looked: Result<T>) -> Result<T> {
        match looked {
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(T::default()),
            Err(e) if e.is(libc::EACCES) && has_ended(self.process)? => Ok(T::default()),
            looked => looked,
        }
    }

    /// Its name in the directory of its process in procfs.
    pub(super) fn name(&self) -> String {
        format!("fd/{}", self.number)
    }

    /// The link in procfs.
    pub(super) fn path(&self) -> PathBuf {
        self.process.dir().join(self.name())
    }
}

/// The bits that a mode has for others of who opens a file with these flags (open(2)).
pub(super) fn bits(flags: i32) -> u32 {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => 0o4,
        libc::O_WRONLY => 0o2,
        _ => 0o6,
    }
}

/// Looks at everything of `tree`.
///
/// # Errors
/// The first thing that cannot be kept. `filters` is how many seccomp filters each thread has of `rt`, `own` is where file systems
/// are that were made for the container alone.
pub(super) fn check(
    tree: &Tree,
    network: Network,
    filters: usize,
    own: &[PathBuf],
    stage: Stage<'_>,
) -> Result<Found> {
    let (mut found, users) = (Found::default(), processes::users_of(tree)?);
    found.files.users.clone_from(&users);
    tree.processes.iter().try_for_each(|process| check_process(process, filters))?;
    let descriptors = descriptors_of_all(&tree.processes)?;
    check_sessions(tree)?;
    let program = tree.program().dir();
    let inside = Inside::of(&program, own)?;
    let places = Places::of(&program, &inside, &users)?;
    found.by_several_ids = places.is_some();
    let memory_files = check_maps(tree, &inside, stage, &mut found)?;
    for process in &tree.processes {
        found.files.note_links(&inside, process).or_else(|e| {
            match may_have_ended(&e) && has_ended(process)? {
                true => Ok(()),
                false => Err(e),
            }
        })?;
    }
    let pipes = Pipes::of(&descriptors);
    let kept = Kept { program: tree.program(), memory_files };
    for descriptor in &descriptors {
        descriptor.unless_closed(check_descriptor(descriptor, &kept, &mut found))?;
    }
    for descriptor in descriptors.iter().filter(|d| d.process.pid == tree.program().pid && d.number <= 2) {
        let number = descriptor.number.unsigned_abs() as usize;
        found.streams[number] = descriptor.unless_closed(stream_name(descriptor, &inside, &pipes))?;
        found.kinds[number] = descriptor.unless_closed(descriptor.kind())?;
    }
    for descriptor in &descriptors {
        if inside.has(descriptor.mount()) {
            found.files.note(&inside, descriptor.process, &descriptor.name(), &descriptor.target)?;
        }
    }
    // criu has found those in an image.
    if found.watches && !matches!(stage, Stage::Dumped(_)) {
        found.watched = watches::find(&descriptors, tree, &inside)?;
    }
    check_external(&descriptors, &inside, &mut found)?;
    check_sockets(&descriptors, tree, network, &mut found)?;
    match &places {
        Some(places) => check_places(&program, &descriptors, places, stage, &mut found)?,
        None => descriptors
            .iter()
            .try_for_each(|descriptor| descriptor.unless_closed(places::check_owner(descriptor, &inside)))?,
    }
    Ok(found)
}

/// Looks at the directories of what criu makes by names when it restores, and at what it finds by names.
fn check_places(
    program: &Path,
    descriptors: &[Descriptor<'_>],
    places: &Places<'_>,
    stage: Stage<'_>,
    found: &mut Found,
) -> Result<()> {
    let Found { files, sends_outside, .. } = found;
    let sockets = places::sockets(program)?;
    if let Stage::Dumped(paths) = stage {
        files.note_watched(places.inside, paths)?;
    }
    descriptors.iter().try_for_each(|descriptor| {
        descriptor.unless_closed(places.check(descriptor, &sockets))?;
        let server = descriptor.inode("socket").and_then(|inode| sends_outside.get(&inode));
        if let Some((server, name)) = server.and_then(|server| Some((server, sockets.get(&server.socket)?))) {
            descriptor.unless_closed(places::check_server(places.inside, descriptor, name, server.file))?;
        }
        files.compare_watches(places.inside, &descriptor.info, None).map_err(|e| {
            e.context(format!("{}: descriptor {}", descriptor.process.shown(), descriptor.number))
        })
    })
}

fn check_process(process: &Process, filters: usize) -> Result<()> {
    let refused = |what: &str, remedy: &str| Err(err!("{} {what}", process.shown()).hint(remedy));
    let (fewest, most) = process.filters;
    if usize::try_from(most).is_ok_and(|most| most > filters) {
        return refused(
            "has a seccomp filter beyond those of the config",
            "the program has loaded it itself, or it protects the caller's terminal (-t gives the program one of its own)",
        );
    }
    if usize::try_from(fewest).is_ok_and(|fewest| fewest < filters) {
        return refused(
            "lacks a seccomp filter of the config's",
            "end what has been started beside the program",
        );
    }
    if process.tracer != 0 {
        return refused("is being traced", "end the debugger first");
    }
    let threads = processes::threads(process.pid)?;
    if process.has_ended() && threads.len() > 1 {
        return refused("has threads, but its first one has ended", "criu keeps no such process");
    }
    for thread in threads {
        if !process::shares_files(process.pid, thread)? {
            return refused(
                "has a thread with descriptors or directories of its own",
                "criu would give it those of the first thread: have it end before",
            );
        }
    }
    Ok(())
}

/// Refuses what has ended in the session of another process that has ended, too: criu waits for that one to make its session, which it
/// does not.
fn check_sessions(tree: &Tree) -> Result<()> {
    let mut ended = tree.processes.iter().filter(|process| process.has_ended());
    let is_made = |process: &Process| {
        let leader = tree.processes.iter().find(|leader| leader.inside == process.session);
        process.session == process.inside || !leader.is_some_and(Process::has_ended)
    };
    match ended.find(|process| !is_made(process)) {
        None => Ok(()),
        Some(process) => Err(err!(
            "{} has ended, as has process {}, whose session it was in",
            process.shown(),
            process.session
        )
        .hint("criu would wait for ever: have the program wait for them")),
    }
}

/// True where a process has ended, or is about to.
fn has_ended(process: &Process) -> Result<bool> {
    Ok(Process::read(process.pid)?.is_none_or(|process| process.ends))
}

/// True for what procfs says of a process that ends, or has been waited for.
fn may_have_ended(e: &Error) -> bool {
    [libc::EACCES, libc::ESRCH, libc::ENOENT].into_iter().any(|errno| e.is(errno))
}

/// How many descriptors all processes of a program may have together. What is known of each is kept in this process, some hundred bytes,
/// and one costs the program eight (dup(2)).
const MOST_DESCRIPTORS: usize = 1 << 18;
/// How long their paths, and what the kernel says of them in fdinfo, may be together, in bytes.
const MOST_OF_TEXT: u64 = 128 << 20;
/// How much of what it says of one is read, in bytes. Behind the first lines there is nothing that is needed: a file can have many locks,
/// of which one counts.
const MOST_OF_ONE: u64 = 64 << 10;

/// What may still be read.
struct Room {
    descriptors: usize,
    text: u64,
}

impl Room {
    const WHOLE: Room = Room { descriptors: MOST_DESCRIPTORS, text: MOST_OF_TEXT };

    /// Takes what one descriptor needs.
    fn take(&mut self, length: usize) -> Result<()> {
        let count =
            || too_many(&format!("more than the {MOST_DESCRIPTORS} open files that a checkpoint keeps"));
        self.descriptors = self.descriptors.checked_sub(1).ok_or_else(count)?;
        let most = MOST_OF_TEXT >> 20;
        let text = || too_many(&format!("open files and watches of which procfs says more than {most} MiB"));
        self.text = self.text.checked_sub(length as u64).ok_or_else(text)?;
        Ok(())
    }
}

fn too_many(what: &str) -> Error {
    Error::from_parts(format!("the program has {what}"), Some(libc::E2BIG)).hint("have it close some")
}

/// Fails where `count` descriptors of all processes together are more than are kept.
pub(super) fn check_count(count: usize) -> Result<()> {
    check_count_of(count, MOST_DESCRIPTORS)
}

fn check_count_of(count: usize, most: usize) -> Result<()> {
    match count > most {
        true => Err(too_many(&format!("{count} open files and more, and a checkpoint keeps {most}"))),
        false => Ok(()),
    }
}

/// All descriptors of a process. One that is ending has none.
pub(super) fn descriptors_of(process: &Process) -> Result<Vec<Descriptor<'_>>> {
    descriptors_of_all(std::slice::from_ref(process))
}

/// The same of several processes.
///
/// # Errors
/// E2BIG: they are more than this process keeps, which is found out before it reads what they are.
pub(super) fn descriptors_of_all(processes: &[Process]) -> Result<Vec<Descriptor<'_>>> {
    descriptors_within(processes, Room::WHOLE)
}

fn descriptors_within(processes: &[Process], mut room: Room) -> Result<Vec<Descriptor<'_>>> {
    let mut count = 0;
    for process in processes {
        count += unless_ended(process, numbers_of(process))?.len();
        check_count_of(count, room.descriptors)?;
    }
    let mut descriptors = Vec::new();
    for process in processes {
        descriptors.append(&mut unless_ended(process, read_descriptors(process, &mut room))?);
    }
    Ok(descriptors)
}

/// What was found out of a process; nothing where it is ending.
fn unless_ended<T: Default>(process: &Process, looked: Result<T>) -> Result<T> {
    match looked {
        Err(e) if may_have_ended(&e) && has_ended(process)? => Ok(T::default()),
        looked => looked,
    }
}

/// The numbers of its descriptors.
fn numbers_of(process: &Process) -> Result<Vec<i32>> {
    let (path, flags) = (process.dir().join("fd"), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC);
    let shown = || format!("list {}", path.display());
    let mut numbers = Vec::new();
    for entry in fs::open(&path, flags, Mode::empty()).and_then(fs::Dir::new).context(shown)? {
        let entry = entry.context(shown)?;
        numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn read_descriptors<'a>(process: &'a Process, room: &mut Room) -> Result<Vec<Descriptor<'a>>> {
    let mut descriptors = Vec::new();
    for number in numbers_of(process)? {
        let shown = || format!("{}: look at descriptor {number}", process.shown());
        let path = process.dir().join(format!("fd/{number}"));
        let target = match fs::readlink(&path, Vec::new()) {
            // Closed meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => continue,
            target => PathBuf::from(OsStr::from_bytes(target.context(shown)?.to_bytes())),
        };
        let info = match read_info(process, number, &target, room) {
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => continue,
            info => info.context(shown)?,
        };
        room.take(target.as_os_str().len() + info.len())?;
        descriptors.push(Descriptor { process, number, target, info });
    }
    Ok(descriptors)
}

/// What the kernel says of a descriptor in fdinfo (proc_pid_fdinfo(5)), as far as something is looked for there. Of inotify(7) that is all
/// of it: a watch that were left out would be looked for nowhere, and compared with nothing. Of the other files without a path a timer alone
/// says something, and epoll(7) tells all that it waits for: a line for each of what may be millions.
fn read_info(process: &Process, number: i32, target: &Path, room: &Room) -> Result<String> {
    let most = match target.to_str().and_then(anonymous_kind) {
        Some("inotify") => room.text + 1,
        Some("timerfd") | None => MOST_OF_ONE,
        Some(_) => return Ok(String::new()),
    };
    let mut text = Vec::new();
    let file = File::open(process.dir().join(format!("fdinfo/{number}")))?;
    file.take(most).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Looks at what is mapped. Returns which part is of files in memory (memfd_create(2)), by their inodes as procfs writes them.
fn check_maps(
    tree: &Tree,
    inside: &Inside<'_>,
    stage: Stage<'_>,
    found: &mut Found,
) -> Result<BTreeMap<String, Part>> {
    let (memory, mut memory_files) = (reach::memory_device()?, BTreeMap::new());
    let (mounts, mut shared) = (&inside.mounts, Shared::default());
    for (number, process) in tree.processes.iter().enumerate() {
        let shown = || format!("look at the memory of {}", process.shown());
        let text = match processes::maps_of(&process.dir()) {
            Err(e) if may_have_ended(&e) && has_ended(process)? => continue,
            text => text.context(shown)?,
        };
        let Ok(text) = String::from_utf8(text) else {
            return Err(err!("{} has a file in its memory whose name is not in UTF-8", process.shown())
                .hint("rename it before the program begins"));
        };
        let mut flags = None;
        for mapped in mapped_in(&text) {
            let is_memory = reach::is_memory(&mapped, &memory, mounts);
            if is_memory && mapped.is_shared {
                shared.note(number, &mapped);
            }
            if is_memory && mapped.path.starts_with("/memfd:") {
                let part = Part::of(&mapped);
                let all = memory_files.entry(mapped.inode.to_owned()).or_insert(part);
                *all = all.and(part);
                continue;
            }
            if stage == Stage::Before && removed::is_removed(&mapped, inside) {
                found.removed.insert([mapped.device, mapped.inode, mapped.path].map(str::to_owned));
                continue;
            }
            check_map(process, mapped.path, is_memory)?;
            if !mapped.path.starts_with('/') || is_memory || mapped.path == "/dev/zero" {
                continue;
            }
            // A link that the program has put there since leads nowhere: it could lead this process to any place of the host's. What is escaped
            // in maps is a newline, and nothing is found by such a name.
            let is_wanted = |device| reach::device_number(device) == mapped.device;
            let there = inside.find(Path::new(mapped.path), is_wanted).context(shown)?;
            there.iter().try_for_each(|there| check_device(process, &mapped, there, mounts))?;
            let Some(opened) = there.filter(|there| reach::is_of(there, &mapped)) else {
                return Err(not_there(process, mapped.path));
            };
            found.files.note_mapped(inside, process, &mapped, &opened)?;
            note_shared(process, inside, &mapped, &opened, &mut flags, found)?;
        }
    }
    match shared.damaged().and_then(|number| tree.processes.get(number)) {
        Some(process) => Err(err!("{} has a part of some shared memory mapped", process.shown())
            .hint("criu would keep another part: have it map all of it, or nothing")),
        None => Ok(memory_files),
    }
}

/// Notes `mapped`, of the file `opened`, where it is memory of a file that has its name, and others can have it. `flags` are those of
/// [`reach::flags_of`], which are read where they are needed.
fn note_shared(
    process: &Process,
    inside: &Inside<'_>,
    mapped: &Mapped<'_>,
    opened: &OwnedFd,
    flags: &mut Option<BTreeMap<u64, String>>,
    found: &mut Found,
) -> Result<()> {
    if !mapped.is_shared || fd::file_system(opened)? != memory_fs::TMPFS || inside.is_own(opened) {
        return Ok(());
    }
    let stat = fd::stat(opened)?;
    let flags = match flags {
        Some(flags) => flags,
        None => flags.insert(reach::flags_of(process)?),
    };
    let is_written = reach::is_written(flags, mapped.addresses.start);
    if !is_written || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    if found.by_several_ids {
        return match shared_files::is_of_host(&stat)? {
            true => Err(shared_files::refused_of_several(&process.shown(), mapped.path)),
            false => Ok(()),
        };
    }
    if !found.files.users.contains(&stat.st_uid) {
        return Err(err!("{} has {} in its memory, a file of another user", process.shown(), mapped.path)
            .hint("criu keeps none that share with others"));
    }
    found.shared.insert([mapped.device, mapped.inode, mapped.path].map(str::to_owned));
    Ok(())
}

/// Why the file `path` is not found that a process has mapped.
fn not_there(process: &Process, path: &str) -> Error {
    let shown = process.shown();
    // As proc_pid_maps(5) has it.
    match path.contains("\\012") {
        true => err!("{shown} has {path} in its memory, whose name has a newline").hint("rename it"),
        false => err!("{shown} has {path} in its memory, and another file is there by now")
            .hint("criu opens it by its name"),
    }
}

/// Why `path`, which a process has mapped, is not kept.
fn refused_map(process: &Process, path: &str, what: &str, remedy: &str) -> Result<()> {
    Err(err!("{} has {path} in its memory, {what}", process.shown()).hint(remedy))
}

/// Refuses what is not kept by what the kernel calls it.
fn check_map(process: &Process, path: &str, is_memory: bool) -> Result<()> {
    let refused = |what: &str, remedy: &str| refused_map(process, path, what, remedy);
    let is_shared_memory = is_memory && !path.starts_with("/SYSV");
    if !path.starts_with('/') || is_shared_memory || path == "/dev/zero" {
        return match path {
            path if path.contains("io_uring") => refused("which criu cannot keep", "have it use epoll"),
            _ => Ok(()),
        };
    }
    if path.starts_with("/SYSV") {
        return refused(
            "System V shared memory, which criu cannot keep without root",
            "use POSIX shared memory",
        );
    }
    if let Some(name) = path.strip_suffix(" (deleted)") {
        return refused(
            "a file that has been removed",
            &format!("the program must keep {name} until it ends; MPI over shared memory does not"),
        );
    }
    Ok(())
}

/// Refuses a mapped file for what is `there` by its path: a device, or a file of a layer, whose device the kernel shows in two ways.
fn check_device(process: &Process, mapped: &Mapped<'_>, there: &OwnedFd, mounts: &[Mounted]) -> Result<()> {
    let refused = |what: &str, remedy: &str| refused_map(process, mapped.path, what, remedy);
    let stat = fd::stat(there)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice {
        return refused("a device", "criu keeps no memory of a device: GPUs and network adapters among them");
    }
    let (device, seen) = (mapped.device, reach::device_number(stat.st_dev));
    if seen == device {
        return Ok(());
    }
    let of_root = mounts.iter().rfind(|mount| Path::new(mapped.path).starts_with(&mount.point));
    let kind = of_root.map_or("", |mount| std::str::from_utf8(&mount.fstype).unwrap_or_default());
    refused(
        &format!("whose device the kernel shows in two ways ({device}, {seen}; {kind})"),
        "a layer on another file system than the image's: put that of --overlay beside the image, or leave --writable out",
    )
}

/// What is known of a program when its descriptors are looked at.
struct Kept<'a> {
    program: &'a Process,
    /// What [`check_maps`] returns.
    memory_files: BTreeMap<String, Part>,
}

/// Of what kind an anonymous file is, by what its link says.
fn anonymous_kind(text: &str) -> Option<&str> {
    Some(text.strip_prefix("anon_inode:")?.trim_start_matches('[').trim_end_matches(']'))
}

fn check_descriptor(descriptor: &Descriptor<'_>, kept: &Kept<'_>, found: &mut Found) -> Result<()> {
    let text = descriptor.text();
    if let Some(kind) = anonymous_kind(&text) {
        if !KEPT.contains(&kind) {
            return Err(descriptor
                .refused(&format!("of kind {kind}"), "criu cannot keep it: have the program close it"));
        }
        found.watches |= kind == "inotify";
        return if kind == "timerfd" { check_timer(descriptor) } else { Ok(()) };
    }
    if text.starts_with("/memfd:") {
        let stat = fs::stat(descriptor.path()).context(|| format!("look at {text}"))?;
        // What is not mapped criu finds in the memory of no process.
        let part = kept.memory_files.get(&stat.st_ino.to_string());
        return match part.is_none_or(|part| part.is_all_of(stat.st_size.unsigned_abs())) {
            true => Ok(()),
            false => Err(descriptor.refused(
                &format!("{text}, of which a part is mapped"),
                "criu would make two of it: map all of it, or close it after the mmap(2)",
            )),
        };
    }
    if !descriptor.target.is_absolute() {
        return Ok(());
    }
    let on = fs::statfs(descriptor.path()).context(|| format!("look at {text}"))?;
    if on.f_type as u64 == MQUEUE {
        return Err(
            descriptor.refused("a POSIX message queue", "criu cannot keep it: use a pipe or a socket")
        );
    }
    let stat = fs::stat(descriptor.path()).context(|| format!("look at {text}"))?;
    if on.f_type as u64 == PROC_MAGIC
        && let Some((number, name)) = of_process(&text)
    {
        found.highest = found.highest.max(number);
        check_ended(descriptor, number, kept.program)?;
        if found.by_several_ids {
            check_process_file(descriptor, name)?;
        }
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice {
        // Such a program is restored before it has a session that could have a terminal.
        if kept.program.inside == 1 && TERMINALS.contains(&fs::major(stat.st_rdev)) {
            return Err(descriptor
                .refused("a terminal, and the program is process 1", "run without -t, or with --init"));
        }
        let major = fs::major(stat.st_rdev);
        if !STATELESS.contains(&major) && !TERMINALS.contains(&major) {
            return Err(descriptor.refused(
                &format!("the device {text}"),
                "criu keeps no state of devices: GPUs and network adapters among them",
            ));
        }
    }
    Ok(())
}

/// Refuses a file of procfs that shows of a process what not everybody may see. The open descriptor shows what there was before the
/// process has executed a set-id program (proc_pid_mem(5)), also to the process itself, and what its holder might see then; criu would
/// open it anew.
fn check_process_file(descriptor: &Descriptor<'_>, name: Option<&str>) -> Result<()> {
    /// What everybody may open of any process.
    const HARMLESS: [&str; 13] = [
        "cgroup",
        "cmdline",
        "comm",
        "limits",
        "mountinfo",
        "mounts",
        "net",
        "oom_score",
        "oom_score_adj",
        "stat",
        "statm",
        "status",
        "task",
    ];
    if name.is_none_or(|name| HARMLESS.contains(&name)) {
        return Ok(());
    }
    Err(descriptor.refused(
        &format!("{}, of a process whose rights can be others by now", descriptor.text()),
        "criu would open it anew, and it could show more than it does now: have the program close it",
    ))
}

/// Refuses a file of procfs of a process that has ended, where `program` leads a group of its own in another one's session. criu makes a
/// process in that group, which may not be there yet.
fn check_ended(descriptor: &Descriptor<'_>, number: i32, program: &Process) -> Result<()> {
    let text = descriptor.text();
    if !text.starts_with("/proc/") {
        return Ok(());
    }
    let is_there = look::exists(program.dir().join("root/proc").join(number.to_string()))?;
    let Some(status) = Status::of_thread(program.pid, program.pid)?.filter(|_| !is_there) else {
        return Ok(());
    };
    let [group, session] = [status.last("NSpgid")?, status.last("NSsid")?];
    match group == program.inside && session != group {
        true => {
            Err(descriptor
                .refused(&format!("{text}, of a process that has ended"), "have the program close it"))
        }
        false => Ok(()),
    }
}

/// The number of the process that the file `text` of procfs is of, and what of it that shows, by the name in the directory of the process
/// or of a thread.
fn of_process(text: &str) -> Option<(i32, Option<&str>)> {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    // Wherever procfs is mounted; /proc/irq and others have numbers, too.
    let below = text.strip_prefix("/proc/");
    let mut parts = below.unwrap_or(text).split('/').filter(|part| !part.is_empty());
    let number = if below.is_some() { parts.next().filter(is_number) } else { parts.find(is_number) };
    let name = match parts.next() {
        Some("task") if parts.next().is_some() => parts.next(),
        name => name,
    };
    Some((number?.parse().ok()?, name))
}

/// A timer whose tick nobody has read is restored disarmed, and its reader waits for ever.
fn check_timer(descriptor: &Descriptor<'_>) -> Result<()> {
    let is_zero = |text: Option<&str>| text.is_none_or(|text| text == "(0, 0)");
    let unread = descriptor.field("ticks").is_some_and(|ticks| ticks != "0");
    let periodic = !is_zero(descriptor.field("it_interval"));
    if periodic && (unread || is_zero(descriptor.field("it_value"))) {
        return Err(descriptor.refused(
            "a periodic timer with a tick that nobody has read",
            "criu would stop it for good: try again, or have the program read its timer",
        ));
    }
    Ok(())
}

/// The ends of pipes that the tree has.
struct Pipes {
    read: BTreeSet<u64>,
    written: BTreeSet<u64>,
}

impl Pipes {
    fn of(descriptors: &[Descriptor<'_>]) -> Pipes {
        let mut pipes = Pipes { read: BTreeSet::new(), written: BTreeSet::new() };
        for descriptor in descriptors {
            let Some(inode) = descriptor.inode("pipe") else { continue };
            let mode = descriptor.access();
            if mode != libc::O_WRONLY {
                pipes.read.insert(inode);
            }
            if mode != libc::O_RDONLY {
                pipes.written.insert(inode);
            }
        }
        pipes
    }

    /// True where both ends are the tree's.
    fn is_own(&self, inode: u64) -> bool {
        self.read.contains(&inode) && self.written.contains(&inode)
    }
}

/// What criu calls a standard stream that is the caller's; empty where it is the container's own.
fn stream_name(descriptor: &Descriptor<'_>, inside: &Inside<'_>, pipes: &Pipes) -> Result<String> {
    if let Some(inode) = descriptor.inode("pipe") {
        return Ok(if pipes.is_own(inode) { String::new() } else { format!("pipe:[{inode}]") });
    }
    if descriptor.inode("socket").is_some() {
        return Err(descriptor
            .refused("a socket of the caller's", "give it a file, a pipe or /dev/null: rt run ... | cat"));
    }
    if !descriptor.target.is_absolute() || inside.has(descriptor.mount()) {
        return Ok(String::new());
    }
    external_name(descriptor)
}

/// Opens the standard input of a process anew, with a place of its own. `None` where it is no file of the caller's that the process
/// only reads.
pub(super) fn input_of(process: &Process) -> Result<Option<OwnedFd>> {
    let (all, mounts) = (descriptors_of(process)?, mount::table_in(&process.dir())?);
    let Some(input) = all.iter().find(|descriptor| descriptor.number == 0) else { return Ok(None) };
    let is_own = !input.target.is_absolute() || mounts.iter().any(|mount| Some(mount.id) == input.mount());
    if is_own || input.access() != libc::O_RDONLY || input.kind()? != Kind::File {
        return Ok(None);
    }
    let shown = || format!("open {}, the program's standard input", input.text());
    let file = fs::open(input.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(shown)?;
    // The program runs, and may have put another file there: a FIFO would be waited for, and this one may open what it may not.
    let stat = fd::stat(&file)?;
    let inode = Some(stat.st_ino.to_string());
    let now = descriptors_of(process)?.into_iter().find(|descriptor| descriptor.number == 0);
    let is_same = |now: &Descriptor<'_>| {
        ["flags", "mnt_id"].iter().all(|key| now.field(key) == input.field(key))
            && now.field("ino") == inode.as_deref()
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !now.is_some_and(|now| is_same(&now))
    {
        return Err(err!("{}: its standard input has changed", process.shown()).hint("try again"));
    }
    fs::open(fd::link(&file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Some).context(shown)
}

/// What criu calls a file that no mount of the container shows.
fn external_name(descriptor: &Descriptor<'_>) -> Result<String> {
    let stat = fs::stat(descriptor.path()).context(|| format!("look at {}", descriptor.text()))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && TERMINALS.contains(&fs::major(stat.st_rdev))
    {
        return Ok(format!("tty[{:x}:{:x}]", stat.st_rdev, stat.st_dev));
    }
    let id = descriptor.mount().ok_or_else(|| {
        err!("{}: descriptor {} has no mount", descriptor.process.shown(), descriptor.number)
    })?;
    Ok(format!("file[{id:x}:{:x}]", stat.st_ino))
}

/// Collects what no mount of the container shows. Only what the program has as a standard stream can be given to it again.
fn check_external(descriptors: &[Descriptor<'_>], inside: &Inside<'_>, found: &mut Found) -> Result<()> {
    for descriptor in descriptors {
        let is_file = descriptor.target.is_absolute() && !descriptor.text().starts_with("/memfd:");
        if !is_file || inside.has(descriptor.mount()) {
            continue;
        }
        let Some(name) = descriptor.unless_closed(external_name(descriptor).map(Some))? else { continue };
        if !found.streams.contains(&name) {
            return Err(descriptor.refused(
                &format!("{}, which is no file of the container", descriptor.text()),
                "only standard streams of the caller can be given to a restored program",
            ));
        }
        found.external.insert(name);
    }
    Ok(())
}

/// Refuses connections to what is outside: nobody there would know of the program that comes back.
fn check_sockets(
    descriptors: &[Descriptor<'_>],
    tree: &Tree,
    network: Network,
    found: &mut Found,
) -> Result<()> {
    let sockets = sockets_of(descriptors);
    // What is known of another network is asked in it, by criu.
    if sockets.is_empty() || network == Network::Own {
        return Ok(());
    }
    check_unix(&sockets, found)?;
    for table in ["net/tcp", "net/tcp6"] {
        let text = match fd::read_file(&tree.program().dir().join(table)) {
            // A kernel without IPv6.
            Err(e) if e.is(libc::ENOENT) => continue,
            text => text.context(|| format!("read /proc/self/{table}"))?,
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            const LISTEN: &str = "0A";
            let (Some(state), Some(inode)) = (fields.get(3), fields.get(9)) else { continue };
            let socket = inode.parse().ok().and_then(|inode: u64| sockets.get(&inode));
            if let Some(socket) = socket.filter(|_| *state != LISTEN) {
                return Err(socket.refused(
                    "a TCP connection on the host's network",
                    "have the program close it, or run with --net none",
                ));
            }
        }
    }
    Ok(())
}

/// Refuses streams whose other end is none of the tree's.
fn check_unix(sockets: &BTreeMap<u64, &Descriptor<'_>>, found: &mut Found) -> Result<()> {
    for (descriptor, socket, server) in connected_outside(sockets)? {
        if !socket.datagrams {
            return Err(descriptor.refused(
                "a connection to a program outside",
                "criu keeps none: PMI, munge and nscd are such programs; have the program close it",
            ));
        }
        found.sends_outside.insert(socket.inode, server);
    }
    Ok(())
}

/// Those of `sockets`, by their inodes, whose other end is none of them.
pub(super) fn connected_outside<'a>(
    sockets: &BTreeMap<u64, &'a Descriptor<'a>>,
) -> Result<Vec<(&'a Descriptor<'a>, UnixSocket, Server)>> {
    let all = match rt_sys::net::unix_sockets() {
        // The kernel does not tell: criu finds it out.
        Err(e) if e.is(libc::ENOENT) => return Ok(Vec::new()),
        all => all?,
    };
    let files: BTreeMap<u64, u32> =
        all.iter().filter_map(|socket| Some((socket.inode, socket.file?))).collect();
    let outside = all.iter().filter(|socket| socket.peer != 0 && !sockets.contains_key(&socket.peer));
    let found = outside.filter_map(|socket| {
        let server = Server { socket: socket.peer, file: files.get(&socket.peer).copied() };
        Some((*sockets.get(&socket.inode)?, *socket, server))
    });
    Ok(found.collect())
}

/// Those that are sockets, by their inodes.
pub(super) fn sockets_of<'a>(descriptors: &'a [Descriptor<'a>]) -> BTreeMap<u64, &'a Descriptor<'a>> {
    descriptors.iter().filter_map(|descriptor| Some((descriptor.inode("socket")?, descriptor))).collect()
}

/// Refuses System V semaphores, queues and shared memory in this process's own IPC namespace, which would be gone with it: criu
/// dumps no namespace here.
pub(super) fn check_ipc() -> Result<()> {
    for kind in ["sem", "msg", "shm"] {
        let path = format!("/proc/sysvipc/{kind}");
        let text = match fd::read_file(Path::new(&path)) {
            // A kernel without them.
            Err(e) if e.is(libc::ENOENT) => continue,
            text => text.context(|| format!("read {path}"))?,
        };
        // The first line is a head.
        if text.iter().filter(|byte| **byte == b'\n').count() > 1 {
            return Err(err!(
                "the container has a System V object ({path}), which criu cannot keep without root"
            )
            .hint("use POSIX semaphores and shared memory"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use rustix::fd::AsRawFd;
    use rustix::fs::inotify;

    #[test]
    fn what_is_read_of_descriptors_has_a_bound() {
        let own = [Process::read(std::process::id().cast_signed()).unwrap().unwrap()];
        let within = |descriptors, text| descriptors_within(&own, Room { descriptors, text });
        let files: Vec<File> = (0..9).map(|_| File::open("/dev/null").unwrap()).collect();
        for (descriptors, text) in [(8, MOST_OF_TEXT), (MOST_DESCRIPTORS, 300)] {
            let error = within(descriptors, text).map(drop).unwrap_err();
            assert!(error.is(libc::E2BIG), "{error}");
        }
        let error = within(8, 0).map(drop).unwrap_err().to_string();
        assert!(
            error.contains("open files and more, and a checkpoint keeps 8 (have it close some)"),
            "{error}"
        );
        drop(files);
    }

    #[test]
    fn all_watches_are_read_and_nothing_of_epoll() {
        let own = Process::read(std::process::id().cast_signed()).unwrap().unwrap();
        let (waits, watch) = (
            epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
            inotify::init(inotify::CreateFlags::CLOEXEC).unwrap(),
        );
        epoll::add(&waits, &watch, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        let dir = std::env::temp_dir().join(format!("rt-watches-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for number in 0..1000 {
            let path = dir.join(number.to_string());
            File::create(&path).unwrap();
            inotify::add_watch(&watch, &path, inotify::WatchFlags::MODIFY).unwrap();
        }
        let all = descriptors_of(&own).unwrap();
        let of = |fd: &OwnedFd| &all.iter().find(|known| known.number == fd.as_raw_fd()).unwrap().info;
        assert_eq!(of(&waits), "");
        assert!(of(&watch).len() as u64 > MOST_OF_ONE);
        assert_eq!(of(&watch).lines().filter(|line| line.starts_with("inotify ")).count(), 1000);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
