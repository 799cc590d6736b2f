//! `rt create`

use super::Call;
use super::table::*;
use crate::container::{self, CreateOptions, Handover, ImageMounts};
use rt_cli::image::EXTRACT;
use rt_spec::caller_request::is_host_mpi;
use rt_spec::rootless::parse_user_map;
use rt_sys::caller;
use rt_sys::error::Result;
use std::path::PathBuf;

/// Creates a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let bundle = call.flags.path(&BUNDLE).unwrap_or_else(|| PathBuf::from("."));
    container::create(&super::new_store(call)?, options(call, call.id()?.to_owned(), bundle)?)?;
    Ok(0)
}

/// How many sockets were passed to this process, and not to one that it comes from (sd_listen_fds(3)).
fn listen_fds() -> u32 {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    match number("LISTEN_PID") {
        Some(pid) if pid == std::process::id() => number("LISTEN_FDS").unwrap_or(0),
        _ => 0,
    }
}

/// What the caller wants of the new process, for `create`, `run` and `exec`.
pub(super) fn handover(call: &Call) -> Handover {
    Handover {
        pid_file: call.flags.path(&PID_FILE),
        console_socket: call.flags.path(&CONSOLE_SOCKET),
        pidfd_socket: call.flags.path(&PIDFD_SOCKET),
    }
}

/// Images that are files, none yet.
pub(super) fn images(call: &Call) -> ImageMounts {
    ImageMounts::new(call.flags.has(&EXTRACT))
}

/// The MPI library that the caller asks for, by the flag or by the environment: the host's or the image's.
pub(super) fn mpi(call: &Call) -> Result<Option<String>> {
    let word = call.flags.text(&MPI)?.map(str::to_owned).or_else(|| caller::variable("RT_MPI"));
    if let Some(word) = &word {
        is_host_mpi(word).map_err(|e| e.context("--mpi or RT_MPI"))?;
    }
    Ok(word)
}

/// What the flags that `create` and `run` share say.
pub(super) fn options(call: &Call, id: String, bundle: PathBuf) -> Result<CreateOptions> {
    let flags = &call.flags;
    Ok(CreateOptions {
        id,
        bundle,
        config: flags.path(&CONFIG),
        handover: handover(call),
        no_pivot: flags.has(&NO_PIVOT),
        no_new_keyring: flags.has(&NO_NEW_KEYRING),
        hooks_dirs: flags.paths(&HOOKS_DIR),
        no_hooks: flags.has(&NO_HOOKS),
        preserve_fds: flags.number(&PRESERVE_FDS)?,
        listen_fds: listen_fds(),
        strict: flags.has(&STRICT),
        trace: flags.path(&TRACE),
        user_map: flags.text(&USER_MAP)?.map(parse_user_map).transpose()?,
        extract: call.flags.has(&EXTRACT),
        ..CreateOptions::default()
    })
}
