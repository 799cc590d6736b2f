//! Manifests, indexes and image configs: OCI's and Docker's schema 2. Pure: bytes in, types out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::platform::Platform;
use oci_content::digest::Digest;
use rt_sys::error::Result;
use rt_sys::{bail, err};

pub(crate) use oci_registry::registry::MANIFEST_LIMIT;

/// No image config is larger (podman and skopeo take as much).
pub(crate) const CONFIG_LIMIT: u64 = 4 << 20;
/// Indexes that may lead to a manifest, one through another.
pub(crate) const MAX_INDEXES: usize = 3;
/// Layers are numbered by 16 bits; overlay-based engines stop at 127.
const MAX_LAYERS: usize = 4096;

/// image-spec, descriptor.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// What it hashes to.
    pub digest: Digest,
    /// How long it is, in bytes.
    pub size: u64,
    /// The platform, in an entry of an index.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Free text.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// image-spec, manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    /// The image config.
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// Free text.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// image-spec, image index.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    /// The manifests.
    pub manifests: Vec<Descriptor>,
}

/// What a reference resolves to.
#[derive(Debug, Clone)]
pub(crate) enum Document {
    /// One image.
    Manifest(Manifest),
    /// Images for several platforms.
    Index(Index),
}

/// image-spec, config: what the conversion uses.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ImageConfig {
    /// Go's name of the architecture.
    #[serde(default)]
    pub architecture: String,
    /// Go's name of the operating system.
    #[serde(default)]
    pub os: String,
    /// Who made it.
    #[serde(default)]
    pub author: Option<String>,
    /// When, RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
    /// What to run.
    #[serde(default)]
    pub config: Option<Execution>,
    /// The uncompressed layers.
    #[serde(default)]
    pub rootfs: RootFs,
}

/// image-spec, config: `rootfs`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RootFs {
    /// Digests of the uncompressed layers, lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

/// image-spec, config: `config`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Execution {
    /// `user[:group]`, names or numbers.
    #[serde(default)]
    pub user: Option<String>,
    /// `NAME=value`.
    #[serde(default)]
    pub env: Option<Vec<String>>,
    /// The program and its fixed arguments.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// The default arguments.
    #[serde(default)]
    pub cmd: Option<Vec<String>>,
    /// The working directory.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Directories that hold data.
    #[serde(default)]
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
    /// Free text.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// The signal that asks it to stop.
    #[serde(default)]
    pub stop_signal: Option<String>,
    /// Ports such as `80/tcp`.
    #[serde(default)]
    pub exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

/// Reads a manifest or index; what it is, is told by its own fields, not by a header.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape<'a> {
        schema_version: Option<u64>,
        #[serde(borrow)]
        media_type: Option<std::borrow::Cow<'a, str>>,
        manifests: Option<serde::de::IgnoredAny>,
        layers: Option<serde::de::IgnoredAny>,
        config: Option<serde::de::IgnoredAny>,
        fs_layers: Option<serde::de::IgnoredAny>,
    }
    if bytes.len() as u64 > MANIFEST_LIMIT {
        bail!("manifest: larger than {MANIFEST_LIMIT} bytes");
    }
    let shape: Shape = serde_json::from_slice(bytes).map_err(|e| err!("manifest: {e}"))?;
    let media_type = shape.media_type.unwrap_or_default();
    if shape.schema_version == Some(1) || shape.fs_layers.is_some() {
        bail!(
            "manifest: this is Docker's schema 1, withdrawn in 2019 \
             (push the image again with a current docker, podman or skopeo)"
        );
    }
    if shape.schema_version != Some(2) {
        bail!("manifest: schemaVersion is not 2");
    }
    // A document that is both an index and a manifest is an attack (CVE-2021-41190).
    if shape.manifests.is_some() && (shape.layers.is_some() || shape.config.is_some()) {
        bail!("manifest: both an index and an image");
    }
    let index = media_type.contains("image.index") || media_type.contains("manifest.list");
    if shape.manifests.is_some() {
        if !media_type.is_empty() && !index {
            bail!("manifest: an image index with the media type {media_type}");
        }
        let index = serde_json::from_slice(bytes).map_err(|e| err!("image index: {e}"))?;
        return Ok(Document::Index(index));
    }
    if index {
        bail!("image index: no manifests");
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| err!("manifest: {e}"))?;
    Ok(Document::Manifest(manifest))
}

impl Manifest {
    /// Bytes of the layers as they are stored.
    pub(crate) fn layer_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).fold(0, u64::saturating_add)
    }

    /// Refuses what cannot become a root file system, saying what it is.
    pub(crate) fn check(&self) -> Result<()> {
        let kind = self.config.media_type.as_str();
        if !matches!(
            kind,
            "" | "application/vnd.oci.image.config.v1+json"
                | "application/vnd.docker.container.image.v1+json"
        ) {
            bail!("this is not a container image but an artifact of type {kind}");
        }
        if self.config.size > CONFIG_LIMIT {
            bail!("image config: larger than {CONFIG_LIMIT} bytes");
        }
        if self.layers.len() > MAX_LAYERS {
            bail!("the image has {} layers, more than {MAX_LAYERS}", self.layers.len());
        }
        self.layers.iter().try_for_each(Descriptor::check_layer)
    }
}

impl Descriptor {
    fn check_layer(&self) -> Result<()> {
        let kind = self.media_type.as_str();
        if kind.ends_with("+encrypted") {
            bail!(
                "layer {}: encrypted ({kind}), and rt has no keys (decrypt it with skopeo copy)",
                self.digest
            );
        }
        if kind.contains("foreign") || kind.contains("nondistributable") {
            bail!(
                "layer {}: not distributable ({kind}): its owner allows no copies in registries",
                self.digest
            );
        }
        // What compresses it is told by its first bytes; the type only says that it is a tar.
        let tar = kind.is_empty()
            || kind.starts_with("application/vnd.oci.image.layer.v1.tar")
            || kind.starts_with("application/vnd.docker.image.rootfs.diff.tar")
            || kind == "application/vnd.docker.container.image.rootfs.diff+x-gtar";
        if !tar {
            bail!("layer {}: not a tar archive but {kind}", self.digest);
        }
        Ok(())
    }
}

impl Index {
    /// The entry that suits `wanted` best. Attestations (`unknown/unknown`) never do.
    pub(crate) fn choose(&self, wanted: &Platform) -> Result<&Descriptor> {
        let attestation = |d: &Descriptor| {
            d.annotations.as_ref().is_some_and(|a| a.contains_key("vnd.docker.reference.type"))
        };
        let images: Vec<&Descriptor> = self.manifests.iter().filter(|d| !attestation(d)).collect();
        // max_by_key takes the last of equals, the first is what other tools take.
        let best = images
            .iter()
            .rev()
            .filter_map(|d| d.platform.as_ref().and_then(|p| p.suits(wanted)).map(|score| (score, *d)))
            .max_by_key(|(score, _)| *score);
        if let Some((_, descriptor)) = best {
            return Ok(descriptor);
        }
        if let [only] = images[..]
            && only.platform.is_none()
        {
            return Ok(only);
        }
        let mut known: Vec<String> = images
            .iter()
            .filter_map(|d| d.platform.as_ref())
            .filter(|p| p.os != "unknown")
            .map(Platform::to_string)
            .collect();
        known.sort();
        known.dedup();
        bail!("no image for {wanted} in this index (it has: {})", known.join(", "))
    }
}

/// Reads an image config.
pub(crate) fn parse_config(bytes: &[u8]) -> Result<ImageConfig> {
    serde_json::from_slice(bytes).map_err(|e| err!("image config: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn layer(kind: &str) -> Result<()> {
        let text = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:{HEX}","size":2}},
               "layers":[{{"mediaType":"{kind}","digest":"sha256:{HEX}","size":1}}]}}"#
        );
        match parse(text.as_bytes())? {
            Document::Manifest(m) => m.check(),
            Document::Index(_) => panic!("index"),
        }
    }

    #[test]
    fn layers_say_what_they_are() {
        layer("application/vnd.oci.image.layer.v1.tar+zstd").unwrap();
        layer("application/vnd.docker.image.rootfs.diff.tar.gzip").unwrap();
        for (kind, word) in [
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "encrypted"),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "not distributable"),
            ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", "not a tar"),
        ] {
            assert!(layer(kind).unwrap_err().to_string().contains(word), "{kind}");
        }
    }

    #[test]
    fn schema_one_and_mixtures() {
        let e = parse(br#"{"schemaVersion":1,"fsLayers":[]}"#).unwrap_err();
        assert!(e.to_string().contains("schema 1"), "{e}");
        assert!(parse(br#"{"schemaVersion":2,"manifests":[],"layers":[]}"#).is_err());
        assert!(
            parse(br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json"}"#).is_err()
        );
    }

    #[test]
    fn index_choice() {
        let text = format!(
            r#"{{"schemaVersion":2,"manifests":[
            {{"digest":"sha256:{HEX}","size":1,"platform":{{"os":"unknown","architecture":"unknown"}},"annotations":{{"vnd.docker.reference.type":"attestation-manifest"}}}},
            {{"digest":"sha256:{HEX}","size":2,"platform":{{"os":"linux","architecture":"amd64"}}}},
            {{"digest":"sha256:{HEX}","size":3,"platform":{{"os":"linux","architecture":"amd64","variant":"v3"}}}},
            {{"digest":"sha256:{HEX}","size":4,"platform":{{"os":"linux","architecture":"arm64","variant":"v8"}}}}]}}"#
        );
        let Document::Index(index) = parse(text.as_bytes()).unwrap() else { panic!() };
        let size = |p: &str| index.choose(&p.parse().unwrap()).map(|d| d.size);
        assert_eq!(size("linux/amd64").unwrap(), 2);
        assert_eq!(size("linux/amd64/v4").unwrap(), 3);
        assert_eq!(size("linux/arm64").unwrap(), 4);
        let e = size("linux/riscv64").unwrap_err().to_string();
        assert!(e.contains("linux/amd64/v3") && !e.contains("unknown"), "{e}");
    }
}
