//! An image, wherever it is: resolved to one manifest and config, its layers ready to be obtained.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::archive::{Store, StoredFile};
use super::blob::Blob;
use super::cache::Cache;
use super::layout;
use super::manifest::{
    self, CONFIG_LIMIT, Descriptor, Document, ImageConfig, MANIFEST_LIMIT, MAX_INDEXES, Manifest,
};
use super::platform::Platform;
use super::reference::Source;
use super::save::Documents;
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_layer::decode::{self, Expected};
use oci_registry::registries_conf::Registries;
use oci_registry::registry::{ConnectOptions, Registry};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err};

/// One image for one platform.
pub(crate) struct Image {
    /// The digest of its manifest (of its config, where docker's archive has no manifest).
    pub digest: Digest,
    /// The digest of what its name resolved to: an index or that manifest.
    pub resolved: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its config.
    pub config: ImageConfig,
    /// The bytes of that config.
    pub config_text: Vec<u8>,
    origin: Origin,
}

enum Origin {
    Registry(Arc<Registry>),
    /// Its layers are no archives.
    Trees,
    /// With the names of the layers in it. Docker's archive has no digests but those of plain layers, which may be
    /// compressed in it.
    Store {
        store: Store,
        layers: Vec<String>,
        format: StoreFormat,
    },
}

/// How an image lies in a directory or archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFormat {
    /// The image-spec's layout: blobs by digest.
    Oci,
    /// The archive of `docker save`: plain layers by file name.
    Docker,
}

/// Bytes that an image needs at least.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeastSpace {
    /// For the tree, as far as that is known before layers are fetched.
    pub tree: u64,
    /// In the cache.
    pub cache: u64,
}

/// A source that was opened, and not yet resolved.
pub(crate) enum Opened {
    /// A registry, and the tag or digest there.
    Registry(Arc<Registry>, String),
    /// A directory or archive, and which of its images.
    Store { store: Store, format: StoreFormat, select: Option<String> },
}

impl Opened {
    /// Opens a source; a registry is not asked yet.
    pub(crate) fn open(
        source: &Source,
        connect: ConnectOptions,
        cache: &Cache,
        interrupt: &Interrupt,
    ) -> Result<Opened> {
        let tar = |path: &Path| Store::open_tar(path, || cache.nameless());
        let image =
            |store, format, select: &Option<String>| Opened::Store { store, format, select: select.clone() };
        Ok(match source {
            Source::Registry(reference) => {
                let registry =
                    Registry::new(reference, &Registries::from_environment()?, connect, interrupt)?;
                Opened::Registry(Arc::new(registry), reference.manifest_name().to_owned())
            }
            Source::OciLayout { path, select } => {
                image(Store::Directory(path.clone()), StoreFormat::Oci, select)
            }
            Source::OciArchive { path, select } => image(tar(path)?, StoreFormat::Oci, select),
            Source::DockerArchive { path, select } => image(tar(path)?, StoreFormat::Docker, select),
            Source::Engine { program, image: name } => {
                let store = Store::save_from_engine(program, name, cache.nameless()?)?;
                image(store, StoreFormat::Docker, &None)
            }
        })
    }

    /// What a registry says that the name stands for, by one HEAD request. None elsewhere.
    pub(crate) fn head(&self) -> Result<Option<Digest>> {
        match self {
            Opened::Registry(registry, _) => registry.digest(),
            Opened::Store { .. } => Ok(None),
        }
    }

    /// Finds the image for `platform`. `head`: what [`head`](Self::head) said, so that the tag
    /// cannot move in between.
    pub(crate) fn resolve(
        self,
        head: Option<Digest>,
        platform: &Platform,
        cache: &Cache,
        interrupt: &Interrupt,
    ) -> Result<Image> {
        self.resolve_any(head, platform, cache, interrupt)?.for_platform(platform)
    }

    fn resolve_any(
        self,
        head: Option<Digest>,
        platform: &Platform,
        cache: &Cache,
        interrupt: &Interrupt,
    ) -> Result<Image> {
        match self {
            Opened::Store { store, format, select } => {
                let found = match format {
                    StoreFormat::Docker => layout::find_docker(&store, select.as_deref())?,
                    StoreFormat::Oci => layout::find_oci(&store, select.as_deref(), platform)?,
                };
                let config = manifest::parse_config(&found.config)?;
                Image {
                    digest: found.digest.clone(),
                    resolved: found.digest,
                    manifest: found.manifest,
                    config,
                    config_text: found.config,
                    origin: Origin::Store { store, layers: found.layers, format },
                }
                .checked()
            }
            Opened::Registry(registry, name) => {
                resolve_registry(registry, &name, head, platform, cache, interrupt)
            }
        }
    }
}

fn resolve_registry(
    registry: Arc<Registry>,
    name: &str,
    head: Option<Digest>,
    platform: &Platform,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Image> {
    let document = |name: &str| -> Result<(Digest, Vec<u8>)> {
        if let Ok(digest) = name.parse::<Digest>() {
            if let Some(bytes) = cache.read(&digest, MANIFEST_LIMIT) {
                return Ok((digest, bytes));
            }
            // Of many processes that pull at the same time, one asks the registry. The size of a manifest is not known before,
            // so a part of it cannot be continued as a blob's can.
            let bytes = cache.once(&digest, MANIFEST_LIMIT, interrupt, || Ok(registry.manifest(name)?.1))?;
            return Ok((digest, bytes));
        }
        let (digest, bytes) = registry.manifest(name)?;
        cache.write(&digest, &bytes)?;
        Ok((digest, bytes))
    };
    let name = head.map_or_else(|| name.to_owned(), |digest| digest.to_string());
    let (resolved, bytes) = document(&name)?;
    let mut digest = resolved.clone();
    let mut parsed = manifest::parse(&bytes)?;
    for _ in 0..=MAX_INDEXES {
        match parsed {
            Document::Index(index) => {
                let chosen = index.choose(platform)?;
                let (next, bytes) = document(chosen.digest.as_str())?;
                digest = next;
                parsed = manifest::parse(&bytes)?;
            }
            Document::Manifest(manifest) => {
                manifest.check()?;
                let config_text = small_blob(&registry, &manifest.config, cache, interrupt)?;
                let config = manifest::parse_config(&config_text)?;
                let origin = Origin::Registry(registry);
                return Image { digest, resolved, manifest, config, config_text, origin }.checked();
            }
        }
    }
    bail!("image index: more than {MAX_INDEXES} indexes within each other")
}

/// The manifest for `platform` behind the digest `resolved`, as far as documents in the cache tell.
pub(crate) fn chosen(cache: &Cache, resolved: &Digest, platform: &Platform) -> Option<Digest> {
    let mut digest = resolved.clone();
    for _ in 0..=MAX_INDEXES {
        let Some(bytes) = cache.read(&digest, MANIFEST_LIMIT) else {
            // The cache may have only the index, of an image that was inspected and never pulled.
            return (digest != *resolved).then_some(digest);
        };
        match manifest::parse(&bytes).ok()? {
            Document::Index(index) => digest = index.choose(platform).ok()?.digest.clone(),
            Document::Manifest(_) => return Some(digest),
        }
    }
    None
}

fn small_blob(
    registry: &Arc<Registry>,
    descriptor: &Descriptor,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Vec<u8>> {
    let blob = Blob::new(descriptor.digest.clone(), descriptor.size);
    cache.obtain(
        &blob,
        &|blob, offset, sink| registry.blob(&blob.digest, blob.size, offset, sink),
        interrupt,
    )?;
    if let Some(bytes) = cache.read(&descriptor.digest, CONFIG_LIMIT) {
        return Ok(bytes);
    }
    // Another user has taken its name in the cache, or removed it. The file that was fetched is still open.
    let mut bytes = Vec::new();
    let read = blob.reader().take(CONFIG_LIMIT + 1).read_to_end(&mut bytes);
    read.context(|| format!("read blob {}", descriptor.digest))?;
    descriptor.digest.check(&bytes).map_err(|e| e.context(format!("blob {}", descriptor.digest)))?;
    Ok(bytes)
}

impl Image {
    /// An image whose layers lie on the disk as trees.
    pub(crate) fn of_trees(documents: Documents) -> Result<Image> {
        let digest = Digest::of(&documents.manifest);
        let Document::Manifest(manifest) = manifest::parse(&documents.manifest)? else {
            bail!("no manifest")
        };
        let config = manifest::parse_config(&documents.config)?;
        let (resolved, config_text, origin) = (digest.clone(), documents.config, Origin::Trees);
        Image { digest, resolved, manifest, config, config_text, origin }.checked()
    }

    /// Compares the image with what was asked for: a name without an index has one image, for whatever platform. Where
    /// nobody asked for another one, it may run all the same, by emulation (binfmt_misc).
    fn for_platform(self, wanted: &Platform) -> Result<Image> {
        let config = &self.config;
        let of_index = self.resolved != self.digest;
        let known = !config.os.is_empty() && !config.architecture.is_empty();
        if of_index || !known || (config.os == wanted.os && config.architecture == wanted.architecture) {
            return Ok(self);
        }
        let is = format!("{}/{}", config.os, config.architecture);
        if *wanted == Platform::host() {
            log::warn!("the image is for {is} alone, and this machine is {wanted}");
            return Ok(self);
        }
        Err(err!("the image is for {is} alone, not for {wanted}")
            .hint("without --platform it is taken as it is"))
    }

    /// A manifest and a config that contradict each other are nobody's image.
    fn checked(self) -> Result<Image> {
        let (layers, ids) = (self.manifest.layers.len(), self.config.rootfs.diff_ids.len());
        if layers != ids {
            bail!("the manifest has {layers} layers, but the config has {ids}");
        }
        if !self.config.os.is_empty() && self.config.os != "linux" {
            bail!("an image for {}, not for linux", self.config.os);
        }
        Ok(self)
    }

    /// Bytes of the layers as they are stored.
    pub(crate) fn layer_bytes(&self) -> u64 {
        self.manifest.layer_bytes()
    }

    /// What the layers need at least.
    pub(crate) fn least_space(&self, cache: &Cache) -> LeastSpace {
        let mut least = LeastSpace { tree: 0, cache: 0 };
        for (at, layer) in self.manifest.layers.iter().enumerate() {
            let stored = match &self.origin {
                Origin::Registry(_) => {
                    let file = cache.find(&layer.digest, Some(layer.size));
                    file.map(|file| StoredFile { file, offset: 0, length: layer.size })
                }
                Origin::Store { store, layers, .. } => store.find(&layers[at]).ok(),
                Origin::Trees => None,
            };
            let plain = match stored {
                Some(StoredFile { file, offset, .. }) => decode::least_plain_size(&file, offset, layer.size),
                None => {
                    least.cache = least.cache.saturating_add(layer.size);
                    layer.size
                }
            };
            least.tree = least.tree.saturating_add(plain);
        }
        least
    }

    /// Gets layer `at` of the manifest, checked; its readers read behind. True if the network gave it.
    pub(crate) fn obtain(
        &self,
        at: usize,
        blob: &Blob,
        cache: &Cache,
        interrupt: &Interrupt,
    ) -> Result<bool> {
        match &self.origin {
            Origin::Trees => bail!("layer {}: no archive", at + 1),
            Origin::Registry(registry) => cache.obtain(
                blob,
                &|blob, offset, sink| registry.blob(&blob.digest, blob.size, offset, sink),
                interrupt,
            ),
            Origin::Store { store, layers, format } => {
                let StoredFile { file, offset, length } = store.find(&layers[at])?;
                if length != blob.size {
                    bail!("blob {}: {length} bytes, but the manifest says {}", blob.digest, blob.size);
                }
                match (format, disk::only_ours(&file)?) {
                    (StoreFormat::Docker, _) => blob.available(&file, offset, length),
                    (StoreFormat::Oci, true) => {
                        blob.verify(&file, offset, interrupt).context(|| format!("layer {}", at + 1))?;
                    }
                    (StoreFormat::Oci, false) => blob.untrusted(&file, offset),
                }
                Ok(false)
            }
        }
    }

    /// What layer `at` is when it is inflated. It is hashed where that is its only digest, and to `verify`.
    pub(crate) fn expected(&self, at: usize, verify: bool) -> Expected<'_> {
        let diff_id = &self.config.rootfs.diff_ids[at];
        match &self.origin {
            Origin::Store { format: StoreFormat::Docker, .. } => Expected::Hashed(diff_id),
            _ if verify => Expected::Hashed(diff_id),
            _ => Expected::Stored { diff_id, stored: &self.manifest.layers[at].digest },
        }
    }
}
