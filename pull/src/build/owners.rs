//! Whose the files are that the caller's one id has made: of a base that came before any image was built on it, and of a RUN that was
//! not root's.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Builder;
use super::stage::{Base, Chain};
use crate::blob::Blob;
use crate::bundle::PulledImage;
use crate::cache::CacheLocation;
use crate::manifest::MANIFEST_LIMIT;
use crate::pull::PullOptions;
use crate::reference::Source;
use crate::source::{Image, Opened};
use oci_content::interrupt::Interrupt;
use oci_layer::owner::{self, Owner};
use oci_layer::tar::{EntryKind, Reader};
use oci_layer::{decode, merge};
use oci_registry::reference::Reference;
use rt_sys::error::{Context, Result};
use rt_sys::owner::is_bare;
use rt_sys::rootfs::open_in_unmounted;
use rt_sys::{bail, disk, origin};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// What overlayfs sets on what it has copied from a layer below, but for files with several names.
const COPIED: &[u8] = b"user.overlay.origin";

/// There, beside a tree, where its files are marked ([`rt_sys::origin`]).
const MARKED: &[u8] = b"marked-links";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW);

/// Records the owners in the root of a bundle of the store, by the headers of its image's layers, unless they are recorded.
///
/// # Errors
/// The layers are not to be had, or the bundle is not the caller's to change.
pub(crate) fn record_owners(bundle: &Path, options: &PullOptions, interrupt: &Interrupt) -> Result<()> {
    if is_recorded(bundle)? {
        return Ok(());
    }
    let pulled = PulledImage::of_bundle(bundle)?;
    let Source::Registry(reference) = &options.source else { bail!("not from a registry") };
    let reference = Reference { tag: None, digest: Some(pulled.digest.parse()?), ..reference.clone() };
    let CacheLocation::Lasting(_) = &options.cache else { bail!("its layers are in no cache") };
    let (cache, _scratch) = options.cache.open(None)?;
    if cache.read(&pulled.digest.parse()?, MANIFEST_LIMIT).is_none() {
        bail!("its layers are not in the cache (rt pull gets them)");
    }
    let opened = Opened::open(&Source::Registry(reference), options.connect.clone(), &cache, interrupt)?;
    let image = opened.resolve(None, &options.platform, &cache, interrupt)?;
    let mut owners = Owners::default();
    for (at, layer) in image.manifest.layers.iter().enumerate() {
        let blob = Blob::new(layer.digest.clone(), layer.size);
        let obtained = image.obtain(at, &blob, &cache, interrupt);
        blob.finish(obtained.as_ref().map(drop).map_err(rt_sys::error::Error::clone));
        obtained?;
        owners.read(&image, at, blob.reader(), interrupt).context(|| format!("layer {}", at + 1))?;
    }
    let bundle = crate::bundle::open(bundle)?;
    let root = disk::open_dir(bundle.as_fd(), rt_image_store::ROOT.as_bytes())?;
    for (path, owner) in owners.0 {
        let shown = || String::from_utf8_lossy(&path).into_owned();
        match open_to_record(&root, &path).context(shown)? {
            Some(Recordable::File(file)) => owner::record(file.as_fd(), owner).context(shown)?,
            // Not on every file system that keeps attributes of users (NFS).
            Some(Recordable::Bare(any, _)) => drop(owner::record_bare_of(any.as_fd(), owner).context(shown)?),
            None => {}
        }
    }
    // With a mode of its own: a build has no umask.
    match disk::create_file(bundle.as_fd(), crate::bundle::RECORDED.as_bytes(), 0o644) {
        Err(e) if !e.is(libc::EEXIST) => Err(e),
        _ => Ok(()),
    }
}

/// True where the owners of a bundle are recorded.
pub(crate) fn is_recorded(bundle: &Path) -> Result<bool> {
    let dir = crate::bundle::open(bundle)?;
    Ok(disk::mode_at(dir.as_fd(), crate::bundle::RECORDED.as_bytes())?.is_some())
}

/// What does not belong to root in layers, by its path.
#[derive(Default)]
struct Owners(BTreeMap<Vec<u8>, Owner>);

impl Owners {
    /// Reads the headers of layer `at` of an image, over those before it.
    fn read(
        &mut self,
        image: &Image,
        at: usize,
        blob: impl Read + Send,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let most = decode::bomb_limit(image.manifest.layers[at].size);
        let plain = decode::plain(BufReader::with_capacity(128 << 10, blob)).context(|| "inflate")?;
        let mut reader = Reader::new(BufReader::with_capacity(128 << 10, plain.take(most)));
        while let Some(entry) = reader.next().context(|| "read the archive")? {
            interrupt.check()?;
            let path = merge::clean(&entry.path)?;
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            let parent = path[..path.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
            match name.strip_prefix(b".wh.") {
                Some(b".wh..opq") => self.forget_below(parent),
                Some(hidden) if parent.is_empty() => self.forget(hidden),
                Some(hidden) => self.forget(&[parent, b"/", hidden].concat()),
                None => {
                    if entry.kind != EntryKind::Directory {
                        self.forget_below(&path);
                    }
                    // Another name of a file has the owner that the first one said.
                    if entry.kind == EntryKind::Hardlink {
                        self.0.remove(&path[..]);
                        continue;
                    }
                    match Owner::of_header(entry.uid, entry.gid) {
                        Owner::ROOT => self.0.remove(&path[..]),
                        owner => self.0.insert(path.into_owned(), owner),
                    };
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, path: &[u8]) {
        self.0.remove(path);
        self.forget_below(path);
    }

    fn forget_below(&mut self, path: &[u8]) {
        let below = [path, b"/"].concat();
        let all = self.0.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
        for other in all.map(|(other, _)| other.clone()).collect::<Vec<_>>() {
            self.0.remove(&other);
        }
    }
}

/// What can have a record.
enum Recordable {
    /// A file or directory, to be read.
    File(OwnedFd),
    /// A link, pipe or socket, for its path only.
    Bare(OwnedFd, FileType),
}

/// Opens what is at a path of a tree; none where nothing is there that can have a record.
fn open_to_record(root: &OwnedFd, path: &[u8]) -> Result<Option<Recordable>> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let any = match open_in_unmounted(root.as_fd(), path, OFlags::PATH | OFlags::NOFOLLOW) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        any => any?,
    };
    let flags = match FileType::from_raw_mode(rt_sys::fd::stat(&any)?.st_mode) {
        FileType::Directory => DIRECTORY,
        FileType::RegularFile => FILE,
        kind if is_bare(kind) => return Ok(Some(Recordable::Bare(any, kind))),
        _ => return Ok(None),
    };
    Ok(Some(Recordable::File(open_in_unmounted(root.as_fd(), path, flags)?)))
}

/// Marks the files below a RUN that is not root's, before they are mounted, so that copies of them are known whatever shares the files
/// meanwhile.
pub(super) fn mark_below(builder: &Builder, chain: &Chain) -> Result<()> {
    if let Base::Bundle { path, is_ours: true, .. } = &chain.base {
        mark_tree(&crate::bundle::open(path)?, rt_image_store::ROOT, builder.interrupt)?;
    }
    for layer in &chain.layers {
        mark_tree(&builder.place.layer(&layer.id)?, rt_spec::OVERLAY_UPPER, builder.interrupt)?;
    }
    Ok(())
}

/// Marks the files of the tree `name` in `dir`, and notes there that they are; not where somebody else's or the file system's rules are
/// against it.
fn mark_tree(dir: &OwnedFd, name: &str, interrupt: &Interrupt) -> Result<()> {
    if disk::mode_at(dir.as_fd(), MARKED)?.is_some() {
        return Ok(());
    }
    let root = disk::open_dir(dir.as_fd(), name.as_bytes())?;
    let noted = match mark_all(&root, interrupt) {
        Ok(true) => disk::create_file(dir.as_fd(), MARKED, 0o644).map(drop),
        done => done.map(drop),
    };
    match noted {
        Err(e) if ![libc::EACCES, libc::EROFS, libc::EEXIST].iter().any(|fine| e.is(*fine)) => Err(e),
        _ => Ok(()),
    }
}

/// Marks the files below `root`, and links and pipes of root's by a record that says so; directories, which overlays copy, give no mark.
/// False where that cannot be done.
fn mark_all(root: &OwnedFd, interrupt: &Interrupt) -> Result<bool> {
    let mut left = vec![PathBuf::new()];
    let mut are_all = true;
    while let Some(inner) = left.pop() {
        interrupt.check()?;
        let dir = open_in_unmounted(root.as_fd(), &inner, DIRECTORY)?;
        origin::clear(dir.as_fd())?;
        for (name, kind) in disk::entries(dir.as_fd())? {
            let is_file = kind == FileType::RegularFile;
            if kind == FileType::Directory {
                left.push(inner.join(std::ffi::OsStr::from_bytes(&name)));
            } else if is_file && !origin::mark(disk::open_file(dir.as_fd(), &name)?.as_fd())? {
                return Ok(false);
            } else if is_bare(kind) {
                let any = disk::open_any(dir.as_fd(), &name)?;
                are_all &= owner::recorded_bare(any.as_fd())?.is_some()
                    || owner::record_bare_of(any.as_fd(), Owner::ROOT)?;
            }
        }
    }
    Ok(are_all)
}

/// Records `owner` of what a program of that USER has made: what is in an upper layer, comes from no layer below, of `lower`, and has
/// no record.
pub(super) fn give_new(upper: &Path, lower: &[OwnedFd], owner: Owner) -> Result<()> {
    let root = disk::open_root(upper)?;
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        let dir = open_in_unmounted(root.as_fd(), &inner, DIRECTORY)?;
        // Its own program has tuned it, or it is a copy of somebody else's.
        let gives_its_flags = origin::is_marked(dir.as_fd())?;
        for (name, kind) in disk::entries(dir.as_fd())? {
            let path = inner.join(std::ffi::OsStr::from_bytes(&name));
            let shown = || path.display().to_string();
            let file = match open_to_record(&root, path.as_os_str().as_bytes())? {
                Some(Recordable::File(file)) => file,
                Some(Recordable::Bare(any, kind)) => {
                    if owner::recorded_bare(any.as_fd()).context(shown)?.is_none()
                        && !may_be_copied(lower, &path, kind, true).context(shown)?
                    {
                        owner::record_bare_of(any.as_fd(), owner).context(shown)?;
                    }
                    continue;
                }
                None => continue,
            };
            let is_marked = || match kind {
                FileType::RegularFile if !gives_its_flags => origin::is_marked(file.as_fd()),
                _ => Ok(false),
            };
            let known = disk::has_xattr(file.as_fd(), COPIED).context(shown)?
                || owner::recorded(file.as_fd()).context(shown)?.is_some()
                || is_marked().context(shown)?
                || may_be_copied(lower, &path, FileType::RegularFile, !gives_its_flags).context(shown)?;
            if !known {
                owner::record(file.as_fd(), owner).context(shown)?;
            }
            if kind == FileType::Directory {
                left.push(path);
            }
        }
    }
    Ok(())
}

/// True where a layer below has a root's file of that kind at `path` whose copies have no mark: a link or a pipe, or a file with several
/// names, which is not marked itself, since it is somebody else's or its file system marks none, or whose mark says nothing. A new file in
/// its place would rather be taken for a copy than a copy for new.
fn may_be_copied(lower: &[OwnedFd], path: &Path, kind: FileType, marks_count: bool) -> Result<bool> {
    for tree in lower.iter().rev() {
        let any = match open_in_unmounted(tree.as_fd(), path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            any => any?,
        };
        let stat = rt_sys::fd::stat(&any)?;
        if FileType::from_raw_mode(stat.st_mode) != kind {
            return Ok(false);
        }
        if is_bare(kind) {
            return Ok(owner::recorded_bare(any.as_fd())?.is_none());
        }
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let file = open_in_unmounted(tree.as_fd(), path, FILE)?;
        let is_known = marks_count && origin::is_marked(file.as_fd())?;
        return Ok(!is_known && owner::recorded(file.as_fd())?.is_none());
    }
    Ok(false)
}
