//! `rt slurm save`: the root of a container as an image file, when its last task has ended.

use super::{open_store_of_job, step_name};
use crate::cli::companion::with_companion;
use crate::cli::{Call, create};
use crate::container;
use crate::store::{Store, Unsaved};
use rt_cli::flag::{LOG, LOG_FORMAT, LOG_LEVEL};
use rt_image_store::image_file::ImageKind;
use rt_launch::task::TaskId;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err, fd, log, process, start, unique};
use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Looks whether a file can be made where the container is to be saved, which is hours before that is done, and whether it
/// may take the place of what is there.
pub(super) fn check_place_to_save(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    check_directory_to_save(dir)?;
    check_replaced(dir, path).map_err(|e| e.context(format!("RT_CONTAINER_SAVE: {}", path.display())))
}

fn check_directory_to_save(dir: &Path) -> Result<()> {
    let context = || format!("RT_CONTAINER_SAVE: no file can be made in {}", dir.display());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(()),
        // File systems without files that have no name, of which NFS is one, say the one or the other.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            fs::accessat(fs::CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).context(context)
        }
        Err(e) => Err(e).context(context),
    }
}

/// Refuses what `rt-pull` would not replace in the end, or the kernel would not let go.
fn check_replaced(dir: &Path, path: &Path) -> Result<()> {
    // What is made has a longer name before it gets this one.
    let draft =
        dir.join(format!("{}.partial-{}", path.file_name().unwrap_or_default().display(), unique::name()));
    if matches!(fs::lstat(draft), Err(Errno::NAMETOOLONG)) {
        return Err(err!("the name is too long"));
    }
    let found = match fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    let (me, parent) = (rustix::process::geteuid(), fs::stat(dir)?);
    let is_sticky = parent.st_mode & 0o1000 != 0;
    if is_sticky && !me.is_root() && ![found.st_uid, parent.st_uid].contains(&me.as_raw()) {
        return Err(err!("it belongs to uid {}, and only that user may replace it", found.st_uid));
    }
    match FileType::from_raw_mode(found.st_mode) {
        // The file takes the place of the link, except of one to a directory: in that, perhaps, the file was to be.
        FileType::Symlink => match fs::stat(path) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                Err(err!("a directory, and no name for a file"))
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(()),
            Err(e) => Err(e.into()),
        },
        FileType::RegularFile if found.st_size == 0 => Ok(()),
        FileType::RegularFile => {
            let file = disk::open_named(path)?;
            match ImageKind::of(&file)? {
                Some(ImageKind::Squashfs | ImageKind::Program) => Ok(()),
                _ => Err(err!("not an image file, and would not be replaced")),
            }
        }
        FileType::Directory => Err(err!("a directory, and no name for a file")),
        _ => Err(err!("neither an image file nor an empty one, and would not be replaced")),
    }
}

/// Saves a container for the step of `id`. Returns the exit code of that. Where it fails, the container stays until the job ends,
/// and who reads the step's output is told how to save it. `ends` are signals that end the save, and are blocked. `may_lack`: the job may be
/// ending, and Slurm is emptying what is saved then: an image that is there stays, and what may lack files is saved beside it.
pub(super) fn save_of_step(
    call: &Call,
    store: &Store,
    container: &str,
    id: &TaskId,
    path: &Path,
    ends: &[i32],
    may_lack: bool,
) -> Result<u8> {
    let dir = store.container(container)?;
    let step = step_name(id);
    // Before it begins: whatever ends this process, the layer stays.
    dir.note_unsaved(&step, &Unsaved::Pending)?;
    let beside;
    let path = match may_lack && is_image_there(path)? {
        true => {
            beside = [path.as_os_str().as_bytes(), b".", step.as_bytes()].concat();
            Path::new(OsStr::from_bytes(&beside))
        }
        false => path,
    };
    let saved = save_in_child(call, store, container, &step, path, ends);
    if may_lack && matches!(saved, Ok(0)) {
        log::tell(format_args!(
            "{} may lack files: the job may be ending, and Slurm empties the directory of its own in which this container is",
            path.display()
        ));
    }
    let kept = store.persistent(container);
    // Where nobody can say, it counts as there.
    let is_seen = match &kept {
        // An image in a job's own TmpFS is seen no more than a layer there.
        Ok(Some(kept)) => kept.has_layer().filter(|has_layer| !has_layer || kept.has_image()),
        Ok(None) => Some(false),
        Err(_) => Some(true),
    };
    if matches!(saved, Ok(0)) || is_seen == Some(false) {
        dir.note_saved(&step)?;
        return saved;
    }
    // Without room for that it counts as still to be saved, and stays, too.
    if let Err(e) = dir.note_unsaved(&step, &Unsaved::Failed(path.to_owned())) {
        log::tell(&e);
    }
    let failed = format!("container {container} was not saved as {}", path.display());
    match kept {
        // The job ends with its script.
        Ok(Some(kept)) if id.is_batch_script() && !kept.global => {
            log::tell(format_args!("{failed}: what was written to it is lost with the job"));
        }
        Ok(Some(kept)) => {
            let root = crate::cli::root(call)?;
            let root = root.map(|root| format!("--root {} ", root.display())).unwrap_or_default();
            let until = if kept.global { "" } else { " until the job ends" };
            let command = format!("rt {root}slurm save {container} FILE saves it");
            let layer = kept.layer.display();
            let stays = match is_seen {
                Some(_) => format!("stays in {layer}{until}, and on this node"),
                // Slurm empties a /tmp that is the job's own as soon as the job ends.
                None => format!(
                    "is lost if the job has ended, and else stays in {layer}: in a step of the job on this node (srun --jobid=JOB \
                     --overlap)"
                ),
            };
            log::tell(format_args!("{failed}: what was written to it {stays} {command}"));
        }
        _ => {}
    }
    saved
}

/// True where a save would replace an image.
fn is_image_there(path: &Path) -> Result<bool> {
    match fs::stat(path) {
        Ok(stat) => Ok(stat.st_size > 0),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {}", path.display())),
    }
}

/// Has a child save a container for the step `step`, which enters namespaces for it. Returns its exit code. The child is in
/// the directory of the file and gets no more than the file's name: a program of the step that still runs may be able to
/// change what the path leads to.
fn save_in_child(call: &Call, store: &Store, id: &str, step: &str, path: &Path, ends: &[i32]) -> Result<u8> {
    let context = || format!("save container {id} as {}", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(err!("not a file name")).context(context);
    };
    let place = store.container(id)?.open_place(step, parent).context(context)?;
    let program = start::program()?;
    let mut command = Command::new(&program);
    command.current_dir(fd::link(&place));
    for flag in [&LOG, &LOG_FORMAT, &LOG_LEVEL] {
        if let Some(value) = call.globals.path(flag) {
            let value = if std::ptr::eq(flag, &LOG) { fd::absolute(value)? } else { value };
            command.arg(format!("--{}", flag.long)).arg(value);
        }
    }
    let root = fd::absolute(store.path())?;
    command.arg("--root").arg(root).args(["slurm", "save", id]).arg(Path::new(".").join(name));
    // What it reads may be removed when this process is gone.
    process::end_with_parent(&mut command);
    let mut child =
        command.stdout(Stdio::null()).spawn().context(|| format!("execute {}", program.display()))?;
    if !process::wait_unless(&child, ends)? {
        let _ = child.kill();
        let _ = child.wait();
        return Err(err!("it takes too long, and was ended")).context(context);
    }
    child.wait().context(context).map(code_of)
}

/// The exit code of a program; 1 for a signal.
fn code_of(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Writes the root of a container to an image file.
pub(super) fn save(call: &Call) -> Result<u8> {
    let id = super::id(call)?;
    let path = call.operand(1, "the image file")?;
    let store = open_store_of_job(call)?;
    let Some(kept) = store.persistent(id)? else {
        bail!("save: no container {id} that has a name, or is to be saved");
    };
    // Programs may remove what they have made, also while it is saved. Where nobody can say, one lives.
    let is_still = !store.load(id).and_then(|record| record.is_alive()).unwrap_or(true);
    let bundle = container::show_as_bundle(&store, create::images(call), id)?;
    let mut failed = Ok(1);
    // In the mount namespace of this process, which is where the bundle is.
    with_companion("rt-pull", |program| {
        let mut command = Command::new(program);
        command.args(["save", "--image-file", "--force", "--quiet"]);
        if is_still {
            command.arg("--whole").arg(kept.layer.join(rt_spec::OVERLAY_UPPER));
        }
        command.arg("--").arg(&bundle).arg(path).stdin(Stdio::null());
        process::end_with_parent(&mut command);
        let status = command.status();
        let missing = status.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        failed = status.map(code_of).context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}
