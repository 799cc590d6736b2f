//! Blobs by digest in a directory that several users and nodes may share.
//!
//! ```text
//! blobs/sha256/<hex>            a blob, complete and checked; never written again
//! partial/<hex>.<random>        one that is being fetched, or was when its process ended
//! leases/<hex>.lease.<n>        who fetches it
//! ```
//!
//! A blob appears under its name by link(2). What other users put there is hashed before it is
//! used; what the caller or root owns and nobody else can write is taken as it is.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::blob::Blob;
use super::digest::{Digest, Hasher};
use super::disk;
use super::interrupt::Interrupt;
use super::lease::{self, Lease};
use crate::error::{Context, Result};
use crate::{bail, err};

/// A partial blob that nobody touched for so long is rubbish.
const RUBBISH: Duration = Duration::from_secs(7 * 24 * 3600);

/// A cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// What fetches bytes of a blob from an offset on, in order.
pub type Fetch<'a> = dyn Fn(&Blob, u64, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + Sync + 'a;

/// Which cache is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory that stays.
    Lasting(PathBuf),
    /// One that goes with the command.
    Scratch,
}

impl Default for Place {
    fn default() -> Place {
        Place::Lasting(Cache::default_root())
    }
}

/// A scratch cache's directory, removed at the end.
pub struct Scratch(Option<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

impl Place {
    /// Opens the cache; `scratch` is where one for this call alone would be, by default a temporary directory.
    pub fn open(&self, scratch: Option<PathBuf>) -> Result<(Cache, Scratch)> {
        match self {
            Place::Lasting(root) => Ok((Cache::open(root.clone())?, Scratch(None))),
            Place::Scratch => {
                let temporary = || std::env::temp_dir().join(format!("rt-pull-{}", lease::unique()));
                let path = scratch.unwrap_or_else(temporary);
                Ok((Cache::open(path.clone())?, Scratch(Some(path))))
            }
        }
    }
}

impl Cache {
    /// Opens `root`, made if need be, for the caller alone.
    pub fn open(root: PathBuf) -> Result<Cache> {
        use std::os::unix::fs::DirBuilderExt;
        if !root.is_dir() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&root);
            made.context(|| format!("make the cache {} (set RT_CACHE, or use --no-cache)", root.display()))?;
        }
        // Below, everything is as open as the directory that the user or the site made.
        let mode = fs::metadata(&root).context(|| format!("stat {}", root.display()))?.mode() & 0o7777;
        for name in ["blobs", "blobs/sha256", "blobs/sha512", "partial", "leases"] {
            let dir = root.join(name);
            if !dir.is_dir() {
                let made = fs::DirBuilder::new().mode(0o700).create(&dir);
                match made {
                    Ok(()) => {
                        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).context(|| "chmod")?
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(e).context(|| format!("make {}", dir.display())),
                }
            }
        }
        Ok(Cache { root })
    }

    /// Where the cache is when nothing else is said: RT_CACHE, else below XDG_CACHE_HOME, HOME or /tmp.
    pub fn default_root() -> PathBuf {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        variable("RT_CACHE")
            .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("rt")))
            .or_else(|| variable("HOME").map(|dir| dir.join(".cache/rt")))
            .unwrap_or_else(|| format!("/tmp/rt-cache-{}", disk::caller().0).into())
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.algorithm()).join(digest.hex())
    }

    /// A complete blob of that size, opened.
    pub fn find(&self, digest: &Digest, size: Option<u64>) -> Option<Arc<File>> {
        let file = File::open(self.blob_path(digest)).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && size.is_none_or(|size| size == metadata.len())).then(|| Arc::new(file))
    }

    /// A small document, checked.
    pub fn read(&self, digest: &Digest, limit: u64) -> Option<Vec<u8>> {
        let file = self.find(digest, None)?;
        let length = file.metadata().ok()?.len();
        if length > limit {
            return None;
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        digest.check(&bytes).ok().map(|()| bytes)
    }

    /// Keeps a small document.
    pub fn write(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        if self.find(digest, Some(bytes.len() as u64)).is_some() {
            return Ok(());
        }
        let partial = self.partial_path(digest);
        let file = create(&partial)?;
        file.write_all_at(bytes, 0).context(|| format!("write {}", partial.display()))?;
        self.publish(&partial, digest)
    }

    fn partial_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("partial").join(format!("{}.{}", digest.hex(), lease::unique()))
    }

    /// Gives a complete file its name; somebody else may have been faster.
    fn publish(&self, partial: &Path, digest: &Digest) -> Result<()> {
        let path = self.blob_path(digest);
        fs::set_permissions(partial, fs::Permissions::from_mode(0o444)).context(|| "chmod a blob")?;
        match fs::hard_link(partial, &path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                // One of the wrong size cannot be right; replace it if the directory lets us.
                let same =
                    fs::metadata(&path).map(|m| m.len()).ok() == fs::metadata(partial).map(|m| m.len()).ok();
                if !same {
                    return fs::rename(partial, &path).context(|| format!("replace {}", path.display()));
                }
            }
            // File systems without hard links.
            Err(_) => return fs::rename(partial, &path).context(|| format!("publish {}", path.display())),
        }
        let _ = fs::remove_file(partial);
        Ok(())
    }

    /// Gets a blob into the cache, by `fetch` if it is not there; `blob`'s readers read behind.
    /// True if it came from the network.
    ///
    /// # Errors
    /// What `fetch` says, a digest or size that is wrong, a full disk.
    pub fn obtain(&self, blob: &Blob, fetch: &Fetch, interrupt: &Interrupt) -> Result<bool> {
        let mut wait = Duration::from_millis(20);
        let lease = loop {
            if let Some(file) = self.find(&blob.digest, Some(blob.size)) {
                self.reuse(blob, &file, interrupt)?;
                return Ok(false);
            }
            if let Some(lease) = lease::acquire(&self.root.join("leases"), blob.digest.hex())? {
                break lease;
            }
            interrupt.sleep(wait)?;
            wait = (wait * 2).min(Duration::from_millis(500));
        };
        // Its last holder may have finished between the two looks.
        if let Some(file) = self.find(&blob.digest, Some(blob.size)) {
            drop(lease);
            self.reuse(blob, &file, interrupt)?;
            return Ok(false);
        }
        self.fetch(blob, fetch, interrupt, lease)?;
        Ok(true)
    }

    /// A small document, by `get` in one process at a time.
    pub fn once(
        &self,
        digest: &Digest,
        limit: u64,
        interrupt: &Interrupt,
        get: impl Fn() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let mut wait = Duration::from_millis(20);
        loop {
            if let Some(bytes) = self.read(digest, limit) {
                return Ok(bytes);
            }
            if let Some(_lease) = lease::acquire(&self.root.join("leases"), digest.hex())? {
                if let Some(bytes) = self.read(digest, limit) {
                    return Ok(bytes);
                }
                let bytes = get()?;
                self.write(digest, &bytes)?;
                self.clear_partials(digest);
                return Ok(bytes);
            }
            interrupt.sleep(wait)?;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }

    fn reuse(&self, blob: &Blob, file: &Arc<File>, interrupt: &Interrupt) -> Result<()> {
        // Its age since the last use is what `prune` goes by.
        let _ = disk::touch(&self.blob_path(&blob.digest));
        let metadata = file.metadata().context(|| "stat a blob")?;
        let trusted = [0, disk::caller().0].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0;
        if trusted {
            blob.available(file, 0, blob.size);
            return Ok(());
        }
        blob.verify(file, 0, interrupt).map_err(|e| e.hint("in the cache: run rt cache verify"))
    }

    fn fetch(&self, blob: &Blob, fetch: &Fetch, interrupt: &Interrupt, _lease: Lease) -> Result<()> {
        for resume in [true, false] {
            let partial = self.partial_path(&blob.digest);
            let file = Arc::new(create(&partial)?);
            let mut hasher = blob.digest.hasher();
            let resumed = if resume { self.resume(blob, &file, &mut hasher, interrupt)? } else { 0 };
            self.receive(blob, (&partial, &file), resumed, &mut hasher, fetch, interrupt)?;
            let checked = blob.compare(&hasher.finish());
            if checked.is_ok() {
                self.publish(&partial, &blob.digest)?;
                self.clear_partials(&blob.digest);
                blob.available(&file, 0, blob.size);
                return Ok(());
            }
            let _ = fs::remove_file(&partial);
            if resumed == 0 {
                return checked;
            }
            // Whose bytes were wrong, nobody knows; nobody has read them either.
            log::info!("blob {}: what was kept of it is wrong, all of it is fetched again", blob.digest);
            self.clear_partials(&blob.digest);
        }
        bail!("blob {}: resumed where nothing was kept", blob.digest)
    }

    /// Fetches what comes after the first `resumed` bytes. These, and so all that follows them, can be wrong: readers,
    /// who cannot give back what they read, do not see them before they are checked.
    fn receive(
        &self,
        blob: &Blob,
        (partial, file): (&Path, &Arc<File>),
        resumed: u64,
        hasher: &mut Hasher,
        fetch: &Fetch,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut at = resumed;
        let mut result = fetch(blob, at, &mut |bytes| {
            interrupt.check()?;
            if bytes.len() as u64 > blob.size - at {
                bail!("blob {}: longer than the {} bytes that the manifest says", blob.digest, blob.size);
            }
            file.write_all_at(bytes, at).context(|| format!("write {}", partial.display()))?;
            hasher.update(bytes);
            at += bytes.len() as u64;
            match resumed {
                0 => blob.available(file, 0, at),
                _ => blob.received(at),
            }
            Ok(())
        });
        if result.is_ok() && at != blob.size {
            result = Err(err!("blob {}: {at} bytes of {}", blob.digest, blob.size));
        }
        // What came is worth keeping, unless it cannot be right.
        if result.is_err() && (at == resumed || at == blob.size) {
            let _ = fs::remove_file(partial);
        }
        result
    }

    /// What dead processes left of a blob that is complete now. Only with its lease.
    fn clear_partials(&self, digest: &Digest) {
        let prefix = format!("{}.", digest.hex());
        for entry in fs::read_dir(self.root.join("partial")).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Copies what a process that is gone left of this blob; returns how much. It is copied, so
    /// that one that was only asleep writes into a file that nobody uses any more.
    fn resume(&self, blob: &Blob, file: &File, hasher: &mut Hasher, interrupt: &Interrupt) -> Result<u64> {
        let prefix = format!("{}.", blob.digest.hex());
        let entries = fs::read_dir(self.root.join("partial")).context(|| "read the cache")?;
        // Only the caller's own or root's; others' might be wrong on purpose and cost a download.
        let usable = |metadata: &fs::Metadata| {
            metadata.is_file()
                && (1..=blob.size).contains(&metadata.len())
                && [0, disk::caller().0].contains(&metadata.uid())
        };
        let best = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))
            .filter_map(|entry| Some((entry.metadata().ok().filter(usable)?.len(), entry.path())))
            .max();
        let Some((length, best)) = best else { return Ok(0) };
        let old = File::open(&best).context(|| format!("open {}", best.display()))?;
        let mut at = 0;
        let mut buffer = vec![0; 256 << 10];
        while at < length {
            interrupt.check()?;
            let most = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let n = old.read_at(&mut buffer[..most], at).context(|| "read a partial blob")?;
            if n == 0 {
                break;
            }
            file.write_all_at(&buffer[..n], at).context(|| "copy a partial blob")?;
            hasher.update(&buffer[..n]);
            at += n as u64;
        }
        blob.received(at);
        Ok(at)
    }

    /// All complete blobs: digest, size, time of the last use.
    pub fn list(&self) -> Result<Vec<(Digest, u64, SystemTime)>> {
        let mut blobs = Vec::new();
        for algorithm in ["sha256", "sha512"] {
            let dir = self.root.join("blobs").join(algorithm);
            for entry in fs::read_dir(&dir).context(|| format!("read {}", dir.display()))?.flatten() {
                let name = entry.file_name();
                let digest = name.to_str().and_then(|name| format!("{algorithm}:{name}").parse().ok());
                if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                    blobs.push((
                        digest,
                        metadata.len(),
                        metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    ));
                }
            }
        }
        Ok(blobs)
    }

    /// Removes a blob; its size.
    pub fn remove(&self, digest: &Digest) -> Result<u64> {
        let path = self.blob_path(digest);
        let size = fs::metadata(&path).map_or(0, |m| m.len());
        fs::remove_file(&path).context(|| format!("remove {}", path.display()))?;
        Ok(size)
    }

    /// Removes what dead processes left: parts of blobs, leases and their drafts. Of some age; with `all`, everything
    /// that nobody works on. Returns bytes.
    pub fn sweep(&self, all: bool) -> Result<u64> {
        let mut freed = 0;
        let now = SystemTime::now();
        let leases = self.root.join("leases");
        for dir in [&self.root.join("partial"), &leases] {
            for entry in fs::read_dir(dir).context(|| "read the cache")?.flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                let age =
                    metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
                let name = entry.file_name();
                let hex = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
                if (all || age > RUBBISH)
                    && !lease::held(&leases, hex)
                    && fs::remove_file(entry.path()).is_ok()
                {
                    freed += metadata.len();
                }
            }
        }
        Ok(freed)
    }

    /// Hashes a blob.
    pub fn verify(&self, digest: &Digest, size: u64, interrupt: &Interrupt) -> Result<()> {
        let file = self.find(digest, Some(size)).ok_or_else(|| err!("blob {digest}: gone"))?;
        Blob::new(digest.clone(), size).verify(&file, 0, interrupt)
    }
}

fn create(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.context(|| format!("create {}", path.display()))
}
