//! The story of a pull into an image file (squashfs), which is written as the layers arrive: no tree is made anywhere.
//!
//! Layers are worked on one after the other, from the top, so that what an upper layer hides is known when a lower one
//! comes, and so that the same image gives the same bytes. The file has the bundle's config in [`CONFIG_DIR`], by which
//! `rt run` knows as much of it as of a bundle.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use serde_json::Value;

use super::cache::CacheLocation;
use super::disk;
use super::draft::{self, Draft};
use super::interrupt::Interrupt;
use super::layer::{Counts, ImageTarget, UnpackContext};
use super::limits::Limits;
use super::merge::MergedTree;
use super::profile::{self, BundledImage, MountPoint};
use super::run::{self, Phases, PullOptions, Summary};
use super::source::Opened;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use squashfs_write::{Compression, Options};

/// The name in the draft.
const FILE: &[u8] = b"image";
/// What a squashfs begins with.
const MAGIC: &[u8; 4] = b"hsqs";
/// Where the config of the bundle and that of the image are in an image file.
const CONFIG_DIR: &str = ".rt";

/// Pulls into the file `options.target`.
pub(super) fn pull(
    options: &PullOptions,
    compression: Compression,
    interrupt: &Interrupt,
) -> Result<Summary> {
    let mut phases = Phases::start();
    let target = &options.target;
    let old = replaceable(target, options.force)?;
    let draft = Draft::beside(target)?;
    let scratch = match options.cache == CacheLocation::Scratch {
        true => Some(disk::make_own_dir(draft.dir(), b"scratch")?),
        false => None,
    };
    let (cache, _scratch) = options.cache.open(scratch)?;
    let opened = Opened::open(&options.source, options.connect.clone(), &cache, interrupt)?;
    let head = opened.head()?;
    let image = opened.resolve(head, &options.platform, &cache, interrupt)?;
    phases.end("resolve");

    let mask = disk::clear_umask();
    let root = disk::open_dir_again(draft.dir())?;
    let out = disk::create_own_file(draft.dir(), FILE)?;
    let limits = Limits { layers: 1, ..Limits::of_this_job(options.connections) };
    let counts = Counts::default();
    let written = Options { compression, threads: limits.threads, ..Options::default() };
    let tree = MergedTree::new(ImageTarget::new(out.try_clone().context(|| "dup")?, written, &counts)?);
    let context = UnpackContext {
        tree: &tree,
        root: &root,
        max_bytes: options.max_bytes,
        counts: &counts,
        interrupt,
        frame_threads: limits.frame_threads(1),
        pieces: limits.pieces(1),
    };
    let fetched = run::layers(&image, &context, &cache, limits, options)?;
    let directories = tree.finish_dirs()?;
    phases.end("layers");

    let bundled = BundledImage::of(&image, &options.image);
    let mut config = profile::config(&bundled, None, &options.choices)?;
    if let Some(linux) = config["linux"].as_object_mut() {
        // Whose ids are mapped is known when it runs.
        linux.remove("uidMappings");
        linux.remove("gidMappings");
    }
    let target_file = tree.into_target();
    add_files(&target_file, &config, &image.config_text)?;
    target_file.finish()?;
    disk::set_mode(out.as_fd(), 0o666 & !mask)?;
    if options.sync {
        disk::sync(&out)?;
    }
    match &old {
        Some(old) => draft.replace(FILE, old)?,
        None => draft.publish(FILE).map_err(|e| run::in_the_way(e, options))?,
    }
    phases.end("finish");
    Ok(Summary {
        digest: image.digest.to_string(),
        unchanged: false,
        fetched,
        layer_bytes: image.layer_bytes(),
        directories,
        counts,
        phases: phases.ended,
    })
}

/// What is at `target`, which is to be replaced; none where nothing is.
///
/// # Errors
/// It is not to be replaced, or is no image file.
fn replaceable(target: &Path, replace: bool) -> Result<Option<OwnedFd>> {
    let (parent, name) = draft::place(target)?;
    if disk::mode_at(parent.as_fd(), &name)?.is_none() {
        return Ok(None);
    }
    if !replace {
        return Err(err!("{}: exists", target.display()).hint("use --force to replace it"));
    }
    let mut begin = [0; MAGIC.len()];
    let file = disk::open_file(parent.as_fd(), &name).ok();
    match file.filter(|mut file| file.read_exact(&mut begin).is_ok() && begin == *MAGIC) {
        Some(file) => Ok(Some(file.into())),
        None => Err(err!("{}: not an image file, and --force replaces only these", target.display())),
    }
}

/// Adds what the config mounts on and the image lacks, since nothing can be made in the file later, and the configs.
fn add_files(image: &ImageTarget, config: &Value, image_config: &[u8]) -> Result<()> {
    for (path, what) in profile::mount_points(config) {
        match what {
            MountPoint::Directory => drop(image.directory(path)?),
            MountPoint::File => image.file_mount_point(path)?,
        }
    }
    if let Some(dir) = image.existing_directory(profile::APT_DIR) {
        image.add_file(dir, profile::APT_CONFIG, profile::APT_SAYS)?;
    }
    let Some(dir) = image.directory(CONFIG_DIR)? else {
        return Err(err!("the image has a file /{CONFIG_DIR}, where an image file has its config"));
    };
    let text = serde_json::to_vec_pretty(config).map_err(|e| err!("config.json: {e}"))?;
    image.add_file(dir, "config.json", &text)?;
    image.add_file(dir, "image.json", image_config)
}
