//! Images that are files: the root of a config, and its mounts of the type squashfs.

use crate::container::images::ImageMounts;
use oci_spec::runtime::Mount;
use rt_image_store::others::OthersRoot;
use rt_spec::{Spec, annotations, mounts};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd};
use rustix::fs::{self, FileType, Stat};
use std::path::{Component, Path, PathBuf};

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
    /// The way to it in a bundle in which others can have written, which is gone without a link.
    pub others: Option<OthersRoot>,
}

impl Root {
    /// The root that `spec` names, from `bundle` on, the working directory. `foreign`: others can put something in its place, and
    /// only a directory is one. So it is where the path leads into another bundle that others can have written.
    ///
    /// # Errors
    /// The config names none, or as of [`Root::at`].
    pub(crate) fn of(spec: &Spec, bundle: &Path, foreign: bool) -> Result<Root> {
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        let way = annotations::image_file(spec).unwrap_or(root.path());
        let path = bundle.join(way);
        if foreign && way.is_relative() {
            return Root::of_others(OthersRoot::here(way), path, way.to_owned());
        }
        // The usual root, one name in the caller's own bundle, leads nowhere else.
        if let (Some(Component::Normal(_)), 1) = (way.components().next(), way.components().count()) {
            let found = fs::lstat(way).context(|| format!("rootfs {}", path.display()))?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                return Ok(Root { path, way: way.to_owned(), found, others: None });
            }
        }
        match OthersRoot::on_way(&path).map_err(|e| e.context(format!("rootfs {}", path.display())))? {
            Some(others) => Root::of_others(others, path, way.to_owned()),
            None => Root::found(path, way.to_owned()),
        }
    }

    #[cold]
    fn of_others(others: OthersRoot, path: PathBuf, way: PathBuf) -> Result<Root> {
        let found = others.open().and_then(fd::stat).map_err(|e| match e.errno() {
            Some(_) => e.context(path.display().to_string()),
            None => e,
        })?;
        Ok(Root { path, way, found, others: Some(others) })
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
            FileType::Directory | FileType::RegularFile => Ok(Root { path, way, found, others: None }),
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
pub(super) fn source(mount: &Mount) -> &Path {
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
