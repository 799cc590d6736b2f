//! `rt exec`

use super::Call;
use super::Named;
use super::create;
use super::table::*;
use crate::container::{self, ExecOptions};
use rt_sys::error::Result;
use rt_sys::{bail, err, process};

/// Runs a program in a container and returns its exit code.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    let process = flags.path(&PROCESS);
    if process.is_none() && call.rest.is_empty() {
        bail!("exec: a command is missing: rt exec ID COMMAND [ARGS...]");
    }
    let operand = call.operands.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    // What people type who know another program, whose `exec` starts containers.
    if operand.contains(['/', ':']) {
        let error = err!("invalid container ID: {operand:?}");
        if let Some(name) = operand.strip_prefix("instance://") {
            return Err(error.hint(format!("rt exec {name} enters the container of that name")));
        }
        return Err(error.hint("rt run starts images and bundles; rt exec enters a container that runs"));
    }
    let Named { store, id, task } = super::find(call)?;
    if process::outside_of_jobs() {
        bail!(
            "exec: container {id} is another user's: root's terminal is not for it (become that user first)"
        );
    }
    let base_env = task.map(|task| container::environment(task.pid)).transpose()?;
    let gids = flags.texts(&ADDITIONAL_GIDS)?;
    let gids = gids.iter().flat_map(|list| list.split(','));
    let options = ExecOptions {
        id,
        base_env,
        process,
        args: call.rest()?,
        env: super::environment(call)?,
        cwd: flags.path(&CWD),
        user: flags.text(&USER)?.filter(|user| !user.is_empty()).map(str::to_owned),
        additional_gids: gids
            .map(|gid| gid.parse().map_err(|_| err!("--additional-gids: {gid:?} is not a group id")))
            .collect::<Result<_>>()?,
        caps: flags.texts(&CAP)?,
        no_new_privs: flags.has(&NO_NEW_PRIVS),
        tty: flags.switch(&TTY),
        detach: flags.has(&DETACH),
        handover: create::handover(call),
        preserve_fds: flags.number(&PRESERVE_FDS)?,
        ignore_paused: flags.has(&IGNORE_PAUSED),
        apparmor: flags.text(&APPARMOR)?.map(str::to_owned),
        process_label: flags.text(&PROCESS_LABEL)?.map(str::to_owned),
    };
    container::exec(&store, options)
}
