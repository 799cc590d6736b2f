//! Bundles in a store of images that somebody else has made, or could change: what they ask of the host does not count.
//!
//! A name chose such a bundle, and not the caller, so its config counts as an image's own does ([`own_config`]). Whoever
//! names a bundle, or a config, by its path outside of a store has chosen its owner, but by no relative one from a directory of others:
//! they may have moved that out of a store. Such a one counts so, too, and is refused where it takes something of the host.

use super::image_files::{self, SQUASHFS};
use rt_image_store::others::{self, CONFIG, OthersRoot, Seen};
use rt_image_store::{ROOT, Word, own_config};
use rt_spec::{Config, Spec, json_error, mounts};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, caller, err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use std::path::Path;

/// How long such a config may be, in bytes.
const MOST: usize = 16 << 20;

/// A bundle in which others can have written, of a store or moved out of one: the working directory.
pub(super) struct OthersBundle {
    config: Result<OwnedFd>,
    /// What others can do.
    why: String,
}

impl OthersBundle {
    /// The bundle that was entered; `None` where it may ask for everything: it is in no store, or nobody but root and the caller can
    /// have written or brought it. `is_stored`: the way by which it was found counts as one into a store.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(super) fn entered(bundle: &Path, word: Word) -> Result<Option<OthersBundle>> {
        if word != Word::Stores && !rt_image_store::is_stored(bundle) {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = fs::open(".", flags, Mode::empty()).context(|| "the bundle")?;
        let Seen { config, others } = Seen::of(&here, bundle)?;
        Ok(others.map(|why| OthersBundle { config, why }))
    }

    /// Its config, without what reaches beyond the container.
    ///
    /// # Errors
    /// It is missing, or none, or that of one that was moved takes something of the host; those of read(2).
    pub(super) fn config(self, bundle: &Path) -> Result<Vec<u8>> {
        let shown = bundle.display();
        let file = self.config?;
        let is_callers = fd::stat(&file)?.st_uid == caller::uid();
        let text = read_at_most(file)?;
        if !rt_image_store::is_stored(bundle) && others::first_on_way(bundle)?.is_none() {
            return moved(&self.why, &text);
        }
        log::debug!("{shown}: {}, so its config names no hook and no path of the host", self.why);
        OthersRoot::here(Path::new(ROOT)).open()?;
        let uid = caller::uid();
        let gid = rustix::process::getegid().as_raw();
        let said = serde_json::from_slice(&text).map_err(json_error)?;
        let config = own_config::config(&said, Path::new(ROOT), uid, gid)?;
        let lost = match is_callers {
            true => own_config::left_out(&said, &config).join(", "),
            false => String::new(),
        };
        if !lost.is_empty() {
            let said = format!("so this of its config does not count: {lost}");
            rt_sys::log::tell(format_args!("{shown}: {}, {said}", self.why));
        }
        Ok(config.to_string().into_bytes())
    }
}

/// The config in the working directory, where others can put one of theirs at any time.
///
/// # Errors
/// Another user owns what is read; it is missing, or none; those of read(2).
#[cold]
pub(super) fn config_of_owner() -> Result<Config> {
    let text = others::open_own(fs::CWD, CONFIG).and_then(read_at_most);
    Config::of(text, Path::new(CONFIG))
}

fn read_at_most(file: OwnedFd) -> Result<Vec<u8>> {
    fd::read_regular(file, MOST)?.ok_or_else(|| err!("{CONFIG}: longer than {MOST} bytes, or no file"))
}

/// Refuses a config that Slurm has made of a bundle in a store of images that others can write: who wrote the bundle chose
/// what Slurm has taken over, hooks among it, and nothing tells it from the words of the job any more.
pub(super) fn refuse_merged(root: &Path) -> Result<()> {
    let context = || format!("root {}", root.display());
    // The way that the config names is gone link by link, so this is where that leads, too.
    let Some((bundle, _, why)) = others::first_on_way(root).map_err(|e| e.context(context()))? else {
        return Ok(());
    };
    bail!(
        "{}: {why}, and Slurm has taken over all that it says; name the image by --container-image",
        bundle.display()
    )
}

/// The config that the caller has named in place of the bundle's, as it was read before the bundle was entered.
#[derive(Debug)]
pub(crate) struct CallersConfig {
    text: Result<Vec<u8>>,
    /// It counts as another user's, who may have moved it out of a store.
    pub(super) is_anothers: bool,
}

impl CallersConfig {
    /// Reads the file `path`. What is wrong with it is said when it is used.
    #[cold]
    pub(crate) fn read(path: &Path) -> CallersConfig {
        let opened = others::open_named_file(path);
        let is_anothers = opened.as_ref().is_ok_and(|(_, is_anothers)| *is_anothers);
        let read = |file| match is_anothers {
            true => read_at_most(file),
            false => fd::read_all(file),
        };
        CallersConfig { text: opened.and_then(|(file, _)| read(file)), is_anothers }
    }

    /// The config, which is at `path`; `foreign`: others can change the bundle.
    ///
    /// # Errors
    /// Others can change the file; or such a bundle, and sources of mounts start at it. It could not be read.
    #[cold]
    pub(super) fn config(&self, path: &Path, foreign: bool) -> Result<Config> {
        let shown = path.display();
        if let Some((bundle, _, why)) = others::first_on_way(path)? {
            return Err(err!("{shown}: {why}: {}", bundle.display()).hint("name a copy of your own"));
        }
        let text = match self.is_anothers {
            true => self.text.clone().and_then(|text| moved("others can write this file", &text)),
            false => self.text.clone(),
        };
        let config = Config::of(text, path)?;
        if foreign {
            refuse_sources_of_others(&config.spec)?;
        }
        Ok(config)
    }
}

/// The config `text` of another user's, which no whole path names: he may have moved it out of a store, so it counts as an image's own.
/// Its user is told what does not count.
///
/// # Errors
/// It takes something of the host. Or that is meant, and without it the config would be another one.
fn moved(why: &str, text: &[u8]) -> Result<Vec<u8>> {
    // As it would be read: a list for an object's fields without their names is the same to serde.
    let spec: Spec = serde_json::from_slice(text).map_err(json_error)?;
    let said = serde_json::to_value(spec).map_err(json_error)?;
    let so = |lost: &[String]| {
        format!(
            "{why}, and a relative path names it, so this of its config does not count: {}",
            lost.join(", ")
        )
    };
    let taken = own_config::of_host(&said, caller::uid() == 0);
    if !taken.is_empty() {
        return Err(err!("{}", so(&taken)).hint("where they are meant to, its whole path names it"));
    }
    let root = Path::new(said["root"]["path"].as_str().unwrap_or(ROOT));
    let gid = rustix::process::getegid().as_raw();
    let mut config = own_config::config(&said, root, caller::uid(), gid)?;
    let mut lost = own_config::left_out(&said, &config);
    lost.extend(own_config::also_left_out(&said, &config));
    for key in ["terminal", "consoleSize"] {
        config["process"][key] = said["process"][key].clone();
    }
    if !lost.is_empty() {
        rt_sys::log::tell(so(&lost));
    }
    Ok(config.to_string().into_bytes())
}

fn refuse_sources_of_others(spec: &Spec) -> Result<()> {
    for mount in spec.mounts().iter().flatten() {
        let kind = mount.typ().as_deref();
        let source = match (mounts::is_bind(mount), kind == Some(SQUASHFS)) {
            (true, _) => mount.source().as_deref(),
            (false, true) => Some(image_files::source(mount)),
            (false, false) => None,
        };
        // overlayfs names directories in its options.
        let options = mount.options().iter().flatten().filter(|_| kind == Some("overlay"));
        let layers =
            options.filter_map(|option| option.split_once('=').filter(|(key, _)| key.contains("dir")));
        // A colon of a name has a backslash, and nothing stands between the two that precede data-only layers.
        let layers: Vec<_> = layers.map(|(_, dirs)| dirs.replace("\\:", "")).collect();
        let layers = layers.iter().flat_map(|dirs| dirs.split(':')).filter(|dir| !dir.is_empty());
        for way in source.into_iter().chain(layers.map(Path::new)) {
            refuse_way_of_others(way)
                .map_err(|e| e.context(format!("mount {}", mount.destination().display())))?;
        }
    }
    let filter = spec.linux().as_ref().and_then(|linux| linux.seccomp());
    let listener = filter.and_then(|filter| filter.listener_path().as_deref());
    listener
        .filter(|way| !way.as_os_str().is_empty())
        .map_or(Ok(()), refuse_way_of_others)
        .map_err(|e| e.context("linux.seccomp.listenerPath"))
}

/// Relative ones start at the bundle.
fn refuse_way_of_others(way: &Path) -> Result<()> {
    if way.is_relative() || others::first_on_way(way)?.is_some() {
        bail!("{} starts at a bundle that others can change", way.display());
    }
    Ok(())
}
