//! `rt checkpoint`

use super::table::*;
use super::{Call, Named};
use crate::checkpoint::{self, DumpOptions};
use rt_cli::flag::Flag;
use rt_cli::wrong;
use rt_sys::err;
use rt_sys::error::Result;
use std::path::PathBuf;

/// What one id cannot have, and why.
static REFUSED: [(&Flag, &str); 5] = [
    (&LAZY_PAGES, "userfaultfd(2) takes root there"),
    (&STATUS_FD, "it belongs to --lazy-pages, which takes root"),
    (&PRE_DUMP, "the kernel's tracking of changed memory takes root, or is not there"),
    (&PARENT_PATH, "it belongs to --pre-dump, which takes root"),
    (&PAGE_SERVER, "rt writes images to directories only"),
];

/// Writes an image of a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    refuse(call)?;
    let flags = &call.flags;
    let Named { store, id, .. } = super::find(call)?;
    let options = DumpOptions {
        image: image(call),
        work: flags.path(&WORK_PATH),
        leave_running: flags.has(&LEAVE_RUNNING),
        tcp_close: flags.has(&TCP_CLOSE),
        link_remap: flags.has(&LINK_REMAP),
        for_clones: false,
        layer: None,
    };
    checkpoint::dump(&store, &id, &options, None)?;
    Ok(0)
}

/// Where the image is.
pub(super) fn image(call: &Call) -> PathBuf {
    call.flags.path(&IMAGE_PATH).unwrap_or_else(|| PathBuf::from("checkpoint"))
}

/// Refuses the flags of runc that cannot be had.
pub(super) fn refuse(call: &Call) -> Result<()> {
    if let Some((flag, why)) = REFUSED.iter().find(|(flag, _)| call.flags.given(flag)) {
        return Err(err!("--{} cannot be had: {why}", flag.long));
    }
    match call.flags.text(&MANAGE_CGROUPS)? {
        // What runc does by default, and so what its clients say: cgroups that are there are kept as they are.
        None | Some("ignore" | "soft") => Ok(()),
        Some(mode @ ("full" | "strict")) => {
            Err(err!("--manage-cgroups-mode {mode} cannot be had: rt changes no cgroup")
                .hint("ignore leaves the processes in the caller's"))
        }
        Some(other) => Err(wrong::invalid_value(
            "--manage-cgroups-mode".as_ref(),
            other.as_ref(),
            "soft, full, strict or ignore",
        )),
    }
}
