//! Images that are files: the root of a config, and its mounts of the type squashfs.

use super::foreign;
use crate::container::images::ImageMounts;
use oci_spec::runtime::Mount;
use rt_image_store::ROOT;
use rt_spec::{Spec, annotations, mounts};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd};
use rustix::fs::{self, FileType, Stat};
use std::path::{Path, PathBuf};

/// The type of a mount that an image file can be the source of. The kernel's own driver takes a block device, and only from root.
pub(super) const SQUASHFS: &str = "squashfs";

/// The root file system that a config names.
pub(crate) struct Root {
    /// Its path, absolute.
    pub path: PathBuf,
    /// Its path from the bundle on, which is this process's working directory: nobody puts another one in the place of that.
    pub way: PathBuf,
    /// What is there: a directory, or a file.
    pub found: Stat,
}

impl Root {
    /// The root that `spec` names, from `bundle` on, the working directory. `foreign`: others can put something in its place, and
    /// only a directory there is one.
    ///
    /// # Errors
    /// The config names none, or as of [`Root::at`].
    pub(crate) fn of(spec: &Spec, bundle: &Path, foreign: bool) -> Result<Root> {
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        if foreign {
            return Root::of_others(bundle);
        }
        let way = annotations::image_file(spec).unwrap_or(root.path());
        Root::found(bundle.join(way), way.to_owned())
    }

    #[cold]
    fn of_others(bundle: &Path) -> Result<Root> {
        let (path, way) = (bundle.join(ROOT), PathBuf::from(ROOT));
        let found = fd::stat(foreign::open_root()?)?;
        Ok(Root { path, way, found })
    }

    /// The root at `path`, which is absolute.
    ///
    /// # Errors
    /// What is there is neither a directory nor a file.
    pub(crate) fn at(path: PathBuf) -> Result<Root> {
        Root::found(path.clone(), path)
    }

    fn found(path: PathBuf, way: PathBuf) -> Result<Root> {
        let found = fs::stat(&way).context(|| format!("rootfs {}", path.display()))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory | FileType::RegularFile => Ok(Root { path, way, found }),
            _ => bail!("rootfs {}: neither a directory nor an image", path.display()),
        }
    }

    /// True where it is an image.
    pub(super) fn is_image(&self) -> bool {
        is_file(&self.found)
    }
}

/// The images that have to be mounted before the plan of `spec` can be made, each once.
///
/// # Errors
/// An image cannot be looked at.
pub(crate) fn needed(spec: &Spec, bundle: &Path, root: &Root) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if root.is_image() {
        files.push(root.path.clone());
    }
    for mount in spec.mounts().iter().flatten().filter(|mount| mount.typ().as_deref() == Some(SQUASHFS)) {
        let words = mount.options().iter().flatten().map(String::as_str);
        if mounts::parse(words).bind {
            continue;
        }
        let source = bundle.join(source(mount));
        if is_file(&look_at(&source, mount.destination())?) && !files.contains(&source) {
            files.push(source);
        }
    }
    Ok(files)
}

/// The source of a mount of a new file system, without which it is the name of the type.
fn source(mount: &Mount) -> &Path {
    mount.source().as_deref().unwrap_or(Path::new(SQUASHFS))
}

/// The directory where the image `source` of a mount is mounted; `None` where that is no file.
pub(super) fn mounted(source: &Path, destination: &Path, images: &ImageMounts) -> Result<Option<PathBuf>> {
    let found = look_at(source, destination)?;
    if is_file(&found) { images.for_mount(source, &found).map(Some) } else { Ok(None) }
}

fn look_at(source: &Path, destination: &Path) -> Result<Stat> {
    fs::stat(source).context(|| format!("mount {}: image {}", destination.display(), source.display()))
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}
