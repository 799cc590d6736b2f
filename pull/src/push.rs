//! The story of a push: a bundle's root, or an image on disk, to a registry.

use std::ffi::OsStr;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use super::archive::{Store, StoredFile};
use super::build::KeptImage;
use super::cache::{Cache, CacheLocation};
use super::layout;
use super::platform::Platform;
use super::progress::{Style, size};
use super::reference::Source;
use super::save::{self, Compression, KeptHistory, MANIFEST_TYPE, SourceBundle, Watch, What};
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, is_interrupted};
use oci_content::meter::Meter;
use oci_registry::reference::Reference;
use oci_registry::registries_conf::Registries;
use oci_registry::registry::{ConnectOptions, LocalBlob, Registry, Uploaded};
use rt_image_store::name::in_registry;
use rt_image_store::word;
use rt_sys::error::{Context, Error, Kind, Result};
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
    let pushed = match push(options, &interrupt) {
        Err(e) if e.kind() == Kind::Damaged => again(options, &interrupt.afresh(), e),
        pushed => pushed,
    };
    pushed.map_err(|e| match is_interrupted(&e) {
        true => err!("interrupted; {} is what it was", options.target),
        false => e,
    })
}

/// Pushes once more where something that was kept is damaged, which `refused` may come of: it is made anew.
fn again(options: &PushOptions, interrupt: &Interrupt, refused: Error) -> Result<Pushed> {
    let PushSource::Bundle(bundle, None) = &options.source else { return Err(refused) };
    let (cache, _scratch) = options.cache.open(None)?;
    let kept = KeptImage::open(bundle, &cache)?;
    if !kept.map_or(Ok(false), |kept| kept.remove_damaged(&cache, interrupt))? {
        return Err(refused);
    }
    log::info!("{refused}: what was kept of it is damaged, and made anew");
    push(options, interrupt)
}

/// What is pushed, as far as it is known before its layers are written.
enum Prepared {
    /// Layers and config, the config last, and the manifest with its type.
    Ready(Vec<LocalBlob>, Manifest),
    /// A bundle, and of which layers a build has made it.
    Bundle(SourceBundle, Option<KeptImage>),
}

/// A manifest, and its type.
type Manifest = (String, Vec<u8>);

fn push(options: &PushOptions, interrupt: &Interrupt) -> Result<Pushed> {
    let (cache, _scratch) = options.cache.open(None)?;
    let registry =
        Registry::new(&options.target, &Registries::from_environment()?, options.connect.clone(), interrupt)?;
    let prepared = match &options.source {
        PushSource::Bundle(bundle, overlay) => {
            let what = What { bundle, overlay: overlay.as_deref() };
            let kept = match what.overlay {
                None => KeptImage::open(what.bundle, &cache)?,
                Some(_) => None,
            };
            Prepared::Bundle(SourceBundle::open(what)?, kept)
        }
        PushSource::Image(source) => image(source, options, &cache)?,
    };
    let from = prepared.from(&options.target);
    let registry = registry.for_push(from.clone());
    let uploads =
        Uploads { registry: &registry, from: from.as_deref(), meter: Meter::default(), options, interrupt };
    let ((media_type, manifest), sums) =
        uploads.of(|give| prepared.write(options, &cache, interrupt, give))?;
    registry.put_manifest(&media_type, &manifest)?;
    Ok(Pushed {
        name: options.target.to_string(),
        digest: Digest::of(&manifest),
        sent: sums.sent,
        present: sums.present,
        mounted: sums.mounted,
    })
}

/// How many bytes went which way.
#[derive(Default)]
struct Sums {
    sent: u64,
    present: u64,
    mounted: u64,
}

/// The sending of blobs, by a thread of its own: a layer is sent while the next one is written.
struct Uploads<'a> {
    registry: &'a Registry,
    /// A repository of the same registry that may have some of the blobs.
    from: Option<&'a str>,
    meter: Meter,
    options: &'a PushOptions,
    interrupt: &'a Interrupt,
}

impl Uploads<'_> {
    /// Sends what `write` gives. Returns what `write` does.
    ///
    /// # Errors
    /// What went wrong first, on either side; it ends the other.
    fn of<T>(&self, write: impl FnOnce(&dyn Fn(LocalBlob)) -> Result<T>) -> Result<(T, Sums)> {
        let (give, taken) = mpsc::channel::<LocalBlob>();
        let taken = Mutex::new(taken);
        let send = || {
            let sent = self.send(&taken.lock().unwrap_or_else(|e| e.into_inner()));
            sent.inspect_err(|_| self.interrupt.stop())
        };
        let (written, sent) = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("upload".into()).spawn_scoped(scope, send).ok();
            let written = write(&|blob| {
                self.meter.expect(blob.size);
                // Nobody takes it after an error, which is returned.
                let _ = give.send(blob);
            });
            drop(give);
            if written.is_err() {
                self.interrupt.stop();
            }
            let sent = self.options.style.show("push", &self.meter, || match thread {
                Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // No thread could be had.
                None => send(),
            });
            (written, sent)
        });
        match (written, sent) {
            (Ok(written), Ok(sums)) => Ok((written, sums)),
            (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
            (Err(one), Err(other)) => Err(if is_interrupted(&one) { other } else { one }),
        }
    }

    fn send(&self, taken: &mpsc::Receiver<LocalBlob>) -> Result<Sums> {
        let mut sums = Sums::default();
        let mut seen: Vec<Digest> = Vec::new();
        for blob in taken {
            self.interrupt.check()?;
            // Layers can be the same; empty ones often are.
            if seen.contains(&blob.digest) {
                self.meter.add(blob.size);
                continue;
            }
            let (sum, what) = match self.registry.upload(&blob, self.from, &self.meter)? {
                Uploaded::Sent => (&mut sums.sent, "sent"),
                Uploaded::Present => (&mut sums.present, "was there"),
                Uploaded::Mounted => (&mut sums.mounted, "taken over from another repository"),
            };
            *sum += blob.size;
            if self.options.style == Style::Lines {
                rt_sys::log::tell(format_args!("blob {} {} {what}", blob.digest.short(), size(blob.size)));
            }
            seen.push(blob.digest);
        }
        Ok(sums)
    }
}

impl Prepared {
    /// A repository of the target's registry that may have some of the blobs: where a layer is that of an image that was pulled, its
    /// repository has it.
    fn from(&self, target: &Reference) -> Option<String> {
        let Prepared::Bundle(bundle, kept) = self else { return None };
        let base = kept.as_ref().and_then(|kept| kept.pulled_base.as_deref());
        match base.or(bundle.pulled_from())?.parse().ok()? {
            Source::Registry(from) if from.registry == target.registry => {
                Some(from.repository).filter(|repository| *repository != target.repository)
            }
            _ => None,
        }
    }

    /// Gives all blobs to `give`, a bundle's layers as they are written to files, so that their digests are known before they are sent:
    /// those of which a build has made it, or its root as one, in a file without a name. Returns the manifest.
    fn write(
        self,
        options: &PushOptions,
        cache: &Cache,
        interrupt: &Interrupt,
        give: &dyn Fn(LocalBlob),
    ) -> Result<Manifest> {
        let (bundle, kept) = match self {
            Prepared::Bundle(bundle, kept) => (bundle, kept),
            Prepared::Ready(blobs, manifest) => {
                blobs.into_iter().for_each(give);
                return Ok(manifest);
            }
        };
        let mut layers = Vec::new();
        for at in 0..kept.as_ref().map_or(bundle.trees().len(), KeptImage::len) {
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
            give(LocalBlob { digest: layer.digest.clone(), size: layer.size, file, offset: 0 });
            layers.push(layer);
        }
        let documents = bundle.documents(&layers, kept.map(|kept| KeptHistory(kept.history)))?;
        give(small(&documents.config, cache)?);
        Ok((MANIFEST_TYPE.to_owned(), documents.manifest))
    }
}

/// Finds the blobs of an image on disk.
fn image(source: &Source, options: &PushOptions, cache: &Cache) -> Result<Prepared> {
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
    Ok(Prepared::Ready(blobs, (media_type(&manifest), manifest)))
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
