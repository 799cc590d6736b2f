//! `rt save`

use super::{image_file, operand, tell};
use crate::image_file;
use crate::progress::{Style, size};
use crate::save::{self, SaveTarget};
use rt_cli::image::{REPLACE_IMAGE, SILENT};
use rt_cli::parse::Call;
use rt_cli::print;
use rt_sys::error::Result;
use std::path::Path;

/// Writes a bundle's tree as an image and prints its digest, or the path of an image file.
pub(super) fn run(call: &Call) -> Result<u8> {
    let (bundle, target) = (Path::new(call.operands[0]), operand(call, 1)?);
    let replace = call.flags.has(&REPLACE_IMAGE);
    let quiet = call.flags.has(&SILENT);
    let style = Style::of_terminal(quiet);
    if let Some(compression) = image_file(&call.flags, Path::new(target))? {
        let written = image_file::save(bundle, Path::new(target), replace, compression, style)?;
        if !quiet {
            tell(&format!("{} files and directories in {}\n", written.inodes, size(written.bytes)));
        }
        let path = std::path::absolute(target).unwrap_or_else(|_| target.into());
        return print(format!("{}\n", path.display()));
    }
    let target = SaveTarget::parse(target)?;
    let saved = save::save(bundle, &target, replace, style)?;
    if !quiet {
        tell(&format!("{} in one layer of {}\n", size(saved.plain), size(saved.stored)));
    }
    print(format!("{}\n", saved.digest))
}
