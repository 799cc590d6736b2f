//! An image file as the target of layers: everything in it is as in the layers, owners, devices and all, since nothing of a
//! file's content needs privilege to be written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oci_layer::merge::{DirMetadata, Target};
use oci_layer::tar::{EntryKind, Header};
use oci_layer::unpack::{Content, Counts, LayerTarget, Pieces};
use rt_sys::error::{Error, Result};
use rt_sys::{bail, disk, fd};
use squashfs_write::{FileId, ImageWriter, Kind, Metadata, NodeId, Options, Tree, Written};

/// The most bytes of holes in an image file. Each block of them is an entry in the image, and zeros for whoever reads it.
pub(crate) const HOLES_LIMIT: u64 = 4 << 40;

/// An image that is being written.
pub(crate) struct ImageTarget<'a> {
    tree: Mutex<Tree>,
    image: Mutex<ImageWriter>,
    /// The content of files that have none yet.
    empty: FileId,
    counts: &'a Counts,
    /// Bytes of holes.
    holes: AtomicU64,
    /// The path of the image, for errors.
    shown: String,
}

impl ImageTarget<'_> {
    /// Writes into `out`, an empty file that is open for reading and writing.
    pub(crate) fn new(out: File, options: Options, counts: &Counts) -> Result<ImageTarget<'_>> {
        let shown = fd::shown(&out);
        let mut image = ImageWriter::new(out, options).map_err(|e| wrong(&shown, e))?;
        let empty = image.add_file(&mut io::empty(), 0).map_err(|e| wrong(&shown, e))?;
        let tree = Mutex::new(Tree::new(Metadata { mode: 0o755, ..Metadata::default() }));
        Ok(ImageTarget { tree, image: Mutex::new(image), empty, counts, holes: AtomicU64::new(0), shown })
    }

    /// Writes what is left.
    pub(crate) fn finish(self) -> Result<Written> {
        let tree = self.tree.into_inner().unwrap_or_else(PoisonError::into_inner);
        let image = self.image.into_inner().unwrap_or_else(PoisonError::into_inner);
        image.finish(&tree).map_err(|e| wrong(&self.shown, e))
    }

    /// The directory at `path`. None where there is none.
    pub(crate) fn existing_directory(&self, path: &str) -> Option<NodeId> {
        let tree = self.tree();
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let dir = names.try_fold(Tree::ROOT, |dir, name| tree.get(dir, name.as_bytes()));
        dir.filter(|&dir| tree.is_directory(dir))
    }

    /// The directory at `path`, made where nothing is. None where something else is there: the image has a link, and
    /// nothing is made through it.
    pub(crate) fn directory(&self, path: &str) -> Result<Option<NodeId>> {
        let mut tree = self.tree();
        let mut at = Tree::ROOT;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            at = match tree.get(at, name.as_bytes()) {
                Some(node) if tree.is_directory(node) => node,
                Some(_) => return Ok(None),
                None => {
                    let metadata = Metadata { mode: 0o755, ..Metadata::default() };
                    let node = tree.add(metadata, Kind::Directory(BTreeMap::new()));
                    tree.insert(at, name.as_bytes(), node).map_err(|e| wrong(&self.shown, e))?;
                    node
                }
            };
        }
        Ok(Some(at))
    }

    /// Makes `path` a file that can be mounted on: an empty one where the image has nothing or a symbolic link.
    pub(crate) fn file_mount_point(&self, path: &str) -> Result<()> {
        let Some((parent, name)) = path.rsplit_once('/') else { return Ok(()) };
        let Some(parent) = self.directory(parent)? else { return Ok(()) };
        let there = {
            let tree = self.tree();
            tree.get(parent, name.as_bytes()).is_some_and(|node| !tree.is_symlink(node))
        };
        if there { Ok(()) } else { self.add_file(parent, name, b"") }
    }

    /// Makes a file of root's in a directory, in place of what is there and is no directory.
    pub(crate) fn add_file(&self, dir: NodeId, name: &str, content: &[u8]) -> Result<()> {
        {
            let tree = self.tree();
            if tree.get(dir, name.as_bytes()).is_some_and(|there| tree.is_directory(there)) {
                return Ok(());
            }
        }
        let file = self
            .image()
            .add_file(&mut &content[..], content.len() as u64)
            .map_err(|e| wrong(&self.shown, e))?;
        let metadata = Metadata { mode: 0o644, ..Metadata::default() };
        self.insert(dir, name.as_bytes(), metadata, Kind::File(file)).map(drop)
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self) -> MutexGuard<'_, ImageWriter> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, dir: NodeId, name: &[u8], metadata: Metadata, kind: Kind) -> Result<NodeId> {
        let mut tree = self.tree();
        let node = tree.add(metadata, kind);
        tree.insert(dir, name, node).map_err(|e| wrong(&self.shown, e))?;
        Ok(node)
    }

    fn metadata(
        &self,
        mode: u32,
        owner: (u64, u64),
        mtime: (i64, u32),
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Metadata {
        let id = |id: u64| u32::try_from(id).unwrap_or(0);
        let mut kept = BTreeMap::new();
        for (name, value) in xattrs {
            if disk::is_steering(name) {
                self.counts.xattrs.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            kept.insert(name.clone(), value.clone());
        }
        Metadata {
            mode: (mode & 0o7777) as u16,
            uid: id(owner.0),
            gid: id(owner.1),
            // The format ends in 2106, and begins in 1970.
            mtime: mtime.0.clamp(0, i64::from(u32::MAX)) as u32,
            xattrs: kept,
        }
    }

    fn of_entry(&self, entry: &Header) -> Metadata {
        self.metadata(entry.mode, (entry.uid, entry.gid), entry.mtime, &entry.xattrs)
    }
}

impl Target for ImageTarget<'_> {
    type Dir = NodeId;

    fn root(&self) -> NodeId {
        Tree::ROOT
    }

    fn open_dir(&self, parent: &NodeId, name: &[u8]) -> Result<NodeId> {
        self.tree().get(*parent, name).ok_or_else(|| Error::from(io::Error::from(io::ErrorKind::NotFound)))
    }

    fn make_dir(&self, parent: &NodeId, name: &[u8]) -> Result<()> {
        self.insert(*parent, name, Metadata::default(), Kind::Directory(BTreeMap::new())).map(drop)
    }

    fn unlink(&self, parent: &NodeId, name: &[u8]) -> Result<()> {
        self.tree().remove(*parent, name);
        Ok(())
    }

    fn discard_dir(&self, parent: &NodeId, name: &[u8]) -> Result<()> {
        self.unlink(parent, name)
    }

    fn link(&self, from: &NodeId, from_name: &[u8], to: &NodeId, to_name: &[u8]) -> Result<()> {
        let node = self.open_dir(from, from_name)?;
        self.tree().insert(*to, to_name, node).map_err(|e| wrong(&self.shown, e)).map(drop)
    }

    fn finish_dir(&self, dir: Option<(&NodeId, &[u8])>, metadata: &DirMetadata) -> Result<()> {
        let node = match dir {
            None => Tree::ROOT,
            Some((parent, name)) => self.open_dir(parent, name)?,
        };
        let DirMetadata { mode, uid, gid, mtime, xattrs } = metadata;
        *self.tree().metadata(node) = self.metadata(*mode, (*uid, *gid), *mtime, xattrs);
        Ok(())
    }
}

impl LayerTarget for ImageTarget<'_> {
    type NewFile = NodeId;

    fn create(&self, dir: &NodeId, name: &[u8], entry: &Header) -> Result<NodeId> {
        self.insert(*dir, name, self.of_entry(entry), Kind::File(self.empty))
    }

    fn write(&self, file: NodeId, entry: &Header, mut content: Content<'_>) -> Result<()> {
        let content = match &entry.sparse {
            None => self.image().add_file(&mut content, entry.size),
            Some(map) => {
                let holes = entry.size - entry.stored();
                if self.holes.fetch_add(holes, Ordering::Relaxed).saturating_add(holes) > HOLES_LIMIT {
                    bail!("the holes of the image's files are more than {} TiB", HOLES_LIMIT >> 40);
                }
                let data: Vec<_> =
                    map.iter().map(|piece| piece.offset..piece.offset + piece.length).collect();
                self.image().add_sparse_file(&mut Pieces(content), entry.size, &data)
            }
        };
        let content = content.map_err(|e| wrong(&self.shown, e))?;
        self.tree().set_kind(file, Kind::File(content));
        Ok(())
    }

    fn special(&self, dir: &NodeId, name: &[u8], entry: &Header) -> Result<()> {
        let (major, minor) = entry.device;
        let kind = match entry.kind {
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Character => Kind::CharDevice(major, minor),
            EntryKind::Block => Kind::BlockDevice(major, minor),
            _ => Kind::Symlink(entry.link.clone()),
        };
        self.insert(*dir, name, self.of_entry(entry), kind).map(drop)
    }

    fn has_devices(&self) -> bool {
        true
    }

    fn count_changes(&self, _: &Header) {}
}

fn wrong(shown: &str, e: io::Error) -> Error {
    Error::from(e).context(format!("write {shown}"))
}
