//! An image, wherever it is: resolved to one manifest and config, its layers ready to be obtained.

use std::path::Path;
use std::sync::Arc;

use super::archive::Store;
use super::blob::Blob;
use super::cache::Cache;
use super::decode::{self, Expected};
use super::digest::Digest;
use super::disk;
use super::interrupt::Interrupt;
use super::layout;
use super::manifest::{self, CONFIG_LIMIT, Descriptor, Document, ImageConfig, MANIFEST_LIMIT, Manifest};
use super::platform::Platform;
use super::reference::Source;
use super::registries_conf::Registries;
use super::registry::{Access, Registry};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err};

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
    origin: Origin,
}

enum Origin {
    Registry(Arc<Registry>),
    /// With the names of the layers in it. Docker's archive has no digests but those of plain layers, which may be
    /// compressed in it.
    Store {
        store: Store,
        layers: Vec<String>,
        docker: bool,
    },
}

/// A source that was opened, and not yet resolved.
pub(crate) enum Opened {
    /// A registry.
    Registry(Arc<Registry>, String),
    /// A directory or archive, OCI or (true) docker, and which image.
    Store(Store, bool, Option<String>),
}

impl Opened {
    /// Opens a source; a registry is not asked yet.
    pub(crate) fn open(
        source: &Source,
        access: Access,
        cache: &Cache,
        interrupt: &Interrupt,
    ) -> Result<Opened> {
        let tar = |path: &Path| Store::open_tar(path, || cache.nameless());
        Ok(match source {
            Source::Registry(reference) => {
                let registry = Registry::new(reference, &Registries::from_environment()?, access, interrupt)?;
                Opened::Registry(Arc::new(registry), reference.manifest_name().to_owned())
            }
            Source::OciLayout { path, select } => {
                Opened::Store(Store::Directory(path.clone()), false, select.clone())
            }
            Source::OciArchive { path, select } => Opened::Store(tar(path)?, false, select.clone()),
            Source::DockerArchive { path, select } => Opened::Store(tar(path)?, true, select.clone()),
            Source::Engine { program, image } => {
                Opened::Store(Store::save_from_engine(program, image, cache.nameless()?)?, true, None)
            }
        })
    }

    /// What a registry says that the name stands for, by one HEAD request. None elsewhere.
    pub(crate) fn head(&self) -> Result<Option<Digest>> {
        match self {
            Opened::Registry(registry, _) => registry.digest(),
            Opened::Store(..) => Ok(None),
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
        match self {
            Opened::Store(store, docker, select) => {
                let found = match docker {
                    true => layout::find_docker(&store, select.as_deref())?,
                    false => layout::find_oci(&store, select.as_deref(), platform)?,
                };
                let config = manifest::parse_config(&found.config)?;
                Image {
                    digest: found.digest.clone(),
                    resolved: found.digest,
                    manifest: found.manifest,
                    config,
                    origin: Origin::Store { store, layers: found.layers, docker },
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
            // Of many processes one asks; a manifest's size is not known before, so no resumption.
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
    for _ in 0..4 {
        match parsed {
            Document::Index(index) => {
                let chosen = index.choose(platform)?;
                let (next, bytes) = document(chosen.digest.as_str())?;
                digest = next;
                parsed = manifest::parse(&bytes)?;
            }
            Document::Manifest(manifest) => {
                manifest.check()?;
                let bytes = small_blob(&registry, &manifest.config, cache, interrupt)?;
                let config = manifest::parse_config(&bytes)?;
                let origin = Origin::Registry(registry);
                return Image { digest, resolved, manifest, config, origin }.checked();
            }
        }
    }
    bail!("indexes within indexes")
}

/// The manifest for `platform` behind the digest `resolved`, as far as documents in the cache tell.
pub(crate) fn chosen(cache: &Cache, resolved: &Digest, platform: &Platform) -> Option<Digest> {
    let mut digest = resolved.clone();
    for _ in 0..4 {
        let Some(bytes) = cache.read(&digest, MANIFEST_LIMIT) else {
            // Of an image that was never pulled only the index is there.
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
    cache.obtain(&blob, &|blob, offset, sink| registry.blob(blob, offset, sink), interrupt)?;
    cache.read(&descriptor.digest, CONFIG_LIMIT).ok_or_else(|| err!("blob {}: gone", descriptor.digest))
}

impl Image {
    /// A manifest and a config that contradict each other are nobody's image.
    fn checked(self) -> Result<Image> {
        let (layers, ids) = (self.manifest.layers.len(), self.config.rootfs.diff_ids.len());
        if layers != ids {
            bail!("the manifest has {layers} layers, the config {ids}");
        }
        if !self.config.os.is_empty() && self.config.os != "linux" {
            bail!("an image for {}, not for linux", self.config.os);
        }
        Ok(self)
    }

    /// Bytes of the layers as they are stored.
    pub(crate) fn layer_bytes(&self) -> u64 {
        self.manifest.layers.iter().map(|layer| layer.size).fold(0, u64::saturating_add)
    }

    /// What the layers need at least: bytes of the tree, as far as it is known before they are fetched, and bytes
    /// that the cache will take.
    pub(crate) fn least_space(&self, cache: &Cache) -> (u64, u64) {
        let (mut tree, mut fetched) = (0u64, 0u64);
        for (at, layer) in self.manifest.layers.iter().enumerate() {
            let plain = match &self.origin {
                Origin::Registry(_) => cache.find(&layer.digest, Some(layer.size)).map(|file| (file, 0)),
                Origin::Store { store, layers, .. } => {
                    store.find(&layers[at]).ok().map(|(file, base, _)| (file, base))
                }
            };
            if plain.is_none() {
                fetched = fetched.saturating_add(layer.size);
            }
            let least =
                plain.map_or(layer.size, |(file, base)| decode::least_plain_size(&file, base, layer.size));
            tree = tree.saturating_add(least);
        }
        (tree, fetched)
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
            Origin::Registry(registry) => {
                cache.obtain(blob, &|blob, offset, sink| registry.blob(blob, offset, sink), interrupt)
            }
            Origin::Store { store, layers, docker } => {
                let (file, base, length) = store.find(&layers[at])?;
                if length != blob.size {
                    bail!("blob {}: {length} bytes, the manifest says {}", blob.digest, blob.size);
                }
                match (docker, disk::only_ours(&file)) {
                    (true, _) => blob.available(&file, base, length),
                    (false, true) => {
                        blob.verify(&file, base, interrupt).context(|| format!("layer {}", at + 1))?;
                    }
                    (false, false) => blob.unsure(&file, base),
                }
                Ok(false)
            }
        }
    }

    /// What layer `at` is when it is inflated. It is hashed where that is its only digest, and to `verify`.
    pub(crate) fn expected(&self, at: usize, verify: bool) -> Expected<'_> {
        let diff_id = &self.config.rootfs.diff_ids[at];
        match &self.origin {
            Origin::Store { docker: true, .. } => Expected::Hashed(diff_id),
            _ if verify => Expected::Hashed(diff_id),
            _ => Expected::Stored { diff_id, stored: &self.manifest.layers[at].digest },
        }
    }
}
