//! `rt mount`

use super::Call;
use crate::container::{self, Way};
use rt_cli::image::{AS_BUNDLE, EXTRACT};
use rt_sys::error::Result;
use std::ffi::OsString;
use std::path::Path;

/// Becomes the command, which alone sees the image at the directory.
pub(super) fn run(call: &Call) -> Result<u8> {
    let way = if call.flags.has(&EXTRACT) { Way::Extract } else { Way::Mount };
    let shell =
        || std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let command: Vec<OsString> = if call.rest.is_empty() { vec![shell()] } else { call.rest.to_vec() };
    let (file, dir) = (Path::new(call.operands[0]), Path::new(call.operands[1]));
    container::mount_image(file, dir, way, call.flags.has(&AS_BUNDLE), &command)
}
