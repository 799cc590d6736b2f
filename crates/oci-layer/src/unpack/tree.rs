//! A layer that lies on the disk as a tree: its files get further names, and are copied only where that cannot be.
//!
//! Whoever shares files so must know that nobody writes into them as long as one of the trees is there.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;

use super::{DirectoryTarget, LayerTarget, UnpackContext, Unpacker, add};
use crate::merge::{LayerNumber, Outcome, clean};
use crate::tar::Header;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rt_sys::origin;

/// What puts the entries of a tree into a directory.
pub struct TreeWriter<'a, 't> {
    unpacker: Unpacker<'a, DirectoryTarget<'t>>,
    /// Files may have further names in other trees.
    shares: bool,
    /// Whether copies that an overlay makes of files with several names are known here; none before the first one.
    is_markable: OnceCell<bool>,
    /// Files of which no further name is made, for those that have several names: what was copied, and what would not be the same,
    /// also where a higher layer hides its first name.
    apart: HashSet<Vec<u8>>,
}

impl<'a, 't> TreeWriter<'a, 't> {
    /// Writes `layer` of what is made.
    pub fn new(
        context: &'a UnpackContext<'a, DirectoryTarget<'t>>,
        layer: LayerNumber,
        shares: bool,
    ) -> TreeWriter<'a, 't> {
        let unpacker = Unpacker { context, writer: context.tree.writer(layer), since_check: 0 };
        TreeWriter { unpacker, shares, is_markable: OnceCell::new(), apart: HashSet::new() }
    }

    /// Makes what is no regular file.
    ///
    /// # Errors
    /// As of [`super::apply`].
    pub fn entry(&mut self, entry: &Header) -> Result<()> {
        // The entries of whiteouts are regular files without a content.
        self.unpacker.apply(entry, |_, _| Ok(()))
    }

    /// Makes a regular file. `is_plain`: the header says all that there is of it.
    ///
    /// # Errors
    /// As of [`super::apply`].
    pub fn file(&mut self, entry: &Header, file: &File, is_plain: bool) -> Result<()> {
        let path = clean(&entry.path)?;
        // As in an archive, such a name hides another.
        if path.rsplit(|&b| b == b'/').next().is_some_and(|name| name.starts_with(b".wh.")) {
            self.apart.insert(path.into_owned());
            return self.entry(entry);
        }
        let context = self.unpacker.context;
        let target = &context.tree.target;
        let is_same =
            self.shares && is_plain && target.would_be_same(file, entry)? && self.is_markable(file)?;
        let made = self.unpacker.writer.place(&path, |dir, name| {
            match is_same && target.share(file, dir, name)? {
                true => Ok(None),
                false => target.create(dir, name, entry).map(Some),
            }
        })?;
        self.unpacker.hidden(&made, entry.stored());
        if !is_same || matches!(made, Outcome::Done(Some(_))) {
            self.apart.insert(path.into_owned());
        }
        match made {
            Outcome::Hidden => return Ok(()),
            Outcome::Done(None) => add(&context.counts.bytes, entry.stored()),
            Outcome::Done(Some(new)) => {
                self.unpacker.space(entry.stored())?;
                copy(file, &new, entry)?;
                target.finish(&new, entry)?;
            }
        }
        add(&context.counts.files, 1);
        Ok(())
    }

    /// Looks at the first file alone: all are the caller's and on one file system.
    fn is_markable(&self, file: &File) -> Result<bool> {
        if let Some(known) = self.is_markable.get() {
            return Ok(*known);
        }
        let is_markable = origin::mark(file.as_fd())?;
        Ok(*self.is_markable.get_or_init(|| is_markable))
    }

    /// Makes another name of a regular file. False where that takes more than this writer knows.
    ///
    /// # Errors
    /// As of [`super::apply`].
    pub fn name(&mut self, entry: &Header, file: &File) -> Result<bool> {
        let target = &self.unpacker.context.tree.target;
        let writer = &mut self.unpacker.writer;
        let is_shared = self.shares && !self.apart.contains(&*clean(&entry.link)?);
        let made = match is_shared {
            true => writer.place(&clean(&entry.path)?, |dir, name| target.share(file, dir, name))?,
            false => writer.hard_link(&entry.path, &entry.link)?,
        };
        Ok(!matches!(made, Outcome::Done(false)))
    }
}

/// Copies the content of a file, holes left as holes.
fn copy(from: &File, to: &File, entry: &Header) -> Result<()> {
    for extent in entry.extents() {
        for mut file in [from, to] {
            file.seek(SeekFrom::Start(extent.offset)).context(|| "copy a file")?;
        }
        // By copy_file_range(2), where the kernel has it for both.
        let n = io::copy(&mut from.take(extent.length), &mut &*to).context(|| "copy a file")?;
        if n < extent.length {
            bail!("became shorter while it was copied");
        }
    }
    to.set_len(entry.size).context(|| "copy a file")
}
