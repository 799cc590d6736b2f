//! `rt restore`

use super::table::*;
use super::{Call, checkpoint, create};
use crate::checkpoint::Restore;
use crate::container::{self, Choice, Lifetime};
use rt_sys::error::Result;
use std::path::PathBuf;

/// Makes a container whose processes come from an image, and returns the program's exit code (0 where detached).
pub(super) fn run(call: &Call) -> Result<u8> {
    checkpoint::refuse(call)?;
    let flags = &call.flags;
    let mut restore = Restore::open(&checkpoint::image(call), flags.path(&WORK_PATH).as_deref())?;
    restore.tcp_close = flags.has(&TCP_CLOSE);
    let bundle = flags.path(&BUNDLE).unwrap_or_else(|| PathBuf::from("."));
    let mut options = create::options(call, call.id()?.to_owned(), bundle)?;
    if flags.has(&DETACH) {
        options.lifetime = Lifetime::Detached;
    }
    if !restore.is_of_first() {
        // criu makes processes by their numbers, which are free in a PID namespace of their own only.
        options.overrides.namespaces.pid = Some(Choice::Private);
        options.overrides.init = Some(true);
    }
    options.checkpoint = Some(Box::new(restore));
    container::run(&super::new_store(call)?, options)
}
