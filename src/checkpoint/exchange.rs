//! Shared memory of one file becomes that of another, in processes that are held. They make the system calls ([`rt_sys::inject`]).
//!
//! All processes have it exchanged, or none: what one of them wrote the others would not see. So all that can fail is done beside what the
//! program has, which is moved away and not unmapped, and is moved back where a later step fails.

use super::processes::Process;
use super::reach;
use super::removed::{Open, Piece, Removed};
use rt_sys::cgroup::{self, Cgroups};
use rt_sys::error::{Context, Result};
use rt_sys::inject::{self, Held};
use rt_sys::{bail, err, fd, tree};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a name of a file in memory may be, in bytes (memfd_create(2)).
const LONGEST: usize = 249;
/// How much is copied at a time, in bytes.
const CHUNK: usize = 1 << 20;
const MIB: u64 = 1 << 20;
/// How much memory the kernel unmaps or frees in a second at least, in bytes: a busy one takes far more.
const FREED: u64 = 64 * MIB;
/// What a call takes that frees little.
const MOMENT: Duration = Duration::from_millis(100);

/// Where the program gets it from.
#[derive(Debug)]
pub(super) enum Origin {
    /// The same file, with this device and inode, by a name that it has.
    Name(PathBuf, [String; 2]),
    /// A new file in memory. Its file system has so many bytes left; `None` for no limit.
    Copy { free: Option<u64> },
}

/// A system call of a held thread.
type Call<'a> = (&'a Held, libc::c_long, [u64; 6]);

/// One exchange.
pub(super) struct Exchange<'a> {
    removed: &'a Removed<'a>,
    /// All threads, by their numbers here. The first one of a process makes its calls.
    held: &'a BTreeMap<i32, Held>,
    /// When it is to be made. How long it takes to copy the content is not the program's doing.
    end: &'a Cell<Instant>,
    /// How long a call may take that frees memory of it.
    patience: Duration,
    /// What is done in the end, whatever has become of it.
    clean: Vec<Call<'a>>,
    /// What undoes what has been done, the last step last.
    undo: Vec<Call<'a>>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        removed: &'a Removed<'a>,
        held: &'a BTreeMap<i32, Held>,
        end: &'a Cell<Instant>,
    ) -> Self {
        // A file of which nobody says how long it is can be longer than what is mapped, and none has more in memory than there is.
        let pieces = removed.pieces.iter().map(|piece| piece.addresses.end - piece.addresses.start);
        let size = pieces.fold(removed.known().map_or(u64::MAX, |(size, _)| size), u64::max);
        let host = rustix::system::sysinfo();
        let most = (host.totalram + host.totalswap).saturating_mul(host.mem_unit.into());
        let patience = inject::WITHIN + Duration::from_secs(size.min(most) / FREED);
        Exchange { removed, held, end, patience, clean: Vec::new(), undo: Vec::new() }
    }

    /// Makes it.
    ///
    /// # Errors
    /// The program is as it was.
    pub(super) fn make(mut self, origin: &Origin) -> Result<()> {
        let mut made =
            self.prepare(origin).and_then(|steps| steps.into_iter().try_for_each(|step| self.step(step)));
        if made.is_err() {
            while let Some(call) = self.undo.pop() {
                if let Err(e) = self.call(call) {
                    made = made.map_err(|first| first.hint(format!("undo it: {e}")));
                }
            }
        }
        for call in &self.clean {
            if let Err(e) = self.call(*call) {
                log::debug!("clean up behind {}: {e}", self.removed.name);
            }
        }
        made.context(|| format!("keep {} (deleted)", self.removed.name))
    }

    fn held(&self, process: &Process) -> Result<&'a Held> {
        self.check_time()?;
        self.held.get(&process.pid).ok_or_else(|| err!("{} is not held", process.shown()))
    }

    fn check_time(&self) -> Result<()> {
        match Instant::now() > self.end.get() {
            true => Err(err!("the program takes too long").hint("try again")),
            false => Ok(()),
        }
    }

    /// Makes one step: a call, and the one that undoes it.
    fn step(&mut self, [call, undo]: [Call<'a>; 2]) -> Result<()> {
        self.check_time()?;
        self.call(call)?;
        self.undo.push(undo);
        Ok(())
    }

    /// Makes a call that may free memory, for as long as that takes. Neither its file system nor another process keeps the kernel waiting in
    /// it: it is tmpfs, nothing of it is locked, and no flag of a mapping says that somebody else hears of changes (userfaultfd(2)).
    fn call(&self, (held, number, args): Call<'a>) -> Result<u64> {
        let begun = Instant::now();
        let made = held.call_within(self.patience, number, args);
        let taken = begun.elapsed();
        if taken > MOMENT {
            self.extend(taken);
        }
        made
    }

    /// Gives all threads as much more time as `taken`, which is not the program's doing.
    fn extend(&self, taken: Duration) {
        self.end.set(self.end.get() + taken);
        self.held.values().for_each(|held| held.extend(taken));
    }

    /// Has each process open and map it beside what it has. Returns what is left to do.
    fn prepare(&mut self, origin: &Origin) -> Result<Vec<[Call<'a>; 2]>> {
        let (path, file) = match origin {
            Origin::Name(path, file) => (path.clone(), file.clone()),
            Origin::Copy { free } => self.copy(*free)?,
        };
        let path = [path.as_os_str().as_bytes(), b"\0"].concat();
        let mut steps = Vec::new();
        for piece in &self.removed.pieces {
            let flags = if piece.can_be_written { OFlags::RDWR } else { OFlags::RDONLY };
            let number = self.open(piece.process, &path, flags, &file)?;
            steps.extend(self.map(piece, number)?);
        }
        let mut opened: Vec<u64> = Vec::new();
        for open in &self.removed.opened {
            let shared = open.same.map(|place| (&self.removed.opened[place], opened[place]));
            let number = match shared
                .map(|(owner, number)| self.share(open, owner.process, number))
                .transpose()?
                .flatten()
            {
                Some(number) => number,
                None => self.open(open.process, &path, open.flags, &file)?,
            };
            opened.push(number);
            steps.push(self.put(open, number)?);
        }
        Ok(steps)
    }

    /// Has a process open `path`, which has to be `file`.
    fn open(&mut self, process: &Process, path: &[u8], flags: OFlags, file: &[String; 2]) -> Result<u64> {
        let held = self.held(process)?;
        let flags = u64::from((flags | OFlags::CLOEXEC).bits());
        let number =
            held.call_with(libc::SYS_openat, path, |path| [libc::AT_FDCWD as u64, path, flags, 0, 0, 0])?;
        let link = process.dir().join(format!("fd/{number}"));
        // It may be served by somebody who does not answer, also when it is closed.
        let known = fd::known_identity(&link).context(|| format!("look at {}", link.display()));
        match known.map(|known| reach::is_identity(known, file)) {
            Ok(true) => {
                self.close_later(held, number);
                Ok(number)
            }
            known => {
                held.call(libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
                known?;
                bail!("{} has opened another file", process.shown())
            }
        }
    }

    fn close_later(&mut self, held: &'a Held, number: u64) {
        self.clean.push((held, libc::SYS_close, [number, 0, 0, 0, 0, 0]));
    }

    /// Has the process of `piece` map descriptor `number` beside it. What puts that in its place, and the piece away.
    fn map(&mut self, piece: &Piece<'_>, number: u64) -> Result<[[Call<'a>; 2]; 2]> {
        let held = self.held(piece.process)?;
        let (start, length) = (piece.addresses.start, piece.addresses.end - piece.addresses.start);
        let mut somewhere = |protection: i32, how: i32, number: u64, offset: u64| {
            let args = [0, length, protection as u64, how as u64, number, offset];
            let again = || format!("map it once more in {}", piece.process.shown());
            let at = held.call(libc::SYS_mmap, args).context(again)?;
            self.clean.push((held, libc::SYS_munmap, [at, length, 0, 0, 0, 0]));
            Ok::<u64, rt_sys::error::Error>(at)
        };
        let new = somewhere(piece.protection, libc::MAP_SHARED, number, piece.offset)?;
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let away = somewhere(libc::PROT_NONE, reserved, u64::MAX, 0)?;
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let moved = |from, to| (held, libc::SYS_mremap, [from, length, length, how, to, 0]);
        Ok([[moved(start, away), moved(away, start)], [moved(new, start), moved(start, new)]])
    }

    /// Has the process of `open` give descriptor `number` its position. What has it known by the number that the program knows.
    fn put(&mut self, open: &Open<'_>, number: u64) -> Result<[Call<'a>; 2]> {
        let held = self.held(open.process)?;
        held.call(libc::SYS_lseek, [number, open.position, libc::SEEK_SET as u64, 0, 0, 0])?;
        let known = open.number as u64;
        let saved = held.call(libc::SYS_fcntl, [known, libc::F_DUPFD_CLOEXEC as u64, 0, 0, 0, 0])?;
        self.close_later(held, saved);
        let flags = u64::from((open.flags & OFlags::CLOEXEC).bits());
        let named = |number| (held, libc::SYS_dup3, [number, known, flags, 0, 0, 0]);
        Ok([named(number), named(saved)])
    }

    /// Has a process get what descriptor `number` of `owner` is, an open file with its position. `None` where the kernel (Yama among it)
    /// or a filter lets no process do so, and the position is where a file that is opened has it, too.
    fn share(&mut self, open: &Open<'_>, owner: &Process, number: u64) -> Result<Option<u64>> {
        let held = self.held(open.process)?;
        if owner.pid == open.process.pid {
            let got = held.call(libc::SYS_fcntl, [number, libc::F_DUPFD_CLOEXEC as u64, 0, 0, 0, 0])?;
            self.close_later(held, got);
            return Ok(Some(got));
        }
        let owner = held.call(libc::SYS_pidfd_open, [owner.inside.unsigned_abs().into(), 0, 0, 0, 0, 0])?;
        let got = held.call(libc::SYS_pidfd_getfd, [owner, number, 0, 0, 0, 0]);
        held.call(libc::SYS_close, [owner, 0, 0, 0, 0, 0])?;
        match got {
            Err(e)
                if open.position == 0
                    && [libc::EPERM, libc::EACCES, libc::ENOSYS].iter().any(|n| e.is(*n)) =>
            {
                Ok(None)
            }
            got => {
                let got = got.context(|| "share an open file once more")?;
                self.close_later(held, got);
                Ok(Some(got))
            }
        }
    }

    /// Makes a file in memory with the content: its path for the program, its device and its inode.
    fn copy(&mut self, free: Option<u64>) -> Result<(PathBuf, [String; 2])> {
        let Some(first) = self.removed.pieces.first() else { bail!("nothing of it is mapped") };
        let (maker, held) = (first.process, self.held(first.process)?);
        let name = self.removed.name.rsplit('/').next().unwrap_or_default().as_bytes();
        let name = [&name[..name.len().min(LONGEST)], b"\0"].concat();
        let number = held
            .call_with(libc::SYS_memfd_create, &name, |name| [name, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0])?;
        self.close_later(held, number);
        let path = maker.dir().join(format!("fd/{number}"));
        let shown = || format!("look at {}", path.display());
        // What it is comes before it is opened.
        let file = fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(shown)?;
        let device = reach::device_number(fd::known_identity(fd::link(&file)).context(shown)?.0);
        let is_in_memory = device == reach::memory_device()?;
        let stat = is_in_memory.then(|| fd::stat(&file)).transpose()?;
        let Some(stat) = stat.filter(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile) else {
            bail!("{}: no file in memory", shown());
        };
        let file = fs::open(fd::link(&file), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context(shown)?;
        let file = File::from(file);
        let length = self.removed.length();
        file.set_len(length).context(shown)?;
        // What this process wrote to the file would be its own memory in the eyes of control groups, and be the program's all the same.
        // What it writes to memory of the program is the program's.
        let (protection, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let at = held.call(libc::SYS_mmap, [0, length, protection as u64, how as u64, number, 0])?;
        let begun = Instant::now();
        let size = self.fill(maker, at, free);
        self.extend(begun.elapsed());
        self.call((held, libc::SYS_munmap, [at, length, 0, 0, 0, 0]))?;
        if let Some(mode) = self.removed.mode() {
            fs::fchmod(&file, mode).context(shown)?;
        }
        file.set_len(size?).context(shown)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{number}", maker.inside));
        Ok((path, [device, stat.st_ino.to_string()]))
    }

    /// Copies the content to address `to` of `maker`, where there is nothing yet. Returns its size in bytes.
    fn fill(&self, maker: &Process, to: u64, free: Option<u64>) -> Result<u64> {
        let memory = maker.dir().join("mem");
        let memory = File::options().read(true).write(true).open(&memory);
        let memory = memory.context(|| format!("look at the memory of {}", maker.shown()))?;
        let length = self.removed.length();
        let (reader, known) = (self.reader()?, self.removed.known());
        if let (Some(reader), Some((size, room))) = (reader, known) {
            self.check_room(maker, room)?;
            let reader = File::from(reader);
            let mut at = 0;
            while let Some(data) = tree::next_data(reader.as_fd(), at, size).context(|| "copy a file")? {
                at = data.end;
                if copy(&reader, 0, &data, &memory, to)? < data.end {
                    bail!("{} has become shorter", self.removed.name);
                }
            }
            return Ok(size);
        }
        // The kernel finds room for each page that is read, and says the same of one without as of one behind the end.
        if free.is_some_and(|free| free < length) {
            let remedy = "have the program keep it open, or give its file system more room";
            return Err(self.removed.refused("whose file system is nearly full", remedy));
        }
        self.check_room(maker, length)?;
        let read = copy(&memory, self.removed.pieces[0].addresses.start, &(0..length), &memory, to)?;
        match known {
            Some((size, _)) if size > read => bail!("{}: its memory cannot be read", maker.shown()),
            Some((size, _)) => Ok(size),
            None if read < length => {
                Err(self.removed.refused("and is longer than the file", "map no more than there is"))
            }
            None => Ok(read),
        }
    }

    /// Refuses a copy of `needed` bytes for which `maker` has no memory: the kernel would make room by ending processes of the job.
    fn check_room(&self, maker: &Process, needed: u64) -> Result<()> {
        let group = Cgroups::of(maker.pid)?.memory_left()?;
        let left = group.into_iter().chain(cgroup::host_memory_left()?).min();
        match left {
            Some(left) if left < needed => {
                let [needed, left] = [needed.div_ceil(MIB), left / MIB];
                let what = format!(
                    "a second copy of which takes {needed} MiB for a moment, and {left} MiB are left"
                );
                Err(self.removed.refused(&what, "give the job more memory"))
            }
            _ => Ok(()),
        }
    }

    /// The file itself, where a process has it open and this one may read it.
    fn reader(&self) -> Result<Option<OwnedFd>> {
        let Some(open) = self.removed.opened.first() else { return Ok(None) };
        let path = open.process.dir().join(format!("fd/{}", open.number));
        match fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::ACCESS) => Ok(None),
            file => file.map(Some).context(|| format!("read {}", path.display())),
        }
    }
}

/// Copies `part` of a content that begins at `begin` of `from` to a place that begins at `to` of `memory`, and is zero yet: pages that are
/// zero everywhere need no memory. Returns where it ends; behind the end of a file no page of memory can be had.
fn copy(from: &File, begin: u64, part: &Range<u64>, memory: &File, to: u64) -> Result<u64> {
    let page = rt_sys::start::page_size();
    let mut chunk = vec![0; CHUNK];
    let mut at = part.start;
    while at < part.end {
        let most = usize::try_from(part.end - at).map_or(CHUNK, |rest| rest.min(CHUNK));
        let read = match from.read_at(&mut chunk[..most], begin + at) {
            Err(e) if e.raw_os_error() == Some(libc::EIO) => 0,
            read => read.context(|| "read the content of a file")?,
        };
        if read == 0 {
            break;
        }
        let is_written = |page: &&[u8]| page.iter().any(|byte| *byte != 0);
        let pages: Vec<&[u8]> = chunk[..read].chunks(page).collect();
        let mut done = 0;
        for alike in pages.chunk_by(|one, next| is_written(one) == is_written(next)) {
            let bytes = &chunk[done..read.min(done + alike.len() * page)];
            if is_written(&alike[0]) {
                memory
                    .write_all_at(bytes, to + at + done as u64)
                    .context(|| "write memory of the program")?;
            }
            done += bytes.len();
        }
        at += read as u64;
    }
    Ok(at)
}
