//! A bundle's root of layers that lie on the disk as trees.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use super::each::each;
use super::limits::Limits;
use super::save::{self, LayerTree, Sink, Watch};
use oci_content::meter::Meter;
use oci_layer::merge::LayerNumber;
use oci_layer::tar::Header;
use oci_layer::unpack::{DirectoryTarget, TreeWriter, UnpackContext};
use rt_sys::error::{Context, Result};

/// Merges `trees`, the lowest first, several at a time. Where nothing will write into the root (`is_read_only`), files of those with
/// `true`, into which nothing writes either, get further names in place of copies. False where a hard link leads to what a higher
/// layer hides: only an archive can be read again for it.
pub(super) fn merge(
    trees: &[(LayerTree, bool)],
    context: &UnpackContext<DirectoryTarget>,
    limits: Limits,
    is_read_only: bool,
) -> Result<bool> {
    let is_whole = AtomicBool::new(true);
    // From the top: what a higher layer hides is not made first.
    let numbered: Vec<_> = trees.iter().enumerate().rev().collect();
    each(&numbered, limits.layers, context.interrupt, |(at, (tree, shares))| {
        let number = (at + 1) as LayerNumber;
        let meter = Meter::default();
        let watch = Watch { interrupt: context.interrupt, meter: &meter };
        let mut into =
            Into { writer: TreeWriter::new(context, number, is_read_only && *shares), is_whole: &is_whole };
        save::read_tree(tree, &mut into, watch).context(|| format!("layer {number}"))
    })?;
    Ok(is_whole.into_inner())
}

struct Into<'a, 't> {
    writer: TreeWriter<'a, 't>,
    is_whole: &'a AtomicBool,
}

impl Sink for Into<'_, '_> {
    fn entry(&mut self, entry: &Header) -> Result<()> {
        self.writer.entry(entry)
    }

    fn file(&mut self, entry: &Header, file: &File, is_plain: bool) -> Result<()> {
        self.writer.file(entry, file, is_plain)
    }

    fn name(&mut self, entry: &Header, file: &File) -> Result<()> {
        if !self.writer.name(entry, file)? {
            self.is_whole.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
