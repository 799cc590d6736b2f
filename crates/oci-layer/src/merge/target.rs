//! What a merged tree is written to.

use super::table::DirMetadata;
use rt_sys::error::Result;

/// A directory of a file system, or an image file. Names are single components; [`super::MergedTree`] has decided that they
/// belong into the tree, and makes every directory before what is in it.
pub trait Target: Sync {
    /// A directory.
    type Dir: Clone;

    /// The root directory.
    fn root(&self) -> Self::Dir;
    /// A directory that was made.
    fn open_dir(&self, parent: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;
    /// Makes a directory.
    fn make_dir(&self, parent: &Self::Dir, name: &[u8]) -> Result<()>;
    /// Removes what is no directory. That nothing is there is no error.
    fn unlink(&self, parent: &Self::Dir, name: &[u8]) -> Result<()>;
    /// Takes a directory away with all that is in it.
    fn discard_dir(&self, parent: &Self::Dir, name: &[u8]) -> Result<()>;
    /// Makes a second name of a file.
    fn link(&self, from: &Self::Dir, from_name: &[u8], to: &Self::Dir, to_name: &[u8]) -> Result<()>;
    /// Gives a directory, or the root, its metadata.
    fn finish_dir(&self, dir: Option<(&Self::Dir, &[u8])>, metadata: &DirMetadata) -> Result<()>;
}

/// A target for tests of the table.
#[cfg(test)]
pub(super) struct Nowhere;

#[cfg(test)]
impl Target for Nowhere {
    type Dir = ();

    fn root(&self) {}
    fn open_dir(&self, _: &(), _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn make_dir(&self, _: &(), _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn unlink(&self, _: &(), _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn discard_dir(&self, _: &(), _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn link(&self, _: &(), _: &[u8], _: &(), _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn finish_dir(&self, _: Option<(&(), &[u8])>, _: &DirMetadata) -> Result<()> {
        Ok(())
    }
}
