//! A bundle's tree becomes an image of one layer, for podman, docker, skopeo and registries; the upper layer of an overlay
//! over it becomes a second one.

mod config;
mod gzip;
mod holes;
mod layer;
mod whole;
mod write;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use self::config::SavedConfig;
pub(crate) use self::config::{KeptHistory, without_image};
pub(crate) use self::layer::{
    Compression, LayerTree, Sink, Times, TreeKind, Watch, WrittenLayer, measure, read_tree,
    write as write_layer, write_archive,
};
pub(crate) use self::whole::Whole;
use self::write::{NewDockerArchive, NewLayout};
use super::bundle;
use super::draft::{self, Draft};
use super::layout;
use super::progress::Style;
use super::reference::Source;
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, is_interrupted};
use oci_content::meter::Meter;
use oci_registry::reference::Reference;
use rt_image_store::Word;
use rt_image_store::others::OthersRoot;
use rt_spec::ANNOTATION_NAME;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err};

/// The media type of the manifests that are made here.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const IMAGE: &[u8] = b"image";
const ARCHIVE: &[u8] = b"archive";
/// No error names more images of a layout.
const MOST_NAMED: usize = 3;

/// An image that was written.
pub(crate) struct Saved {
    /// Digest of its manifest; of its config, where it is an archive for docker, which has none.
    pub digest: Digest,
    /// Bytes of its layers as tar archives.
    pub plain: u64,
    /// Bytes of its layers as they are stored, compressed or not.
    pub stored: u64,
    /// How many layers it has.
    pub layers: usize,
    /// Its layers, the lowest first.
    pub written: Vec<WrittenLayer>,
}

impl Saved {
    fn of(digest: Digest, layers: Vec<WrittenLayer>) -> Saved {
        Saved {
            digest,
            plain: layers.iter().map(|layer| layer.plain).sum(),
            stored: layers.iter().map(|layer| layer.size).sum(),
            layers: layers.len(),
            written: layers,
        }
    }
}

/// What is saved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct What<'a> {
    /// The bundle.
    pub bundle: &'a Path,
    /// The directory of a layer over it (`rt run --overlay`).
    pub overlay: Option<&'a Path>,
}

/// What an image is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaveFormat {
    /// A directory, the image-spec's layout.
    Layout,
    /// A tar archive of one.
    Archive,
    /// What `docker save` writes.
    Docker,
}

/// Where an image is written.
pub(crate) struct SaveTarget {
    path: PathBuf,
    /// The tag, or for docker the name with its tag.
    name: Option<String>,
    format: SaveFormat,
}

impl SaveTarget {
    /// A layout that the caller makes.
    pub(crate) fn layout(path: PathBuf) -> SaveTarget {
        SaveTarget { path, name: None, format: SaveFormat::Layout }
    }

    /// Reads what the user named.
    pub(crate) fn parse(text: &str) -> Result<SaveTarget> {
        let (path, name, format) = match text.parse::<Source>()? {
            Source::OciLayout { path, select } => (path, select, SaveFormat::Layout),
            Source::OciArchive { path, select } => (path, select, SaveFormat::Archive),
            Source::DockerArchive { path, select } => {
                (path, select.as_deref().map(docker_name).transpose()?, SaveFormat::Docker)
            }
            _ => {
                return Err(err!(
                    "{text}: images are written to oci:DIR[:TAG], oci-archive:FILE[:TAG] and \
                     docker-archive:FILE[:NAME:TAG]"
                )
                .hint("rt push writes to a registry"));
            }
        };
        // Other programs' word for standard output. An image is written to its end before anybody sees it.
        if path == Path::new("-") {
            return Err(
                err!("{text}: no image is written to standard output").hint("./- is a file of that name")
            );
        }
        Ok(SaveTarget { path, name, format })
    }

    /// What is there may be replaced without a word: it has no images but the one of this tag.
    ///
    /// # Errors
    /// It has others, or cannot be replaced at all.
    pub(crate) fn check_replaces_itself(&self) -> Result<()> {
        let Some(old) = self.replaceable(true)? else { return Ok(()) };
        if self.format != SaveFormat::Layout {
            return Ok(());
        }
        let others = layout::others(old.as_fd(), self.name.as_deref());
        let mut others = others.context(|| self.path.display().to_string())?;
        if others.is_empty() {
            return Ok(());
        }
        // One for several platforms has several entries.
        others.dedup();
        let more = others.len().saturating_sub(MOST_NAMED);
        others.truncate(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let what = format!("{}: has other images, which would be lost", self.path.display());
        Err(err!("{what}: {}{more}", others.join(", ")).hint("name another directory"))
    }

    /// What is there and may be replaced; none where nothing is.
    fn replaceable(&self, replace: bool) -> Result<Option<OwnedFd>> {
        let shown = self.path.display();
        let (parent, name) = draft::place(&self.path)?;
        let Some(mode) = disk::mode_at(parent.as_fd(), &name)? else { return Ok(None) };
        if !replace {
            // Nothing else would remove what a killed command has left here, as long as the image is here.
            draft::sweep_beside(parent.as_fd(), &name);
            // Whoever is told of --force would lose no more than he knows of.
            self.check_replaces_itself()?;
            return Err(err!("{shown}: exists").hint("use --force to replace it"));
        }
        let old: OwnedFd = disk::open_any(parent.as_fd(), &name)?.into();
        let kind = mode & 0o170000;
        if self.format != SaveFormat::Layout {
            return match kind {
                0o100000 => Ok(Some(old)),
                _ => bail!("{shown}: exists, and is not a file; only files are replaced"),
            };
        }
        let has = |name: &[u8]| disk::mode_at(old.as_fd(), name).is_ok_and(|mode| mode.is_some());
        if kind != 0o040000 || !(has(b"oci-layout") && has(b"index.json")) {
            bail!("{shown}: exists, and is not an OCI layout; only layouts are replaced");
        }
        Ok(Some(old))
    }
}

/// A name for `docker load`, with a tag.
fn docker_name(text: &str) -> Result<String> {
    let reference: Reference = text.parse()?;
    if reference.digest.is_some() {
        bail!("image {text:?}: an archive for docker has names with tags, and no digests");
    }
    Ok(match text.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        true => text.to_owned(),
        false => format!("{text}:latest"),
    })
}

/// A bundle, read to become an image.
pub(crate) struct SourceBundle {
    config: Value,
    original: Option<Value>,
    /// The lowest first: its root, and what was written over it.
    trees: Vec<LayerTree>,
    /// Where it is no bundle but what `rt build` has made.
    built: Option<Built>,
}

/// What `rt build` has made, in place of a bundle's config.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    /// The image's config, all but the digests of the layers.
    pub config: Value,
    /// The annotations of its manifest.
    pub annotations: Map<String, Value>,
    /// How the layers of a layout are stored.
    pub compression: Compression,
}

/// A bundle's parts.
pub(crate) struct Parts {
    /// The trees, the lowest first.
    pub trees: Vec<LayerTree>,
    /// The bundle's config.
    pub config: Value,
    /// The config of the image that it was pulled from.
    pub original: Option<Value>,
}

/// The documents of an image.
pub(crate) struct Documents {
    /// Its config.
    pub config: Vec<u8>,
    /// Its manifest.
    pub manifest: Vec<u8>,
}

impl SourceBundle {
    /// Reads the configs of a bundle, and opens its root and what is over it.
    pub(crate) fn open(what: What<'_>) -> Result<SourceBundle> {
        let path = what.bundle;
        let place = rt_sys::fd::absolute(path)?;
        let (dir, word) = bundle::look(path)?;
        let text = bundle::config_text(&dir, word)
            .map_err(|e| e.context(format_args!("{}: not a bundle", path.display())))?;
        let config: Value =
            serde_json::from_slice(&text).map_err(|e| err!("{}/config.json: {e}", path.display()))?;
        // By a link of the caller's, too.
        let is_stored = word == Word::Stores || rt_image_store::is_stored(&rt_sys::fd::path_of(&dir)?);
        let root = match is_stored {
            // Others may have written that config, or a link in place of the root.
            true => disk::open_dir(dir.as_fd(), rt_image_store::ROOT.as_bytes())
                .context(|| path.display().to_string())?,
            false => {
                let root = Path::new(config["root"]["path"].as_str().unwrap_or("rootfs"));
                // A start opens it by the same rule.
                match OthersRoot::on_way(&place.join(root))? {
                    Some(others) => others.open().context(|| path.display().to_string())?,
                    // From where the config was read: another directory can have the bundle's name by now.
                    None => disk::open_root(&Path::new(&rt_sys::fd::link(&dir)).join(root))
                        .context(|| path.display().to_string())?,
                }
            }
        };
        let original = bundle::image_config(dir.as_fd(), word).context(|| path.display().to_string())?;
        let mut trees = vec![LayerTree { kind: TreeKind::Root, times: Times::Own, root }];
        if let Some(overlay) = what.overlay {
            trees.push(LayerTree { kind: TreeKind::Upper, times: Times::Own, root: open_upper(overlay)? });
        }
        Ok(SourceBundle { config, original, trees, built: None })
    }

    /// What `rt build` has made.
    pub(crate) fn built(trees: Vec<LayerTree>, built: Built) -> SourceBundle {
        SourceBundle { config: Value::Null, original: None, trees, built: Some(built) }
    }

    /// How the layers of a layout are stored.
    fn compression(&self) -> Compression {
        match &self.built {
            Some(built) => built.compression,
            None => Compression::Gzip,
        }
    }

    /// Its trees, the lowest first. Each becomes a layer.
    pub(crate) fn trees(&self) -> &[LayerTree] {
        &self.trees
    }

    /// What it consists of.
    pub(crate) fn into_parts(self) -> Parts {
        Parts { trees: self.trees, config: self.config, original: self.original }
    }

    /// The name of the image that it was pulled from, where it was.
    pub(crate) fn pulled_from(&self) -> Option<&str> {
        self.config["annotations"][ANNOTATION_NAME].as_str()
    }

    /// The documents of an image with these layers: one for each tree or, with their history, those of which it was made.
    pub(crate) fn documents(
        &self,
        layers: &[WrittenLayer],
        history: Option<KeptHistory>,
    ) -> Result<Documents> {
        let diff_ids: Vec<&Digest> = layers.iter().map(|layer| &layer.diff_id).collect();
        let saved = match &self.built {
            Some(built) => {
                let mut config = built.config.clone();
                config["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
                SavedConfig { config, annotations: built.annotations.clone() }
            }
            None => {
                let root = &self.trees[0].root;
                config::saved_config(&self.config, self.original.clone(), root, &diff_ids, history)
            }
        };
        let bytes = |value: &Value| serde_json::to_vec(value).map_err(|e| err!("image config: {e}"));
        let descriptor = |layer: &WrittenLayer| json!({ "mediaType": layer.compression.media_type(), "digest": layer.digest, "size": layer.size });
        let config = bytes(&saved.config)?;
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(&config),
                        "size": config.len() },
            "layers": layers.iter().map(descriptor).collect::<Vec<_>>(),
        });
        if !saved.annotations.is_empty() {
            manifest["annotations"] = Value::Object(saved.annotations);
        }
        Ok(Documents { config, manifest: bytes(&manifest)? })
    }
}

/// The name of the image that a bundle was pulled from, where it was.
pub(crate) fn pulled_from(bundle: &Path) -> Result<Option<String>> {
    Ok(SourceBundle::open(What { bundle, overlay: None })?.pulled_from().map(str::to_owned))
}

/// The upper layer in the directory of an overlay.
fn open_upper(overlay: &Path) -> Result<OwnedFd> {
    let context = || format!("--overlay {}", overlay.display());
    let dir = disk::open_root(overlay).context(context)?;
    match disk::open_dir(dir.as_fd(), rt_spec::OVERLAY_UPPER.as_bytes()) {
        Err(e) if e.is(libc::ENOENT) => Err(err!("{}: no layer of rt run --overlay is in it", context())),
        opened => opened.context(context),
    }
}

/// Writes a bundle as an image. With `replace`, what is at the target may be an image.
///
/// # Errors
/// Nothing of it is there then.
pub(crate) fn save(what: What<'_>, target: &SaveTarget, replace: bool, style: Style) -> Result<Saved> {
    let interrupt = Interrupt::install();
    save_watched(what, target, replace, style, &interrupt).map_err(|e| match is_interrupted(&e) {
        true => err!("interrupted; nothing was written"),
        false => e,
    })
}

fn save_watched(
    what: What<'_>,
    target: &SaveTarget,
    replace: bool,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Saved> {
    let bundle = SourceBundle::open(what)?;
    rt_sys::process::raise_open_files();
    write_bundle(&bundle, target, replace, style, Watch { interrupt, meter: &Meter::default() })
}

/// Writes what was read to be an image.
pub(crate) fn write_bundle(
    bundle: &SourceBundle,
    target: &SaveTarget,
    replace: bool,
    style: Style,
    watch: Watch,
) -> Result<Saved> {
    let old = target.replaceable(replace)?;
    let mask = rt_sys::process::clear_umask();
    let draft = Draft::beside(&target.path)?;
    let tag = target.name.as_deref();
    let saved = style.show("save", watch.meter, || match target.format {
        SaveFormat::Docker => {
            NewDockerArchive { draft: &draft, mode: 0o666 & !mask }.write(bundle, tag, watch)
        }
        format => {
            let layout = NewLayout::create(disk::make_own_dir(draft.dir(), IMAGE)?, mask)?;
            let saved = layout.write(bundle, tag.unwrap_or("latest"), watch)?;
            match format {
                SaveFormat::Layout => {
                    layout.open_to_others()?;
                    disk::sync(draft.dir())?;
                }
                _ => layout.write_archive(draft.dir(), ARCHIVE, watch)?,
            }
            Ok(saved)
        }
    })?;
    let made = if target.format == SaveFormat::Layout { IMAGE } else { ARCHIVE };
    match &old {
        Some(old) => draft.replace(made, old)?,
        None => draft.publish(made)?,
    }
    draft.sync_place()?;
    Ok(saved)
}
