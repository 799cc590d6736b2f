//! A bundle's tree becomes an image of one layer, for podman, skopeo and registries.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use super::digest::{Digest, Hasher};
use super::disk;
use super::draft::Draft;
use super::interrupt::Interrupt;
use super::layout::REF_NAME;
use super::platform::Platform;
use super::tar::{self, EntryKind, Header};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err};

const IMAGE: &[u8] = b"image";
const ARCHIVE: &[u8] = b"archive";

/// An image that was written.
pub(crate) struct Saved {
    /// Digest of its manifest.
    pub digest: Digest,
    /// Bytes of its layer as a tar archive.
    pub plain: u64,
    /// The same compressed.
    pub compressed: u64,
}

/// What an image is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaveFormat {
    /// A directory, the image-spec's layout.
    Layout,
    /// A tar archive of one.
    Archive,
}

/// Writes the root of `bundle` as an image of one layer to `path`. Nothing may be there yet.
pub(crate) fn save(bundle: &Path, path: &Path, tag: Option<&str>, format: SaveFormat) -> Result<Saved> {
    if path.symlink_metadata().is_ok() {
        bail!("{}: exists", path.display());
    }
    let text = disk::open_root(bundle).and_then(|dir| disk::open_file(dir.as_fd(), b"config.json"));
    let text = text.and_then(|file| io::read_to_string(file).context(|| "read config.json"));
    let text = text.context(|| format!("{}: not a bundle", bundle.display()))?;
    let config: Value =
        serde_json::from_str(&text).map_err(|e| err!("{}/config.json: {e}", bundle.display()))?;
    let root = disk::open_root(&bundle.join(config["root"]["path"].as_str().unwrap_or("rootfs")))?;

    disk::raise_open_files();
    let mask = disk::clear_umask();
    let draft = Draft::beside(path)?;
    let image = disk::make_own_dir(draft.dir(), IMAGE)?;
    let blobs = disk::make_own_dir(image.as_fd(), b"blobs")?;
    let dir = NewLayout { sha256: disk::make_own_dir(blobs.as_fd(), b"sha256")?, image, mode: 0o666 & !mask };
    let dir = &dir;
    let layer = write_layer(root, dir)?;
    let image_config = serde_json::to_vec(&image_config(&config, &layer.diff_id)).map_err(|e| err!("{e}"))?;
    let config_digest = dir.write_blob(&image_config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest,
                    "size": image_config.len() },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": layer.digest,
                     "size": layer.size }],
    });
    let manifest = serde_json::to_vec(&manifest).map_err(|e| err!("{e}"))?;
    let digest = dir.write_blob(&manifest)?;
    let mut entry = json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest,
                            "size": manifest.len() });
    entry["annotations"] = json!({ REF_NAME: tag.unwrap_or("latest") });
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                        "manifests": [entry] });
    dir.write_file(&dir.image, b"index.json", index.to_string().as_bytes())?;
    dir.write_file(&dir.image, b"oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    match format {
        SaveFormat::Archive => {
            write_archive(dir, disk::create_file(draft.dir(), ARCHIVE, dir.mode)?)?;
            draft.publish(ARCHIVE)?;
        }
        SaveFormat::Layout => {
            for made in [&dir.sha256, &blobs, &dir.image] {
                disk::set_mode(made.as_fd(), 0o777 & !mask)?;
            }
            draft.publish(IMAGE)?;
        }
    }
    Ok(Saved { digest, plain: layer.plain, compressed: layer.size })
}

/// A layout in the making.
struct NewLayout {
    image: OwnedFd,
    sha256: OwnedFd,
    /// Of the files in it.
    mode: u32,
}

impl NewLayout {
    fn write_blob(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        self.write_file(&self.sha256, digest.hex().as_bytes(), bytes)?;
        Ok(digest)
    }

    fn write_file(&self, dir: &OwnedFd, name: &[u8], bytes: &[u8]) -> Result<()> {
        let mut file = disk::create_file(dir.as_fd(), name, self.mode)?;
        file.write_all(bytes).context(|| format!("write {}", String::from_utf8_lossy(name)))
    }
}

struct WrittenLayer {
    digest: Digest,
    diff_id: Digest,
    size: u64,
    plain: u64,
}

/// Hashes what passes.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hashing<W: Write>(inner: W) -> Hashing<W> {
    Hashing { inner, hasher: Hasher::sha256(), bytes: 0 }
}

fn write_layer(root: OwnedFd, layout: &NewLayout) -> Result<WrittenLayer> {
    let draft = b"layer";
    let doing = || "write the layer";
    let file = disk::create_file(layout.sha256.as_fd(), draft, layout.mode)?;
    let file = BufWriter::with_capacity(256 << 10, file);
    let gzip = flate2::write::GzEncoder::new(hashing(file), flate2::Compression::new(6));
    let mut out = BufWriter::with_capacity(256 << 10, hashing(gzip));
    write_tree(root, &mut out)?;
    tar::write_end(&mut out).context(doing)?;
    let plain = out.into_inner().map_err(|e| err!("{}: {}", doing(), e.error()))?;
    let compressed = plain.inner.finish().context(doing)?;
    let mut file = compressed.inner;
    file.flush().context(doing)?;
    let digest = compressed.hasher.finish();
    let sha256 = layout.sha256.as_fd();
    disk::rename(sha256, draft, sha256, digest.hex().as_bytes())?;
    Ok(WrittenLayer { digest, diff_id: plain.hasher.finish(), size: compressed.bytes, plain: plain.bytes })
}

/// A directory, its path, and the names in it that are still to come, the first one last.
struct Level {
    dir: OwnedFd,
    path: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Level {
    fn new(dir: OwnedFd, path: Vec<u8>) -> Result<Level> {
        let mut names: Vec<_> = disk::entries(dir.as_fd())?.into_iter().map(|(name, _)| name).collect();
        names.sort_by(|a, b| b.cmp(a));
        Ok(Level { dir, path, names })
    }
}

/// Writes a tree, the entries of a directory in the order of their names, so that a tree always gives one digest. What
/// runs in it may change it meanwhile: every name is opened in the directory that was opened before, no link is followed.
fn write_tree(root: OwnedFd, out: &mut impl Write) -> Result<()> {
    let interrupt = Interrupt::install();
    let mut seen = HashMap::new();
    let mut stack = vec![Level::new(root, Vec::new())?];
    while let Some(level) = stack.last_mut() {
        let Some(name) = level.names.pop() else {
            stack.pop();
            continue;
        };
        interrupt.check()?;
        let slash: &[u8] = if level.path.is_empty() { b"" } else { b"/" };
        let path = [&level.path, slash, &name].concat();
        let shown = || String::from_utf8_lossy(&path).into_owned();
        let inner = write_entry(level.dir.as_fd(), &name, &path, &mut seen, out).context(shown)?;
        if let Some(inner) = inner {
            stack.push(Level::new(inner, path)?);
        }
    }
    Ok(())
}

/// Writes one entry, as root's: a bundle has only one id, and inside it is root's. A directory is returned, open. `seen`: first names of files with several.
fn write_entry(
    dir: BorrowedFd,
    name: &[u8],
    path: &[u8],
    seen: &mut HashMap<(u64, u64), Vec<u8>>,
    out: &mut impl Write,
) -> Result<Option<OwnedFd>> {
    let any = disk::open_any(dir, name)?;
    let metadata = any.metadata().context(|| "stat")?;
    let kind = metadata.file_type();
    let mut entry = Header {
        mtime: (metadata.mtime(), 0),
        ..Header::new(path.to_vec(), EntryKind::File, metadata.permissions().mode() & 0o7777)
    };
    let mut inner = None;
    if kind.is_symlink() {
        entry.kind = EntryKind::Symlink;
        entry.mode = 0o777;
        entry.link = disk::read_link(any.as_fd())?;
    } else if kind.is_dir() {
        let open = disk::reopen_dir(dir, name)?;
        entry.kind = EntryKind::Directory;
        entry.xattrs = disk::xattrs(open.as_fd());
        entry.path.push(b'/');
        inner = Some(open.into());
    } else if kind.is_fifo() {
        entry.kind = EntryKind::Fifo;
    } else if kind.is_file() {
        let file = disk::open_file(dir, name)?;
        let metadata = file.metadata().context(|| "stat")?;
        let inode = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1
            && let Some(first) = seen.get(&inode)
        {
            entry.kind = EntryKind::Hardlink;
            entry.link = first.clone();
            tar::write_header(out, &entry).context(|| "write")?;
            return Ok(None);
        }
        seen.insert(inode, path.to_vec());
        entry.xattrs = disk::xattrs(file.as_fd());
        entry.size = metadata.len();
        tar::write_header(out, &entry).context(|| "write")?;
        let copied = io::copy(&mut file.take(entry.size), out).context(|| "copy")?;
        if copied != entry.size {
            bail!("became shorter while it was read");
        }
        tar::pad(out, entry.size).context(|| "write")?;
        return Ok(None);
    } else {
        // A socket lives only as long as its program, and devices are left out of images at a pull as well.
        return Ok(None);
    }
    tar::write_header(out, &entry).context(|| "write")?;
    Ok(inner)
}

/// The reverse of the conversion: process and annotations to an image config.
fn image_config(config: &Value, diff_id: &Digest) -> Value {
    let platform = Platform::host();
    let process = &config["process"];
    let annotation = |key: &str| config["annotations"][key].as_str();
    let mut labels = serde_json::Map::new();
    for (key, value) in config["annotations"].as_object().into_iter().flatten() {
        if !key.starts_with("rt.") && !key.starts_with("org.opencontainers.image.") {
            labels.insert(key.clone(), value.clone());
        }
    }
    let mut execution = json!({
        "Env": process["env"], "Cmd": process["args"], "WorkingDir": process["cwd"], "Labels": labels,
    });
    let user = &process["user"];
    if user["uid"] != json!(0) || user["gid"] != json!(0) {
        execution["User"] = json!(format!("{}:{}", user["uid"], user["gid"]));
    }
    if let Some(signal) = annotation("org.opencontainers.image.stopSignal") {
        execution["StopSignal"] = json!(signal);
    }
    let mut image = json!({
        "architecture": annotation("org.opencontainers.image.architecture").unwrap_or(&platform.architecture),
        "os": "linux",
        "config": execution,
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        "history": [{ "created_by": "rt save" }],
    });
    for key in ["author", "created"] {
        if let Some(value) = annotation(&format!("org.opencontainers.image.{key}")) {
            image[key] = json!(value);
        }
    }
    image
}

/// The layout as a tar archive.
fn write_archive(layout: &NewLayout, file: File) -> Result<()> {
    let doing = || "write the archive";
    let mut out = BufWriter::with_capacity(256 << 10, file);
    // Without entries for directories skopeo makes them itself, and fails where it may not give them to root.
    for dir in ["blobs/", "blobs/sha256/"] {
        tar::write_header(&mut out, &Header::new(dir.into(), EntryKind::Directory, 0o755)).context(doing)?;
    }
    let mut write = |dir: &OwnedFd, name: &[u8], below: &str| -> Result<()> {
        let mut file = disk::open_file(dir.as_fd(), name)?;
        let length = file.metadata().context(doing)?.len();
        let entry =
            Header { size: length, ..Header::new([below.as_bytes(), name].concat(), EntryKind::File, 0o644) };
        tar::write_header(&mut out, &entry).context(doing)?;
        io::copy(&mut file, &mut out).context(doing)?;
        tar::pad(&mut out, length).context(doing)
    };
    write(&layout.image, b"oci-layout", "")?;
    write(&layout.image, b"index.json", "")?;
    let mut blobs = disk::entries(layout.sha256.as_fd())?;
    blobs.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, _) in blobs {
        write(&layout.sha256, &name, "blobs/sha256/")?;
    }
    tar::write_end(&mut out).context(doing)?;
    out.flush().context(doing)
}
