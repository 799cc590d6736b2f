//! `rt create`

use super::args::*;
use super::parse::Call;
use crate::container::{self, CreateOptions};
use crate::error::Result;
use crate::spec::rootless::parse_user_map;
use std::path::PathBuf;

/// Creates a container.
pub fn run(call: &Call) -> Result<u8> {
    let bundle = call.flags.path(&BUNDLE).unwrap_or_else(|| PathBuf::from("."));
    container::create(&super::new_store(call)?, options(call, call.id()?.to_owned(), bundle)?)?;
    Ok(0)
}

/// What the flags that `create` and `run` share say.
pub fn options(call: &Call, id: String, bundle: PathBuf) -> Result<CreateOptions> {
    let flags = &call.flags;
    Ok(CreateOptions {
        id,
        bundle,
        config: flags.path(&CONFIG),
        pid_file: flags.path(&PID_FILE),
        console_socket: flags.path(&CONSOLE_SOCKET),
        pidfd_socket: flags.path(&PIDFD_SOCKET),
        no_pivot: flags.has(&NO_PIVOT),
        no_new_keyring: flags.has(&NO_NEW_KEYRING),
        no_subreaper: flags.has(&NO_SUBREAPER),
        hooks_dirs: flags.paths(&HOOKS_DIR),
        preserve_fds: flags.number(&PRESERVE_FDS)?,
        strict: flags.has(&STRICT),
        user_map: flags.text(&USER_MAP)?.map(parse_user_map).transpose()?,
        ..CreateOptions::default()
    })
}
