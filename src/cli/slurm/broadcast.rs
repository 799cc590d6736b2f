//! `rt slurm broadcast`: an image that is one file, copied once to each node of a job by Slurm's sbcast(1).
//!
//! The copies are in TmpFS, a directory that every node has and that often everybody can write. sbcast(1) writes to no file
//! that is there already, and a copy counts only where it is the caller's and has the image's size and time.

use super::read;
use crate::cli::Call;
use rt_launch::request::{self, Image, StepContainer};
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::has_acl;
use rt_sys::{bail, caller, err, fd, log, look};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the names of all copies for a job begin with.
fn prefix(job: &str) -> String {
    format!("rt-image-{job}-")
}

/// An image and its copy on a node.
struct Copy {
    /// The image's size in bytes.
    size: u64,
    /// When the image was changed, in seconds.
    changed: i64,
    path: PathBuf,
}

impl Copy {
    fn of(request: &StepContainer, job: &str, image: &Path) -> Result<Copy> {
        let found = fs::metadata(image).context(|| format!("image {}", image.display()))?;
        let (size, changed) = (found.size(), found.mtime());
        // The number of the device is the node's own.
        let name = format!("{}{:x}-{size:x}-{changed:x}", prefix(job), found.ino());
        Ok(Copy { size, changed, path: request.tmpfs().join(name) })
    }

    /// True where it is there, whole and nobody else's.
    fn is_sound(&self) -> bool {
        own_file(&self.path)
            .is_some_and(|found| (found.st_size as u64, found.st_mtime) == (self.size, self.changed))
    }
}

/// The state of a regular file of the caller's in a directory for everybody; `None` for all else that may be there.
fn own_file(path: &Path) -> Option<Stat> {
    let found = fd::open_beside_others(path, OFlags::PATH).and_then(rustix::fs::fstat).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    (is_file && found.st_uid == rustix::process::geteuid().as_raw()).then_some(found)
}

/// Copies the image that the environment asks for to the nodes of a job, unless this node has its copy: all have, then.
pub(super) fn run(call: &Call) -> Result<u8> {
    let job = call.operand(0, "the job")?;
    if job.parse::<u32>().is_err() {
        bail!("slurm broadcast: {job:?} is no job");
    }
    let request = read()?;
    let image = match &request.image {
        Some(Image::Path(path)) => path.as_path(),
        Some(Image::Name(name)) => Path::new(name),
        None => bail!("slurm broadcast: no image"),
    };
    if !look::is_file(image)? {
        return Err(err!("{} is no file", image.display()).hint("rt pull IMAGE FILE.sqsh makes one"));
    }
    let image = rt_sys::fd::absolute(image)?;
    let copy = Copy::of(&request, job, &image)?;
    if copy.is_sound() {
        return Ok(0);
    }
    let mut command = Command::new("sbcast");
    command.arg("--preserve").arg(format!("--jobid={job}"));
    match is_open_to_nobody_more(&image)? {
        true => command.arg(&image),
        false => {
            let private = private_copy(&image, request.tmpfs())?;
            fd::keep_over_exec(private.as_raw_fd())?;
            command.arg(format!("/proc/self/fd/{}", private.into_raw_fd()))
        }
    };
    command.arg(&copy.path);
    // A copy from which a container runs would be cut to nothing.
    let e = command.env_remove("SBCAST_FORCE").exec();
    Err(e).context(|| "execute sbcast")
}

/// True where a copy of the image's mode in a directory for everybody lets nobody read it who may not read the image: the image is
/// closed to all others, or open to all. sbcast(1) gives the copies that mode, and the user's own group, but no ACL.
fn is_open_to_nobody_more(image: &Path) -> Result<bool> {
    let context = || format!("image {}", image.display());
    let real = fs::canonicalize(image).context(context)?;
    let all_may = |path: &Path, bits| {
        let mode = fs::metadata(path).context(context)?.mode();
        Ok::<_, Error>(mode & bits == bits && !has_acl(path).context(context)?)
    };
    if fs::metadata(&real).context(context)?.mode() & 0o077 == 0 {
        return Ok(true);
    }
    let mut dirs = real.ancestors().skip(1);
    Ok(all_may(&real, 0o044)?
        && dirs.try_fold(true, |all, dir| Ok::<_, Error>(all && all_may(dir, 0o011)?))?)
}

/// The image once more, in a file without a name that only the caller may read.
fn private_copy(image: &Path, dir: &Path) -> Result<File> {
    let context = || format!("copy {}, which others may not read, to {}", image.display(), dir.display());
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let copy = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).map_err(Error::from);
    let mut copy = File::from(copy.map_err(|e| e.context(context()))?);
    let mut image = File::open(image).context(context)?;
    std::io::copy(&mut image, &mut copy).context(context)?;
    copy.set_modified(image.metadata().and_then(|found| found.modified()).context(context)?)
        .context(context)?;
    Ok(copy)
}

/// The copy of `image` on this node, where one is asked for and there is one, or `image`. With `shown`, says so where there is
/// none.
pub(super) fn copy_or_original(request: &StepContainer, image: PathBuf, shown: bool) -> Result<PathBuf> {
    // A container that is there for all jobs outlives the copy.
    if !request.broadcast || request.name.as_ref().is_some_and(|name| name.global) {
        return Ok(image);
    }
    let Some(job) = caller::variable("SLURM_JOB_ID") else { return Ok(image) };
    let copy = Copy::of(request, &job, &image)?;
    if copy.is_sound() {
        return Ok(copy.path);
    }
    if shown {
        say_why_not(&format!(
            "{} is read where it lies, since it was not copied to this node",
            image.display()
        ));
    }
    Ok(image)
}

/// Says `what` and the reason that srun had, if it had one. A batch script has no srun that could have made a copy.
pub(super) fn say_why_not(what: &str) {
    if let Some(why) = caller::variable("SLURM_RT_NOT_BROADCAST") {
        log::tell(format_args!("{what}: {why}"));
    }
}

/// Removes the caller's copies for a job from this node.
pub(super) fn remove(job: &str) -> Result<()> {
    let dir = request::tmpfs(&rt_config::own_variable);
    let context = || format!("remove the images of job {job} from {}", dir.display());
    for path in look::entries(&dir).context(context)? {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        // What is not known to be ours stays: others can make such names, and mount on them.
        if name.starts_with(prefix(job).as_bytes()) && own_file(&path).is_some() {
            fs::remove_file(&path).context(context)?;
        }
    }
    Ok(())
}
