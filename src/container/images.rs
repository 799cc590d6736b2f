//! Images that are files: `rt-image` mounts them, then executes the same call of `rt` again, which finds them mounted.
//!
//! A mount needs a process that serves it. That has to be made in a user namespace in which the mount is made too, and
//! outside of the mount namespace, so both come before anything of the container. The second call runs in these namespaces
//! as it would run in those of a client.

use crate::store::Store;
use rt_sys::err;
use rt_sys::error::{Context, Error, Result};
use rustix::fs::Stat;
use std::path::{Path, PathBuf};

/// What `rt-image` is asked to do.
#[derive(Debug)]
pub(crate) struct MountRequest<'a> {
    /// The directory to mount on.
    pub at: &'a Path,
    /// The files to mount.
    pub files: &'a [PathBuf],
    /// The first file is to be run, and has no bundle: one is to be made for it.
    pub bundle: bool,
    /// Others are mounted at the directory already.
    pub more: bool,
    /// Unpack the files instead of mounting them.
    pub extract: bool,
    /// The working directory in which relative paths of the command line are meant.
    pub called_in: Option<&'a Path>,
}

/// The images of a call.
#[derive(Debug, Default)]
pub(crate) struct ImageMounts {
    /// Where `rt-image` has mounted them (`--mounted-images`); none in the first call.
    pub mounted: Option<PathBuf>,
    /// They are to be unpacked instead (`--extract`).
    pub extract: bool,
    /// Becomes `rt-image`; what comes back is the error.
    pub mounter: Option<fn(&MountRequest<'_>) -> Error>,
    /// The working directory at the beginning, where a path of the command line may depend on it.
    pub called_in: Option<PathBuf>,
}

impl ImageMounts {
    /// True in the second call.
    pub(super) fn are_mounted(&self) -> bool {
        self.mounted.is_some()
    }

    /// Remembers the working directory, which will be the bundle. Who names the bundle in full names everything so, and it
    /// costs nothing then. In a second call the command line may have named an image instead.
    pub(super) fn remember_directory(&mut self, bundle: &Path) -> Result<()> {
        if bundle.is_relative() || self.are_mounted() {
            self.called_in = Some(std::env::current_dir().context(|| "find the working directory")?);
        }
        Ok(())
    }

    /// Replaces the path of an image by the directory where it is mounted, or adds it to `files`, which are to be mounted.
    pub(super) fn resolve(&self, path: &mut PathBuf, found: &Stat, used: Used, files: &mut Vec<PathBuf>) {
        let mounted = self.mounted.as_ref().map(|dir| dir.join(name_of(found, used)));
        match mounted.filter(|dir| dir.is_dir()) {
            Some(dir) => *path = dir,
            None if files.contains(path) => {}
            None => files.push(path.clone()),
        }
    }

    /// Becomes `rt-image`, which mounts `files` and executes this call again.
    #[cold]
    pub(super) fn mount(&self, store: &Store, files: &[PathBuf]) -> Result<Error> {
        let at = match &self.mounted {
            Some(at) => at.clone(),
            None => store.mounted_images()?,
        };
        let called_in = self.called_in.as_deref();
        let (more, extract) = (self.are_mounted(), self.extract);
        Ok(self.become_mounter(&MountRequest { at: &at, files, bundle: false, more, extract, called_in }))
    }

    fn become_mounter(&self, request: &MountRequest) -> Error {
        match self.mounter {
            Some(become_mounter) => become_mounter(request),
            None => err!("an image that is a file cannot be mounted here"),
        }
    }
}

/// What an image is used for. Each has its own mount of it: that of the root is covered by the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    /// As the container's root.
    Root,
    /// At a place of the container.
    Mount,
}

/// The name of an image's directory, which `rt-image` makes by the same rule: device and inode.
fn name_of(found: &Stat, used: Used) -> String {
    let ending = if used == Used::Root { "-root" } else { "" };
    format!("{:x}-{:x}{ending}", found.st_dev, found.st_ino)
}

/// The bundle of an image that has none: `rt-image` makes it. The first call becomes `rt-image` here.
pub(crate) fn bundle_of_image(store: &Store, images: &ImageMounts, file: &Path) -> Result<PathBuf> {
    if let Some(mounted) = &images.mounted {
        return Ok(mounted.join("bundle"));
    }
    let files = [std::path::absolute(file)?];
    let at = store.mounted_images()?;
    let extract = images.extract;
    let request =
        MountRequest { at: &at, files: &files, bundle: true, more: false, extract, called_in: None };
    Err(images.become_mounter(&request))
}
