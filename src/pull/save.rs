//! A bundle's tree becomes an image of one layer, for podman, skopeo and registries.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::digest::{Digest, Hasher};
use super::disk;
use super::interrupt::Interrupt;
use super::layout::REF_NAME;
use super::lease::unique;
use super::platform::Platform;
use super::tar::{self, Entry, Kind};
use crate::error::{Context, Result};
use crate::{bail, err};

/// Removes what is half made.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

/// An image that was written.
pub struct Saved {
    /// Digest of its manifest.
    pub digest: Digest,
    /// Bytes of its layer as a tar archive.
    pub plain: u64,
    /// The same compressed.
    pub compressed: u64,
}

/// Writes the root of `bundle` as an image of one layer to `path`: a layout, or an archive of one. Nothing may be
/// there yet.
pub fn save(bundle: &Path, path: &Path, tag: Option<&str>, archive: bool) -> Result<Saved> {
    if path.symlink_metadata().is_ok() {
        bail!("{}: exists", path.display());
    }
    let text =
        fs::read(bundle.join("config.json")).context(|| format!("{}: not a bundle", bundle.display()))?;
    let config: Value =
        serde_json::from_slice(&text).map_err(|e| err!("{}/config.json: {e}", bundle.display()))?;
    let root = bundle.join(config["root"]["path"].as_str().unwrap_or("rootfs"));

    let draft = Draft(path.with_file_name(format!(
        "{}.partial-{}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        unique()
    )));
    let dir = &draft.0;
    fs::create_dir_all(dir.join("blobs/sha256")).context(|| format!("make {}", dir.display()))?;
    let layer = write_layer(&root, dir)?;
    let image_config = serde_json::to_vec(&image_config(&config, &layer.diff_id)).map_err(|e| err!("{e}"))?;
    let config_digest = write_blob(dir, &image_config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest,
                    "size": image_config.len() },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": layer.digest,
                     "size": layer.size }],
    });
    let manifest = serde_json::to_vec(&manifest).map_err(|e| err!("{e}"))?;
    let digest = write_blob(dir, &manifest)?;
    let mut entry = json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest,
                            "size": manifest.len() });
    entry["annotations"] = json!({ REF_NAME: tag.unwrap_or("latest") });
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                        "manifests": [entry] });
    write_file(&dir.join("index.json"), index.to_string().as_bytes())?;
    write_file(&dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    if archive {
        publish_archive(dir, path)?
    } else {
        disk::rename_new(dir, path)?
    }
    Ok(Saved { digest, plain: layer.plain, compressed: layer.size })
}

struct Written {
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

fn write_layer(root: &Path, dir: &Path) -> Result<Written> {
    let draft = dir.join("blobs/sha256/layer");
    let doing = || format!("write {}", draft.display());
    let file = BufWriter::with_capacity(256 << 10, File::create(&draft).context(doing)?);
    let gzip = flate2::write::GzEncoder::new(hashing(file), flate2::Compression::new(6));
    let mut out = BufWriter::with_capacity(256 << 10, hashing(gzip));
    let interrupt = Interrupt::install();
    let mut walk = Walk { root, seen: HashMap::new(), interrupt: &interrupt };
    walk.directory(&mut out, Path::new(""))?;
    tar::write_end(&mut out).context(doing)?;
    let plain = out.into_inner().map_err(|e| err!("{}: {}", doing(), e.error()))?;
    let compressed = plain.inner.finish().context(doing)?;
    let mut file = compressed.inner;
    file.flush().context(doing)?;
    let digest = compressed.hasher.finish();
    fs::rename(&draft, dir.join("blobs/sha256").join(digest.hex())).context(doing)?;
    Ok(Written { digest, diff_id: plain.hasher.finish(), size: compressed.bytes, plain: plain.bytes })
}

struct Walk<'a> {
    root: &'a Path,
    /// First names of files with several.
    seen: HashMap<(u64, u64), Vec<u8>>,
    interrupt: &'a Interrupt,
}

impl Walk<'_> {
    /// The entries of a directory in the order of their names, so that a tree always gives one digest.
    fn directory(&mut self, out: &mut impl Write, relative: &Path) -> Result<()> {
        let path = self.root.join(relative);
        let entries = fs::read_dir(&path).context(|| format!("read {}", path.display()))?;
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            self.interrupt.check()?;
            let relative = relative.join(&name);
            self.entry(out, &relative).map_err(|e| e.context(relative.display()))?;
        }
        Ok(())
    }

    fn entry(&mut self, out: &mut impl Write, relative: &Path) -> Result<()> {
        let path = self.root.join(relative);
        let metadata = fs::symlink_metadata(&path).context(|| "stat")?;
        let kind = metadata.file_type();
        let mut entry = Entry {
            path: relative.as_os_str().as_bytes().to_vec(),
            link: Vec::new(),
            kind: Kind::File,
            mode: metadata.permissions().mode() & 0o7777,
            // One id is all that a bundle has; inside it is root's.
            uid: 0,
            gid: 0,
            size: 0,
            mtime: (metadata.mtime(), 0),
            xattrs: Vec::new(),
            sparse: None,
        };
        if kind.is_symlink() {
            entry.kind = Kind::Symlink;
            entry.mode = 0o777;
            entry.link = fs::read_link(&path).context(|| "read link")?.as_os_str().as_bytes().to_vec();
        } else if kind.is_dir() {
            entry.kind = Kind::Directory;
            entry.xattrs = disk::xattrs(File::open(&path).context(|| "open")?.as_fd());
            entry.path.push(b'/');
        } else if kind.is_fifo() {
            entry.kind = Kind::Fifo;
        } else if kind.is_file() {
            if metadata.nlink() > 1
                && let Some(first) = self.seen.get(&(metadata.dev(), metadata.ino()))
            {
                entry.kind = Kind::Hardlink;
                entry.link = first.clone();
                return tar::write_header(out, &entry).context(|| "write");
            }
            self.seen.insert((metadata.dev(), metadata.ino()), entry.path.clone());
            let file = File::open(&path).context(|| "open")?;
            entry.xattrs = disk::xattrs(file.as_fd());
            entry.size = metadata.len();
            tar::write_header(out, &entry).context(|| "write")?;
            let copied = io::copy(&mut file.take(entry.size), out).context(|| "copy")?;
            if copied != entry.size {
                bail!("it became shorter meanwhile");
            }
            return tar::pad(out, entry.size).context(|| "write");
        } else {
            // Sockets and devices are not an image's.
            return Ok(());
        }
        tar::write_header(out, &entry).context(|| "write")?;
        if entry.kind == Kind::Directory { self.directory(out, relative) } else { Ok(()) }
    }
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

fn write_blob(dir: &Path, bytes: &[u8]) -> Result<Digest> {
    let digest = Digest::of(bytes);
    write_file(&dir.join("blobs/sha256").join(digest.hex()), bytes)?;
    Ok(digest)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).context(|| format!("write {}", path.display()))
}

/// The layout as a tar archive.
fn publish_archive(dir: &Path, path: &Path) -> Result<()> {
    let draft = Draft(dir.with_extension("tar"));
    let doing = || format!("write {}", draft.0.display());
    let mut out = BufWriter::with_capacity(256 << 10, File::create(&draft.0).context(doing)?);
    let mut names = vec!["oci-layout".to_owned(), "index.json".to_owned()];
    let blobs = fs::read_dir(dir.join("blobs/sha256")).context(doing)?;
    let mut digests: Vec<String> =
        blobs.flatten().map(|b| b.file_name().to_string_lossy().into_owned()).collect();
    digests.sort();
    names.extend(digests.into_iter().map(|hex| format!("blobs/sha256/{hex}")));
    for name in names {
        let mut file = File::open(dir.join(&name)).context(doing)?;
        let length = file.metadata().context(doing)?.len();
        let entry = Entry {
            path: name.into_bytes(),
            link: Vec::new(),
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: length,
            mtime: (0, 0),
            xattrs: Vec::new(),
            sparse: None,
        };
        tar::write_header(&mut out, &entry).context(doing)?;
        io::copy(&mut file, &mut out).context(doing)?;
        tar::pad(&mut out, length).context(doing)?;
    }
    tar::write_end(&mut out).context(doing)?;
    out.flush().context(doing)?;
    drop(out);
    disk::rename_new(&draft.0, path)
}
