//! The state directory: one directory per container, named by its id.
//!
//! `<root>/<id>/` is made by mkdir, which is the lock against a second create of the same id.
//! `state.json` in it is written once in one write, and changed by rename; its first line is [`Record`], the
//! rest is the config as it was loaded. `start.fifo` is there from create to start.
//! `.images/` names what was made in images. Everything goes through descriptors, and no link is followed.

mod process_identity;
mod step;

pub(crate) use process_identity::ProcessIdentity;
pub(crate) use step::{JoinTarget, LivingMember, Lock, Member, Role};

use rt_spec::slurm::Step;
use rt_spec::state::{State, Status};
use rt_spec::{Config, Spec};
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::MountNamespaceId;
use rt_sys::rootfs::{self, DirLock, MadeList};
use rt_sys::{bail, err, fd, process, signal};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const STATE: &str = "state.json";
const FIFO: &str = "start.fifo";
/// How long a state may be: its reader may act for somebody else.
const MOST: usize = 16 << 20;
/// Holds a link per container that runs in place, named by its pid and pointing to its id.
const IN_PLACE: &str = ".in-place";

/// Where sites let Slurm keep state (integration/slurm): a directory per user.
const JOBS: &str = "/run/rt-slurm";

/// A group that has nothing: the kernel's for ids that it cannot show (/proc/sys/kernel/overflowgid).
const NO_GROUP: u32 = 65534;

/// What is recorded of a container: the first line of its state.json.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The container's id.
    pub id: String,
    /// The first process, in the runtime's pid namespace; 0 until there is one.
    pub pid: i32,
    /// The first process's start time in clock ticks since boot (proc_pid_stat(5) field 22), so that a
    /// reused pid is never signalled.
    pub start_time: u64,
    /// The bundle directory, absolute.
    pub bundle: PathBuf,
    /// The root file system, absolute.
    pub rootfs: PathBuf,
    /// When the container was created (RFC 3339, UTC).
    pub created: String,
    /// The uid that created the container.
    pub owner: u32,
    /// The config's annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Set by pause, cleared by resume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// True where the runtime's process became the container's: nobody is there to remove the state, so
    /// a dead one counts as gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// The container has a pid namespace of its own: its processes are those in it.
    #[serde(default)]
    pub own_pid_namespace: bool,
    /// The container has a mount namespace of its own, by which its processes are found otherwise.
    #[serde(default)]
    pub mount_ns: Option<MountNamespaceId>,
    /// The step of a Slurm job that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The tasks of the step share it: `pid` is the first of them, and when loaded one that lives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// The state directory of one user.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    /// `None` where there is no directory yet, hence no container.
    dir: Option<OwnedFd>,
    access: Access,
}

/// With whose rights a store is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// It is the caller's.
    Own,
    /// This process was root before it became the store's owner.
    AsOwner,
    /// It is this uid's, and root looks into it. Nothing is changed.
    Look(u32),
}

/// Who has chosen the path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// The caller, by `--root`: the path may lead through links, and an unusable one is an error.
    ByCaller,
    /// This module ([`default_roots`]): an unusable path is passed over.
    ByDefault,
}

/// The directory of one container, open.
#[derive(Debug)]
pub(crate) struct ContainerDir {
    /// The container's id.
    pub id: String,
    fd: OwnedFd,
}

impl Store {
    /// Opens the store at `root`, or at the caller's default place. Makes nothing.
    pub(crate) fn open(root: Option<&Path>) -> Result<Self> {
        let (candidates, chosen) = match root {
            Some(root) => (vec![root.to_owned()], Chosen::ByCaller),
            None => (default_roots().collect(), Chosen::ByDefault),
        };
        for path in &candidates {
            if let Some(dir) = open_root(path, chosen)? {
                return Ok(Store::at(path, Some(dir)));
            }
        }
        Ok(Store::at(candidates.first().map(PathBuf::as_path).unwrap_or(Path::new("")), None))
    }

    fn at(root: &Path, dir: Option<OwnedFd>) -> Self {
        Store { root: root.to_owned(), dir, access: Access::Own }
    }

    /// The caller's stores below the directory that sites give to Slurm, for root everybody's to look at: oci.conf
    /// names them by user, and only the kernel is asked who the caller is.
    pub(crate) fn of_jobs() -> Vec<Self> {
        let me = rustix::process::geteuid();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(jobs) = fs::open(JOBS, flags, Mode::empty()) else { return Vec::new() };
        let mut names = list_names(&jobs, FileType::Directory).unwrap_or_default();
        names.sort();
        let open = |name: String| {
            let path = Path::new(JOBS).join(&name);
            let dir = open_dir(&jobs, &name).ok()?;
            let owner = fs::fstat(&dir).ok()?.st_uid;
            match owner == me.as_raw() {
                true => Self::open(Some(&path)).ok(),
                false => {
                    me.is_root().then(|| Store { access: Access::Look(owner), ..Self::at(&path, Some(dir)) })
                }
            }
        };
        names.into_iter().filter_map(open).collect()
    }

    /// Opens the store at `root` as its owner, who this process becomes where it is root: nothing in a user's
    /// directory is trusted with root's privileges. What is no directory holds no container.
    pub(crate) fn open_as_owner(root: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Self::open(Some(root));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let owner = match fs::open(root, flags, Mode::empty()) {
            Ok(dir) => fs::fstat(&dir)?.st_uid,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Store::at(root, None)),
            Err(e) => return Err(e).context(|| format!("open the state directory {}", root.display())),
        };
        if owner == 0 {
            return Self::open(Some(root));
        }
        // Not of the directory's group, which may be that of its parent (inode(7), set-group-ID).
        process::become_user(owner, NO_GROUP)?;
        Ok(Store { access: Access::AsOwner, ..Self::open(Some(root))? })
    }

    /// True where this process was root before it became the store's owner. It is in nobody's job then, and has the
    /// environment, the priority and the cgroup of a service of root's: it must not run the owner's programs.
    pub(crate) fn was_root(&self) -> bool {
        self.access == Access::AsOwner
    }

    /// The same store, for more than to look: root becomes its owner.
    pub(crate) fn for_use(self) -> Result<Self> {
        match self.access {
            Access::Look(_) => Self::open_as_owner(&self.root),
            _ => Ok(self),
        }
    }

    /// Opens the store, and makes its directory where it is missing.
    pub(crate) fn create(root: Option<&Path>) -> Result<Self> {
        let context =
            |e: Error, path: &Path| e.context(format!("make the state directory {}", path.display()));
        if let Some(root) = root {
            return Self::create_at(root, Chosen::ByCaller).map_err(|e| context(e, root));
        }
        let mut first = None;
        for path in default_roots() {
            match Self::create_at(&path, Chosen::ByDefault) {
                Ok(store) => return Ok(store),
                Err(e) => first = first.or(Some((e, path))),
            }
        }
        let first = first.map(|(e, path)| context(e, &path));
        Err(first.unwrap_or_else(|| err!("no place for the state directory")).hint("give one with --root"))
    }

    fn create_at(path: &Path, chosen: Chosen) -> Result<Self> {
        if let Some(dir) = open_root(path, chosen)? {
            return Ok(Store::at(path, Some(dir)));
        }
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Of a default place the parent is the system's.
        builder.recursive(chosen == Chosen::ByCaller).create(path)?;
        match open_root(path, chosen)? {
            Some(dir) => Ok(Store::at(path, Some(dir))),
            None => bail!("not a directory of this user alone"),
        }
    }

    /// Reserves `id` for a new container. Of two callers one gets it.
    pub(crate) fn reserve(&self, id: &str) -> Result<ContainerDir> {
        check_id(id)?;
        let dir = self.dir.as_ref().ok_or_else(|| err!("the state directory is missing"))?;
        match fs::mkdirat(dir, id, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) if self.forget_dead_in_place(id)? => {
                fs::mkdirat(dir, id, Mode::RWXU).context(|| format!("reserve {id}"))?;
            }
            Err(Errno::EXIST) => bail!("container with given ID already exists: {id}"),
            Err(e) => return Err(e).context(|| format!("make {}", self.root.join(id).display())),
        }
        let reserved = ContainerDir { id: id.to_owned(), fd: open_dir(dir, id)? };
        // Held until this process and the init that it makes have ended or exec'd.
        fs::flock(&reserved.fd, fs::FlockOperation::LockExclusive)?;
        Ok(reserved)
    }

    /// The directory of an existing container.
    pub(crate) fn container(&self, id: &str) -> Result<ContainerDir> {
        check_id(id)?;
        let opened = match &self.dir {
            Some(dir) => open_dir(dir, id),
            None => Err(Errno::NOENT),
        };
        match opened {
            Ok(fd) => Ok(ContainerDir { id: id.to_owned(), fd }),
            Err(Errno::NOENT) => Err(does_not_exist(id)),
            Err(e) => Err(e).context(|| format!("open {}", self.root.join(id).display())),
        }
    }

    /// The record of container `id`. A dead one that ran in place is gone.
    pub(crate) fn load(&self, id: &str) -> Result<Record> {
        let dir = self.container(id)?;
        let record = dir.load()?;
        if record.in_place && !record.is_alive() {
            if record.shared {
                self.forget_dead_shared(id)?;
            } else {
                self.remove(&dir)?;
                self.forget_in_place(&record);
            }
            return Err(does_not_exist(id));
        }
        Ok(record)
    }

    /// The status of a container.
    pub(crate) fn status(&self, record: &Record) -> Status {
        if record.pid == 0 {
            return Status::Creating;
        }
        if !record.is_alive() {
            return Status::Stopped;
        }
        if record.paused {
            return Status::Paused;
        }
        let waits = self
            .container(&record.id)
            .is_ok_and(|dir| fs::statat(&dir.fd, FIFO, AtFlags::SYMLINK_NOFOLLOW).is_ok());
        if waits { Status::Created } else { Status::Running }
    }

    /// The records of all containers, ordered by id; a container without a readable one is left out.
    pub(crate) fn list(&self) -> Result<Vec<Record>> {
        let mut records = match self.access {
            Access::Look(owner) => self.look(owner),
            _ => {
                self.sweep(usize::MAX);
                self.clean_images()?;
                let ids = self.dir.as_ref().map_or(Ok(Vec::new()), names)?;
                ids.iter().filter_map(|id| self.load(id).ok()).collect()
            }
        };
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(records)
    }

    /// The records of another user's containers. That user has written them: whose containers they are is told by the
    /// directory, not by the records.
    fn look(&self, owner: u32) -> Vec<Record> {
        // One user's directory that goes away hides nobody else's.
        let mut records = self.records().unwrap_or_default();
        records.retain(|record| !record.in_place || record.is_alive());
        records.iter_mut().for_each(|record| record.owner = owner);
        records
    }

    /// The containers of single tasks of the step whose shared container would be `container`.
    pub(crate) fn tasks_of(&self, container: &str) -> Result<Vec<String>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let number = |id: &str| Some(id.strip_prefix(container)?.strip_prefix('.')?.parse::<u32>().is_ok());
        Ok(names(dir)?.into_iter().filter(|id| number(id) == Some(true)).collect())
    }

    /// Removes a container's directory, and mount points made in images that no container uses any more.
    pub(crate) fn remove(&self, container: &ContainerDir) -> Result<()> {
        self.forget(container)?;
        // After the directory: of several containers that end at once, the last one sees no other.
        self.clean_images()
    }

    /// Removes a container's directory alone.
    pub(crate) fn forget(&self, container: &ContainerDir) -> Result<()> {
        let dir = self.dir.as_ref().ok_or_else(|| does_not_exist(&container.id))?;
        let context = || format!("remove the state of {}", container.id);
        match self.try_remove(dir, container, &[STATE]) {
            Err(Errno::NOTEMPTY) => {}
            result => return result.context(context),
        }
        let files = names_of_files(&container.fd)?;
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.try_remove(dir, container, &files).context(context)
    }

    fn try_remove(&self, dir: &OwnedFd, container: &ContainerDir, files: &[&str]) -> Result<(), Errno> {
        for file in files {
            match fs::unlinkat(&container.fd, *file, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        match fs::unlinkat(dir, container.id.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Removes the mount points that were made in images, and in what is bound, which no container uses any more.
    fn clean_images(&self) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let Ok(lists) = open_dir(dir, rootfs::IMAGES) else { return Ok(()) };
        for name in list_names(&lists, FileType::RegularFile)? {
            let Ok(created) = fd::read_at(&lists, name.as_str()) else { continue };
            // Whoever sets a container up there holds it, and may add to the list: it is held until that is gone.
            let held = MadeList::parse(&created).lock_dir(&name);
            match &held {
                DirLock::Locked(root) => {
                    let Ok(created) = fd::read_at(&lists, name.as_str()) else { continue };
                    let made = MadeList::parse(&created);
                    if self.uses(&made)? {
                        continue;
                    }
                    made.remove_from(root);
                }
                DirLock::Busy => continue,
                DirLock::Gone => {}
            }
            let _ = fs::unlinkat(&lists, name.as_str(), AtFlags::empty());
        }
        // Who needs it next makes it anew.
        let _ = fs::unlinkat(dir, rootfs::IMAGES, AtFlags::REMOVEDIR);
        Ok(())
    }

    /// True where a container lives on what the list is about, or is being made, perhaps on it.
    fn uses(&self, made: &MadeList) -> Result<bool> {
        let uses =
            |s: &Record| s.pid == 0 || ((made.bound || made.roots.contains(&s.rootfs)) && s.is_alive());
        Ok(self.records()?.iter().any(uses))
    }

    /// The records of all containers, in no order; nothing is removed.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        Ok(names(dir)?.into_iter().filter_map(|id| self.container(&id).ok()?.load().ok()).collect())
    }

    /// Notes that container `id` runs in place, as this process.
    pub(crate) fn note_in_place(&self, id: &str, pid: i32) -> Result<()> {
        let dir = self.dir.as_ref().ok_or_else(|| does_not_exist(id))?;
        let name = format!("{IN_PLACE}/{pid}");
        for _ in 0..2 {
            match fs::symlinkat(id, dir, name.as_str()) {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) => match fs::mkdirat(dir, IN_PLACE, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                },
                // An old process had this pid.
                Err(Errno::EXIST) => self.forget_link(dir, &pid.to_string()),
                Err(e) => return Err(e.into()),
            }
        }
        fs::symlinkat(id, dir, name.as_str()).context(|| "note the container")
    }

    /// Forgets containers that ran in place and are dead, at most `most` of them.
    pub(crate) fn sweep(&self, most: usize) {
        let Some(dir) = &self.dir else { return };
        let Ok(index) = open_dir(dir, IN_PLACE) else { return };
        let Ok(pids) = list_names(&index, FileType::Symlink) else { return };
        let dead = |name: &String| match name.parse() {
            Ok(pid) => signal::send(pid, 0).is_err_and(|e| e.is(libc::ESRCH)),
            // Of a shared container any member may live.
            Err(_) => self.forget_dead_shared(name).unwrap_or(false),
        };
        let mut left = pids.len();
        for pid in pids.iter().filter(|pid| dead(pid)).take(most) {
            self.forget_link(dir, pid);
            left -= 1;
        }
        if left == 0 {
            // Who needs it next makes it anew.
            let _ = fs::unlinkat(dir, IN_PLACE, AtFlags::REMOVEDIR);
        }
    }

    /// Removes the note that the container ran in place.
    pub(crate) fn forget_in_place(&self, record: &Record) {
        if record.shared {
            self.forget_shared(&record.id);
        } else if let (true, Some(dir)) = (record.in_place, &self.dir) {
            let _ = fs::unlinkat(dir, format!("{IN_PLACE}/{}", record.pid).as_str(), AtFlags::empty());
        }
    }

    fn forget_link(&self, dir: &OwnedFd, pid: &str) {
        let name = format!("{IN_PLACE}/{pid}");
        if let Ok(id) = fs::readlinkat(dir, name.as_str(), Vec::new())
            && let Ok(id) = id.to_str()
        {
            let _ = self.forget_dead_in_place(id);
        }
        let _ = fs::unlinkat(dir, name.as_str(), AtFlags::empty());
    }

    /// True where `id` was a dead container that had run in place; its state is gone then.
    fn forget_dead_in_place(&self, id: &str) -> Result<bool> {
        let Ok(dir) = self.container(id) else { return Ok(false) };
        match dir.load() {
            Ok(record) if record.shared => self.forget_dead_shared(id),
            Ok(record) if record.in_place && !record.is_alive() => {
                self.remove(&dir)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl ContainerDir {
    /// Waits until nobody is making the container any more, ten seconds at most.
    pub(crate) fn wait_until_made(&self) -> Result<()> {
        for _ in 0..1000 {
            match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Ok(fs::flock(&self.fd, fs::FlockOperation::Unlock)?),
                Err(Errno::WOULDBLOCK) => {
                    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                    let _ = rustix::thread::nanosleep(&pause);
                }
                Err(e) => return Err(e.into()),
            }
        }
        bail!("container {} is being created", self.id)
    }

    /// The directory, for what else is kept there.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Removes what is left of a container that was here before.
    fn clear(&self) -> Result<()> {
        for file in names_of_files(&self.fd)? {
            fs::unlinkat(&self.fd, file.as_str(), AtFlags::empty())
                .context(|| format!("replace the state of {}", self.id))?;
        }
        Ok(())
    }

    /// Writes the first record, with the config behind it. The directory must hold none yet.
    pub(crate) fn save_new(&self, record: &Record, config: &[u8]) -> Result<()> {
        self.write(STATE, OFlags::EXCL, record, config)
    }

    /// Replaces the record and keeps the config.
    pub(crate) fn save(&self, record: &Record) -> Result<()> {
        let config = self.config()?;
        let new = "state.json.new";
        self.write(new, OFlags::TRUNC, record, &config)?;
        fs::renameat(&self.fd, new, &self.fd, STATE).context(|| format!("replace the state of {}", self.id))
    }

    fn write(&self, name: &str, how: OFlags, record: &Record, config: &[u8]) -> Result<()> {
        let context = || format!("write the state of {}", self.id);
        let mut text = serde_json::to_vec(record).map_err(|e| err!("{e}"))?;
        text.push(b'\n');
        text.extend_from_slice(config);
        if text.len() > MOST {
            return Err(err!("more than {MOST} bytes").context(context()));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | how;
        let file = fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR).context(context)?;
        fd::write_all(&file, &text).context(context)
    }

    fn read(&self) -> Result<Vec<u8>> {
        // Where somebody has put a fifo, reading it ends at once.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match fs::openat(&self.fd, STATE, flags, Mode::empty()) {
            Ok(file) => fd::read_regular(file, MOST)
                .ok_or_else(|| err!("the state of {} is no file of at most {MOST} bytes", self.id)),
            Err(Errno::NOENT) => Ok(Vec::new()),
            Err(e) => Err(e).context(|| format!("read the state of {}", self.id)),
        }
    }

    /// The record; its pid is 0 where none was written yet. Of a shared container whose first process has ended, a
    /// member that lives stands in the place of that process.
    pub(crate) fn load(&self) -> Result<Record> {
        let mut record = self.read_record()?;
        if record.shared
            && !record.is_alive()
            && let Some(member) = self.living_members().first()
        {
            (record.pid, record.start_time) = (member.pid, member.start_time);
        }
        Ok(record)
    }

    /// The record as it was written.
    fn read_record(&self) -> Result<Record> {
        let text = self.read()?;
        // Not written yet: the container is being created.
        if text.is_empty() {
            return Ok(Record { id: self.id.clone(), ..Record::default() });
        }
        let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
        let record: Record = serde_json::from_slice(&text[..end])
            .map_err(|e| err!("the state of {} is damaged: {e}", self.id))?;
        Ok(Record { id: self.id.clone(), ..record })
    }

    /// The config as it was loaded.
    pub(crate) fn config(&self) -> Result<Vec<u8>> {
        let text = self.read()?;
        match text.iter().position(|&b| b == b'\n') {
            Some(end) => Ok(text[end + 1..].to_vec()),
            None => Err(does_not_exist(&self.id)),
        }
    }

    /// The config, parsed.
    pub(crate) fn spec(&self) -> Result<Spec> {
        Ok(*Config::parse(self.config()?)?.spec)
    }

    /// Makes the fifo that the container's init waits on, and opens it for init.
    pub(crate) fn make_fifo(&self) -> Result<OwnedFd> {
        fs::mknodat(&self.fd, FIFO, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .context(|| "make the start fifo")?;
        // Open for both, reading blocks until somebody has written.
        Ok(fs::openat(&self.fd, FIFO, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens the fifo to release init; `None` where init does not wait any more.
    pub(crate) fn open_fifo(&self) -> Result<Option<OwnedFd>> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(&self.fd, FIFO, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NXIO) => Ok(None),
            Err(e) => Err(e).context(|| "open the start fifo"),
        }
    }

    /// Removes the fifo: of two callers one succeeds.
    pub(crate) fn remove_fifo(&self) -> Result<(), Errno> {
        fs::unlinkat(&self.fd, FIFO, AtFlags::empty())
    }
}

impl Record {
    /// The state of the container as the specification shapes it, where `status` is its status. What only `state` and
    /// `list` print is not in it.
    pub(crate) fn oci_state(&self, status: Status) -> State {
        State {
            oci_version: rt_spec::OCI_VERSION.to_owned(),
            id: self.id.clone(),
            pid: if status == Status::Stopped { 0 } else { self.pid },
            status: status.as_str().to_owned(),
            bundle: self.bundle.clone(),
            annotations: Some(self.annotations.clone()),
            ..State::default()
        }
    }

    /// A descriptor of the first process (pidfd_open(2)); `None` where that has ended.
    pub(crate) fn open_first_process(&self) -> Result<Option<OwnedFd>> {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return Ok(None) };
        let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL: no process has this number, only a thread or, before Linux 6.15, one that is just being reaped.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e).context(|| "open the container's first process"),
        };
        // The pidfd is opened first and the identity looked at after that: the pid was not reused in between.
        Ok(self.is_alive().then_some(pidfd))
    }

    /// True while the first process lives; a zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.pid > 0
            && fd::open_proc()
                .is_ok_and(|proc| process_identity::lives_since(proc, self.pid, self.start_time))
    }
}

/// Checks that `id` is a plain name, as runc does.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    if id.is_empty()
        || id.len() > 255
        || id == "."
        || id == ".."
        || id == IN_PLACE
        || id == rootfs::IMAGES
        || !id.chars().all(good)
    {
        return Err(err!("invalid container ID: {id:?}").hint("letters, digits, '_', '+', '-' and '.'"));
    }
    Ok(())
}

fn does_not_exist(id: &str) -> Error {
    err!("container does not exist: {id}")
}

/// Where state may live, best first. A tmpfs is wanted: state means nothing after a reboot.
fn default_roots() -> impl Iterator<Item = PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let system = (uid == 0 && is_real_root()).then(|| PathBuf::from("/run/rt"));
    let users: &[(&str, &str)] = match system {
        Some(_) => &[],
        None => &[("/run/user/", "/rt"), ("/dev/shm/rt-", ""), ("/tmp/rt-", "")],
    };
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir =
        runtime_dir.filter(|dir| !users.is_empty() && dir.is_absolute()).map(|dir| dir.join("rt"));
    let users = users.iter().map(move |(before, after)| PathBuf::from(format!("{before}{uid}{after}")));
    system.into_iter().chain(runtime_dir).chain(users)
}

fn is_real_root() -> bool {
    rt_sys::ns::own_maps().is_ok_and(|maps| rt_sys::ns::is_initial(&maps))
}

/// Opens a store's directory after checking that nobody else can have put something into it. `None` where it
/// does not exist, or is not usable and was not asked for by name.
fn open_root(path: &Path, chosen: Chosen) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory in /tmp could be somebody's link.
    let required = chosen == Chosen::ByCaller;
    let flags = if required { flags } else { flags | OFlags::NOFOLLOW };
    let dir = match fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(_) if !required => return Ok(None),
        Err(e) => return Err(e).context(|| format!("open the state directory {}", path.display())),
    };
    let stat = fs::fstat(&dir)?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me || stat.st_mode & 0o022 != 0 {
        if !required {
            return Ok(None);
        }
        bail!(
            "the state directory {} must belong to uid {me} and be writable by nobody else",
            path.display()
        );
    }
    Ok(Some(dir))
}

fn open_dir(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

fn names(dir: &OwnedFd) -> Result<Vec<String>> {
    let mut names = list_names(dir, FileType::Directory)?;
    names.retain(|name| check_id(name).is_ok());
    Ok(names)
}

fn names_of_files(dir: &OwnedFd) -> Result<Vec<String>> {
    let mut names = list_names(dir, FileType::RegularFile)?;
    names.extend(list_names(dir, FileType::Fifo)?);
    names.extend(list_names(dir, FileType::Symlink)?);
    Ok(names)
}

fn list_names(dir: &OwnedFd, kind: FileType) -> Result<Vec<String>> {
    let readable = fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in fs::Dir::new(readable)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if entry.file_type() == kind
            && let Some(name) = name.to_str()
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str) -> Store {
        let root = std::env::temp_dir().join(format!("rt-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        Store::create(Some(&root)).unwrap()
    }

    #[test]
    fn one_of_two_gets_an_id() {
        let store = store("reserve");
        let dir = store.reserve("a").unwrap();
        assert_eq!(store.reserve("a").unwrap_err().to_string(), "container with given ID already exists: a");
        assert_eq!(store.status(&dir.load().unwrap()), Status::Creating);
        store.remove(&dir).unwrap();
        assert_eq!(store.load("a").unwrap_err().to_string(), "container does not exist: a");
        std::fs::remove_dir_all(&store.root).unwrap();
    }

    #[test]
    fn ids_are_plain_names() {
        for id in ["", ".", "..", "a/b", "/a", "a b", "ä", ".in-place", &"x".repeat(256)] {
            assert!(check_id(id).is_err(), "{id:?}");
        }
        for id in ["a", "A-b_c.d+1", "...", "12"] {
            assert!(check_id(id).is_ok(), "{id:?}");
        }
    }

    #[test]
    fn the_config_comes_back_as_it_was() {
        let store = store("config");
        let dir = store.reserve("c").unwrap();
        let record = Record { id: "c".into(), pid: 1, ..Record::default() };
        dir.save_new(&record, b"{\n \"x\": 1\n}").unwrap();
        assert_eq!(dir.config().unwrap(), b"{\n \"x\": 1\n}");
        dir.save(&Record { paused: true, ..record }).unwrap();
        assert!(dir.load().unwrap().paused);
        assert_eq!(dir.config().unwrap(), b"{\n \"x\": 1\n}");
        std::fs::remove_dir_all(&store.root).unwrap();
    }

    #[test]
    fn dead_containers_in_place_are_forgotten() {
        let store = store("sweep");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let dir = store.reserve("e").unwrap();
        dir.save_new(&Record { id: "e".into(), pid, in_place: true, ..Record::default() }, b"{}").unwrap();
        store.note_in_place("e", pid).unwrap();
        child.wait().unwrap();
        assert!(store.list().unwrap().is_empty());
        assert!(!store.root.join(IN_PLACE).exists());
        assert!(!store.root.join("e").exists());
        std::fs::remove_dir_all(&store.root).unwrap();
    }
}
