//! Shared memory of files that have been removed (shm_unlink(3)): semaphores of Python's multiprocessing, and batches of PyTorch's workers.
//!
//! A criu without privilege opens what is mapped by its name, and such a file has none. So the processes, which are stopped, get a file in
//! memory (memfd_create(2)) with the same content in its place, of which criu knows: mapped at the same addresses, and by the same
//! descriptors ([`super::exchange`]). What a program can do with a file that has no name, it can do with this one, too; whether the
//! program is dumped then, or goes on, makes no difference.
//!
//! The kernel says of a name that it is removed, and not of a file: sem_open(3) gives a file its name by link(2), and removes the one by
//! which it has mapped it. A file that still has a name is mapped once more by that.

use super::exchange::{Exchange, Origin};
use super::files::REMOVED;
use super::inside::Inside;
use super::memory_files::Part;
use super::names;
use super::preflight::{Descriptor, descriptors_of_all};
use super::processes::{self, Mapped, Process, Tree, mapped_in};
use super::{aside, reach, stops};
use rt_sys::error::{Context, Error, Result};
use rt_sys::inject::{self, Held};
use rt_sys::seccomp::{self, Filter};
use rt_sys::{bail, disk, err, fd, process};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the kernel calls mappings (VmFlags of proc_pid_smaps(5)) of which the new one is the same. Others have something that is lost with
/// them: locks, advice, huge pages.
const FLAGS: [&str; 10] = ["rd", "wr", "ex", "sh", "mr", "mw", "me", "ms", "sd", "nr"];

/// How long the program may take to exchange all that it has, and how long to undo it: its calls take as long as it lets them.
const WITHIN: Duration = Duration::from_secs(30);
const UNDONE_WITHIN: Duration = Duration::from_secs(30);

/// How long names may be looked for: as long as that the program is held.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// A file of which memory is mapped by a name that has been removed.
#[derive(Debug)]
pub(super) struct Removed<'a> {
    /// The name that it had.
    pub name: String,
    /// Its device and inode, as procfs writes them.
    file: [String; 2],
    /// Where it is mapped, and by which descriptors it is open: what is known by a name that it has is not among them.
    pub pieces: Vec<Piece<'a>>,
    pub opened: Vec<Open<'a>>,
    /// Of a file that somebody has open, what the kernel says of it.
    known: Option<fs::Stat>,
    /// Where it has been known by a name.
    near: BTreeSet<PathBuf>,
    /// A name that it still has.
    other: Option<PathBuf>,
}

/// Where it is mapped.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub process: &'a Process,
    pub addresses: Range<u64>,
    /// Where in the file it begins.
    pub offset: u64,
    /// PROT_* (mmap(2)).
    pub protection: i32,
    /// The file was open for writing, too.
    pub can_be_written: bool,
    /// The name by which it has been mapped is there.
    is_named: bool,
}

/// A descriptor of it.
#[derive(Debug)]
pub(super) struct Open<'a> {
    pub process: &'a Process,
    pub number: i32,
    /// Those of open(2).
    pub flags: OFlags,
    pub position: u64,
    /// The place of one that was found before, and is of the same open file: a child has it from its parent.
    pub same: Option<usize>,
}

/// True where `mapped` is such memory: shared, on a file system in memory.
pub(super) fn is_removed(mapped: &Mapped<'_>, inside: &Inside<'_>) -> bool {
    let in_memory = || {
        let device = reach::decimal(mapped.device);
        inside.mounts.iter().any(|mount| mount.fstype == b"tmpfs" && Some(&mount.device) == device.as_ref())
    };
    mapped.is_shared && mapped.path.starts_with('/') && mapped.path.ends_with(REMOVED) && in_memory()
}

impl<'a> Removed<'a> {
    /// All that `tree` has.
    ///
    /// # Errors
    /// The first one that cannot be kept, and why. `several_ids` is whether the container has more than one user id.
    fn all(
        tree: &'a Tree,
        inside: &Inside<'_>,
        descriptors: &[Descriptor<'a>],
        several_ids: bool,
    ) -> Result<Vec<Removed<'a>>> {
        let maps_of = |process: &Process| {
            let maps = processes::maps_of(&process.dir());
            maps.context(|| format!("look at the memory of {}", process.shown()))
        };
        let mut found: BTreeMap<[String; 2], Removed<'a>> = BTreeMap::new();
        for process in &tree.processes {
            let maps = maps_of(process)?;
            let maps = String::from_utf8_lossy(&maps);
            for mapped in mapped_in(&maps).filter(|mapped| is_removed(mapped, inside)) {
                let file = [mapped.device, mapped.inode].map(str::to_owned);
                let name = mapped.path.strip_suffix(REMOVED).unwrap_or(mapped.path).to_owned();
                let (pieces, opened) = (Vec::new(), Vec::new());
                let (known, near, other) = (None, BTreeSet::new(), None);
                let removed = || Removed { name, file: file.clone(), pieces, opened, known, near, other };
                found.entry(file.clone()).or_insert_with(removed);
            }
        }
        // Once more, since what one process has by a name that is removed another may have by one that is there. All of it at once may be
        // more than there is memory.
        for process in &tree.processes {
            let maps = maps_of(process)?;
            let maps = String::from_utf8_lossy(&maps);
            let mut flags = None;
            for mapped in mapped_in(&maps).filter(|mapped| mapped.is_shared) {
                let Some(removed) = found.get_mut(&[mapped.device, mapped.inode].map(str::to_owned)) else {
                    continue;
                };
                removed.near.extend(Path::new(mapped.path).parent().map(Path::to_owned));
                if flags.is_none() {
                    flags = Some(reach::flags_of(process)?);
                }
                removed
                    .pieces
                    .extend(flags.as_ref().map(|flags| Piece::of(process, &mapped, flags)).transpose()?);
            }
        }
        let mut found: Vec<Removed<'a>> = found.into_values().collect();
        let mut by_inode: BTreeMap<&str, Vec<&Descriptor<'a>>> = BTreeMap::new();
        for descriptor in descriptors {
            by_inode.entry(descriptor.field("ino").unwrap_or_default()).or_default().push(descriptor);
        }
        for removed in &mut found {
            removed.find_open(by_inode.get(removed.file[1].as_str()).map_or(&[], Vec::as_slice))?;
        }
        let names = names_of(&found, tree, inside)?;
        for removed in &mut found {
            removed.take_name(names.get(&removed.file))?;
            match removed.other {
                None => removed.check_whole(several_ids).and_then(|()| removed.check_users())?,
                Some(_) => removed.pieces.retain(|piece| !piece.is_named),
            }
        }
        Ok(found)
    }

    /// Finds the descriptors of it among those of its inode's number: a name can be written in two ways.
    fn find_open(&mut self, descriptors: &[&Descriptor<'a>]) -> Result<()> {
        // The places of those that share their open file with none before, in the kernel's order: there can be many.
        let mut files: Vec<usize> = Vec::new();
        for descriptor in descriptors {
            let target = descriptor.text();
            let shown = || format!("look at {target}");
            // Who serves another file system may choose that number, too, and not answer.
            if !reach::is_identity(fd::known_identity(descriptor.path()).context(shown)?, &self.file) {
                continue;
            }
            let stat = fs::stat(descriptor.path()).context(shown)?;
            // A lock is its process's, which gives it up with any descriptor that it closes.
            if descriptor.field("lock").is_some() {
                let what = format!("{target}, which is mapped, and locked");
                return Err(descriptor.refused(&what, "have the program unlock it"));
            }
            self.known = Some(stat);
            self.near.extend(descriptor.target.parent().map(Path::to_owned));
            if stat.st_nlink > 0 && !target.ends_with(REMOVED) {
                continue;
            }
            let mut open = Open::of(descriptor)?;
            match self.place_of(&open, &files)? {
                Ok(place) => open.same = Some(files[place]),
                Err(place) => files.insert(place, self.opened.len()),
            }
            self.opened.push(open);
        }
        Ok(())
    }

    /// Where in `files`, which are in the kernel's order, the open file of `open` is, or where it belongs.
    fn place_of(&self, open: &Open<'_>, files: &[usize]) -> Result<std::result::Result<usize, usize>> {
        let (mut low, mut high) = (0, files.len());
        while low < high {
            let middle = low.midpoint(high);
            let [other, one] =
                [&self.opened[files[middle]], open].map(|open| (open.process.pid, open.number));
            match process::compare_files(other, one)? {
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(Err(low))
    }

    /// True unless the kernel says that it has no name.
    fn may_have_name(&self) -> bool {
        self.known.is_none_or(|stat| stat.st_nlink > 0)
    }

    /// Takes a name that has been found of it.
    ///
    /// # Errors
    /// It has one that was not found.
    fn take_name(&mut self, name: Option<&PathBuf>) -> Result<()> {
        self.other = name.cloned();
        match self.other {
            None if self.may_have_name()
                && (self.known.is_some() || self.pieces.iter().any(|piece| piece.is_named)) =>
            {
                Err(self.refused("which has another name that is not found", KEEP))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what a copy would not be.
    fn check_whole(&self, several_ids: bool) -> Result<()> {
        let length = self.length();
        if self.pieces.iter().any(|piece| piece.offset != 0) {
            return Err(self.refused("and not its first part", "map all of it"));
        }
        if self.pieces.iter().any(|piece| piece.addresses.end - piece.addresses.start != length) {
            return Err(self.refused("parts of which differ", "map all of it everywhere"));
        }
        // criu would make it writable, for others than who may write it now.
        if several_ids && self.pieces.iter().any(|piece| !piece.can_be_written) {
            return Err(self.refused("for reading alone", KEEP));
        }
        match self.known {
            Some(stat) if !Part::First(length).is_all_of(stat.st_size.unsigned_abs()) => {
                Err(self.refused("and not all of it", "map all of it"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what processes of several users share: each of them opens the new file by way of the first one.
    fn check_users(&self) -> Result<()> {
        let Some(first) = self.members().next() else { return Ok(()) };
        let users = first.users()?;
        for process in self.members() {
            if process.users()? != users {
                return Err(self.refused("which processes of several users share", KEEP));
            }
        }
        Ok(())
    }

    fn members(&self) -> impl Iterator<Item = &'a Process> {
        let mapping = self.pieces.iter().map(|piece| piece.process);
        mapping.chain(self.opened.iter().map(|open| open.process))
    }

    /// How much is mapped, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.addresses.end - piece.addresses.start)
    }

    /// Its mode; `None` where nobody has it open.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.known.map(|stat| Mode::from_raw_mode(stat.st_mode & 0o7777))
    }

    /// Its size, and how much of it there is in memory, in bytes; `None` where nobody has it open.
    pub(super) fn known(&self) -> Option<(u64, u64)> {
        // Blocks of 512 bytes (stat(3type)).
        self.known
            .map(|stat| (stat.st_size.unsigned_abs(), stat.st_blocks.unsigned_abs().saturating_mul(512)))
    }

    pub(super) fn refused(&self, what: &str, remedy: &str) -> Error {
        let shown = self.members().next().map_or_else(|| "the program".to_owned(), Process::shown);
        let path = format!("{}{REMOVED}", self.name);
        err!("{shown} has {path} in its memory, a file that has been removed, {what}").hint(remedy)
    }

    /// Where the program gets it from.
    fn origin(&self, inside: &Inside<'_>) -> Result<Origin> {
        let [device, inode] = &self.file;
        match &self.other {
            Some(path) => Ok(Origin::Name(path.clone(), [device.clone(), inode.clone()])),
            None => {
                let device = reach::decimal(device);
                let is_wanted = |number| reach::device_number(number) == self.file[0];
                // Something else can be mounted there, whose server is not asked.
                let opened = inside
                    .mounts
                    .iter()
                    .filter(|mount| Some(&mount.device) == device.as_ref())
                    .find_map(|mount| inside.directory(&mount.point, is_wanted).ok().flatten());
                // One without a limit has the size 0.
                let free = match opened {
                    Some(opened) if disk::size(&opened)? > 0 => Some(disk::free_space(&opened)?.bytes),
                    _ => None,
                };
                Ok(Origin::Copy { free })
            }
        }
    }
}

/// Names that those of `found` have which may have one, by their devices and inodes. They are looked for in a process beside this one, in a
/// limited time: how many names there are lies with all users of the host.
fn names_of(
    found: &[Removed<'_>],
    tree: &Tree,
    inside: &Inside<'_>,
) -> Result<BTreeMap<[String; 2], PathBuf>> {
    let mut wanted: BTreeMap<&str, names::Wanted> = BTreeMap::new();
    for removed in found.iter().filter(|removed| removed.may_have_name()) {
        let wanted = wanted.entry(&removed.file[0]).or_default();
        wanted.inodes.extend(removed.file[1].parse::<u64>());
        wanted.near.extend(removed.near.iter().cloned());
    }
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let users = processes::users_of(tree)?;
    let said = aside::ask_within(NAMED_WITHIN, || {
        let mut names = Vec::new();
        for (device, wanted) in &wanted {
            for (inode, path) in names::find(inside, device, wanted, &users)? {
                names.push(([(*device).to_owned(), inode.to_string()], path.into_os_string().into_vec()));
            }
        }
        serde_json::to_vec(&names).map_err(|e| err!("{e}"))
    })?;
    let said = said.ok_or_else(|| {
        let seconds = NAMED_WITHIN.as_secs();
        err!("to look for names of the program's memory takes more than {seconds} s")
            .hint("give the program a /dev/shm of its own: --ipc private")
    })?;
    let names: Vec<([String; 2], Vec<u8>)> =
        serde_json::from_slice(&said).map_err(|e| err!("what is known of names: {e}"))?;
    Ok(names.into_iter().map(|(file, name)| (file, OsString::from_vec(name).into())).collect())
}

/// What helps where nothing else does.
const KEEP: &str = "the program must keep its name until it ends";

impl<'a> Piece<'a> {
    fn of(process: &'a Process, mapped: &Mapped<'_>, flags: &BTreeMap<u64, String>) -> Result<Self> {
        let refused = |what: &str| {
            let shown = process.shown();
            err!("{shown} has {} in its memory, a file that has been removed, {what}", mapped.path).hint(KEEP)
        };
        let flags = flags.get(&mapped.addresses.start);
        let flags = flags.ok_or_else(|| refused("of which the kernel tells little"))?;
        let has = |wanted: &str| flags.split(' ').any(|flag| flag == wanted);
        let is_named = !mapped.path.ends_with(REMOVED);
        if let Some(other) = flags.split(' ').find(|flag| !is_named && !FLAGS.contains(flag)) {
            return Err(refused(&format!("with the flag {other} of proc_pid_smaps(5)")));
        }
        let bits = [("rd", libc::PROT_READ), ("wr", libc::PROT_WRITE), ("ex", libc::PROT_EXEC)];
        let protection = bits.into_iter().filter(|(flag, _)| has(flag)).fold(0, |all, (_, bit)| all | bit);
        let (addresses, offset) = (mapped.addresses.clone(), mapped.offset);
        Ok(Piece { process, addresses, offset, protection, can_be_written: has("mw"), is_named })
    }
}

impl<'a> Open<'a> {
    fn of(descriptor: &Descriptor<'a>) -> Result<Self> {
        let refused = |what: &str, remedy: &str| {
            Err(descriptor.refused(&format!("{}, which is mapped, and {what}", descriptor.text()), remedy))
        };
        let number = |key, radix| u64::from_str_radix(descriptor.field(key)?, radix).ok();
        let (Some(flags), Some(position)) = (number("flags", 8), number("pos", 10)) else {
            bail!("{}: descriptor {} has no flags", descriptor.process.shown(), descriptor.number);
        };
        let flags = OFlags::from_bits_retain(flags as u32);
        if flags.contains(OFlags::PATH) {
            return refused("open for its path only", "have the program close it");
        }
        if flags.bits() & libc::O_ASYNC.unsigned_abs() != 0 {
            return refused("sends signals (O_ASYNC)", "have the program close it");
        }
        // What else has opened it says how its name was looked for, or that it had none.
        let kept = OFlags::RWMODE
            | OFlags::APPEND
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC
            | OFlags::SYNC
            | OFlags::DSYNC;
        let flags = flags & (kept | OFlags::DIRECT | OFlags::NOATIME);
        Ok(Open { process: descriptor.process, number: descriptor.number, flags, position, same: None })
    }
}

/// Exchanges all of `tree`, whose processes are stopped. This process blocks all signals: it is not to end halfway.
///
/// # Errors
/// One cannot be kept, or a call has failed: the program is as it was.
pub(super) fn replace(tree: &Tree, inside: &Inside<'_>, several_ids: bool) -> Result<()> {
    // A thread that runs could use what is exchanged. Whoever sends SIGCONT now continues none that is held.
    let end = Instant::now() + WITHIN;
    let mut held = BTreeMap::new();
    for process in tree.processes.iter().filter(|process| !process.ends) {
        for thread in processes::threads(process.pid)? {
            let Entry::Vacant(place) = held.entry(thread) else { continue };
            if !stops::is_stopped(process.pid, thread)? {
                return Err(err!("{}: it does not stop", process.shown()).hint("try again"));
            }
            place.insert(Held::begin_until(thread, end + UNDONE_WITHIN)?).end_with_caller()?;
        }
        // A number can be another's by now.
        if Process::read(process.pid)?.is_none_or(|now| now.inside != process.inside) {
            bail!("{} has ended", process.shown());
        }
    }
    let descriptors = descriptors_of_all(&tree.processes)?;
    if descriptors.iter().any(|descriptor| descriptor.field("scm_fds").is_some_and(|count| count != "0")) {
        return Err(reach::is_on_its_way());
    }
    let end = Cell::new(end);
    for removed in Removed::all(tree, inside, &descriptors, several_ids)? {
        Exchange::new(&removed, &held, &end).make(&removed.origin(inside)?)?;
    }
    Ok(())
}

/// Has a process of `rt`'s make the calls first that others are to make under `filters`: one that a filter kills for them must not be the
/// program's.
pub(super) fn try_calls(filters: &[Filter]) -> Result<()> {
    if filters.is_empty() {
        return Ok(());
    }
    let tried = aside::run(|| {
        if filters.iter().any(|filter| filter.notifies) {
            bail!("it asks another process");
        }
        rustix::thread::set_no_new_privs(true).context(|| "prctl(2)")?;
        for filter in filters {
            seccomp::load(filter)?;
        }
        let file = fs::memfd_create("rt", fs::MemfdFlags::CLOEXEC).context(|| "memfd_create(2)")?;
        let mut other = fs::open(fd::link(&file), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .context(|| "openat(2)")?;
        // Where that is refused, it is done without.
        let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
        let _ = own.and_then(|own| pidfd_getfd(own, file.as_raw_fd(), PidfdGetfdFlags::empty()));
        fs::seek(&other, fs::SeekFrom::Start(0)).context(|| "lseek(2)")?;
        rustix::io::fcntl_dupfd_cloexec(&other, 0).context(|| "fcntl(2)")?;
        inject::try_mapping(file.as_fd())?;
        rustix::io::dup3(&file, &mut other, rustix::io::DupFlags::CLOEXEC).context(|| "dup3(2)")
    });
    tried.map_err(|e| {
        err!("the program has memory of a removed file, and the config's seccomp filter does not let it be kept: {e}")
            .hint("allow what it names")
    })
}
