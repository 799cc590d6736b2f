//! Images made in memory.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use oci_layer::tar::{self, EntryKind, Header};
use serde_json::{Value, json};

pub fn digest(bytes: &[u8]) -> String {
    oci_content::digest::Digest::of(bytes).to_string()
}

/// A layer under construction.
#[derive(Default, Clone)]
pub struct Layer(pub Vec<u8>);

impl Layer {
    pub fn entry(self, kind: EntryKind, path: &str, link: &str, mode: u32, data: &[u8]) -> Layer {
        self.owned(kind, path, link, mode, (0, 0), data)
    }

    pub fn owned(
        mut self,
        kind: EntryKind,
        path: &str,
        link: &str,
        mode: u32,
        (uid, gid): (u64, u64),
        data: &[u8],
    ) -> Layer {
        let entry = Header {
            path: path.into(),
            link: link.into(),
            kind,
            mode,
            uid,
            gid,
            device: (0, 0),
            size: data.len() as u64,
            mtime: (1_600_000_000 + path.len() as i64, 0),
            xattrs: Vec::new(),
            sparse: None,
        };
        tar::write_header(&mut self.0, &entry).unwrap();
        self.0.write_all(data).unwrap();
        tar::pad(&mut self.0, data.len() as u64).unwrap();
        self
    }

    pub fn file(self, path: &str, data: impl AsRef<[u8]>) -> Layer {
        self.entry(EntryKind::File, path, "", 0o644, data.as_ref())
    }

    pub fn dir(self, path: &str) -> Layer {
        self.entry(EntryKind::Directory, &format!("{path}/"), "", 0o755, b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Layer {
        self.entry(EntryKind::Symlink, path, target, 0o777, b"")
    }

    pub fn link(self, path: &str, target: &str) -> Layer {
        self.entry(EntryKind::Hardlink, path, target, 0o644, b"")
    }

    pub fn done(mut self) -> Vec<u8> {
        tar::write_end(&mut self.0).unwrap();
        self.0
    }
}

/// What is kept of a layer's tar.
pub type Store<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An image with all its blobs.
#[derive(Clone)]
pub struct Image {
    pub blobs: HashMap<String, Vec<u8>>,
    pub manifest: Vec<u8>,
    pub layers: Vec<String>,
}

impl Image {
    pub fn new(layers: Vec<Layer>) -> Image {
        Image::with_config(layers, json!({ "Cmd": ["/bin/true"] }))
    }

    pub fn with_config(layers: Vec<Layer>, config: Value) -> Image {
        // All three compressions, in turn.
        Image::stored(layers, config, |at, tar| match at % 3 {
            0 => ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(tar)),
            1 => ("application/vnd.oci.image.layer.v1.tar+zstd", zstd::encode_all(tar, 3).unwrap()),
            _ => ("application/vnd.oci.image.layer.v1.tar", tar.to_vec()),
        })
    }

    /// Each layer as `store` has it: media type and bytes, of its number and its tar.
    pub fn stored<'a>(
        layers: Vec<Layer>,
        config: Value,
        store: impl Fn(usize, &[u8]) -> (&'a str, Vec<u8>),
    ) -> Image {
        let plain: Vec<Vec<u8>> = layers.into_iter().map(Layer::done).collect();
        let stored = plain.iter().enumerate().map(|(at, tar)| store(at, tar)).collect();
        Image::raw(stored, plain.iter().map(|tar| digest(tar)).collect(), config)
    }

    pub fn raw(stored: Vec<(&str, Vec<u8>)>, diff_ids: Vec<String>, config: Value) -> Image {
        let config = json!({ "os": "linux", "architecture": "amd64", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = config.to_string().into_bytes();
        let mut blobs = HashMap::new();
        let mut layers = Vec::new();
        let mut descriptors = Vec::new();
        for (kind, bytes) in stored {
            let name = digest(&bytes);
            descriptors.push(json!({ "mediaType": kind, "digest": name, "size": bytes.len() }));
            layers.push(name.clone());
            blobs.insert(name, bytes);
        }
        let manifest = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config),
                        "size": config.len() },
            "layers": descriptors });
        blobs.insert(digest(&config), config);
        Image { blobs, manifest: manifest.to_string().into_bytes(), layers }
    }

    /// An index of images for platforms, each `OS/ARCH[/VARIANT]`.
    pub fn index(images: Vec<(&str, Image)>) -> Image {
        let mut blobs = HashMap::new();
        let mut layers = Vec::new();
        let mut manifests = Vec::new();
        for (platform, image) in images {
            let mut parts = platform.split('/');
            let mut platform = json!({ "os": parts.next(), "architecture": parts.next() });
            if let Some(variant) = parts.next() {
                platform["variant"] = json!(variant);
            }
            manifests.push(json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest(&image.manifest), "size": image.manifest.len(), "platform": platform }));
            blobs.insert(digest(&image.manifest), image.manifest);
            blobs.extend(image.blobs);
            layers.extend(image.layers);
        }
        let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": manifests });
        Image { blobs, manifest: index.to_string().into_bytes(), layers }
    }

    /// Writes an image-spec layout with the tag `t`.
    pub fn layout(&self, dir: &Path) {
        let blobs = dir.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        for bytes in self.blobs.values().chain([&self.manifest]) {
            std::fs::write(blobs.join(&digest(bytes)[7..]), bytes).unwrap();
        }
        let index = json!({ "schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&self.manifest),
            "size": self.manifest.len(), "annotations": { "org.opencontainers.image.ref.name": "t" } }] });
        std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
        std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    }
}

/// Bytes that do not compress.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
