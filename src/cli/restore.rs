//! `rt restore`

use super::table::*;
use super::{Call, checkpoint, create};
use crate::checkpoint::Restore;
use crate::container::{self, Lifetime};
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
    restore.make_in(&mut options);
    container::run(&super::new_store(call)?, options)
}
