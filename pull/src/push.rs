//! The story of a push: a bundle's root, or an image on disk, to a registry.

use std::ffi::OsStr;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::archive::{Store, StoredFile};
use super::build::KeptImage;
use super::cache::{Cache, CacheLocation};
use super::layout;
use super::platform::Platform;
use super::progress::{Style, size};
use super::reference::Source;
use super::save::{self, Compression, KeptHistory, MANIFEST_TYPE, SourceBundle, Watch, What, WrittenLayer};
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, is_interrupted};
use oci_content::meter::Meter;
use oci_registry::reference::Reference;
use oci_registry::registries_conf::Registries;
use oci_registry::registry::{ConnectOptions, LocalBlob, Registry, Uploaded};
use rt_image_store::name::in_registry;
use rt_image_store::word;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, process};
use rustix::fs::FileType;

/// What is pushed.
#[derive(Debug, Clone)]
pub(crate) enum PushSource {
    /// A bundle, whose root becomes one layer, and the overlay over it another one.
    Bundle(PathBuf, Option<PathBuf>),
    /// An image on disk, as it is.
    Image(Source),
}

impl PushSource {
    /// A name with a transport is an image, and everything else a bundle.
    pub(crate) fn parse(word: &OsStr) -> Result<PushSource> {
        let scheme = word.to_str().and_then(|text| text.split_once(':'));
        match scheme {
            Some(("oci" | "oci-archive", _)) => {
                Ok(PushSource::Image(word.to_str().unwrap_or_default().parse()?))
            }
            Some((scheme @ ("docker-archive" | "docker-daemon" | "podman" | "docker"), _)) => {
                Err(err!("{scheme}: is not pushed from: it has no layers as registries keep them")
                    .hint("rt pull it to a bundle, and push that"))
            }
            _ if word::own(Path::new(word))? == Some(FileType::RegularFile) => {
                let file = Path::new(word).display();
                let remedy = match word.to_str().is_some_and(|name| name.ends_with(".tar")) {
                    true => format!("oci-archive:{file}"),
                    false => format!("rt convert {file} oci:DIR, and then rt push oci:DIR"),
                };
                Err(err!("{file}: a file, which a registry does not take as it is").hint(remedy))
            }
            _ => Ok(PushSource::Bundle(word.into(), None)),
        }
    }
}

/// The options of a push.
pub(crate) struct PushOptions {
    /// What is pushed.
    pub source: PushSource,
    /// Where to.
    pub target: Reference,
    /// Which image of an index.
    pub platform: Platform,
    /// How to connect.
    pub connect: ConnectOptions,
    /// On whose file system a bundle's layer is written.
    pub cache: CacheLocation,
    /// What is shown meanwhile.
    pub style: Style,
}

/// What happened.
pub(crate) struct Pushed {
    /// The name in the registry.
    pub name: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that the registry had.
    pub present: u64,
    /// Bytes that it took over from another repository.
    pub mounted: u64,
}

/// Reads the name to push to.
///
/// # Errors
/// A digest: what it names is what it is.
pub(crate) fn target(text: &str, registry: Option<&str>) -> Result<Reference> {
    if !text.starts_with("docker://")
        && matches!(text.parse::<Source>(), Ok(source) if !matches!(source, Source::Registry(_)))
    {
        return Err(err!("{text}: not a name in a registry").hint("rt save writes layouts and archives"));
    }
    let reference: Reference = in_registry(text, registry).parse()?;
    if reference.digest.is_some() {
        bail!("{text}: push to a tag; the image's digest follows from what it is");
    }
    Ok(reference)
}

/// Pushes.
///
/// # Errors
/// Whatever keeps the image from being complete. The tag stays what it was then.
pub(crate) fn run(options: &PushOptions) -> Result<Pushed> {
    let interrupt = Interrupt::install();
    process::raise_open_files();
    push(options, &interrupt).map_err(|e| match is_interrupted(&e) {
        true => err!("interrupted; {} is what it was", options.target),
        false => e,
    })
}

/// An image that lies ready.
struct ReadyImage {
    /// Layers and config, the config last.
    blobs: Vec<LocalBlob>,
    media_type: String,
    manifest: Vec<u8>,
    /// A repository of the same registry that may have some of the blobs.
    from: Option<String>,
}

fn push(options: &PushOptions, interrupt: &Interrupt) -> Result<Pushed> {
    let (cache, _scratch) = options.cache.open(None)?;
    let registry =
        Registry::new(&options.target, &Registries::from_environment()?, options.connect.clone(), interrupt)?;
    let image = match &options.source {
        PushSource::Bundle(bundle, overlay) => {
            let what = What { bundle, overlay: overlay.as_deref() };
            self::bundle(what, options, &cache, interrupt)?
        }
        PushSource::Image(source) => image(source, options, &cache)?,
    };
    let registry = registry.for_push(image.from.clone());
    let meter = Meter::of(image.blobs.iter().map(|blob| blob.size).sum());
    let mut pushed = Pushed {
        name: options.target.to_string(),
        digest: Digest::of(&image.manifest),
        sent: 0,
        present: 0,
        mounted: 0,
    };
    options.style.show("push", &meter, || {
        let mut seen: Vec<&Digest> = Vec::new();
        for blob in &image.blobs {
            interrupt.check()?;
            // Layers can be the same; empty ones often are.
            if seen.contains(&&blob.digest) {
                meter.add(blob.size);
                continue;
            }
            seen.push(&blob.digest);
            let uploaded = registry.upload(blob, image.from.as_deref(), &meter)?;
            let (sum, what) = match uploaded {
                Uploaded::Sent => (&mut pushed.sent, "sent"),
                Uploaded::Present => (&mut pushed.present, "was there"),
                Uploaded::Mounted => (&mut pushed.mounted, "taken over from another repository"),
            };
            *sum += blob.size;
            if options.style == Style::Lines {
                rt_sys::log::tell(format_args!("blob {} {} {what}", blob.digest.short(), size(blob.size)));
            }
        }
        registry.put_manifest(&image.media_type, &image.manifest)
    })?;
    Ok(pushed)
}

/// Writes the layers of a bundle to files, so that their digests are known before they are sent: those of which a build has made it, or
/// its root as one, in a file without a name.
fn bundle(what: What<'_>, options: &PushOptions, cache: &Cache, interrupt: &Interrupt) -> Result<ReadyImage> {
    let kept = match what.overlay {
        None => KeptImage::open(what.bundle, cache)?,
        Some(_) => None,
    };
    let bundle = SourceBundle::open(what)?;
    let (mut layers, mut files) = (Vec::new(), Vec::new());
    let count = kept.as_ref().map_or(bundle.trees().len(), KeptImage::len);
    for at in 0..count {
        let meter = Meter::default();
        let watch = Watch { interrupt, meter: &meter };
        let (layer, file) = options.style.show("layer", &meter, || match &kept {
            Some(kept) => kept.blob(at, watch),
            None => {
                let file = cache.nameless()?;
                let layer = save::write_layer(&bundle.trees()[at], &file, Compression::Gzip, watch)?;
                Ok((layer, Arc::new(file)))
            }
        })?;
        layers.push(layer);
        files.push(file);
    }
    let base = kept.as_ref().and_then(|kept| kept.pulled_base.clone());
    let documents = bundle.documents(&layers, kept.map(|kept| KeptHistory(kept.history)))?;
    let blob = |(layer, file): (WrittenLayer, _)| LocalBlob {
        digest: layer.digest,
        size: layer.size,
        file,
        offset: 0,
    };
    let mut blobs: Vec<_> = layers.into_iter().zip(files).map(blob).collect();
    blobs.push(small(&documents.config, cache)?);
    // Where a layer is that of an image that was pulled, its repository has it.
    let name = base.as_deref().or(bundle.pulled_from());
    let from = match name.and_then(|name| name.parse().ok()) {
        Some(Source::Registry(from)) if from.registry == options.target.registry => {
            Some(from.repository).filter(|repository| *repository != options.target.repository)
        }
        _ => None,
    };
    Ok(ReadyImage { blobs, media_type: MANIFEST_TYPE.to_owned(), manifest: documents.manifest, from })
}

/// Finds the blobs of an image on disk.
fn image(source: &Source, options: &PushOptions, cache: &Cache) -> Result<ReadyImage> {
    let (store, select) = match source {
        Source::OciLayout { path, select } => (Store::enclosed(path)?, select),
        Source::OciArchive { path, select } => (Store::open_tar(path, || cache.nameless())?, select),
        _ => bail!("not an image-spec layout"),
    };
    let found = layout::find_oci(&store, select.as_deref(), &options.platform)?;
    let Some(manifest) = found.manifest_text else { bail!("the image has no manifest") };
    let mut blobs = Vec::new();
    for (descriptor, name) in found.manifest.layers.iter().zip(&found.layers) {
        let StoredFile { file, offset, length } = store.find(name)?;
        if length != descriptor.size {
            bail!("blob {}: {length} bytes, but the manifest says {}", descriptor.digest, descriptor.size);
        }
        blobs.push(LocalBlob { digest: descriptor.digest.clone(), size: length, file, offset });
    }
    blobs.push(LocalBlob { digest: found.manifest.config.digest, ..small(&found.config, cache)? });
    Ok(ReadyImage { blobs, media_type: media_type(&manifest), manifest, from: None })
}

/// What a manifest says that it is. Those of the image-spec need not say it.
fn media_type(manifest: &[u8]) -> String {
    let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap_or_default();
    manifest["mediaType"].as_str().unwrap_or(MANIFEST_TYPE).to_owned()
}

/// A document as a blob in a file.
fn small(bytes: &[u8], cache: &Cache) -> Result<LocalBlob> {
    let mut file = cache.nameless()?;
    file.write_all(bytes).and_then(|()| file.rewind()).context(|| "write the image's config")?;
    Ok(LocalBlob { digest: Digest::of(bytes), size: bytes.len() as u64, file: Arc::new(file), offset: 0 })
}
