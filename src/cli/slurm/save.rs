//! `rt slurm save`: the root of a container as an image file, when its last task has ended.

use super::open_store_of_job;
use crate::cli::companion::with_companion;
use crate::cli::{Call, create};
use crate::container;
use crate::store::Store;
use rt_cli::flag::{LOG, LOG_FORMAT, LOG_LEVEL};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd, log, look, start};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Saves a container for the step `step`. Returns the exit code of that. Where it fails, the container stays until the job ends,
/// and who reads the step's output is told how to save it.
pub(super) fn save_of_step(call: &Call, store: &Store, id: &str, step: &str, path: &Path) -> Result<u8> {
    let saved = save_in_child(call, store, id, step, path);
    if matches!(saved, Ok(0)) {
        return saved;
    }
    // Where the kernel does not say, it counts as there: what is noted here is not removed.
    let kept = match store.persistent(id) {
        Ok(None) => return saved,
        Ok(Some(kept)) if !look::is_dir(&kept.layer).unwrap_or(true) => return saved,
        kept => kept.ok().flatten(),
    };
    store.container(id)?.note_unsaved()?;
    if let Some(kept) = kept {
        let root =
            crate::cli::root(call)?.map(|root| format!("--root {} ", root.display())).unwrap_or_default();
        let until = if kept.global { "" } else { " until the job ends" };
        log::tell(format_args!(
            "container {id} was not saved as {}: what was written to it stays in {}{until}, and on this node \
             rt {root}slurm save {id} FILE saves it",
            path.display(),
            kept.layer.display()
        ));
    }
    saved
}

/// Has a child save a container for the step `step`, which enters namespaces for it. Returns its exit code. The child is in
/// the directory of the file and gets no more than the file's name: a program of the step that still runs may be able to
/// change what the path leads to.
fn save_in_child(call: &Call, store: &Store, id: &str, step: &str, path: &Path) -> Result<u8> {
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
    let status =
        command.stdout(Stdio::null()).status().context(|| format!("execute {}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Writes the root of a container to an image file.
pub(super) fn save(call: &Call) -> Result<u8> {
    let id = super::id(call)?;
    let path = call.operand(1, "the image file")?;
    let store = open_store_of_job(call)?;
    if store.persistent(id)?.is_none() {
        bail!("save: no container {id} that has a name, or is to be saved");
    }
    let bundle = container::show_as_bundle(&store, create::images(call), id)?;
    let mut failed = Ok(1);
    // In the mount namespace of this process, which is where the bundle is.
    with_companion("rt-pull", |program| {
        let words = ["save", "--image-file", "--force", "--quiet", "--"].map(OsStr::new);
        let status = Command::new(program).args(words).arg(&bundle).arg(path).stdin(Stdio::null()).status();
        let missing = status.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        failed = status
            .map(|status| status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            .context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}
