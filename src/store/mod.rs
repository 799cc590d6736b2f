//! The state directory: one directory per container, named by its id.
//!
//! `<root>/<id>/` is made by mkdir, which is the lock against a second create of the same id.
//! `state.json` in it is written once in one write, and changed by rename; its first line is [`Record`], the
//! rest is the config as it was loaded. `start.fifo` is there from create to start.
//! `.images/` names what was made in images, and images that are files are mounted on `.mounted`. Everything goes through descriptors, and no link is followed.

mod container_dir;
mod persistent;
mod place;
mod process_identity;
mod record;
mod scratch;
mod site;
mod step;

pub(crate) use container_dir::ContainerDir;
pub(crate) use persistent::{
    PersistentContainer, Unsaved, file_note, layer_directory, layers_note, open_layer, remove_layer,
    takes_layers,
};
pub(crate) use process_identity::{ProcessIdentity, open_pidfd};
pub(crate) use record::{Confinement, Record};
pub(crate) use scratch::Scratch;
pub(crate) use site::make_for_job;
pub(crate) use step::{JoinTarget, LivingMember, Lock, Member, Role};

use container_dir::{FIFO, STATE};
pub(crate) use place::default_places;
use place::{Chosen, could_be_made, default_roots, is_closed, is_fit, is_no_store, open_root};
use rt_spec::state::Status;
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::Owned;
use rt_sys::rootfs::{self, DirLock, MadeList};
use rt_sys::{bail, err, fd, look, process, signal};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Holds a link per container that runs in place, named by its pid and pointing to its id.
const IN_PLACE: &str = ".in-place";

/// A directory to mount images on.
const MOUNTED: &str = ".mounted";

/// The directory for images of programs that are cloned.
const CLONES: &str = ".clones";

/// Where sites let Slurm keep state (integration/slurm): a directory per user.
const JOBS: &str = "/run/rt-slurm";

/// A group without rights to anything: the one that the kernel shows for ids that it cannot map
/// (/proc/sys/kernel/overflowgid).
const NO_GROUP: u32 = 65534;

/// How what is in a store is opened: through no link, and not into what somebody has mounted there. A FUSE server of a user's
/// may never answer, and root looks into every user's store.
const OF_ONE_FILE_SYSTEM: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

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
    /// The store is the caller's.
    Own,
    /// The store is this uid's, and root looks into it. Nothing is changed.
    Look(u32),
}

impl Store {
    /// Opens the store at `root`, or at the caller's default place. Makes nothing.
    pub(crate) fn open(root: Option<&Path>) -> Result<Self> {
        let (candidates, chosen) = match root {
            Some(root) => (vec![root.to_owned()], Chosen::ByCaller),
            None => (default_roots()?.collect(), Chosen::ByDefault),
        };
        for path in &candidates {
            if let Some(dir) = open_root(path, chosen)? {
                return Ok(Store::at(path, Some(dir)));
            }
            if chosen == Chosen::ByDefault && could_be_made(path)? {
                return Ok(Store::at(path, None));
            }
        }
        Ok(Store::at(candidates.first().map(PathBuf::as_path).unwrap_or(Path::new("")), None))
    }

    fn at(root: &Path, dir: Option<OwnedFd>) -> Self {
        Store { root: root.to_owned(), dir, access: Access::Own }
    }

    /// The caller's stores in the directory that sites give to Slurm. Root gets those of all users, to look at. oci.conf
    /// names each by its user. Whose it is, is told by the owner of the directory.
    ///
    /// # Errors
    /// The kernel does not say which there are.
    pub(crate) fn of_jobs() -> Result<Vec<Self>> {
        let me = rustix::process::geteuid();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let jobs = match fs::open(JOBS, flags, Mode::empty()) {
            // EACCES: a site lets nobody list it, and a user's own is found by name.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(Vec::new()),
            jobs => jobs.context(|| format!("open {JOBS}"))?,
        };
        let mut names = list_names(&jobs, FileType::Directory)?;
        // Directories that the prolog keeps for itself begin with a dot.
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        let mut stores = Vec::new();
        for name in names {
            let path = Path::new(JOBS).join(&name);
            let dir = match open_dir(&jobs, &name) {
                Err(e) if is_no_store(e) => continue,
                dir => dir.context(|| format!("open {}", path.display()))?,
            };
            let owner = fd::stat(&dir)?.st_uid;
            if owner != me.as_raw() {
                let look = || Store { access: Access::Look(owner), ..Self::at(&path, Some(dir)) };
                stores.extend(me.is_root().then(look));
                continue;
            }
            match Self::open(Some(&path)) {
                // Others can have written in it.
                Err(e) if e.errno().is_none() => {}
                store => stores.push(store?),
            }
        }
        Ok(stores)
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Opens the store of the caller's jobs, and makes it where it is missing: in the directory that sites give to Slurm if
    /// that is there, named as oci.conf names it, or else at the default place. `user` is the caller's name.
    pub(crate) fn create_for_job(user: Option<&str>) -> Result<Self> {
        if let Some(path) = place_of_user(user)? {
            match Self::create_at(&path, Chosen::ByDefault) {
                // The directory is not the user's to make, or somebody else's.
                Err(e)
                    if e.errno().is_none()
                        || [libc::EACCES, libc::EPERM, libc::EROFS].iter().any(|errno| e.is(*errno)) => {}
                store => return store.context(|| format!("make the state directory {}", path.display())),
            }
        }
        if let Some(store) = Self::of_jobs()?.into_iter().find(Store::is_own) {
            return Ok(store);
        }
        Self::create(None)
    }

    /// Opens the one store that [`Store::create_for_job`] takes, and makes nothing. No other one is looked at: whoever could
    /// write there would say what is a container of the job.
    pub(crate) fn open_for_job(user: Option<&str>) -> Result<Self> {
        if let Some(path) = place_of_user(user)? {
            match open_where_it_lies(&path) {
                Ok(dir) if is_fit(&dir, &Owned::as_told(&dir)?)? => {
                    return Ok(Store::at(&path, Some(dir)));
                }
                Err(Errno::NOENT) if could_be_made(&path)? => return Ok(Store::at(&path, None)),
                // Somebody else's, or a mount, whose server this process must not wait for.
                Ok(_) => {}
                Err(e) if is_no_store(e) => {}
                Err(e) => return Err(e).context(|| format!("open {}", path.display())),
            }
        }
        match Self::of_jobs()?.into_iter().find(|store| store.access == Access::Own) {
            Some(store) => Ok(store),
            None => Self::open(None),
        }
    }

    /// Opens the store at `root` as its owner. Where this process is root it becomes the owner, because nothing in a
    /// user's directory is to be read or signalled with root's privileges. A path that is no directory has no container.
    pub(crate) fn open_as_owner(root: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Self::open(Some(root));
        }
        let owner = match open_where_it_lies(root) {
            Ok(dir) => fs::fstat(&dir).context(|| format!("stat {}", root.display()))?.st_uid,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Store::at(root, None)),
            Err(e) => return Err(e).context(|| format!("open the state directory {}", root.display())),
        };
        if owner == 0 {
            return Self::open(Some(root));
        }
        // The group of the directory is not the user's where the parent has the set-group-ID bit (inode(7)).
        become_owner(owner)?;
        Self::open(Some(root))
    }

    /// True where it is the caller's, and not one that root only looks into.
    pub(crate) fn is_own(&self) -> bool {
        self.access == Access::Own
    }

    /// This store, to be changed: where root only looks into it, this process becomes its owner.
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
        for path in default_roots()? {
            match Self::create_at(&path, Chosen::ByDefault) {
                Ok(store) => return Ok(store),
                // The directory is the place of all later calls, which look no further.
                Err(e) if !is_passed_over(&e) => return Err(context(e, &path)),
                // That a place cannot be is less of a reason than that somebody else has taken one.
                Err(e) => {
                    let is_missing = |error: &Error| error.is(libc::ENOENT);
                    if first.as_ref().is_none_or(|(earlier, _)| is_missing(earlier) && !is_missing(&e)) {
                        first = Some((e, path));
                    }
                }
            }
        }
        let first = first.map(|(e, path)| context(e, &path));
        let first = first.unwrap_or_else(|| err!("no place for the state directory"));
        Err(first.hint("XDG_RUNTIME_DIR or --root names another place"))
    }

    fn create_at(path: &Path, chosen: Chosen) -> Result<Self> {
        if let Some(dir) = open_root(path, chosen)? {
            return Ok(Store::at(path, Some(dir)));
        }
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // The parent of a default place belongs to the system and is not made here.
        match builder.recursive(chosen == Chosen::ByCaller).create(path) {
            // By another call of this user's, which has begun at the same time, or by somebody else.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && chosen == Chosen::ByDefault => {}
            made => made?,
        }
        match open_root(path, chosen)? {
            Some(dir) => Ok(Store::at(path, Some(dir))),
            None if chosen == Chosen::ByDefault => bail!("somebody else has taken that name"),
            None => bail!("not a directory of this user alone"),
        }
    }

    /// A directory on which images that are files are mounted, in the mount namespace of those who need them. On the host
    /// it is empty.
    pub(crate) fn mounted_images(&self) -> Result<PathBuf> {
        let dir = self.dir.as_ref().ok_or_else(|| err!("the state directory is missing"))?;
        let path = rt_sys::fd::absolute(&self.root)?.join(MOUNTED);
        match fs::mkdirat(dir, MOUNTED, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(path),
            Err(e) => Err(e).context(|| format!("make {}", path.display())),
        }
    }

    /// True for a path below that directory, which other processes do not see.
    pub(crate) fn is_in_mounted(&self, path: &Path) -> Result<bool> {
        Ok(path.starts_with(rt_sys::fd::absolute(&self.root)?.join(MOUNTED)))
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
            Err(Errno::EXIST) => return Err(already_exists(id)),
            Err(e) => return Err(e).context(|| format!("make {}", self.root.join(id).display())),
        }
        let fd = match open_dir(dir, id) {
            Ok(fd) => fd,
            Err(e) => {
                // As on a kernel without openat2(2): nothing else would remove it.
                let _ = fs::unlinkat(dir, id, AtFlags::REMOVEDIR);
                return Err(e).context(|| format!("open {}", self.root.join(id).display()));
            }
        };
        let reserved = ContainerDir { id: id.to_owned(), fd };
        // Held until this process and the init that it makes have ended or exec'd.
        if let Err(e) =
            rustix::io::retry_on_intr(|| fs::flock(&reserved.fd, fs::FlockOperation::LockExclusive))
        {
            // Nothing else would remove it.
            let _ = fs::unlinkat(dir, id, AtFlags::REMOVEDIR);
            return Err(e).context(|| format!("lock {}", self.root.join(id).display()));
        }
        Ok(reserved)
    }

    /// The directory of an existing container.
    pub(crate) fn container(&self, id: &str) -> Result<ContainerDir> {
        self.find(id)?.ok_or_else(|| does_not_exist(id))
    }

    /// The directory of container `id`; `None` where there is no such container.
    pub(crate) fn find(&self, id: &str) -> Result<Option<ContainerDir>> {
        check_id(id)?;
        let Some(dir) = &self.dir else { return Ok(None) };
        match open_dir(dir, id) {
            Ok(fd) => Ok(Some(ContainerDir { id: id.to_owned(), fd })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).context(|| format!("open {}", self.root.join(id).display())),
        }
    }

    /// True where it has a container of this name, which may be no id at all.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn holds(&self, name: &str) -> Result<bool> {
        let Some(dir) = self.dir.as_ref().filter(|_| check_id(name).is_ok()) else { return Ok(false) };
        match open_dir(dir, name) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e).context(|| format!("open {}", self.root.join(name).display())),
        }
    }

    /// The record of container `id`. A dead one that ran in place is gone.
    pub(crate) fn load(&self, id: &str) -> Result<Record> {
        check_id(id)?;
        self.load_if_there(id)?.ok_or_else(|| does_not_exist(id))
    }

    /// The record of container `id`; `None` where there is no such container.
    pub(crate) fn load_if_there(&self, id: &str) -> Result<Option<Record>> {
        let fd = match self.dir.as_ref().map(|dir| open_dir(dir, id)) {
            None | Some(Err(Errno::NOENT)) => return Ok(None),
            Some(opened) => opened.context(|| format!("open {}", self.root.join(id).display()))?,
        };
        let dir = ContainerDir { id: id.to_owned(), fd };
        let record = dir.load()?;
        if record.in_place && !record.is_alive()? && !dir.is_kept()? {
            if record.shared {
                self.forget_dead_shared(id)?;
            } else {
                self.remove(&dir)?;
                self.forget_in_place(&record);
            }
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// The status of a container.
    ///
    /// # Errors
    /// Where the kernel does not say whether it lives.
    pub(crate) fn status(&self, record: &Record) -> Result<Status> {
        if record.pid == 0 {
            let abandoned = self.access == Access::Own && self.is_abandoned(&record.id)?;
            return Ok(if abandoned { Status::Stopped } else { Status::Creating });
        }
        if !record.is_alive()? {
            return Ok(Status::Stopped);
        }
        if record.paused {
            return Ok(Status::Paused);
        }
        let context = || format!("look at the state of {}", record.id);
        let waits = match self.dir.as_ref().map(|dir| open_dir(dir, &record.id)) {
            None | Some(Err(Errno::NOENT)) => false,
            Some(dir) => match fs::statat(dir.context(context)?, FIFO, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                Err(e) => return Err(e).context(context),
            },
        };
        Ok(if waits { Status::Created } else { Status::Running })
    }

    /// True where the container `id`, which has no record, is not being made any more.
    fn is_abandoned(&self, id: &str) -> Result<bool> {
        match self.dir.as_ref().map(|dir| open_dir(dir, id)) {
            None | Some(Err(Errno::NOENT)) => Ok(false),
            Some(opened) => {
                let fd = opened.context(|| format!("open {}", self.root.join(id).display()))?;
                ContainerDir { id: id.to_owned(), fd }.is_abandoned()
            }
        }
    }

    /// The records of all containers, ordered by id; a container without a readable one is left out: see
    /// [`Store::list_all`].
    pub(crate) fn list(&self) -> Result<Vec<Record>> {
        Ok(self.list_all()?.0)
    }

    /// The records of [`Store::list`], and why one container has no readable record, where that is so.
    pub(crate) fn list_all(&self) -> Result<(Vec<Record>, Option<Error>)> {
        let mut failed = None;
        let mut records = match self.access {
            Access::Look(owner) => self.look(owner),
            _ => {
                self.sweep(usize::MAX);
                self.clean_images()?;
                let ids = self.dir.as_ref().map_or(Ok(Vec::new()), names)?;
                let mut records = Vec::with_capacity(ids.len());
                for id in &ids {
                    match self.load_if_there(id) {
                        Ok(record) => records.extend(record),
                        Err(e) => failed = failed.or(Some(e)),
                    }
                }
                records
            }
        };
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((records, failed))
    }

    /// The records of another user's containers. That user has written them: whose containers they are is told by the
    /// directory, not by the records.
    fn look(&self, owner: u32) -> Vec<Record> {
        // The directory may be removed meanwhile. That is no reason to fail for the other users' directories.
        let mut records = self.records().unwrap_or_default();
        let is_kept =
            |record: &Record| self.container(&record.id).is_ok_and(|dir| dir.is_kept().unwrap_or(true));
        // Nothing is removed here: what nobody knows is shown.
        records.retain(|record| !record.in_place || record.is_alive().unwrap_or(true) || is_kept(record));
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

    /// Removes a container's directory alone, unless the container outlives its processes.
    pub(crate) fn forget(&self, container: &ContainerDir) -> Result<()> {
        if container.is_kept()? {
            return Ok(());
        }
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
        if process::was_root() {
            // The lists name directories of the user's choice. His next container takes care of them.
            return Ok(());
        }
        let at = self.root.join(rootfs::IMAGES);
        let lists = match open_dir(dir, rootfs::IMAGES) {
            // ENOSYS: without openat2(2) no container has made any.
            Err(Errno::NOENT | Errno::NOSYS) => return Ok(()),
            lists => lists.context(|| format!("open {}", at.display()))?,
        };
        // `None` where another process has removed it.
        let read = |name: &str| match fd::read_at(&lists, name) {
            Err(e) if e.is(libc::ENOENT) => Ok(None),
            text => text.map(Some).context(|| format!("read {}", at.join(name).display())),
        };
        for name in list_names(&lists, FileType::RegularFile)? {
            let Some(created) = read(&name)? else { continue };
            // A runtime that sets a container up there holds the lock and may add to the list. The lock is therefore held
            // until the list is gone, and the list is read again under it.
            let held = MadeList::parse(&created).lock_dir(&name);
            match &held {
                DirLock::Locked(root) => {
                    let Some(created) = read(&name)? else { continue };
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
        // The directory stays where a list is left. The next container that needs the directory makes it anew.
        let _ = fs::unlinkat(dir, rootfs::IMAGES, AtFlags::REMOVEDIR);
        Ok(())
    }

    /// True where a container that lives uses the image or the bind that the list is about. One that is being made may
    /// use it.
    fn uses(&self, made: &MadeList) -> Result<bool> {
        // What nobody knows is in use.
        let uses = |s: &Result<Record>| match s {
            Ok(s) => {
                s.pid == 0 || ((made.bound || made.roots.contains(&s.rootfs)) && s.is_alive().unwrap_or(true))
            }
            Err(_) => true,
        };
        Ok(self.read_all()?.iter().any(uses))
    }

    /// The records of all containers that can be read, in no order; nothing is removed.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        Ok(self.read_all()?.into_iter().flatten().collect())
    }

    /// What was read of each container that is there.
    fn read_all(&self) -> Result<Vec<Result<Record>>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let read = |id: String| match open_dir(dir, &id) {
            // Removed meanwhile.
            Err(Errno::NOENT) => None,
            Err(e) => Some(Err(Error::from(e).context(format!("open {}", self.root.join(&id).display())))),
            Ok(fd) => Some(ContainerDir { id, fd }.load()),
        };
        Ok(names(dir)?.into_iter().filter_map(read).collect())
    }

    /// Notes that container `id` runs in place, as this process.
    pub(crate) fn note_in_place(&self, id: &str, pid: i32) -> Result<()> {
        let dir = self.dir.as_ref().ok_or_else(|| does_not_exist(id))?;
        let name = format!("{IN_PLACE}/{pid}");
        let doing = || format!("make {}/{name}", self.root.display());
        for _ in 0..2 {
            match fs::symlinkat(id, dir, name.as_str()) {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) => match fs::mkdirat(dir, IN_PLACE, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e).context(|| format!("make {}/{IN_PLACE}", self.root.display())),
                },
                // The note of a dead container whose process had this pid.
                Err(Errno::EXIST) => self.forget_link(dir, &pid.to_string()),
                Err(e) => return Err(e).context(doing),
            }
        }
        fs::symlinkat(id, dir, name.as_str()).context(doing)
    }

    /// Forgets containers that ran in place and are dead, at most `most` of them.
    pub(crate) fn sweep(&self, most: usize) {
        let Some(dir) = &self.dir else { return };
        let Ok(index) = open_dir(dir, IN_PLACE) else { return };
        let Ok(pids) = list_names(&index, FileType::Symlink) else { return };
        let dead = |name: &String| match name.parse() {
            Ok(pid) => signal::send(pid, 0).is_err_and(|e| e.is(libc::ESRCH)),
            // The note of a shared container has the container's id as name: any member may live.
            Err(_) => self.forget_dead_shared(name).unwrap_or(false),
        };
        let mut left = pids.len();
        for pid in pids.iter().filter(|pid| dead(pid)).take(most) {
            self.forget_link(dir, pid);
            left -= 1;
        }
        if left == 0 {
            // The next container in place makes it anew.
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

    /// Without the note nobody would find the container: where the kernel does not say what is there, it stays for the next
    /// call.
    fn forget_link(&self, dir: &OwnedFd, pid: &str) {
        let name = format!("{IN_PLACE}/{pid}");
        match fs::readlinkat(dir, name.as_str(), Vec::new()) {
            Ok(id) => {
                if let Ok(id) = id.to_str()
                    && self.forget_dead_in_place(id).is_err()
                {
                    return;
                }
            }
            Err(Errno::INVAL) => {}
            Err(_) => return,
        }
        let _ = fs::unlinkat(dir, name.as_str(), AtFlags::empty());
    }

    /// True where `id` was a dead container that had run in place; its state is gone then.
    fn forget_dead_in_place(&self, id: &str) -> Result<bool> {
        let Some(dir) = self.find(id)? else { return Ok(false) };
        match dir.load() {
            Ok(record) if record.shared => self.forget_dead_shared(id),
            Ok(record) if record.in_place && !record.is_alive()? => {
                self.remove(&dir)?;
                Ok(true)
            }
            Err(e) if e.errno().is_some() => Err(e),
            // A damaged record is another container's matter.
            _ => Ok(false),
        }
    }
}

/// True for the error of a default place in which this user has no store and can make none.
fn is_passed_over(e: &Error) -> bool {
    e.errno().map(Errno::from_raw_os_error).is_none_or(|e| is_no_store(e) || is_closed(e))
}

/// The directory of the user `user` among those that sites give to Slurm, where there are any.
fn place_of_user(user: Option<&str>) -> Result<Option<PathBuf>> {
    match user.filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.')) {
        Some(name) if look::is_dir(JOBS)? => Ok(Some(Path::new(JOBS).join(name))),
        _ => Ok(None),
    }
}

/// Opens the directory `path`, but nothing that is mounted there: a user can mount on what is his, and root does not ask a server
/// of his for the owner.
fn open_where_it_lies(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::open(path, flags, Mode::empty());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    fs::openat2(parent, name, flags, Mode::empty(), OF_ONE_FILE_SYSTEM)
}

/// Becomes the user `uid`, in no group of anybody's, for good.
pub(crate) fn become_owner(uid: u32) -> Result<()> {
    process::become_user(uid, NO_GROUP)
}

/// Checks that `id` is a plain name, as runc does.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    if id.is_empty()
        || id.len() > 255
        || id == "."
        || id == ".."
        || id == IN_PLACE
        || id == MOUNTED
        || id == CLONES
        || id == rootfs::IMAGES
        || !id.chars().all(good)
    {
        return Err(err!("invalid container ID: {id:?}").hint("letters, digits, '_', '+', '-' and '.'"));
    }
    Ok(())
}

/// The error for an id that is taken, in the words of runc.
pub(crate) fn already_exists(id: &str) -> Error {
    err!("container with given ID already exists: {id}")
}

fn does_not_exist(id: &str) -> Error {
    err!("container does not exist: {id}").hint("rt list shows those that do; rt run starts images")
}

fn open_dir(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), OF_ONE_FILE_SYSTEM)
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
    let doing = || format!("list {}", fd::shown(dir));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = fs::openat(dir, ".", flags, Mode::empty()).context(doing)?;
    let mut names = Vec::new();
    for entry in fs::Dir::new(readable).context(doing)? {
        let entry = entry.context(doing)?;
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
        assert_eq!(store.status(&dir.load().unwrap()).unwrap(), Status::Creating);
        store.remove(&dir).unwrap();
        assert_eq!(
            store.load("a").unwrap_err().to_string(),
            "container does not exist: a (rt list shows those that do; rt run starts images)"
        );
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
    fn what_cannot_be_looked_at_is_no_answer() {
        let store = store("kept");
        let dir = store.reserve("k").unwrap();
        assert!(!dir.is_kept().unwrap());
        // Every look at a file in what is no directory fails, with ENOTDIR.
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let no_directory = ContainerDir { id: "k".into(), fd: file.into() };
        assert!(no_directory.is_kept().is_err() && no_directory.members().is_err());
        assert!(no_directory.load().is_err());
        store.remove(&dir).unwrap();
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
