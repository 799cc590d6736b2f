//! The directory of `run --checkpoint` is one run's at a time: two would write over each other's images, and the one that ends would remove
//! that of the other.
//!
//! Its lock is one of fcntl(2) that a process has, not the files that it has open: no child has it, whatever that inherits, so that it ends
//! with the run, however that ends. File systems of several nodes know such locks everywhere, where they know any, and take them from
//! a node that does not answer any more. NFS 3 does so only when that node is back: what holds the lock is therefore written down, and a job
//! that Slurm runs again takes it from its own earlier run, which has ended, or whose node is given up.

use super::files::is_one;
use super::image::Place;
use rt_config::Lookup;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// The file that is locked.
const NAME: &str = ".lock";

/// How often the lock is tried while its file is another one each time: that of a run that has just ended is removed.
const TRIES: u32 = 100;

/// No such file can be made here, which keeps no image from being restored.
const NO_FILE: [Errno; 5] = [Errno::ROFS, Errno::NOSPC, Errno::DQUOT, Errno::ACCESS, Errno::PERM];

/// The file system has no locks (fcntl(2)).
const NO_LOCKS: [Errno; 4] = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK, Errno::INVAL];

/// A run's hold on the directory of its images.
#[derive(Debug)]
pub(super) struct Claim {
    /// Where the image is, or will be.
    place: Place,
    /// The locked file; none where there are no locks.
    lock: Option<OwnedFd>,
}

/// The run of a job: Slurm's number of the job, and how often it has been requeued.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    job: String,
    restarts: u32,
}

impl Claim {
    /// Makes the directory above `image`, and locks it for the run whose variables are `variable`.
    ///
    /// # Errors
    /// Another run has it.
    pub(super) fn take(image: &Path, variable: Lookup<'_>) -> Result<Claim> {
        let place = Place::make(image)?;
        let shown = || format!("lock {}", place.dir().display());
        let own = Holder::of(variable);
        for _ in 0..TRIES {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match fs::openat(place.above(), NAME, flags, Mode::RUSR | Mode::WUSR) {
                Err(e) if NO_FILE.contains(&e) => return Ok(Self::without(place, e)),
                // Another node has removed it.
                Err(Errno::STALE) => continue,
                file => file.context(shown)?,
            };
            match fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if has_name(&place, &file)? => {
                    let noted = note(&file, own.as_ref());
                    noted.unwrap_or_else(|e| log::debug!("{}: {e}", shown()));
                    return Ok(Claim { place, lock: Some(file) });
                }
                Ok(()) | Err(Errno::STALE) => {}
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    let holder = Holder::read(&file);
                    if !own.as_ref().is_some_and(|own| own.is_after(holder.as_ref())) {
                        return Err(has_another_run(place.dir(), variable));
                    }
                    if has_name(&place, &file)? {
                        remove(&place).context(shown)?;
                    }
                }
                Err(e) if NO_LOCKS.contains(&e) => {
                    remove(&place).context(shown)?;
                    return Ok(Self::without(place, e));
                }
                Err(e) => return Err(e).context(shown),
            }
        }
        Err(has_another_run(place.dir(), variable))
    }

    fn without(place: Place, why: Errno) -> Claim {
        let (dir, why) = (place.dir().display(), Error::from(why));
        rt_sys::log::tell(format_args!(
            "--checkpoint {dir} cannot be locked ({why}): nothing keeps a second run from it"
        ));
        Claim { place, lock: None }
    }

    /// Fails where another run has taken the directory since.
    pub(super) fn check(&self) -> Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        match fs::statat(self.place.above(), NAME, AtFlags::SYMLINK_NOFOLLOW) {
            // Somebody has removed it, or all of the directory.
            Err(Errno::NOENT | Errno::STALE) => Ok(()),
            Ok(there) if is_one(&there, &fd::stat(lock)?) => Ok(()),
            Ok(_) => Err(err!("a later run of this job has {}", self.place.dir().display())),
            Err(e) => Err(e).context(|| format!("look at the lock of {}", self.place.dir().display())),
        }
    }

    /// Gives the directory to the next run. Nothing in it is this one's any more.
    pub(super) fn end(&self) -> Result<()> {
        match &self.lock {
            // The lock goes with this process. Until then nobody else has a file of this name that is locked.
            Some(lock) if has_name(&self.place, lock)? => {
                remove(&self.place).context(|| format!("unlock {}", self.place.dir().display()))
            }
            _ => Ok(()),
        }
    }
}

impl Holder {
    /// The run that has these variables; none outside a job.
    fn of(variable: Lookup<'_>) -> Option<Holder> {
        let job = variable("SLURM_JOB_ID").filter(|job| !job.is_empty())?;
        let restarts = variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Holder { job, restarts })
    }

    /// What stands in `file`, if it is that.
    fn read(file: &OwnedFd) -> Option<Holder> {
        let mut text = [0; 64];
        let length = rustix::io::pread(file, &mut text, 0).ok()?;
        let (job, restarts) = std::str::from_utf8(&text[..length]).ok()?.trim_end().split_once(' ')?;
        Some(Holder { job: job.to_owned(), restarts: restarts.parse().ok()? })
    }

    /// True where Slurm has run the same job as `holder` again since.
    fn is_after(&self, holder: Option<&Holder>) -> bool {
        holder.is_some_and(|holder| holder.job == self.job && holder.restarts < self.restarts)
    }
}

/// Writes into the locked file who has it, for other nodes to see.
fn note(file: &OwnedFd, holder: Option<&Holder>) -> Result<()> {
    fs::ftruncate(file, 0)?;
    if let Some(Holder { job, restarts }) = holder {
        fd::write_all(file, format!("{job} {restarts}\n").as_bytes())?;
    }
    Ok(fs::fsync(file)?)
}

/// True where `file` has the name of the lock.
fn has_name(place: &Place, file: &OwnedFd) -> Result<bool> {
    match fs::statat(place.above(), NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok(is_one(&there, &fd::stat(file)?)),
        Err(Errno::NOENT | Errno::STALE) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at the lock of {}", place.dir().display())),
    }
}

fn remove(place: &Place) -> rustix::io::Result<()> {
    match fs::unlinkat(place.above(), NAME, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn has_another_run(dir: &Path, variable: Lookup<'_>) -> Error {
    let dir = dir.display();
    let error = err!("--checkpoint {dir}: another run has its image there");
    match variable("SLURM_STEP_ID") {
        // The shell that calls srun(1) knows no task's number.
        Some(_) => error.hint(format!(
            "name one for each task: srun sh -c 'exec rt run --checkpoint {dir}/$SLURM_PROCID ...'"
        )),
        None => error.hint("name a directory for each run"),
    }
}
