//! Images on disk: the image-spec's layout, and docker's archive format.

use serde::Deserialize;
use std::os::fd::BorrowedFd;

use super::archive::Store;
use super::manifest::{
    self, CONFIG_LIMIT, Descriptor, Document, Index, MANIFEST_LIMIT, MAX_INDEXES, Manifest,
};
use super::platform::Platform;
use oci_content::digest::Digest;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err};

/// The annotation that holds a layout's tag.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An image found on disk.
pub(crate) struct FoundImage {
    /// Its digest.
    pub digest: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// The bytes of that manifest; none in docker's archives, which have no manifest.
    pub manifest_text: Option<Vec<u8>>,
    /// Where each layer lies, by its place in the manifest.
    pub layers: Vec<String>,
    /// Its config.
    pub config: Vec<u8>,
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.hex())
}

fn read_checked(store: &Store, digest: &Digest, limit: u64) -> Result<Vec<u8>> {
    let bytes = store.read(&blob_name(digest), limit)?;
    digest.check(&bytes).context(|| format!("blob {digest}"))?;
    Ok(bytes)
}

/// The image that `select` (a tag or digest) names in an image-spec layout, for `platform`.
pub(crate) fn find_oci(store: &Store, select: Option<&str>, platform: &Platform) -> Result<FoundImage> {
    let bytes = store.read("index.json", MANIFEST_LIMIT).context(|| "not an OCI image layout")?;
    let index: Index = serde_json::from_slice(&bytes).map_err(|e| err!("index.json: {e}"))?;
    let mut digest = select_entry(&index, select, platform)?.digest.clone();
    // An index may point to another index, or to itself.
    for _ in 0..=MAX_INDEXES {
        let text = read_checked(store, &digest, MANIFEST_LIMIT)?;
        match manifest::parse(&text)? {
            Document::Index(index) => digest = index.choose(platform)?.digest.clone(),
            Document::Manifest(manifest) => {
                manifest.check()?;
                let config = read_checked(store, &manifest.config.digest, CONFIG_LIMIT)?;
                let layers = manifest.layers.iter().map(|layer| blob_name(&layer.digest)).collect();
                return Ok(FoundImage { digest, manifest, manifest_text: Some(text), layers, config });
            }
        }
    }
    bail!("image index: more than {MAX_INDEXES} indexes within each other")
}

/// The images in the layout `dir` that are not `tag`, by their tags or digests. Without a tag it is the latest, or one without a tag.
pub(crate) fn others(dir: BorrowedFd, tag: Option<&str>) -> Result<Vec<String>> {
    let text = disk::read_if_there(dir, b"index.json", MANIFEST_LIMIT as usize)?;
    let text = text.ok_or_else(|| err!("no index.json"))?;
    let index: Index = serde_json::from_slice(&text).map_err(|e| err!("index.json: {e}"))?;
    let other = |entry: &Descriptor| match (tag_of(entry), tag) {
        (None, None) | (Some("latest"), None) => None,
        (Some(one), Some(tag)) if one == tag => None,
        (Some(one), _) => Some(one.to_owned()),
        (None, Some(_)) => Some(entry.digest.to_string()),
    };
    Ok(index.manifests.iter().filter_map(other).collect())
}

fn tag_of(entry: &Descriptor) -> Option<&str> {
    entry.annotations.as_ref().and_then(|annotations| annotations.get(REF_NAME)).map(String::as_str)
}

fn select_entry<'a>(index: &'a Index, select: Option<&str>, platform: &Platform) -> Result<&'a Descriptor> {
    match select {
        Some(select) => {
            let wanted =
                index.manifests.iter().find(|e| tag_of(e) == Some(select) || e.digest.as_str() == select);
            wanted.ok_or_else(|| {
                let known: Vec<&str> = index.manifests.iter().filter_map(tag_of).collect();
                err!("no image {select:?} in this layout (it has: {})", known.join(", "))
            })
        }
        None => match &index.manifests[..] {
            [] => bail!("the layout has no image"),
            [only] => Ok(only),
            _ => index.choose(platform).map_err(|e| e.hint("or name one of its tags")),
        },
    }
}

/// The image that `select` (`NAME:TAG`) names in an archive of `docker save`.
pub(crate) fn find_docker(store: &Store, select: Option<&str>) -> Result<FoundImage> {
    /// An entry of manifest.json, which lists the images of the archive.
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct SavedImage {
        config: String,
        repo_tags: Option<Vec<String>>,
        layers: Vec<String>,
    }
    let bytes = store.read("manifest.json", MANIFEST_LIMIT).context(|| "not an archive of docker save")?;
    let entries: Vec<SavedImage> = serde_json::from_slice(&bytes).map_err(|e| err!("manifest.json: {e}"))?;
    let has = |entry: &SavedImage, name: &str| {
        let wanted = if name.rsplit('/').next().is_some_and(|n| n.contains(':')) {
            name.to_owned()
        } else {
            format!("{name}:latest")
        };
        entry.repo_tags.iter().flatten().any(|tag| {
            *tag == wanted
                || tag
                    .strip_suffix(&wanted)
                    .is_some_and(|rest| matches!(rest, "docker.io/library/" | "localhost/"))
        })
    };
    let entry = match select {
        Some(select) => entries.iter().find(|entry| has(entry, select)),
        None if entries.len() > 1 => bail!("the archive has {} images: name one of them", entries.len()),
        None => entries.first(),
    };
    let entry = entry.ok_or_else(|| {
        let known: Vec<&str> =
            entries.iter().flat_map(|e| e.repo_tags.iter().flatten()).map(String::as_str).collect();
        err!("no such image in this archive (it has: {})", known.join(", "))
    })?;
    let config = store.read(&clean(&entry.config)?, CONFIG_LIMIT)?;
    let parsed = manifest::parse_config(&config)?;
    if parsed.rootfs.diff_ids.len() != entry.layers.len() {
        bail!(
            "the archive has {} layers, but its config has {}",
            entry.layers.len(),
            parsed.rootfs.diff_ids.len()
        );
    }
    let mut layers = Vec::new();
    let mut descriptors = Vec::new();
    for (name, digest) in entry.layers.iter().zip(parsed.rootfs.diff_ids) {
        let name = clean(name)?;
        let size = store.find(&name)?.length;
        descriptors.push(Descriptor {
            media_type: String::new(),
            digest,
            size,
            platform: None,
            annotations: None,
        });
        layers.push(name);
    }
    let digest = Digest::of(&config);
    let own = Descriptor {
        media_type: String::new(),
        digest: digest.clone(),
        size: config.len() as u64,
        platform: None,
        annotations: None,
    };
    let manifest = Manifest { config: own, layers: descriptors, annotations: None };
    manifest.check()?;
    Ok(FoundImage { digest, manifest, manifest_text: None, layers, config })
}

fn clean(name: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(&oci_layer::merge::clean(name.as_bytes())?).into_owned())
}
