//! An image on disk: the image-spec's layout, as a directory or as a tar archive, and docker's archive.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde_json::json;

use super::layer::{self, Compression, Watch};
use super::{ARCHIVE, MANIFEST_TYPE, Saved, SourceBundle};
use crate::draft::Draft;
use crate::layout::REF_NAME;
use oci_content::digest::Digest;
use oci_layer::tar::{self, EntryKind, Header};
use rt_sys::disk;
use rt_sys::error::{Context, Result};

const LAYER: &[u8] = b"layer";

/// A layout in the making.
pub(super) struct NewLayout {
    image: OwnedFd,
    blobs: OwnedFd,
    sha256: OwnedFd,
    mask: u32,
}

impl NewLayout {
    /// In the empty directory `image`. `mask` is the caller's umask.
    pub(super) fn create(image: OwnedFd, mask: u32) -> Result<NewLayout> {
        let blobs = disk::make_own_dir(image.as_fd(), b"blobs")?;
        let sha256 = disk::make_own_dir(blobs.as_fd(), b"sha256")?;
        Ok(NewLayout { image, blobs, sha256, mask })
    }

    /// Writes all files of the image.
    pub(super) fn write(&self, bundle: &SourceBundle, tag: &str, watch: Watch) -> Result<Saved> {
        let sha256 = self.sha256.as_fd();
        let mut layers = Vec::new();
        for tree in bundle.trees() {
            let file = disk::create_file(sha256, LAYER, self.mode())?;
            let layer = layer::write(tree, &file, bundle.compression(), watch)?;
            disk::rename(sha256, LAYER, sha256, layer.digest.hex().as_bytes())?;
            layers.push(layer);
        }
        let documents = bundle.documents(&layers, None)?;
        self.write_blob(&documents.config)?;
        let digest = self.write_blob(&documents.manifest)?;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{ "mediaType": MANIFEST_TYPE, "digest": digest, "size": documents.manifest.len(),
                            "annotations": { REF_NAME: tag } }],
        });
        self.write_file(&self.image, b"index.json", index.to_string().as_bytes())?;
        self.write_file(&self.image, b"oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(Saved::of(digest, layers))
    }

    /// Gives the directories the modes that the caller's umask leaves.
    pub(super) fn open_to_others(&self) -> Result<()> {
        [&self.sha256, &self.blobs, &self.image]
            .into_iter()
            .try_for_each(|dir| disk::set_mode(dir.as_fd(), 0o777 & !self.mask))
    }

    /// Writes the layout as a tar archive to `name` in `dir`.
    pub(super) fn write_archive(&self, dir: BorrowedFd, name: &[u8], watch: Watch) -> Result<()> {
        let mut archive = NewTar::create(dir, name, self.mode())?;
        // Without entries for directories skopeo makes them itself, and fails where it may not give them to root.
        for dir in ["blobs/", "blobs/sha256/"] {
            archive.directory(dir)?;
        }
        archive.file(&self.image, b"oci-layout", "oci-layout", watch)?;
        archive.file(&self.image, b"index.json", "index.json", watch)?;
        let mut blobs = disk::entries(self.sha256.as_fd())?;
        blobs.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, _) in blobs {
            let path = format!("blobs/sha256/{}", String::from_utf8_lossy(&name));
            archive.file(&self.sha256, &name, &path, watch)?;
        }
        archive.finish()
    }

    fn mode(&self) -> u32 {
        0o666 & !self.mask
    }

    fn write_blob(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        self.write_file(&self.sha256, digest.hex().as_bytes(), bytes)?;
        Ok(digest)
    }

    fn write_file(&self, dir: &OwnedFd, name: &[u8], bytes: &[u8]) -> Result<()> {
        let file = disk::create_file(dir.as_fd(), name, self.mode())?;
        disk::Named(file).write_all(bytes).context(|| WRITING)
    }
}

/// An archive for `docker load` in the making. Its layers are not compressed, as `docker save` has it: older versions of docker
/// and others that read such archives expect that.
pub(super) struct NewDockerArchive<'a> {
    /// Where it is made.
    pub draft: &'a Draft,
    /// The permissions of the file.
    pub mode: u32,
}

impl NewDockerArchive<'_> {
    /// Writes it. `name`: what the image is to be called, with a tag.
    pub(super) fn write(&self, bundle: &SourceBundle, name: Option<&str>, watch: Watch) -> Result<Saved> {
        let parts = disk::make_own_dir(self.draft.dir(), b"parts")?;
        let mut layers = Vec::new();
        for (n, tree) in bundle.trees().iter().enumerate() {
            let file = disk::create_file(parts.as_fd(), &layer_file(n), 0o600)?;
            layers.push(layer::write(tree, &file, Compression::None, watch)?);
        }
        let documents = bundle.documents(&layers, None)?;
        let digest = Digest::of(&documents.config);
        let config = format!("{}.json", digest.hex());
        let tars: Vec<_> = layers.iter().map(|layer| format!("{}.tar", layer.diff_id.hex())).collect();
        let manifest =
            json!([{ "Config": config, "RepoTags": name.into_iter().collect::<Vec<_>>(), "Layers": tars }]);
        let mut archive = NewTar::create(self.draft.dir(), ARCHIVE, self.mode)?;
        archive.bytes(&config, &documents.config)?;
        for (n, tar) in tars.iter().enumerate() {
            archive.file(&parts, &layer_file(n), tar, watch)?;
        }
        archive.bytes("manifest.json", manifest.to_string().as_bytes())?;
        archive.finish()?;
        Ok(Saved::of(digest, layers))
    }
}

/// The name of layer `n` before it is in the archive.
fn layer_file(n: usize) -> Vec<u8> {
    [LAYER, n.to_string().as_bytes()].concat()
}

/// A tar archive of files.
struct NewTar(BufWriter<disk::Named<File>>);

const WRITING: &str = "write the archive";

impl NewTar {
    fn create(dir: BorrowedFd, name: &[u8], mode: u32) -> Result<NewTar> {
        let file = disk::Named(disk::create_file(dir, name, mode)?);
        Ok(NewTar(BufWriter::with_capacity(256 << 10, file)))
    }

    fn directory(&mut self, path: &str) -> Result<()> {
        let header = Header::new(path.into(), EntryKind::Directory, 0o755);
        tar::write_header(&mut self.0, &header).context(|| WRITING)
    }

    fn header(&mut self, path: &str, size: u64) -> Result<()> {
        let header = Header { size, ..Header::new(path.into(), EntryKind::File, 0o644) };
        tar::write_header(&mut self.0, &header).context(|| WRITING)
    }

    fn bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.header(path, bytes.len() as u64)?;
        self.0.write_all(bytes).and_then(|()| tar::pad(&mut self.0, bytes.len() as u64)).context(|| WRITING)
    }

    fn file(&mut self, dir: &OwnedFd, name: &[u8], path: &str, watch: Watch) -> Result<()> {
        let file = disk::open_file(dir.as_fd(), name)?;
        let length = disk::length(&file)?;
        self.header(path, length)?;
        layer::copy(&file, length, &mut self.0, watch).context(|| WRITING)?;
        tar::pad(&mut self.0, length).context(|| WRITING)
    }

    fn finish(mut self) -> Result<()> {
        tar::write_end(&mut self.0).and_then(|()| self.0.flush()).context(|| WRITING)?;
        disk::sync_file(&self.0.get_ref().0)
    }
}
