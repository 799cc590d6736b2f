//! Blobs by digest in a directory that several users and nodes may share.
//!
//! ```text
//! blobs/sha256/<hex>            a blob, complete and checked; never written again
//! partial/<hex>.<random>        one that is being fetched, or was when its process ended
//! leases/<hex>.lease.<n>        who fetches it
//! ```
//!
//! A blob appears under its name by link(2), complete and checked. Others may write here too, so three cases differ:
//!
//! - What the caller or root owns, in directories in which nobody else can write, is taken as it is.
//! - What they own elsewhere cannot be changed by others, but its name can be that of another file. It is hashed beside its
//!   use.
//! - What others own can change at any time. Each reader hashes what it reads.
//!
//! Only regular files are opened, and through no link.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::blob::Blob;
use super::lease::{Lease, Moment, Wanted};
use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use rt_sys::error::{Context, Error, Kind, Result};
use rt_sys::{bail, disk, err, fd, look, tree};

/// What is left of a blob and was not touched for so long will not be continued any more.
const RUBBISH: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which remains of dead processes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Remains that are so old that no pull is likely to go on with them.
    Old,
    /// All remains on which nobody works.
    All,
}

/// A cache directory.
pub(crate) struct Cache {
    path: PathBuf,
    root: OwnedFd,
    sha256: OwnedFd,
    sha512: OwnedFd,
    partial: OwnedFd,
    leases: Arc<OwnedFd>,
    /// Nobody else can write in any of its directories.
    ours: bool,
}

/// A complete blob.
pub(crate) struct CachedBlob {
    /// What it hashes to.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// What fetches bytes of a blob from an offset on, in order.
pub(crate) type Fetch<'a> = dyn Fn(&Blob, u64, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + Sync + 'a;

/// Which cache is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheLocation {
    /// A directory that stays.
    Lasting(PathBuf),
    /// One that goes with the command.
    Scratch,
}

/// A scratch cache's directory, removed at the end.
pub(crate) struct ScratchDir(Option<(OwnedFd, String, OwnedFd)>);

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Some((parent, name, dir)) = &self.0 {
            let _ = tree::remove_contents(dir, None);
            let _ = disk::remove_dir(parent.as_fd(), name.as_bytes());
        }
    }
}

impl CacheLocation {
    /// The directory, where it is one that stays.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            CacheLocation::Lasting(path) => Some(path),
            CacheLocation::Scratch => None,
        }
    }

    /// Opens the cache; `scratch` is where one for this call alone would be, by default a temporary directory.
    pub(crate) fn open(&self, scratch: Option<OwnedFd>) -> Result<(Cache, ScratchDir)> {
        match (self, scratch) {
            (CacheLocation::Lasting(root), _) => Ok((Cache::open(root)?, ScratchDir(None))),
            (CacheLocation::Scratch, Some(dir)) => {
                Ok((Cache::within(dir, PathBuf::from("scratch"))?, ScratchDir(None)))
            }
            (CacheLocation::Scratch, None) => {
                let place = std::env::temp_dir();
                let name = format!("rt-pull-{}", rt_sys::unique::name());
                let parent = disk::open_root(&place)?;
                let dir = disk::make_own_dir(parent.as_fd(), name.as_bytes())?;
                let again = disk::open_dir_again(dir.as_fd())?;
                let scratch = ScratchDir(Some((parent, name.clone(), dir)));
                Ok((Cache::within(again, place.join(name))?, scratch))
            }
        }
    }
}

impl Cache {
    /// Opens the directory `root`, made if need be, for the caller alone.
    pub(crate) fn open(root: &Path) -> Result<Cache> {
        use std::os::unix::fs::DirBuilderExt;
        // Whoever serves a file system says whose its files are, so what is there would not be hashed; or he says nothing.
        if rt_sys::mount::is_on_others_fuse(&rt_sys::fd::absolute(root)?)? {
            return Err(err!(
                "the cache {}: a file system of another user's is mounted there",
                root.display()
            )
            .hint("RT_CACHE or --cache names another place, and --no-cache needs none"));
        }
        // Where the kernel does not say, mkdir(2) says why.
        if !look::is_dir(root).is_ok_and(|is| is) {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root);
            made.context(|| format!("make the cache {} (set RT_CACHE, or use --no-cache)", root.display()))?;
        }
        let mut cache = Cache::within(open_place(root)?, root.to_owned())?;
        // Where others can put something else there, a name proves nothing.
        cache.ours &= rt_sys::owned::strangers_place(root)?.is_none();
        Ok(cache)
    }

    /// The cache in the directory `root`; `path` is for people.
    fn within(root: OwnedFd, path: PathBuf) -> Result<Cache> {
        // The directories inside get the mode of the one that the user or the site made: a shared cache stays shared.
        let mode = disk::mode(&root)?;
        let inside = |parent: &OwnedFd, name: &str| {
            open_or_make(parent, name, mode).map_err(|e| {
                let remedy = "RT_CACHE or --cache names another place, and --no-cache needs none";
                e.context(format!("the cache {}", path.display())).hint(remedy)
            })
        };
        let blobs = inside(&root, "blobs")?;
        let (sha256, sha512) = (inside(&blobs, "sha256")?, inside(&blobs, "sha512")?);
        let (partial, leases) = (inside(&root, "partial")?, Arc::new(inside(&root, "leases")?));
        let mut ours = true;
        for dir in [&root, &blobs, &sha256, &sha512, &partial] {
            ours &= disk::only_ours(dir)?;
        }
        Ok(Cache { path, root, sha256, sha512, partial, leases, ours })
    }

    /// Where the cache is when nothing else is said.
    ///
    /// # Errors
    /// As of [`rt_image_store::place::default_cache`].
    pub(crate) fn default_root() -> Result<PathBuf> {
        rt_image_store::place::default_cache()
    }

    /// The directory, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// A file without a name, for what is needed once. It goes with its last descriptor, however this process ends.
    pub(crate) fn nameless(&self) -> Result<File> {
        let name = format!("scratch.{}", rt_sys::unique::name()).into_bytes();
        let file = disk::create_own_file(self.partial.as_fd(), &name)?;
        disk::unlink(self.partial.as_fd(), &name)?;
        Ok(file)
    }

    fn dir(&self, digest: &Digest) -> &OwnedFd {
        match digest.algorithm() {
            "sha512" => &self.sha512,
            _ => &self.sha256,
        }
    }

    /// A complete blob of that size, opened.
    pub(crate) fn find(&self, digest: &Digest, size: Option<u64>) -> Option<Arc<File>> {
        let file = disk::open_if_file(self.dir(digest).as_fd(), digest.hex().as_bytes()).ok()??;
        let length = file.metadata().ok()?.len();
        size.is_none_or(|size| size == length).then(|| Arc::new(file))
    }

    /// A small document, checked.
    pub(crate) fn read(&self, digest: &Digest, limit: u64) -> Option<Vec<u8>> {
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
    pub(crate) fn write(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        if self.find(digest, Some(bytes.len() as u64)).is_some() {
            return Ok(());
        }
        let (partial, file) = self.begin(digest)?;
        file.write_all_at(bytes, 0).context(|| format!("write {partial}"))?;
        self.publish(&partial, &file, digest)
    }

    /// A new file for parts of a blob, and its name.
    fn begin(&self, digest: &Digest) -> Result<(String, File)> {
        let name = format!("{}.{}", digest.hex(), rt_sys::unique::name());
        let file = disk::create_own_file(self.partial.as_fd(), name.as_bytes())?;
        Ok((name, file))
    }

    /// Gives a complete file its name; somebody else may have been faster.
    fn publish(&self, partial: &str, file: &File, digest: &Digest) -> Result<()> {
        let (from, from_name) = (self.partial.as_fd(), partial.as_bytes());
        let (to, to_name) = (self.dir(digest).as_fd(), digest.hex().as_bytes());
        disk::set_mode(file.as_fd(), 0o444)?;
        match disk::link(from, from_name, to, to_name) {
            Ok(()) => {}
            Err(e) if e.is(libc::EEXIST) => {
                // Somebody was faster, unless what is there has the wrong size: that cannot be the blob, and is replaced if
                // the directory allows it.
                let size = disk::length(file)?;
                if self.find(digest, Some(size)).is_none() {
                    return match disk::rename(from, from_name, to, to_name) {
                        // The blob is another user's, or has something mounted on it (EBUSY). This blob is for this call alone then.
                        Err(e) if [libc::EPERM, libc::EACCES, libc::EBUSY].iter().any(|no| e.is(*no)) => {
                            log::warn!(
                                "blob {digest} is not kept: another user has taken its name in the cache"
                            );
                            disk::unlink(from, from_name)
                        }
                        renamed => renamed,
                    };
                }
            }
            // This process was stopped for so long that another one took over, had the blob, and cleared this away.
            Err(e) if e.is(libc::ENOENT) => {
                let size = disk::length(file)?;
                return if self.find(digest, Some(size)).is_some() { Ok(()) } else { Err(e) };
            }
            // File systems without hard links; rename(2) replaces a blob by the same blob at worst.
            Err(_) => return disk::rename(from, from_name, to, to_name),
        }
        let _ = disk::unlink(from, from_name);
        Ok(())
    }

    /// Gets a blob into the cache, by `fetch` if it is not there; `blob`'s readers read behind.
    /// True if it came from the network.
    ///
    /// # Errors
    /// What `fetch` says, a digest or size that is wrong, a full disk.
    pub(crate) fn obtain(&self, blob: &Blob, fetch: &Fetch, interrupt: &Interrupt) -> Result<bool> {
        let shown = format!("blob {}", blob.digest);
        let mut wanted = Wanted::new(&self.leases, blob.digest.hex(), &shown);
        let lease = loop {
            if let Some(file) = self.find(&blob.digest, Some(blob.size)) {
                self.reuse(blob, &file, interrupt)?;
                return Ok(false);
            }
            if let Some(lease) = wanted.acquire()? {
                break lease;
            }
            wanted.wait(interrupt)?;
        };
        // The last holder of the lease may have finished after the first look and before the lease was taken.
        disk::look_afresh(self.dir(&blob.digest).as_fd());
        if let Some(file) = self.find(&blob.digest, Some(blob.size)) {
            drop(lease);
            self.reuse(blob, &file, interrupt)?;
            return Ok(false);
        }
        self.fetch(blob, fetch, interrupt, lease)?;
        Ok(true)
    }

    /// A small document, by `get` in one process at a time.
    pub(crate) fn once(
        &self,
        digest: &Digest,
        limit: u64,
        interrupt: &Interrupt,
        get: impl Fn() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let shown = format!("blob {digest}");
        let mut wanted = Wanted::new(&self.leases, digest.hex(), &shown);
        loop {
            if let Some(bytes) = self.read(digest, limit) {
                return Ok(bytes);
            }
            if let Some(_lease) = wanted.acquire()? {
                disk::look_afresh(self.dir(digest).as_fd());
                if let Some(bytes) = self.read(digest, limit) {
                    return Ok(bytes);
                }
                let bytes = get()?;
                self.write(digest, &bytes)?;
                self.clear_partials(digest);
                return Ok(bytes);
            }
            wanted.wait(interrupt)?;
        }
    }

    fn reuse(&self, blob: &Blob, file: &Arc<File>, interrupt: &Interrupt) -> Result<()> {
        // Its age since the last use is what `prune` goes by.
        let _ = disk::touch(self.dir(&blob.digest).as_fd(), blob.digest.hex().as_bytes());
        match (disk::only_ours(file)?, self.ours) {
            (true, true) => blob.available(file, 0, blob.size),
            // It cannot be changed, but be another.
            (true, false) => {
                blob.verify(file, 0, interrupt).map_err(|e| match e.kind() {
                    Kind::Damaged => e.hint("the damaged blob is in the cache: rt cache verify removes it"),
                    _ => e,
                })?;
            }
            (false, _) => blob.untrusted(file, 0),
        }
        Ok(())
    }

    fn fetch(&self, blob: &Blob, fetch: &Fetch, interrupt: &Interrupt, _lease: Lease) -> Result<()> {
        for resume in [true, false] {
            let (partial, file) = self.begin(&blob.digest)?;
            let file = Arc::new(file);
            let mut hasher = blob.digest.hasher();
            let resumed = if resume { self.resume(blob, &file, &mut hasher, interrupt)? } else { 0 };
            self.receive(blob, (&partial, &file), resumed, &mut hasher, fetch, interrupt)?;
            let checked = blob.compare(&hasher.finish());
            if checked.is_ok() {
                self.publish(&partial, &file, &blob.digest)?;
                self.clear_partials(&blob.digest);
                blob.available(&file, 0, blob.size);
                return Ok(());
            }
            let _ = disk::unlink(self.partial.as_fd(), partial.as_bytes());
            if resumed == 0 {
                return checked;
            }
            // The kept bytes may have been wrong, or those that were fetched now. No reader has seen either.
            log::info!("blob {}: what was kept of it is wrong, all of it is fetched again", blob.digest);
            self.clear_partials(&blob.digest);
        }
        bail!("blob {}: resumed where nothing was kept", blob.digest)
    }

    /// Fetches what comes after the first `resumed` bytes. Where there are such, nobody knows whether they are right, so
    /// readers see nothing before the whole blob has been checked: they cannot take back what they unpacked.
    fn receive(
        &self,
        blob: &Blob,
        (partial, file): (&str, &Arc<File>),
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
            file.write_all_at(bytes, at).context(|| format!("write {partial}"))?;
            hasher.update(bytes);
            at += bytes.len() as u64;
            match resumed {
                0 => blob.available(file, 0, at),
                _ => blob.received(at),
            }
            Ok(())
        });
        if result.is_ok() && at != blob.size {
            result = Err(err!("blob {}: only {at} of {} bytes", blob.digest, blob.size));
        }
        // What came is worth keeping, unless it cannot be right.
        if result.is_err() && (at == resumed || at == blob.size) {
            let _ = disk::unlink(self.partial.as_fd(), partial.as_bytes());
        }
        result
    }

    /// Names of what there is of a blob that was never complete.
    fn partials(&self, digest: &Digest) -> Vec<Vec<u8>> {
        let prefix = format!("{}.", digest.hex());
        let entries = disk::entries(self.partial.as_fd()).unwrap_or_default();
        entries.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(prefix.as_bytes())).collect()
    }

    /// Removes what dead processes left of a blob that is complete, or was wrong. Only with its lease.
    fn clear_partials(&self, digest: &Digest) {
        for name in self.partials(digest) {
            let _ = disk::unlink(self.partial.as_fd(), &name);
        }
    }

    /// Copies what a process that is gone left of this blob; returns how much. It is copied, since the process may only be
    /// asleep (a suspended job): when it wakes up, it writes into a file that nobody uses any more.
    fn resume(&self, blob: &Blob, file: &File, hasher: &mut Hasher, interrupt: &Interrupt) -> Result<u64> {
        // Only the caller's own or root's: others could leave wrong bytes on purpose, and each time a download is lost.
        let best = self
            .partials(&blob.digest)
            .iter()
            .filter_map(|name| disk::open_if_file(self.partial.as_fd(), name).ok()?)
            .filter(|file| disk::only_ours(file).unwrap_or(false))
            .filter_map(|file| Some((file.metadata().ok()?.len(), file)))
            .filter(|(length, _)| (1..=blob.size).contains(length))
            .max_by_key(|(length, _)| *length);
        let Some((length, old)) = best else { return Ok(0) };
        let mut at = 0;
        let mut buffer = vec![0; 256 << 10];
        while at < length {
            interrupt.check()?;
            let most = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let n = old.read_at(&mut buffer[..most], at).context(|| format!("read {}", fd::shown(&old)))?;
            if n == 0 {
                break;
            }
            file.write_all_at(&buffer[..n], at).context(|| format!("write {}", fd::shown(file)))?;
            hasher.update(&buffer[..n]);
            at += n as u64;
        }
        blob.received(at);
        Ok(at)
    }

    /// All complete blobs.
    pub(crate) fn list(&self) -> Result<Vec<CachedBlob>> {
        let mut blobs = Vec::new();
        for (algorithm, dir) in [("sha256", &self.sha256), ("sha512", &self.sha512)] {
            for (name, _) in disk::entries(dir.as_fd())? {
                let name = String::from_utf8(name).unwrap_or_default();
                let Ok(digest) = format!("{algorithm}:{name}").parse() else { continue };
                match disk::size_and_time(dir.as_fd(), name.as_bytes()) {
                    Ok((size, used)) => blobs.push(CachedBlob { digest, size, used }),
                    // Somebody else has removed it, or mounted something on it.
                    Err(e) if e.is(libc::ENOENT) || e.is(libc::EXDEV) => {}
                    Err(e) => return Err(e.context(format!("blob {digest}"))),
                }
            }
        }
        Ok(blobs)
    }

    /// Removes a blob; its size, and none where it is another user's, and stays.
    pub(crate) fn remove(&self, digest: &Digest) -> Result<Option<u64>> {
        let shown = self.path.join("blobs").join(digest.algorithm());
        remove(self.dir(digest).as_fd(), digest.hex().as_bytes(), &shown)
    }

    /// Removes what dead processes left: parts of blobs, leases and their drafts. Returns bytes, and what could not be
    /// removed.
    pub(crate) fn sweep(&self, what: Sweep) -> Result<(u64, Vec<Error>)> {
        let (mut freed, mut failed) = (0, Vec::new());
        let now = SystemTime::now();
        let leases = self.leases.as_fd();
        let moment = Moment::of(leases).context(|| self.path.join("leases").display().to_string())?;
        for (dir, shown) in [(self.partial.as_fd(), "partial"), (leases, "leases")] {
            let shown = self.path.join(shown);
            for (name, _) in disk::entries(dir)? {
                let changed = match disk::size_and_time(dir, &name) {
                    Err(e) if e.is(libc::ENOENT) || e.is(libc::EXDEV) => continue,
                    looked_at => looked_at.context(|| shown.display().to_string())?.1,
                };
                let age = now.duration_since(changed).unwrap_or_default();
                let hex = name.split(|&b| b == b'.').next().and_then(|hex| std::str::from_utf8(hex).ok());
                if (what == Sweep::All || age > RUBBISH) && !moment.held(hex.unwrap_or_default())? {
                    match remove(dir, &name, &shown) {
                        Ok(size) => freed += size.unwrap_or(0),
                        Err(e) => failed.push(e),
                    }
                }
            }
        }
        Ok((freed, failed))
    }

    /// Hashes a blob.
    ///
    /// # Errors
    /// Of kind [`Kind::Damaged`] only if what has the blob's name is not the blob.
    pub(crate) fn verify(&self, digest: &Digest, size: u64, interrupt: &Interrupt) -> Result<()> {
        let (dir, name) = (self.dir(digest).as_fd(), digest.hex().as_bytes());
        if disk::mode_at(dir, name)?.is_some_and(|mode| mode & libc::S_IFMT != libc::S_IFREG) {
            return Err(err!("blob {digest}: not a regular file").of_kind(Kind::Damaged));
        }
        let file = Arc::new(disk::open_file(dir, name).context(|| format!("blob {digest}"))?);
        Blob::new(digest.clone(), size).verify(&file, 0, interrupt)
    }
}

/// Removes a file of the directory `shown`; its size. In a sticky directory the files of other users cannot be removed
/// (EPERM): that is no error, and none is returned.
fn remove(dir: BorrowedFd, name: &[u8], shown: &Path) -> Result<Option<u64>> {
    let looked_at =
        disk::size_and_time(dir, name).and_then(|(size, _)| Ok((size, disk::owner_at(dir, name)?)));
    let removed = match looked_at {
        Err(e) if e.is(libc::ENOENT) => return Ok(Some(0)),
        looked_at => looked_at.and_then(|(size, owner)| match disk::unlink(dir, name) {
            Err(e) if e.is(libc::EPERM) && owner != disk::caller().uid => Ok(None),
            unlinked => unlinked.map(|()| Some(size)),
        }),
    };
    removed.context(|| shown.display().to_string())
}

/// Opens the directory `root`. Where others may make names, as in /tmp, a link that is somebody else's could lead to any
/// directory of the caller's. It is refused, as the kernel refuses it in sticky directories (proc_sys_fs(5),
/// protected_symlinks).
fn open_place(root: &Path) -> Result<OwnedFd> {
    let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
    let (Some(parent), Some(name)) = (parent, root.file_name()) else { return disk::open_root(root) };
    let parent = disk::open_root(parent)?;
    if disk::mode(&parent)? & 0o022 == 0 || disk::is_own(parent.as_fd(), name.as_bytes()) {
        return disk::open_root(root);
    }
    disk::open_dir(parent.as_fd(), name.as_bytes()).context(|| format!("the cache {}", root.display()))
}

/// The directory `name`, made with `mode` where there is none. It is made under a name of this process's own and renamed,
/// so that it never appears with another mode, and so that processes that make it at the same time do not meet.
pub(crate) fn open_or_make(parent: &OwnedFd, name: &str, mode: u32) -> Result<OwnedFd> {
    let parent = parent.as_fd();
    match disk::open_dir(parent, name.as_bytes()) {
        Err(e) if e.is(libc::ENOENT) => {}
        opened => return opened,
    }
    let draft = format!("{name}.{}", rt_sys::unique::name());
    let made = disk::make_own_dir(parent, draft.as_bytes())?;
    disk::set_mode(made.as_fd(), mode)?;
    let named = disk::name_new_dir(parent, draft.as_bytes(), name.as_bytes(), mode);
    if !matches!(named, Ok(true)) {
        let _ = disk::remove_dir(parent, draft.as_bytes());
    }
    named?;
    disk::open_dir(parent, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rt cache verify` removes what is damaged, so nothing else may call itself so.
    #[test]
    fn only_wrong_bytes_are_damage() {
        let path = std::env::temp_dir().join(format!("rt-cache-{}", rt_sys::unique::name()));
        let cache = Cache::open(&path).unwrap();
        let digest = Digest::of(b"right");
        let place = path.join("blobs/sha256").join(digest.hex());
        let verify = || cache.verify(&digest, 5, &Interrupt::default()).map_err(|e| e.kind());
        assert_eq!(verify(), Err(Kind::Other), "nothing is there");
        for (bytes, result) in [("right", Ok(())), ("wrong", Err(Kind::Damaged)), ("rig", Err(Kind::Damaged))]
        {
            std::fs::write(&place, bytes).unwrap();
            assert_eq!(verify(), result, "{bytes}");
        }
        std::fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &place).unwrap();
        assert_eq!(verify(), Err(Kind::Damaged), "a link is no blob");
        std::fs::remove_file(&place).unwrap();
        std::fs::write(&place, "right").unwrap();
        let interrupt = Interrupt::default();
        interrupt.stop();
        assert_eq!(cache.verify(&digest, 5, &interrupt).map_err(|e| e.kind()), Err(Kind::Interrupted));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
