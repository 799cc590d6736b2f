//! `rt save`

use super::{operand, tell};
use crate::progress::size;
use crate::reference::Source;
use crate::save::{self, SaveFormat};
use rt_cli::image::SILENT;
use rt_cli::parse::Call;
use rt_cli::print;
use rt_sys::bail;
use rt_sys::error::Result;
use std::path::Path;

/// Writes a bundle's tree as an image and prints its digest.
pub(super) fn run(call: &Call) -> Result<u8> {
    let image = operand(call, 1)?;
    let (path, tag, format) = match image.parse::<Source>()? {
        Source::OciLayout { path, select } => (path, select, SaveFormat::Layout),
        Source::OciArchive { path, select } => (path, select, SaveFormat::Archive),
        _ => bail!("{image}: images are written to oci:DIR[:TAG] and oci-archive:FILE[:TAG] only"),
    };
    let saved = save::save(Path::new(call.operands[0]), &path, tag.as_deref(), format)?;
    if !call.flags.has(&SILENT) {
        tell(&format!("{} in one layer of {}\n", size(saved.plain), size(saved.compressed)));
    }
    print(format!("{}\n", saved.digest))
}
