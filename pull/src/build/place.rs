//! Where builds keep what they make: layers by key, caches of RUN, and a session for what goes with the build.
//!
//! ```text
//! lock              shared by builds, held alone by whoever removes
//! layers/ID/upper   what an instruction has changed, as the upper layer of an overlay
//! layers/ID/marked  there where its files are marked (rt_sys::origin)
//! layers/ID/layer   when it was made and, once an image was made of it, what it is as a tar archive
//! layers/root-...   what is known of the root of a base, and of a layer of one that was pulled
//! layers/ID/blob-HEX  once it was pushed, the compressed archive of that digest; the cache of blobs may be shared with others
//! keys/KEY          a link that names the layer which an instruction gives: docs/design/build.md has what is in a key
//! images/BUNDLE     of which layers an image of the store was made
//! caches/HASH       the directory of a RUN --mount=type=cache
//! sessions/ID       one build's
//! ```
//!
//! The directory is the caller's alone, and so is its path: nobody else changes a name in it or on the way to it. What is in a
//! layer is as hostile as its image.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::save::Times;
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_layer::owner::{self, Owner};
use rt_image_store::word::changeable_by_others;
use rt_sys::error::{Context, Result};
use rt_sys::owned::Owned;
use rt_sys::rootfs::name_of_overlay_stranger;
use rt_sys::{bail, disk, err, look, origin, tree};

/// A layer that no build has used for so long is removed by the next build that makes one.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The directory of builds.
pub(crate) struct Place {
    path: PathBuf,
    lock: fs::File,
}

/// A layer that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// Its name.
    pub id: String,
    /// What is known of it.
    pub facts: Facts,
}

/// What is known of a layer, or of the root of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// When it was made, in RFC 3339.
    pub created: String,
    /// What it is as a tar archive, once one was written.
    pub archive: Option<Archive>,
    /// The blob that it became in a push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<Packed>,
}

/// What a layer is as a compressed archive, which lies beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Packed {
    /// What it is, not compressed.
    pub archive: Archive,
    /// The digest of the blob.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
}

/// A layer of an image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its name among the layers.
    pub id: String,
    /// Which times its entries have.
    pub times: Times,
    /// The bundle whose root it is; none for what an instruction has made.
    pub base: Option<String>,
}

/// What a layer is as an uncompressed tar archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Archive {
    /// Which times its entries have.
    pub times: Times,
    /// The digest of the archive.
    pub diff_id: Digest,
    /// Its bytes.
    pub length: u64,
}

impl Place {
    /// Opens the directory, made where it is missing, or says that there is none.
    fn open_at(path: PathBuf, make: bool) -> Result<Option<Place>> {
        let shown = path.display().to_string();
        let remedy = "RT_BUILD_DIR names a directory of a local file system";
        let require_own_path = || match changeable_by_others(&path)? {
            None => Ok(()),
            Some(place) => {
                let error = err!("{shown}: others can put something else at {place}");
                Err(error
                    .hint("RT_BUILD_DIR names a directory to which only you, and root, can change the way"))
            }
        };
        let require_fit = |dir: &OwnedFd| match name_of_overlay_stranger(dir)? {
            None => Ok(()),
            Some(name) => {
                let error = err!("{shown}: it is on {name}, which cannot hold the upper layer of an overlay");
                Err(error.hint(remedy))
            }
        };
        match require_own_path() {
            // A place that others could change is none of the caller's.
            Err(_) if !make => return Ok(None),
            own => own?,
        }
        if make {
            // Before anything is made that would be in the way later.
            for above in path.ancestors() {
                if look::is_dir(above)? {
                    require_fit(&disk::open_root(above)?)?;
                    break;
                }
            }
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.context(|| format!("make {shown}")).map_err(|e| e.hint(remedy))?;
        } else {
            match look::is_dir(&path) {
                // Where the caller may not go it has built nothing: a place for builds is the caller's own.
                Err(e) if e.is(libc::EACCES) => return Ok(None),
                Ok(false) => return Ok(None),
                there => drop(there?),
            }
        }
        require_own_path()?;
        let dir = disk::open_root(&path)?;
        let owned = Owned::of(&dir)?;
        let is_open = owned.stat.st_mode & 0o077 != 0 || owned.others_can_write(&dir, false)?;
        if owned.stat.st_uid != disk::caller().uid || is_open {
            if !make {
                return Ok(None);
            }
            bail!("{shown}: builds need a directory of the caller's that nobody else may enter (mode 0700)");
        }
        match require_fit(&dir) {
            Err(_) if !make => return Ok(None),
            fit => fit?,
        }
        // What is in a directory of builds is removed when nobody needs it any more.
        let is_new = !look::exists(path.join("lock"))?;
        // A build has failed before it made anything.
        if is_new && !make {
            return Ok(None);
        }
        if is_new && !look::entries(&path)?.is_empty() {
            let error = err!("{shown}: it is no directory of builds, and not empty");
            return Err(error.hint("RT_BUILD_DIR names an empty directory, or one that is still to be made"));
        }
        let lock = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path.join("lock"));
        let lock = lock.context(|| format!("open {shown}/lock"))?;
        for part in ["layers", "keys", "images", "caches", "sessions"].into_iter().filter(|_| make) {
            match fs::DirBuilder::new().mode(0o700).create(path.join(part)) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => made.context(|| format!("make {shown}/{part}"))?,
            }
        }
        Ok(Some(Place { lock, path }))
    }

    /// That of the caller: RT_BUILD_DIR, else beside the cache of blobs.
    fn path_of_caller() -> Result<PathBuf> {
        let configured = rt_config::Config::read(&rt_config::own_variable)?;
        match configured.text(&rt_config::BUILD) {
            Some(path) => Ok(PathBuf::from(path)),
            None => Ok(Cache::default_root()?.join("build")),
        }
    }

    /// Opens it for a build. What builds have left that were killed goes, where none runs.
    pub(super) fn open() -> Result<Place> {
        let place =
            Place::open_at(Place::path_of_caller()?, true)?.ok_or_else(|| err!("no directory for builds"))?;
        if place.alone()? {
            place.sweep()?;
        }
        flock(&place.lock, FlockOperation::LockShared).context(|| "lock the directory of builds")?;
        Ok(place)
    }

    /// Takes the lock that no build has; false where one runs.
    fn alone(&self) -> Result<bool> {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e).context(|| "lock the directory of builds"),
        }
    }

    /// Removes sessions, and layers without a key. The caller holds the lock alone.
    fn sweep(&self) -> Result<()> {
        for session in look::entries(self.path.join("sessions"))? {
            tree::remove_path(&session)?;
        }
        Ok(())
    }

    /// Removes layers that no build has used for so long, and what nothing leads to. None where a build runs.
    pub(crate) fn prune(older: Duration) -> Result<Option<u64>> {
        let Some(place) = Place::open_at(Place::path_of_caller()?, false)? else { return Ok(Some(0)) };
        if !place.alone()? {
            return Ok(None);
        }
        place.sweep()?;
        place.remove_older(older).map(Some)
    }

    /// After a build that made a layer: what nobody has used for a long time goes, where no other build runs.
    pub(super) fn bound(&self) -> Result<()> {
        if self.alone()? {
            self.remove_older(KEPT)?;
        }
        Ok(())
    }

    fn remove_older(&self, older: Duration) -> Result<u64> {
        let now = SystemTime::now();
        let old = |path: &Path| -> Result<bool> {
            let used = fs::symlink_metadata(path).and_then(|m| m.modified());
            let used = used.context(|| format!("stat {}", path.display()))?;
            Ok(now.duration_since(used).unwrap_or_default() >= older)
        };
        let mut removed = 0;
        let mut kept = std::collections::HashSet::new();
        for key in look::entries(self.path.join("keys"))? {
            if old(&key)? {
                fs::remove_file(&key).context(|| format!("remove {}", key.display()))?;
            } else {
                kept.insert(fs::read_link(&key).context(|| format!("read {}", key.display()))?);
            }
        }
        for layer in look::entries(self.path.join("layers"))? {
            let name = layer.file_name().map(PathBuf::from).unwrap_or_default();
            if !kept.contains(&name) && (!name.to_string_lossy().starts_with("root-") || old(&layer)?) {
                tree::remove_path(&layer)?;
                removed += 1;
            }
        }
        for image in look::entries(self.path.join("images"))? {
            if old(&image)? {
                fs::remove_file(&image).context(|| format!("remove {}", image.display()))?;
            }
        }
        for cache in look::entries(self.path.join("caches"))? {
            if old(&cache)? {
                tree::remove_path(&cache)?;
            }
        }
        Ok(removed)
    }

    /// A directory for this build alone.
    pub(super) fn session(&self) -> Result<Session> {
        let path = self.path.join("sessions").join(rt_sys::unique::name());
        fs::DirBuilder::new().mode(0o700).create(&path).context(|| format!("make {}", path.display()))?;
        Ok(Session { path })
    }

    /// The layer that a key names.
    pub(super) fn find(&self, key: &str) -> Result<Option<Layer>> {
        let link = self.path.join("keys").join(key);
        let id = match fs::read_link(&link) {
            Ok(id) => id.to_string_lossy().into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).context(|| format!("read {}", link.display())),
        };
        let Some(facts) = self.facts(&id)? else { return Ok(None) };
        let keys = disk::open_root(&self.path.join("keys"))?;
        disk::touch(keys.as_fd(), key.as_bytes())?;
        Ok(Some(Layer { id, facts }))
    }

    /// What is known of a layer or root; none where it is not there.
    pub(super) fn facts(&self, id: &str) -> Result<Option<Facts>> {
        read_json(&self.path.join("layers").join(id).join("layer"))
    }

    /// Notes what is known of a layer or root.
    pub(super) fn note(&self, id: &str, facts: &Facts) -> Result<()> {
        let dir = self.path.join("layers").join(id);
        fs::create_dir_all(&dir).context(|| format!("make {}", dir.display()))?;
        write_json(&dir, "layer", facts)
    }

    /// The compressed archive of a layer or root, of this digest and size; none where it is not there.
    pub(super) fn blob(&self, id: &str, digest: &Digest, size: u64) -> Result<Option<fs::File>> {
        let path = self.path.join("layers").join(id).join(blob_name(digest));
        let file = match fs::File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.context(|| format!("open {}", path.display()))?,
        };
        let length = disk::length(&file)?;
        Ok((length == size).then_some(file))
    }

    /// Removes the compressed archive of a layer or root.
    pub(super) fn remove_blob(&self, id: &str, digest: &Digest) -> Result<()> {
        let path = self.path.join("layers").join(id).join(blob_name(digest));
        fs::remove_file(&path).context(|| format!("remove {}", path.display()))
    }

    /// A file for the compressed archive of a layer or root.
    pub(super) fn new_blob(&self, id: &str) -> Result<NewBlob> {
        let dir = self.path.join("layers").join(id);
        fs::create_dir_all(&dir).context(|| format!("make {}", dir.display()))?;
        let name = format!("new-{}", rt_sys::unique::name());
        let options = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
        let file = options.open(dir.join(&name)).context(|| format!("make a file in {}", dir.display()))?;
        Ok(NewBlob { dir, name, file })
    }

    /// Keeps what is in `draft` as the layer of `key`.
    pub(super) fn keep(&self, draft: &Path, key: &str, created: String) -> Result<Layer> {
        let (id, facts) = (rt_sys::unique::name(), Facts { created, ..Facts::default() });
        write_json(draft, "layer", &facts)?;
        let to = self.path.join("layers").join(&id);
        fs::rename(draft, &to).context(|| format!("keep the layer {}", to.display()))?;
        let new = self.path.join("keys").join(format!("new-{id}"));
        symlink(&id, &new)
            .and_then(|()| fs::rename(&new, self.path.join("keys").join(key)))
            .context(|| format!("name the layer {}", to.display()))?;
        Ok(Layer { id, facts })
    }

    /// The directory of a layer.
    pub(super) fn layer(&self, id: &str) -> Result<OwnedFd> {
        disk::open_root(&self.path.join("layers").join(id))
    }

    /// Opens it to read what builds have kept; none where there is none. Nothing is removed meanwhile.
    pub(super) fn open_kept() -> Result<Option<Place>> {
        let Some(place) = Place::open_at(Place::path_of_caller()?, false)? else { return Ok(None) };
        flock(&place.lock, FlockOperation::LockShared).context(|| "lock the directory of builds")?;
        Ok(Some(place))
    }

    /// Notes of which layers the image in the bundle of this name was made.
    pub(super) fn note_image(&self, bundle: &str, parts: &[Part]) -> Result<()> {
        let images = self.path.join("images");
        write_json(&images, bundle, &parts)
    }

    /// The layers of the image in the bundle of this name, the lowest first, where a build has made it.
    pub(super) fn image(&self, bundle: &str) -> Result<Option<Vec<Part>>> {
        let path = self.path.join("images").join(bundle);
        read_json(&path)
    }

    /// The tree of a layer.
    pub(super) fn upper(&self, id: &str) -> Result<OwnedFd> {
        disk::open_root(&self.path.join("layers").join(id).join("upper"))
    }

    /// The directory of a cache of RUN, which gets this mode and owner where it is new.
    pub(super) fn cache(&self, id: &str, mode: u32, owner: Owner) -> Result<PathBuf> {
        let path = self.path.join("caches").join(Digest::of(id.as_bytes()).hex());
        match fs::DirBuilder::new().create(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
                    .context(|| format!("make {}", path.display()))?;
                let dir = fs::File::open(&path).context(|| format!("open {}", path.display()))?;
                owner::record_of_mode(dir.as_fd(), owner, mode, None)?;
            }
        }
        Ok(path)
    }

    /// The directory of a cache that nobody else has, and what keeps it so: the first of those for this id, or a new one.
    pub(super) fn private_cache(&self, id: &str, mode: u32, owner: Owner) -> Result<(PathBuf, fs::File)> {
        let mut number = 0u64;
        loop {
            // A name of their own: those of sharing=shared are locked by nobody.
            let dir = self.cache(&format!("private {number} {id}"), mode, owner)?;
            if let Some(lock) = alone_if_free(&dir)? {
                return Ok((dir, lock));
            }
            number += 1;
        }
    }
}

/// Waits until no other RUN has the cache `dir` for itself, and has it as long as the file is open.
pub(super) fn alone_in(dir: &Path, interrupt: &Interrupt) -> Result<fs::File> {
    loop {
        match alone_if_free(dir)? {
            Some(lock) => return Ok(lock),
            None => interrupt.sleep(Duration::from_millis(50))?,
        }
    }
}

fn alone_if_free(dir: &Path) -> Result<Option<fs::File>> {
    let file = fs::File::open(dir).context(|| format!("open {}", dir.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e).context(|| format!("lock {}", dir.display())),
    }
}

/// What is in the file at `path`; none where there is none.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| err!("{}: {e}", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).context(|| format!("read {}", path.display())),
    }
}

/// Writes the file `name` in `dir`, which appears whole.
fn write_json(dir: &Path, name: &str, what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(what).map_err(|e| err!("{e}"))?;
    let new = dir.join(format!("{name}-{}", rt_sys::unique::name()));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, dir.join(name)))
        .context(|| format!("write in {}", dir.display()))
}

fn blob_name(digest: &Digest) -> String {
    format!("blob-{}", digest.hex())
}

/// A compressed archive in the making; dropped before it is kept, it goes away.
pub(super) struct NewBlob {
    dir: PathBuf,
    name: String,
    /// Where it is written.
    pub file: fs::File,
}

impl NewBlob {
    /// Keeps it under its digest.
    pub(super) fn keep(&self, digest: &Digest) -> Result<fs::File> {
        let kept = fs::rename(self.dir.join(&self.name), self.dir.join(blob_name(digest)));
        kept.and_then(|()| self.file.try_clone())
            .context(|| format!("keep {digest} in {}", self.dir.display()))
    }
}

impl Drop for NewBlob {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.dir.join(&self.name));
    }
}

/// The directory of one build, removed at its end.
pub(super) struct Session {
    /// Where it is.
    pub path: PathBuf,
}

impl Session {
    /// A new directory for a layer in the making: `upper`, and `work` for the kernel.
    pub(super) fn draft(&self, mode: u32) -> Result<PathBuf> {
        let path = self.path.join(rt_sys::unique::name());
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        make(&path)
            .and_then(|()| make(&path.join("work")))
            .and_then(|()| make(&path.join("upper")))
            .and_then(|()| fs::set_permissions(path.join("upper"), fs::Permissions::from_mode(mode)))
            .context(|| format!("make {}", path.display()))?;
        for dir in ["work", "upper"] {
            let dir = path.join(dir);
            let file = fs::File::open(&dir).context(|| format!("open {}", dir.display()))?;
            origin::clear(file.as_fd())?;
        }
        Ok(path)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = tree::remove_path(&self.path);
    }
}
