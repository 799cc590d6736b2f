//! `rt save`

use super::{operand, tell};
use crate::progress::{Style, size};
use crate::save::{self, SaveTarget};
use rt_cli::image::{REPLACE_IMAGE, SILENT};
use rt_cli::parse::Call;
use rt_cli::print;
use rt_sys::error::Result;
use std::path::Path;

/// Writes a bundle's tree as an image and prints its digest.
pub(super) fn run(call: &Call) -> Result<u8> {
    let target = SaveTarget::parse(operand(call, 1)?)?;
    let quiet = call.flags.has(&SILENT);
    let style = Style::of_terminal(quiet);
    let saved = save::save(Path::new(call.operands[0]), &target, call.flags.has(&REPLACE_IMAGE), style)?;
    if !quiet {
        tell(&format!("{} in one layer of {}\n", size(saved.plain), size(saved.stored)));
    }
    print(format!("{}\n", saved.digest))
}
