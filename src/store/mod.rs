//! The state directory: one directory per container, named by its id.
//!
//! `<root>/<id>/` is made by mkdir, which is the lock against a second create of the same id.
//! `state.json` in it is written once in one write, and changed by rename; its first line is [`State`], the
//! rest is the config as it was loaded. `start.fifo` is there from create to start.
//! `.images/` names what was made in images. Everything goes through descriptors, and no link is followed.

mod mark;
mod step;

pub(crate) use mark::Mark;
pub(crate) use step::{Found, Living, Member, Note};

use rt_spec::slurm::Step;
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

/// The status of a container (runtime.md "State"; `paused` is runc's addition).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Reserved; the environment is being made.
    Creating,
    /// The program waits for `start`.
    Created,
    /// The program runs.
    Running,
    /// Every process is stopped by `pause`.
    Paused,
    /// The first process has ended.
    Stopped,
}

impl Status {
    /// The word that `state` prints.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        }
    }
}

/// What is known of a container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
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

/// The directory of one container.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The container's id.
    pub id: String,
    dir: OwnedFd,
}

impl Store {
    /// Opens the store at `root`, or at the caller's default place. Makes nothing.
    pub(crate) fn open(root: Option<&Path>) -> Result<Self> {
        let candidates = match root {
            Some(root) => vec![root.to_owned()],
            None => default_roots().collect(),
        };
        for path in &candidates {
            if let Some(dir) = open_root(path, root.is_some())? {
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
            return Self::create_at(root, true).map_err(|e| context(e, root));
        }
        let mut first = None;
        for path in default_roots() {
            match Self::create_at(&path, false) {
                Ok(store) => return Ok(store),
                Err(e) => first = first.or(Some((e, path))),
            }
        }
        let first = first.map(|(e, path)| context(e, &path));
        Err(first.unwrap_or_else(|| err!("no place for the state directory")).hint("give one with --root"))
    }

    /// `named`: the caller has given the path, so it may lead through links.
    fn create_at(path: &Path, named: bool) -> Result<Self> {
        if let Some(dir) = open_root(path, named)? {
            return Ok(Store::at(path, Some(dir)));
        }
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Of a default place the parent is the system's.
        builder.recursive(named).create(path)?;
        match open_root(path, named)? {
            Some(dir) => Ok(Store::at(path, Some(dir))),
            None => bail!("not a directory of this user alone"),
        }
    }

    /// Reserves `id` for a new container. Of two callers one gets it.
    pub(crate) fn reserve(&self, id: &str) -> Result<Entry> {
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
        let entry = Entry { id: id.to_owned(), dir: open_dir(dir, id)? };
        // Held until this process and the init that it makes have ended or exec'd.
        fs::flock(&entry.dir, fs::FlockOperation::LockExclusive)?;
        Ok(entry)
    }

    /// The directory of an existing container.
    pub(crate) fn entry(&self, id: &str) -> Result<Entry> {
        check_id(id)?;
        let opened = match &self.dir {
            Some(dir) => open_dir(dir, id),
            None => Err(Errno::NOENT),
        };
        match opened {
            Ok(dir) => Ok(Entry { id: id.to_owned(), dir }),
            Err(Errno::NOENT) => Err(does_not_exist(id)),
            Err(e) => Err(e).context(|| format!("open {}", self.root.join(id).display())),
        }
    }

    /// What is known of container `id`. A dead one that ran in place is gone.
    pub(crate) fn load(&self, id: &str) -> Result<State> {
        let entry = self.entry(id)?;
        let state = entry.load()?;
        if state.in_place && !state.is_alive() {
            if state.shared {
                self.forget_dead_shared(id)?;
            } else {
                self.remove(&entry)?;
                self.forget_in_place(&state);
            }
            return Err(does_not_exist(id));
        }
        Ok(state)
    }

    /// The status of a container.
    pub(crate) fn status(&self, state: &State) -> Status {
        if state.pid == 0 {
            return Status::Creating;
        }
        if !state.is_alive() {
            return Status::Stopped;
        }
        if state.paused {
            return Status::Paused;
        }
        let waits =
            self.entry(&state.id).is_ok_and(|e| fs::statat(&e.dir, FIFO, AtFlags::SYMLINK_NOFOLLOW).is_ok());
        if waits { Status::Created } else { Status::Running }
    }

    /// Every container, ordered by id; what has no readable state is left out.
    pub(crate) fn list(&self) -> Result<Vec<State>> {
        let mut states = match self.access {
            Access::Look(owner) => self.look(owner),
            _ => {
                self.sweep(usize::MAX);
                self.clean_images()?;
                let ids = self.dir.as_ref().map_or(Ok(Vec::new()), names)?;
                ids.iter().filter_map(|id| self.load(id).ok()).collect()
            }
        };
        states.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(states)
    }

    /// What is known of somebody else's containers. Who they belong to is not the state's to say.
    fn look(&self, owner: u32) -> Vec<State> {
        // One user's directory that goes away hides nobody else's.
        let mut states = self.states().unwrap_or_default();
        states.retain(|state| !state.in_place || state.is_alive());
        states.iter_mut().for_each(|state| state.owner = owner);
        states
    }

    /// The containers of single tasks of the step whose shared container would be `container`.
    pub(crate) fn tasks_of(&self, container: &str) -> Result<Vec<String>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let number = |id: &str| Some(id.strip_prefix(container)?.strip_prefix('.')?.parse::<u32>().is_ok());
        Ok(names(dir)?.into_iter().filter(|id| number(id) == Some(true)).collect())
    }

    /// Removes a container's directory, and mount points made in images that no container uses any more.
    pub(crate) fn remove(&self, entry: &Entry) -> Result<()> {
        self.forget(entry)?;
        // After the entry: of several that end at once, the last one sees no other.
        self.clean_images()
    }

    /// Removes a container's directory alone.
    pub(crate) fn forget(&self, entry: &Entry) -> Result<()> {
        let dir = self.dir.as_ref().ok_or_else(|| does_not_exist(&entry.id))?;
        let context = || format!("remove the state of {}", entry.id);
        match self.try_remove(dir, entry, &[STATE]) {
            Err(Errno::NOTEMPTY) => {}
            result => return result.context(context),
        }
        let files = names_of_files(&entry.dir)?;
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.try_remove(dir, entry, &files).context(context)
    }

    fn try_remove(&self, dir: &OwnedFd, entry: &Entry, files: &[&str]) -> Result<(), Errno> {
        for file in files {
            match fs::unlinkat(&entry.dir, *file, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        match fs::unlinkat(dir, entry.id.as_str(), AtFlags::REMOVEDIR) {
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
        let uses = |s: &State| s.pid == 0 || ((made.bound || made.roots.contains(&s.rootfs)) && s.is_alive());
        Ok(self.states()?.iter().any(uses))
    }

    /// What is known of every container, in no order; nothing is removed.
    pub(crate) fn states(&self) -> Result<Vec<State>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        Ok(names(dir)?.into_iter().filter_map(|id| self.entry(&id).ok()?.load().ok()).collect())
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
    pub(crate) fn forget_in_place(&self, state: &State) {
        if state.shared {
            self.forget_shared(&state.id);
        } else if let (true, Some(dir)) = (state.in_place, &self.dir) {
            let _ = fs::unlinkat(dir, format!("{IN_PLACE}/{}", state.pid).as_str(), AtFlags::empty());
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
        let Ok(entry) = self.entry(id) else { return Ok(false) };
        match entry.load() {
            Ok(state) if state.shared => self.forget_dead_shared(id),
            Ok(state) if state.in_place && !state.is_alive() => {
                self.remove(&entry)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl Entry {
    /// Waits until nobody is making the container any more, ten seconds at most.
    pub(crate) fn wait_made(&self) -> Result<()> {
        for _ in 0..1000 {
            match fs::flock(&self.dir, fs::FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Ok(fs::flock(&self.dir, fs::FlockOperation::Unlock)?),
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
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Removes what is left of a container that was here before.
    fn clear(&self) -> Result<()> {
        for file in names_of_files(&self.dir)? {
            fs::unlinkat(&self.dir, file.as_str(), AtFlags::empty())
                .context(|| format!("replace the state of {}", self.id))?;
        }
        Ok(())
    }

    /// Writes the first state, with the config behind it. The directory must hold none yet.
    pub(crate) fn save_new(&self, state: &State, config: &[u8]) -> Result<()> {
        self.write(STATE, OFlags::EXCL, state, config)
    }

    /// Replaces the state and keeps the config.
    pub(crate) fn save(&self, state: &State) -> Result<()> {
        let config = self.config()?;
        let new = "state.json.new";
        self.write(new, OFlags::TRUNC, state, &config)?;
        fs::renameat(&self.dir, new, &self.dir, STATE).context(|| format!("replace the state of {}", self.id))
    }

    fn write(&self, name: &str, how: OFlags, state: &State, config: &[u8]) -> Result<()> {
        let context = || format!("write the state of {}", self.id);
        let mut text = serde_json::to_vec(state).map_err(|e| err!("{e}"))?;
        text.push(b'\n');
        text.extend_from_slice(config);
        if text.len() > MOST {
            return Err(err!("more than {MOST} bytes").context(context()));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | how;
        let file = fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR).context(context)?;
        fd::write_all(&file, &text).context(context)
    }

    fn read(&self) -> Result<Vec<u8>> {
        // Where somebody has put a fifo, reading it ends at once.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match fs::openat(&self.dir, STATE, flags, Mode::empty()) {
            Ok(file) => fd::read_regular(file, MOST)
                .ok_or_else(|| err!("the state of {} is no file of at most {MOST} bytes", self.id)),
            Err(Errno::NOENT) => Ok(Vec::new()),
            Err(e) => Err(e).context(|| format!("read the state of {}", self.id)),
        }
    }

    /// The state; pid 0 where there is none yet.
    pub(crate) fn load(&self) -> Result<State> {
        let mut state = self.load_first()?;
        if state.shared
            && !state.is_alive()
            && let Some(member) = self.living_members().first()
        {
            (state.pid, state.start_time) = (member.pid, member.start_time);
        }
        Ok(state)
    }

    /// The state as it was written.
    fn load_first(&self) -> Result<State> {
        let text = self.read()?;
        // Not written yet: the container is being created.
        if text.is_empty() {
            return Ok(State { id: self.id.clone(), ..State::default() });
        }
        let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
        let state: State = serde_json::from_slice(&text[..end])
            .map_err(|e| err!("the state of {} is damaged: {e}", self.id))?;
        Ok(State { id: self.id.clone(), ..state })
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
        fs::mknodat(&self.dir, FIFO, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .context(|| "make the start fifo")?;
        // Open for both, reading blocks until somebody has written.
        Ok(fs::openat(&self.dir, FIFO, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens the fifo to release init; `None` where init does not wait any more.
    pub(crate) fn open_fifo(&self) -> Result<Option<OwnedFd>> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(&self.dir, FIFO, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NXIO) => Ok(None),
            Err(e) => Err(e).context(|| "open the start fifo"),
        }
    }

    /// Removes the fifo: of two callers one succeeds.
    pub(crate) fn remove_fifo(&self) -> Result<(), Errno> {
        fs::unlinkat(&self.dir, FIFO, AtFlags::empty())
    }
}

impl State {
    /// A descriptor of the first process (pidfd_open(2)); `None` where that has ended.
    pub(crate) fn open_first(&self) -> Result<Option<OwnedFd>> {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return Ok(None) };
        let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL: no process has this number, only a thread or, before Linux 6.15, one that is just being reaped.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e).context(|| "open the container's first process"),
        };
        // Only now it is certain that the pid was not reused in between.
        Ok(self.is_alive().then_some(pidfd))
    }

    /// True while the first process lives; a zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.pid > 0 && fd::open_proc().is_ok_and(|proc| mark::lives_since(proc, self.pid, self.start_time))
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
fn open_root(path: &Path, required: bool) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory in /tmp could be somebody's link.
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
        let entry = store.reserve("a").unwrap();
        assert_eq!(store.reserve("a").unwrap_err().to_string(), "container with given ID already exists: a");
        assert_eq!(store.status(&entry.load().unwrap()), Status::Creating);
        store.remove(&entry).unwrap();
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
        let entry = store.reserve("c").unwrap();
        let state = State { id: "c".into(), pid: 1, ..State::default() };
        entry.save_new(&state, b"{\n \"x\": 1\n}").unwrap();
        assert_eq!(entry.config().unwrap(), b"{\n \"x\": 1\n}");
        entry.save(&State { paused: true, ..state }).unwrap();
        assert!(entry.load().unwrap().paused);
        assert_eq!(entry.config().unwrap(), b"{\n \"x\": 1\n}");
        std::fs::remove_dir_all(&store.root).unwrap();
    }

    #[test]
    fn dead_containers_in_place_are_forgotten() {
        let store = store("sweep");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let entry = store.reserve("e").unwrap();
        entry.save_new(&State { id: "e".into(), pid, in_place: true, ..State::default() }, b"{}").unwrap();
        store.note_in_place("e", pid).unwrap();
        child.wait().unwrap();
        assert!(store.list().unwrap().is_empty());
        assert!(!store.root.join(IN_PLACE).exists());
        assert!(!store.root.join("e").exists());
        std::fs::remove_dir_all(&store.root).unwrap();
    }
}
