//! Shared memory of files that have been removed (shm_unlink(3)): semaphores of Python's multiprocessing, and batches of PyTorch's workers.
//!
//! A criu without privilege opens what is mapped by its name, and such a file has none. So the processes, which are stopped, get a file in
//! memory (memfd_create(2)) with the same content in its place, of which criu knows: mapped at the same addresses, and by the same
//! descriptors. They make the system calls themselves ([`rt_sys::inject`]). What a program can do with a file that has no name, it can do
//! with this one, too; whether the program is dumped then, or goes on, makes no difference.

use super::files::REMOVED;
use super::inside::Inside;
use super::memory_files::Part;
use super::preflight::{Descriptor, descriptors_of};
use super::processes::{self, Mapped, Process, Tree, mapped_in};
use super::{aside, reach, stops};
use rt_sys::error::{Context, Error, Result};
use rt_sys::inject::Held;
use rt_sys::seccomp::{self, Filter};
use rt_sys::{bail, err, fd, look, process};
use rustix::fd::AsRawFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the kernel calls mappings (VmFlags of proc_pid_smaps(5)) of which the new one is the same. Others have something that is lost with
/// them: locks, advice, huge pages.
const FLAGS: [&str; 10] = ["rd", "wr", "ex", "sh", "mr", "mw", "me", "ms", "sd", "nr"];
/// How long a name of a file in memory may be, in bytes (memfd_create(2)).
const LONGEST: usize = 249;
/// How much is copied at a time, in bytes.
const CHUNK: usize = 1 << 20;

/// A removed file of which memory is mapped.
#[derive(Debug)]
pub(super) struct Removed<'a> {
    /// The name that it had.
    name: String,
    /// Its device and inode, as procfs writes them.
    file: [String; 2],
    /// How much is mapped, in bytes, everywhere the same: the first ones.
    length: u64,
    pieces: Vec<Piece<'a>>,
    opened: Vec<Open<'a>>,
    /// Of a file that somebody has open, the size and the mode.
    known: Option<(u64, Mode)>,
}

/// Where it is mapped.
#[derive(Debug)]
struct Piece<'a> {
    process: &'a Process,
    addresses: Range<u64>,
    /// PROT_* (mmap(2)).
    protection: i32,
    /// The file was open for writing, too.
    can_be_written: bool,
}

/// A descriptor of it.
#[derive(Debug)]
struct Open<'a> {
    process: &'a Process,
    number: i32,
    /// Those of open(2).
    flags: OFlags,
    position: u64,
    /// The place of one that was found before, and is of the same open file: a child has it from its parent.
    same: Option<usize>,
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
    pub(super) fn all(
        tree: &'a Tree,
        inside: &Inside<'_>,
        descriptors: &[Descriptor<'a>],
        several_ids: bool,
    ) -> Result<Vec<Removed<'a>>> {
        let mut found: BTreeMap<String, Removed<'a>> = BTreeMap::new();
        for process in &tree.processes {
            let maps = fd::read_file(&process.dir().join("maps"))
                .context(|| format!("look at the memory of {}", process.shown()))?;
            let maps = String::from_utf8_lossy(&maps).into_owned();
            let mut all = mapped_in(&maps).filter(|mapped| is_removed(mapped, inside)).peekable();
            let flags = if all.peek().is_some() { reach::flags_of(process)? } else { BTreeMap::new() };
            for mapped in all {
                let piece = Piece::of(process, &mapped, &flags, several_ids)?;
                let length = piece.addresses.end - piece.addresses.start;
                let removed = found.entry(mapped.file.to_owned()).or_insert_with(|| Removed {
                    name: mapped.path.strip_suffix(REMOVED).unwrap_or(mapped.path).to_owned(),
                    file: [mapped.device.to_owned(), mapped.inode.to_owned()],
                    length,
                    pieces: Vec::new(),
                    opened: Vec::new(),
                    known: None,
                });
                if length != removed.length {
                    return Err(refused(
                        process,
                        mapped.path,
                        "parts of which differ",
                        "map all of it everywhere",
                    ));
                }
                removed.pieces.push(piece);
            }
        }
        let mut found: Vec<Removed<'a>> = found.into_values().collect();
        for removed in &mut found {
            removed.find_open(descriptors)?;
            removed.check_users()?;
        }
        Ok(found)
    }

    /// Finds the descriptors of it.
    fn find_open(&mut self, descriptors: &[Descriptor<'a>]) -> Result<()> {
        // A name can be written in two ways, so the file itself counts.
        for descriptor in descriptors.iter().filter(|descriptor| descriptor.text().ends_with(REMOVED)) {
            let target = descriptor.text();
            let stat = fs::stat(descriptor.path()).context(|| format!("look at {target}"))?;
            if !self.is(&stat) {
                continue;
            }
            let size = stat.st_size.unsigned_abs();
            let mut open = Open::of(descriptor)?;
            for (number, other) in self.opened.iter().enumerate() {
                let [one, other] = [&open, other].map(|open| (open.process.pid, open.number));
                if process::shares_file(one, other)? {
                    open.same = Some(number);
                    break;
                }
            }
            if !Part::First(self.length).is_all_of(size) {
                return Err(
                    descriptor.refused(&format!("{target}, of which a part is mapped"), "map all of it")
                );
            }
            self.known = Some((size, Mode::from_raw_mode(stat.st_mode & 0o7777)));
            self.opened.push(open);
        }
        Ok(())
    }

    fn is(&self, stat: &fs::Stat) -> bool {
        let [device, inode] = &self.file;
        reach::device_number(stat.st_dev) == *device && stat.st_ino.to_string() == *inode
    }

    fn members(&self) -> impl Iterator<Item = &'a Process> {
        let mapping = self.pieces.iter().map(|piece| piece.process);
        mapping.chain(self.opened.iter().map(|open| open.process))
    }

    /// Refuses what processes of several users share: each of them opens the new file by way of the first one.
    fn check_users(&self) -> Result<()> {
        let users = self.pieces[0].process.users()?;
        for process in self.members() {
            if process.users()? != users {
                let path = format!("{}{REMOVED}", self.name);
                return Err(refused(process, &path, "which processes of several users share", KEEP));
            }
        }
        Ok(())
    }

    /// Puts a file in memory in its place, by the threads of `held`.
    fn replace(&self, held: &BTreeMap<i32, Held>) -> Result<()> {
        let mut calls = Calls { held, opened: Vec::new() };
        let replaced = self.open_anew(&mut calls).and_then(|(pieces, opened)| {
            // All that can fail for a reason is done.
            let mut here = self.pieces.iter().zip(pieces);
            here.try_for_each(|(piece, number)| piece.map(&calls, number))?;
            let mut open = self.opened.iter().zip(opened);
            open.try_for_each(|(open, number)| open.put(&calls, number))
        });
        calls.close();
        replaced.context(|| format!("keep {} (deleted)", self.name))
    }

    /// Makes a file in memory with the content, and has each process open it. The descriptors for what it has mapped, and for what it has
    /// open.
    fn open_anew(&self, calls: &mut Calls<'_>) -> Result<(Vec<u64>, Vec<u64>)> {
        let maker = self.pieces[0].process;
        let name = self.name.rsplit('/').next().unwrap_or_default().as_bytes();
        let name = [&name[..name.len().min(LONGEST)], b"\0"].concat();
        let made = calls.open(maker, libc::SYS_memfd_create, &name, |name| {
            [name, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0]
        })?;
        self.fill(maker, made)?;
        let path = format!("/proc/{}/fd/{made}\0", maker.inside);
        let open = |calls: &mut Calls<'_>, process: &Process, flags: OFlags| {
            let flags = u64::from((flags | OFlags::CLOEXEC).bits());
            calls.open(process, libc::SYS_openat, path.as_bytes(), |path| {
                [libc::AT_FDCWD as u64, path, flags, 0, 0, 0]
            })
        };
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            let flags = if piece.can_be_written { OFlags::RDWR } else { OFlags::RDONLY };
            pieces.push(open(calls, piece.process, flags)?);
        }
        let mut opened: Vec<u64> = Vec::new();
        for known in &self.opened {
            let shared = match known.same {
                Some(number) => calls.share(known.process, self.opened[number].process, opened[number])?,
                None => None,
            };
            let number = match shared {
                Some(number) => number,
                None => open(calls, known.process, known.flags)?,
            };
            opened.push(number);
        }
        Ok((pieces, opened))
    }

    /// Copies the content to the file in memory that is descriptor `number` of `maker`.
    fn fill(&self, maker: &Process, number: u64) -> Result<()> {
        let path = maker.dir().join(format!("fd/{number}"));
        let shown = || format!("write {}", path.display());
        let file = fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context(shown)?;
        if reach::device_number(fd::stat(&file)?.st_dev) != reach::memory_device()? {
            bail!("{}: no file in memory", shown());
        }
        let file = File::from(file);
        let memory = File::open(maker.dir().join("mem")).context(|| format!("look at {}", maker.shown()))?;
        let (start, mut at) = (self.pieces[0].addresses.start, 0);
        let mut chunk = vec![0; CHUNK];
        while at < self.length {
            let most = usize::try_from(self.length - at).map_or(CHUNK, |rest| rest.min(CHUNK));
            let read = match memory.read_at(&mut chunk[..most], start + at) {
                // Behind the end of the file no page can be had.
                Err(e) if e.raw_os_error() == Some(libc::EIO) => 0,
                read => read.context(|| format!("read the memory of {}", maker.shown()))?,
            };
            if read == 0 {
                break;
            }
            // What is zero everywhere needs no memory.
            let page = rt_sys::start::page_size();
            for (n, part) in
                chunk[..read].chunks(page).enumerate().filter(|(_, part)| part.iter().any(|byte| *byte != 0))
            {
                file.write_all_at(part, at + (n * page) as u64).context(shown)?;
            }
            at += read as u64;
        }
        let size = match self.known {
            Some((size, _)) if size > at => bail!("{}: its memory cannot be read", maker.shown()),
            Some((size, mode)) => {
                fs::fchmod(&file, mode).context(shown)?;
                size
            }
            None => at,
        };
        file.set_len(size).context(shown)
    }
}

/// Refuses what a process outside of `tree` shares, which would be alone with it. `files` are those of [`super::preflight::Found`]. This
/// process must not be in the container's user namespace, where it may look at no other.
pub(super) fn check_others(tree: &Tree, inside: &Inside<'_>, files: &BTreeSet<[String; 3]>) -> Result<()> {
    let is_own = |device: &str| reach::decimal(device).is_some_and(|device| inside.is_own_device(&device));
    let files: Vec<_> = files.iter().filter(|[device, ..]| !is_own(device)).collect();
    if files.is_empty() {
        return Ok(());
    }
    for entry in look::entries("/proc")? {
        let pid = entry.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
        let Some(pid) = pid.filter(|pid| tree.processes.iter().all(|process| process.pid != *pid)) else {
            continue;
        };
        if let Some(path) = had_by(&entry, &files)? {
            return Err(err!("the program has {path} in its memory, a file that has been removed, which process {pid} shares")
                .hint("criu keeps none that share with others"));
        }
    }
    Ok(())
}

/// Which of the files the process with this directory in procfs has mapped or open. One that may not be looked at is another user's, or
/// ends.
fn had_by(dir: &Path, files: &[&[String; 3]]) -> Result<Option<String>> {
    let may_not = |e: &Error| {
        [libc::EACCES, libc::EPERM, libc::ENOENT, libc::ESRCH].into_iter().any(|errno| e.is(errno))
    };
    let find = |device: &str, inode: &str| {
        let found = files.iter().find(|[had, number, _]| had == device && number == inode);
        found.map(|[.., path]| path.clone())
    };
    let maps = match fd::read_file(&dir.join("maps")) {
        Err(e) if may_not(&e) => return Ok(None),
        maps => maps.context(|| format!("look at {}", dir.display()))?,
    };
    let maps = String::from_utf8_lossy(&maps);
    if let Some(path) = mapped_in(&maps).find_map(|mapped| find(mapped.device, mapped.inode)) {
        return Ok(Some(path));
    }
    let links = match look::entries(dir.join("fd")) {
        Err(e) if may_not(&e) => return Ok(None),
        links => links?,
    };
    Ok(links
        .iter()
        .filter_map(|link| fs::stat(link).ok())
        .find_map(|stat| find(&reach::device_number(stat.st_dev), &stat.st_ino.to_string())))
}

/// What helps where nothing else does.
const KEEP: &str = "the program must keep its name until it ends";

fn refused(process: &Process, path: &str, what: &str, remedy: &str) -> Error {
    let shown = process.shown();
    err!("{shown} has {path} in its memory, a file that has been removed, {what}").hint(remedy)
}

impl<'a> Piece<'a> {
    fn of(
        process: &'a Process,
        mapped: &Mapped<'_>,
        flags: &BTreeMap<u64, String>,
        several_ids: bool,
    ) -> Result<Self> {
        if mapped.offset != 0 {
            return Err(refused(process, mapped.path, "and not its first part", "map all of it"));
        }
        let flags = flags.get(&mapped.addresses.start);
        let flags =
            flags.ok_or_else(|| refused(process, mapped.path, "of which the kernel tells little", KEEP))?;
        let has = |wanted| flags.split(' ').any(|flag| flag == wanted);
        if let Some(other) = flags.split(' ').find(|flag| !FLAGS.contains(flag)) {
            return Err(refused(
                process,
                mapped.path,
                &format!("with the flag {other} of proc_pid_smaps(5)"),
                KEEP,
            ));
        }
        // criu would make it writable, for others than who may write it now.
        if several_ids && !has("mw") {
            return Err(refused(process, mapped.path, "for reading alone", KEEP));
        }
        let bits = [("rd", libc::PROT_READ), ("wr", libc::PROT_WRITE), ("ex", libc::PROT_EXEC)];
        let protection = bits.into_iter().filter(|(flag, _)| has(flag)).fold(0, |all, (_, bit)| all | bit);
        Ok(Piece { process, addresses: mapped.addresses.clone(), protection, can_be_written: has("mw") })
    }
}

impl Piece<'_> {
    /// Has its process map descriptor `number` there.
    fn map(&self, calls: &Calls<'_>, number: u64) -> Result<()> {
        let Range { start, end } = self.addresses;
        let how = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let args = [start, end - start, self.protection as u64, how, number, 0];
        calls.of(self.process)?.call(libc::SYS_mmap, args).map(drop)
    }
}

impl<'a> Open<'a> {
    fn of(descriptor: &Descriptor<'a>) -> Result<Self> {
        if descriptor.field("lock").is_some() {
            return Err(descriptor.refused(
                &format!("{}, which is mapped and locked", descriptor.text()),
                "have the program unlock it",
            ));
        }
        let number = |key, radix| u64::from_str_radix(descriptor.field(key)?, radix).ok();
        let (Some(flags), Some(position)) = (number("flags", 8), number("pos", 10)) else {
            bail!("{}: descriptor {} has no flags", descriptor.process.shown(), descriptor.number);
        };
        let flags = OFlags::from_bits_retain(flags as u32);
        if flags.contains(OFlags::PATH) {
            return Err(descriptor.refused(
                &format!("{}, which is mapped, and open for its path only", descriptor.text()),
                "have the program close it",
            ));
        }
        // What else has opened it says how its name was looked for, or that it had none.
        let flags = flags & (OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK | OFlags::CLOEXEC);
        Ok(Open { process: descriptor.process, number: descriptor.number, flags, position, same: None })
    }
}

impl Open<'_> {
    /// Has its process get what descriptor `number` is by the number that it knows.
    fn put(&self, calls: &Calls<'_>, number: u64) -> Result<()> {
        let held = calls.of(self.process)?;
        held.call(libc::SYS_lseek, [number, self.position, libc::SEEK_SET as u64, 0, 0, 0])?;
        let flags = u64::from((self.flags & OFlags::CLOEXEC).bits());
        held.call(libc::SYS_dup3, [number, self.number as u64, flags, 0, 0, 0]).map(drop)
    }
}

/// What held processes do, and the descriptors that they have for a moment.
struct Calls<'h> {
    /// All their threads, by their numbers here. The first one of a process makes its calls.
    held: &'h BTreeMap<i32, Held>,
    opened: Vec<(&'h Held, u64)>,
}

impl<'h> Calls<'h> {
    fn of(&self, process: &Process) -> Result<&'h Held> {
        self.held.get(&process.pid).ok_or_else(|| err!("{} is not held", process.shown()))
    }

    /// Has a process make system call `number`, which opens something, with `text` in its memory.
    fn open(
        &mut self,
        process: &Process,
        number: libc::c_long,
        text: &[u8],
        args: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<u64> {
        let held = self.of(process)?;
        let opened = held.call_with(number, text, args)?;
        self.opened.push((held, opened));
        Ok(opened)
    }

    /// Has a process get what descriptor `number` of `owner` is, an open file with its position. `None` where the kernel (Yama among it)
    /// or a filter lets no process do so: what it opens itself has a position of its own, which counts for nothing where a file is mapped.
    fn share(&mut self, process: &Process, owner: &Process, number: u64) -> Result<Option<u64>> {
        let held = self.of(process)?;
        let owner = held.call(libc::SYS_pidfd_open, [owner.inside.unsigned_abs().into(), 0, 0, 0, 0, 0])?;
        let got = held.call(libc::SYS_pidfd_getfd, [owner, number, 0, 0, 0, 0]);
        held.call(libc::SYS_close, [owner, 0, 0, 0, 0, 0])?;
        match got {
            Err(e) if e.is(libc::EPERM) || e.is(libc::EACCES) || e.is(libc::ENOSYS) => Ok(None),
            got => {
                let got = got?;
                self.opened.push((held, got));
                Ok(Some(got))
            }
        }
    }

    fn close(&self) {
        for (held, number) in &self.opened {
            if let Err(e) = held.call(libc::SYS_close, [*number, 0, 0, 0, 0, 0]) {
                log::debug!("close descriptor {number}: {e}");
            }
        }
    }
}

/// Puts files in memory in the place of all removed ones of `tree`, whose processes are stopped.
///
/// # Errors
/// One cannot be kept, or a call has failed: the program is as it was, for a file in memory is as good.
pub(super) fn replace(tree: &Tree, inside: &Inside<'_>, several_ids: bool) -> Result<()> {
    let mut descriptors = Vec::new();
    for process in &tree.processes {
        descriptors.extend(descriptors_of(process)?);
    }
    let all = Removed::all(tree, inside, &descriptors, several_ids)?;
    // A thread that runs could use what is exchanged. Whoever sends SIGCONT now continues none that is held.
    let mut held = BTreeMap::new();
    for process in all.iter().flat_map(Removed::members) {
        for thread in processes::threads(process.pid)? {
            let Entry::Vacant(place) = held.entry(thread) else { continue };
            if !stops::is_stopped(process.pid, thread)? {
                return Err(err!("{}: it does not stop", process.shown()).hint("try again"));
            }
            place.insert(Held::begin(thread)?);
        }
    }
    all.iter().try_for_each(|removed| removed.replace(&held))
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
        rustix::io::dup3(&file, &mut other, rustix::io::DupFlags::CLOEXEC).context(|| "dup3(2)")
    });
    tried.map_err(|e| {
        err!("the program has memory of a removed file, and the config's seccomp filter does not let it be kept: {e}")
            .hint("allow memfd_create(2)")
    })
}
