//! `rt restore`: the processes of an image in a container that `rt` has made from the config, as for `rt run`. Nothing in an
//! image decides a mount, a device or a namespace.
//!
//! criu is a child of the container's init, in the session of that. While criu still holds the processes (`gate`), `rt` compares what
//! the kernel says of each thread with the config: registers, memory and limits come from the image, which its owner may have
//! changed. criu leaves the processes stopped, so that the container is known before they go on.

use super::aside::{self, Runtime};
use super::claim::Claim;
use super::criu::Opened;
use super::dump::{self, DumpOptions, Programs};
use super::files::is_one;
use super::gate::Gate;
use super::gpu::Cuda;
use super::image::{Image, Place};
use super::inside::Inside;
use super::links::NoLinks;
use super::manifest::{Kind, Manifest};
use super::places::Places;
use super::processes::{self, Process, Status, threads};
use super::reach::{self, Reach};
use super::{criu_log, filters, left, made_calls, memory_fs, preflight, requeue, sizes, stops};
use crate::container::{self, Checkpoint, Choice, CreateOptions, FixedIds, Held, Limits, Moment, Signalled};
use crate::store::Store;
use rt_config::Lookup;
use rt_spec::Spec;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Mounted};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, Memory};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, err, fd, look, signal};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where files have to be that a program has open.
const OF_ALL_NODES: &str =
    "a job's TMPDIR, and a /tmp of its own, end with the job: name a directory that all nodes share";

/// What a batch job gets that is to end now and run again.
const PREEMPT: [i32; 2] = [libc::SIGTERM, libc::SIGUSR1];

/// See proc_sys_kernel(5).
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

/// An image that is about to be restored.
#[derive(Debug)]
struct Source {
    image: Image,
    manifest: Manifest,
    criu: Opened,
    /// This executable, which asks for criu.
    exe: OwnedFd,
    cuda: Option<Cuda>,
    /// The kernel's last number of a process, in the PID namespace of whoever writes it; none where it cannot be written.
    last_number: Option<OwnedFd>,
    /// Where criu writes its log, if not into the image.
    work: Option<OwnedFd>,
    /// What is mounted where the caller is, none of which is the program's.
    hosts: Vec<Mounted>,
    /// Held until the program has its shared memory.
    shared: Option<OwnedFd>,
}

/// What `restore` and `run --checkpoint` hand to the container.
#[derive(Debug, Default)]
pub(crate) struct Restore {
    source: Option<Source>,
    /// Connections of TCP on the host's network were closed at the checkpoint.
    pub tcp_close: bool,
    /// Where an image is made when the foreground is told to.
    pub keep: Option<Keep>,
}

/// How `run --checkpoint` makes images.
#[derive(Debug)]
pub(crate) struct Keep {
    /// What is written.
    pub dump: DumpOptions,
    /// How many seconds lie between two images; 0 makes none but when it is told to.
    pub every: u32,
    /// The batch job that Slurm is asked to requeue.
    pub job: Option<String>,
    /// The program was asked to end, and no image of that time is there.
    missed: Cell<bool>,
    /// They were found before this process may have entered a user namespace, where files of root are nobody's.
    programs: Programs,
    /// While this run lasts, no other one has the directory of its images.
    claim: Claim,
    /// The directory of the last image that is this run's: the one that it goes on from, or has written.
    own: RefCell<Option<OwnedFd>>,
}

/// The image at `path`, if there is one.
///
/// # Errors
/// Something else is there.
fn find_last(path: &Path) -> Result<Option<Image>> {
    let place = match Place::find(path) {
        Err(e) if e.is(libc::ENOENT) => return Ok(None),
        place => place?,
    };
    let last = place.last()?;
    if last.is_none() {
        place.require_free()?;
    }
    Ok(last)
}

/// What is known of an image that this machine can restore.
fn readable(image: &Image) -> Result<Manifest> {
    let manifest = Manifest::read(image)?;
    manifest.check_machine()?;
    Ok(manifest)
}

impl Restore {
    /// Opens the image at `path` and the criu that restores it.
    pub(crate) fn open(path: &Path, work: Option<&Path>) -> Result<Restore> {
        Self::open_by(path, work, None)
    }

    /// The same by `programs`, where they have been found.
    pub(super) fn open_by(path: &Path, work: Option<&Path>, programs: Option<&Programs>) -> Result<Restore> {
        let image = Image::open(path)?;
        let manifest = readable(&image)?;
        let work = work.map(dump::open_work).transpose()?;
        let source = match programs {
            Some(programs) => Source::new(image, manifest, programs, work)?,
            None => Source::new(image, manifest, &Programs::find()?, work)?,
        };
        Ok(Restore { source: Some(source), ..Restore::default() })
    }

    /// True where `file` is the one that was the program's standard input.
    pub(super) fn had_input(&self, file: &OwnedFd) -> Result<bool> {
        let name = self.source.as_ref().and_then(|source| source.manifest.streams.first());
        let inode = fd::stat(file)?.st_ino;
        Ok(name.is_some_and(|name| name.ends_with(&format!(":{inode:x}]"))))
    }

    /// Has a container get the processes of the image, where they have their numbers.
    pub(crate) fn make_in(self, options: &mut CreateOptions) {
        if !self.makes_first() {
            // criu makes processes by their numbers, which are free in a PID namespace of their own only.
            options.overrides.namespaces.pid = Some(Choice::Private);
            options.overrides.init = Some(true);
        }
        options.checkpoint = Some(Box::new(self));
    }

    /// The image `DIR/last` where there is one, and images in its place when the foreground is told to, each `every` seconds
    /// unless that is 0. `job` is Slurm's number for the batch job to be requeued then, and `variable` has the caller's variables.
    pub(crate) fn last_of(
        dir: &Path,
        every: u32,
        job: Option<String>,
        variable: Lookup<'_>,
    ) -> Result<Restore> {
        if let Some(job) = &job
            && requeue::ends_with(dir, job, variable("TMPDIR").as_deref())?
        {
            return Err(err!("--checkpoint {}: it is in a directory of job {job}'s own", dir.display())
                .hint(OF_ALL_NODES));
        }
        let last = dir.join("last");
        if find_last(&last)?.is_some() {
            // They wait until the container is being made, and can be answered.
            signal::block(&PREEMPT);
        }
        // Where this executes a copy of itself, the directory is not given away meanwhile, and nothing is said twice.
        container::protect_binary()?;
        // What keeps criu from working is said now, and not only at the signal.
        let programs = Programs::find_by(variable)?;
        let claim = Claim::take(&last, variable)?;
        let (mut found, mut own) = (None, None);
        // Another run can have put it there, or removed it, before this one had the directory.
        match find_last(&last)? {
            Some(image) => {
                signal::block(&PREEMPT);
                let image = image.checked()?;
                own = Some(image.dir.try_clone().context(|| "keep the image open")?);
                found = Some((readable(&image)?, image));
            }
            None => {
                tell_of_streams()?;
                if let Some(job) = job.as_ref().filter(|_| requeue::is_again(variable)) {
                    let dir = dir.display();
                    rt_sys::log::tell(format_args!(
                        "job {job} runs again, and {dir} has no checkpoint: the program begins anew"
                    ));
                }
            }
        }
        let open = |(manifest, image)| Source::new(image, manifest, &programs, None);
        let source = found.map(open).transpose()?;
        let dump = DumpOptions { image: fd::absolute(last)?, ..DumpOptions::default() };
        Ok(Restore {
            source,
            keep: Some(Keep {
                dump,
                every,
                job,
                missed: Cell::new(false),
                programs,
                claim,
                own: RefCell::new(own),
            }),
            ..Restore::default()
        })
    }

    /// Has images know of the layer `dir` (`--overlay`).
    ///
    /// # Errors
    /// It has nothing of what the program had written to its layer.
    pub(crate) fn with_layer(mut self, dir: Option<&Path>) -> Result<Restore> {
        let dir = dir.map(fd::absolute).transpose()?;
        let is_there = dir.as_deref().map(has_something).transpose()?.unwrap_or(false);
        let had = self.source.as_ref().and_then(|source| source.manifest.layer.as_ref());
        if let Some(had) = had.filter(|_| !is_there) {
            let shown = dir.as_ref().unwrap_or(had).display();
            return Err(err!(
                "--overlay {shown}: it is empty, or not given, and the program had written to its layer"
            )
            .hint(OF_ALL_NODES));
        }
        if let Some(keep) = &mut self.keep {
            keep.dump.layer = dir;
        }
        Ok(self)
    }
}

/// True where the layer `dir` is not empty.
pub(super) fn has_something(dir: &Path) -> Result<bool> {
    match look::entries(dir.join(rt_spec::OVERLAY_UPPER)) {
        Err(e) if e.is(libc::ENOENT) => Ok(false),
        entries => Ok(!entries?.is_empty()),
    }
}

impl Checkpoint for Restore {
    fn is_there(&self) -> bool {
        self.source.is_some()
    }

    fn makes_first(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.manifest.is_of_first())
    }

    fn check_filters(&self, filters: &[Filter], are_hidden: bool) -> Result<()> {
        made_calls::check(filters, are_hidden && self.keep.is_some())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let Some(source) = &self.source else { return Vec::new() };
        let own = [&source.image.dir, &source.exe].into_iter().chain(&source.work).chain(&source.last_number);
        let own = own.map(AsRawFd::as_raw_fd);
        source.criu.descriptors().into_iter().chain(own).collect()
    }

    fn restore(
        &self,
        config: &Spec,
        most: &Limits,
        runtime: Option<BorrowedFd<'_>>,
        held: &mut dyn FnMut(Held) -> Result<()>,
    ) -> Result<i32> {
        let Some(source) = &self.source else { bail!("there is no image") };
        source.manifest.check_ids()?;
        filters::check_image(&source.image, &most.filters)?;
        source.manifest.gpus.map(Path::new("/"))?;
        let memory = memory_fs::find(memory_fs::of_config(config), Path::new("/proc/self"), &[])?;
        memory_fs::restore(&source.manifest.memory, &memory, &source.hosts, &source.image)?;
        let own = memory_fs::own(config);
        let inside = Inside::of(Path::new("/proc/self"), &own)?;
        let users = &source.manifest.open.users;
        let places = Places::of(Path::new("/proc/self"), &inside, users)?;
        if places.is_some() && !source.manifest.shared.is_empty() {
            bail!("the image has shared memory of the host's, and the container has several ids");
        }
        let made = source.manifest.shared.restore(&source.image, users)?;
        reach::check_paths(&source.image)?;
        source.manifest.open.check(&inside)?;
        reach::check_queues(&source.image)?;
        if let Some(places) = places {
            places.check_image(&source.image)?;
        }
        let log_in = source.work.as_ref().unwrap_or(&source.image.dir);
        let in_memory = criu_log::make_anywhere(log_in, "restore.log")?;
        let log_in = in_memory.as_ref().map_or(log_in, |(dir, _)| dir);
        let begun = left::begin(&source.image, &inside)?;
        let no_links = NoLinks::begin()?;
        let mut held = |what: Held| {
            if what.at == Moment::Made {
                no_links.end()?;
            }
            held(what)
        };
        let restored = source.run_criu(self.tcp_close, log_in, runtime, &mut held);
        restored.map_err(|e| match source.manifest.open.missing() {
            Some(path) => err!("{}, which the program had open, is not there any more", path.display())
                .hint(OF_ALL_NODES),
            None => sizes::changed(&source.image).unwrap_or_else(|| {
                let explained = criu_log::explain_in(e, log_in, "restore.log");
                in_memory.iter().fold(explained, |e, (_, why)| e.hint(format!("its log is not kept: {why}")))
            }),
        })?;
        begun.iter().for_each(left::Begun::end);
        made.keep();
        Ok(source.manifest.program)
    }

    fn check(&self, config: &Spec, most: &Limits, others: &[i32]) -> Result<()> {
        let Some(source) = &self.source else { bail!("there is no image") };
        check(&source.manifest, &memory_fs::own(config), most, others)
    }

    fn forget_stops(&self) -> Result<()> {
        stops::forget_restored()
    }

    fn continue_all(&self) -> Result<()> {
        stops::go_on_restored()
    }

    fn goes_on(&self, store: &Store, id: &str) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        // The program has its memory by now, and this process can stay beside it.
        source.shared.as_ref().map_or(Ok(()), |lock| fs::flock(lock, fs::FlockOperation::Unlock))?;
        let noted = store.container(id).and_then(|dir| source.manifest.shared.note(&source.image, &dir));
        // The next image lacks it: where an older copy of the memory is left, it will not be restored.
        noted.unwrap_or_else(|e| log::warn!("{e}"));
        source.manifest.gpus.restore(store, id, source.cuda.as_ref())
    }

    fn interrupts(&self) -> &'static [i32] {
        // Only a batch job is asked for a checkpoint.
        const ALL: &[i32] = &[libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1];
        if self.keep.is_some() { ALL } else { &ALL[..4] }
    }

    fn interrupted(&self, number: i32) -> Option<u8> {
        let keep = self.keep.as_ref().filter(|_| PREEMPT.contains(&number))?;
        let image = keep.dump.image.display();
        rt_sys::log::tell(format_args!(
            "the program was not restored yet: {image} is there for the next call"
        ));
        keep.request(number);
        Some(requeue::AGAIN)
    }

    fn begin(&self) {
        if let Some(keep) = &self.keep {
            signal::alarm(keep.every);
        }
    }

    fn ended(&self, code: u8) -> Result<()> {
        let Some(keep) = &self.keep else { return Ok(()) };
        if code == 0 && keep.missed.get() {
            let image = keep.dump.image.display();
            rt_sys::log::tell(format_args!("the program was asked to end: {image} is kept"));
        } else if code == 0 {
            // What has been done is not done again. After a failure the last image is a place to go on from.
            keep.forget()?;
        }
        keep.claim.end()
    }

    fn signalled(&self, store: &Store, id: &str, number: i32) -> Result<Signalled> {
        let Some(keep) = &self.keep else { return Ok(Signalled::PassOn) };
        keep.signalled(store, id, number)
    }
}

impl Source {
    fn new(
        image: Image,
        manifest: Manifest,
        programs: &Programs,
        work: Option<(PathBuf, OwnedFd)>,
    ) -> Result<Source> {
        let own = (image.path.as_path(), &image.dir);
        let dirs: Vec<_> =
            std::iter::once(own).chain(work.iter().map(|(path, dir)| (path.as_path(), dir))).collect();
        let (criu, dirs) = programs.criu.open_apart(&dirs)?;
        let mut dirs = dirs.into_iter();
        let dir = dirs.next().ok_or_else(|| err!("the directory of the image was not opened"))?;
        let image = Image { path: image.path, dir };
        // The container's own /proc/sys is read-only.
        let last_number = match fs::open(LAST_NUMBER, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::ROFS) => None,
            opened => Some(opened.context(|| format!("open {LAST_NUMBER}"))?),
        };
        let shared = manifest.shared.take(&image)?;
        let exe = container::executable(fd::open_proc()?.as_fd())?;
        let (cuda, work) = (programs.cuda.clone(), dirs.next());
        Ok(Source { image, manifest, criu, exe, cuda, last_number, work, hosts: mount::table()?, shared })
    }

    /// Has what criu starts for itself get numbers above all of the image's. criu keeps /proc/PID of the last of those open, and takes it
    /// for that of a restored process with that number, which it then misses.
    fn skip_numbers(&self) {
        if let Some(last) = &self.last_number {
            // Where the kernel refuses, most images are restored nevertheless.
            let written = rustix::io::write(last, (self.manifest.highest + 1).to_string().as_bytes());
            written.map_or_else(|e| log::debug!("write {LAST_NUMBER}: {e}"), drop);
        }
    }

    /// Has criu make the processes, and `held` look at them before they can run. Its own number must be none of theirs. It ends with
    /// this process, or with `runtime`.
    fn run_criu(
        &self,
        tcp_close: bool,
        log_in: &OwnedFd,
        runtime: Option<BorrowedFd<'_>>,
        held: &mut dyn FnMut(Held) -> Result<()>,
    ) -> Result<()> {
        let streams = self.streams()?;
        let mut args = self.arguments(tcp_close, log_in, &streams);
        let gate = Gate::new(&self.exe)?;
        args.extend(gate.arguments());
        let mut keep: Vec<&OwnedFd> = vec![&self.image.dir, log_in];
        keep.extend(streams.iter().map(|(stream, _)| stream));
        keep.extend(gate.descriptors());
        let try_criu = || {
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(self.criu.exec(&args, &keep))
        };
        let become_criu = || match try_criu() {
            Ok(error) | Err(error) => aside::report(&error),
        };
        let child = match self.manifest.is_of_first() {
            true => process::spawn(Namespaces::NONE, Memory::Copied, become_criu),
            false => {
                self.skip_numbers();
                process::spawn_as(self.manifest.highest + 1, become_criu)
            }
        };
        let child = child.context(|| "start criu")?;
        let has_asked = gate.wait(&child, runtime, held).inspect_err(|_| child.end())?;
        Runtime::new(runtime, Duration::ZERO).wait_for(&child)?;
        aside::succeeded(&child, "criu")?;
        match has_asked {
            true => Ok(()),
            // As one that is older than the action, which has been there since criu 2.4.
            false => bail!("criu has not waited for a look at what it has made"),
        }
    }

    /// Standard streams of this call that take the place of the old caller's, and what criu calls those. They are copies, since
    /// criu closes what it is given, and needs its own.
    fn streams(&self) -> Result<Vec<(OwnedFd, &str)>> {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut streams: Vec<(OwnedFd, &str)> = Vec::new();
        for (n, (stream, name)) in own.into_iter().zip(&self.manifest.streams).enumerate() {
            // Two streams that were one file become what the first of them is now.
            if !name.is_empty() && !streams.iter().any(|(_, known)| known == name) {
                // criu sets the place in a file, which a pipe has not.
                let copy = match self.manifest.kinds[n] {
                    Kind::Null => open_null()?,
                    kind => {
                        if kind == Kind::File {
                            check_file(stream, n)?;
                        }
                        rustix::io::fcntl_dupfd_cloexec(stream, 3).context(|| "copy a standard stream")?
                    }
                };
                streams.push((copy, name));
            }
        }
        Ok(streams)
    }

    fn arguments(&self, tcp_close: bool, log_in: &OwnedFd, streams: &[(OwnedFd, &str)]) -> Vec<String> {
        let mut words = dump::common("restore", &self.image.dir, log_in);
        // Permissions can have changed since, and the caller's files have their own: `rt` looks at those that count.
        words.extend(["--restore-detached", "--ext-unix-sk", "--skip-file-rwx-check"].map(str::to_owned));
        if self.manifest.own_network {
            words.extend(["--tcp-established", "--network-lock=skip"].map(str::to_owned));
        }
        if tcp_close {
            words.push("--tcp-close".to_owned());
        }
        for (stream, name) in streams {
            words.extend(["--inherit-fd".to_owned(), format!("fd[{}]:{name}", stream.as_raw_fd())]);
        }
        words
    }
}

/// Fails where standard stream `n`, which was a file, is none, or one that this process may not open, as criu does.
fn check_file(stream: BorrowedFd<'_>, n: usize) -> Result<()> {
    // Not even the null device: it is not to have another file's permissions.
    if FileType::from_raw_mode(fd::stat(stream)?.st_mode) != FileType::RegularFile {
        return Err(
            err!("standard stream {n} was a file, and is none now").hint("give a file, to which is appended")
        );
    }
    require_openable(stream, n)
}

/// Says which standard streams of this call, as they are, a call could not have that goes on from a checkpoint.
fn tell_of_streams() -> Result<()> {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    for (n, stream) in own.into_iter().enumerate() {
        let is_file = FileType::from_raw_mode(fd::stat(stream)?.st_mode) == FileType::RegularFile;
        if is_file && let Err(e) = require_openable(stream, n) {
            rt_sys::log::tell(e.context("no later call could go on from a checkpoint"));
        }
    }
    Ok(())
}

/// Fails where this process may not open the file of standard stream `n`.
fn require_openable(stream: BorrowedFd<'_>, n: usize) -> Result<()> {
    let access = rustix::fs::fcntl_getfl(stream).context(|| "look at a standard stream")? & OFlags::RWMODE;
    let link = format!("self/fd/{}", stream.as_raw_fd());
    match rustix::fs::openat(&fd::open_proc()?, link, access | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM) => {
            Err(err!("standard stream {n} is a file that this user may not open, as criu does")
                .hint("have the user open it"))
        }
        // criu finds out the rest.
        _ => Ok(()),
    }
}

pub(super) fn open_null() -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty()).context(|| "open /dev/null")
}

/// Compares every thread with the config, and what each process has open with the container: criu has set its limits by an image that
/// its owner may have changed, and followed links that the program may have made.
fn check(manifest: &Manifest, own_memory: &[PathBuf], most: &Limits, others: &[i32]) -> Result<()> {
    // What is mounted there is the kernel's.
    fd::open_proc()?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut reach = Reach::of_container(&manifest.open, own_memory)?;
    let mut processes = BTreeMap::new();
    for pid in processes::all()?.into_iter().filter(|pid| *pid != own && !others.contains(pid)) {
        // One that had ended has nothing any more.
        processes.insert(pid, Process::read(pid)?.filter(|process| !process.has_ended()));
    }
    let mut descriptors = Vec::new();
    for (pid, process) in &processes {
        let shown = |e: Error| e.context(format!("restored process {pid}"));
        for thread in threads(*pid)? {
            let path = format!("/proc/{pid}/task/{thread}/status");
            let status = Status(fd::read_file(Path::new(&path)).context(|| format!("read {path}"))?);
            check_thread(&status, most).map_err(shown)?;
        }
        if let Some(process) = process {
            descriptors.extend(reach.check(process).map_err(shown)?);
            preflight::check_count(descriptors.len())?;
        }
    }
    if !processes.contains_key(&manifest.program) {
        bail!("criu has restored no process {}, which the image calls its program", manifest.program);
    }
    reach.check_servers(&descriptors)?;
    manifest.pinned.restore()
}

fn check_thread(status: &Status, most: &Limits) -> Result<()> {
    // One that had ended and waits for its parent comes back as such, and does nothing any more.
    if status.text("State").is_some_and(|state| state.starts_with(['Z', 'X'])) {
        return Ok(());
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let mask = status.mask(set)?;
        if mask & !most.caps != 0 {
            bail!("{set} is {mask:#x}, more than the config gives ({:#x})", most.caps);
        }
    }
    if most.no_new_privs && status.last("NoNewPrivs")? != 1 {
        bail!("it lacks no_new_privs, which the config sets");
    }
    if let Some(ids) = &most.ids {
        check_ids(status, ids)?;
    }
    match (status.filters()?, i32::try_from(most.filters.len())) {
        (has, Ok(wanted)) if has == wanted => Ok(()),
        (has, _) => bail!("it has {has} seccomp filters, and the config gives {}", most.filters.len()),
    }
}

/// Compares all user and group ids of a thread, the saved ones and those for files among them.
fn check_ids(status: &Status, ids: &FixedIds) -> Result<()> {
    for (key, wanted) in [("Uid", ids.uid), ("Gid", ids.gid)] {
        if let Some(other) = status.numbers(key)?.into_iter().find(|id| *id != wanted) {
            bail!("its {key} is {other}, and the config's {wanted}");
        }
    }
    let known = |group: &u32| ids.groups.as_ref().is_none_or(|known| known.contains(group));
    match status.numbers("Groups")?.into_iter().find(|group| !known(group)) {
        Some(group) => bail!("it is in group {group}, in which the config's user is not"),
        None => Ok(()),
    }
}

impl Keep {
    /// Asks for the job to be requeued where signal `number` says so.
    fn request(&self, number: i32) {
        if let (libc::SIGUSR1, Some(job)) = (number, &self.job) {
            requeue::request(job);
        }
    }

    /// Removes the last image, unless it is another run's.
    fn forget(&self) -> Result<()> {
        let place = match Place::find(&self.dump.image) {
            Err(e) if e.is(libc::ENOENT) => return Ok(()),
            place => place?,
        };
        match place.last()? {
            Some(image) if !self.is_own(&image)? => {
                rt_sys::log::tell(format_args!("{} is not of this run, and stays", image.path.display()));
                Ok(())
            }
            _ => place.forget(),
        }
    }

    fn is_own(&self, image: &Image) -> Result<bool> {
        let own = self.own.borrow();
        let Some(own) = own.as_ref() else { return Ok(false) };
        Ok(is_one(&fd::stat(own)?, &fd::stat(&image.dir)?))
    }

    fn signalled(&self, store: &Store, id: &str, number: i32) -> Result<Signalled> {
        let ends = match number {
            number if PREEMPT.contains(&number) => true,
            libc::SIGALRM if self.every > 0 => false,
            _ => return Ok(Signalled::PassOn),
        };
        let options = DumpOptions { leave_running: !ends, ..self.dump.clone() };
        let mut wrote = |dir| *self.own.borrow_mut() = Some(dir);
        let dumped = self
            .claim
            .check()
            .and_then(|()| dump::dump_at_last(store, id, &options, &self.programs, &mut wrote));
        if !ends {
            signal::alarm(self.every);
        }
        match dumped {
            Ok(()) if ends => {
                self.request(number);
                Ok(Signalled::Ended(requeue::AGAIN))
            }
            Ok(()) => Ok(Signalled::Taken),
            Err(e) => {
                rt_sys::log::tell(e.context("checkpoint: the program goes on"));
                if number != libc::SIGTERM {
                    return Ok(Signalled::Taken);
                }
                // Who asks a program to end by TERM is not left without an answer.
                self.missed.set(true);
                Ok(Signalled::PassOn)
            }
        }
    }
}
