//! `rt-image hold AT FILE... -- PROGRAM WORDS...`: mounts the images that a call of `rt` needs, then executes that call
//! again. Only `rt` calls it.
//!
//! AT becomes a small tmpfs, in this mount namespace alone. It has two directories for each image, named by device and inode
//! of the file, and with `--bundle` a bundle for the first one. All of it goes with the namespace, however that ends.

use crate::bundle;
use crate::commands::become_program;
use crate::file::ImageFile;
use crate::mount::{Session, Way, mount_point};
use rt_cli::flag::{Flag, switch, value};
use rt_cli::image::EXTRACT;
use rt_cli::parse::Call;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Follow, Param, Recursive};
use rustix::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) static BUNDLE: Flag = switch("bundle", "make a bundle for the first image");
pub(crate) static MORE: Flag = switch("more", "images are mounted at the directory already");
pub(crate) static FROM: Flag = value("from", "DIR", "execute the program in DIR");

/// Mounts, and becomes the program.
pub(crate) fn run(call: &Call) -> Result<u8> {
    let at = PathBuf::from(call.operands[0]);
    let mut images: Vec<ImageFile> = Vec::new();
    for path in &call.operands[1..] {
        let image = ImageFile::open(Path::new(path))?;
        // The same file by two names is one mount.
        if !images.iter().any(|other| key(other).ok() == key(&image).ok()) {
            images.push(image);
        }
    }
    let first = images.first().map(|image| Ok::<_, rt_sys::error::Error>((image.path.clone(), key(image)?)));
    let first = first.ok_or_else(|| err!("no image"))??;
    let session = Session::start(images, way(call))?;
    let (uid, gid) = session.ids();
    if !call.flags.has(&MORE) {
        make_scratch(&at)?;
    }
    let keys = session.mount(|image| {
        let key = key(image)?;
        Ok((make_mount_point(&at.join(&key))?, key))
    })?;
    for key in keys {
        // What is the container's root is covered by it. Who mounts the same image in it needs another mount.
        let tree = mount::clone_path(&at.join(&key), Recursive::No, Follow::Not)?;
        mount::attach(&tree, make_mount_point(&at.join(key + ROOT))?)?;
    }
    if call.flags.has(&BUNDLE) {
        let (name, key) = first;
        let root = at.join(key + ROOT);
        let config = bundle::config(mount_point(&root)?, &root, &name, uid, gid)?;
        bundle::write(&at.join("bundle"), &config)?;
    }
    if let Some(dir) = call.flags.path(&FROM) {
        std::env::set_current_dir(&dir).context(|| format!("enter {}", dir.display()))?;
    }
    become_program(call.rest)
}

/// How the images of a call become directories.
pub(crate) fn way(call: &Call) -> Way {
    if call.flags.has(&EXTRACT) { Way::Extract } else { Way::Mount }
}

/// What the name of an image's directory ends in where it is for a container's root.
const ROOT: &str = "-root";

fn make_mount_point(path: &Path) -> Result<OwnedFd> {
    std::fs::create_dir(path).context(|| format!("make {}", path.display()))?;
    mount_point(path)
}

/// The name of an image's directory. `rt` finds it by the same rule.
fn key(image: &ImageFile) -> Result<String> {
    let meta = image.file.metadata()?;
    Ok(format!("{:x}-{:x}", meta.dev(), meta.ino()))
}

/// A tmpfs at `at` for mount points and a config.
fn make_scratch(at: &Path) -> Result<()> {
    let context = || format!("mount a tmpfs on {}", at.display());
    let params =
        [("mode", "0755"), ("size", "1m")].map(|(key, value)| Param::Value(key.to_owned(), value.to_owned()));
    let attr = mount::ATTR_NOSUID | mount::ATTR_NODEV;
    let tmpfs = mount::new_fs("tmpfs", "rt-image", &params, attr).context(context)?;
    mount::attach(&tmpfs, mount_point(at)?).context(context)
}
