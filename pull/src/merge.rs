//! Several layers become one tree at the same time, each from its own thread.
//!
//! Applied one after the other, a layer's entry is in the final tree unless a higher layer has an
//! entry or a whiteout at its path, or a whiteout, a non-directory or an opaque mark above it.
//! That rule asks for no order, so layers are applied in any: a table in memory says which layer
//! owns each path, an entry that a higher layer hides is not written at all, and what a lower
//! layer wrote too early is taken away. Layers are started from the top, so that is rare.
//!
//! Locks: `gate` is held shared while a name is made, and alone while something is taken away or
//! replaced; `table` is held for look-ups only (and for the whole of an exclusive step). A name is
//! claimed in the table before it is made on disk, so no two threads make the same one; directories
//! are the exception that several layers share, and `ready` lets the others wait for the first.
//!
//! A directory that has to go is renamed into a trash directory: threads that still hold its
//! descriptor write into the trash and no harm is done.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

use super::disk;
use rt_sys::error::Result;
use rt_sys::{bail, err};

/// A layer's place in the image, 1 for the lowest.
pub(crate) type Layer = u16;
/// A node of the table.
type Node = u32;

const ROOT: Node = 0;
const NONE: Node = u32::MAX;
/// Entries of an image at most: the table needs some 70 bytes for each.
const MAX_NODES: usize = 8_000_000;
/// Bytes of all their names at most.
const MAX_NAMES: usize = 256 << 20;
/// Bytes at most that links and attributes of directories hold until all layers are there.
const MAX_HELD: u64 = 256 << 20;
/// A longer path is refused, as every tool refuses it that goes by paths: PATH_MAX is 4096 with the NUL. So no tree is
/// deeper than half of this.
pub(crate) const MAX_PATH: usize = 4095;
/// Directory descriptors that a layer keeps open.
const OPEN_DIRS: usize = 48;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Nothing: a whiteout, or something that was taken away.
    Absent,
    /// No directory; on disk.
    Leaf,
    /// No directory; claimed, and left out (a device) or still to be linked.
    Missing,
    /// A directory.
    Directory,
}

struct NodeData {
    parent: Node,
    name: (u32, u16),
    what: What,
    /// The directory is on disk.
    ready: bool,
    /// A detached node: its path belongs to another now.
    dead: bool,
    /// The highest layer with an entry here (of a directory: here or below).
    owner: Layer,
    /// What layers below this one have here or below is hidden.
    cut: Layer,
    /// What layers below this one have below is hidden.
    opaque: Layer,
    /// The layer whose mode and times a directory has; 0: none gave any.
    meta_layer: Layer,
    meta: u32,
    next_in_chain: Node,
    first_child: Node,
    next_sibling: Node,
}

/// Mode, times and attributes of a directory, set when nothing is written into it any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirMeta {
    /// Permission bits.
    pub mode: u32,
    /// Modification time.
    pub mtime: (i64, u32),
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The key is a hash already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

struct Table {
    nodes: Vec<NodeData>,
    names: Vec<u8>,
    chains: HashMap<u64, Node, BuildHasherDefault<Same>>,
    hash: RandomState,
    metas: Vec<DirMeta>,
    /// Nodes at most.
    most: usize,
}

impl Table {
    fn new(most: usize) -> Table {
        let root = NodeData {
            parent: ROOT,
            name: (0, 0),
            what: What::Directory,
            ready: true,
            dead: false,
            owner: 0,
            cut: 0,
            opaque: 0,
            meta_layer: 0,
            meta: NONE,
            next_in_chain: NONE,
            first_child: NONE,
            next_sibling: NONE,
        };
        Table {
            nodes: vec![root],
            names: Vec::new(),
            chains: HashMap::default(),
            hash: RandomState::new(),
            metas: Vec::new(),
            most,
        }
    }

    fn at(&self, node: Node) -> &NodeData {
        &self.nodes[node as usize]
    }

    fn at_mut(&mut self, node: Node) -> &mut NodeData {
        &mut self.nodes[node as usize]
    }

    fn name(&self, node: Node) -> &[u8] {
        let (start, length) = self.at(node).name;
        &self.names[start as usize..start as usize + usize::from(length)]
    }

    fn key(&self, parent: Node, name: &[u8]) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u32(parent);
        hasher.write(name);
        hasher.finish()
    }

    fn find(&self, parent: Node, name: &[u8]) -> Option<Node> {
        let mut node = *self.chains.get(&self.key(parent, name))?;
        while node != NONE {
            let data = self.at(node);
            if data.parent == parent && !data.dead && self.name(node) == name {
                return Some(node);
            }
            node = data.next_in_chain;
        }
        None
    }

    fn insert(&mut self, parent: Node, name: &[u8], what: What, layer: Layer) -> Result<Node> {
        if self.nodes.len() >= self.most {
            bail!("the image has more than {} entries", self.most);
        }
        if self.names.len() + name.len() > MAX_NAMES {
            bail!("the image has more than {MAX_NAMES} bytes of names");
        }
        let length = u16::try_from(name.len()).map_err(|_| err!("a name of {} bytes", name.len()))?;
        let node = self.nodes.len() as Node;
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        let key = self.key(parent, name);
        let next_in_chain = self.chains.insert(key, node).unwrap_or(NONE);
        let next_sibling = std::mem::replace(&mut self.at_mut(parent).first_child, node);
        self.nodes.push(NodeData {
            parent,
            name: (start, length),
            what,
            ready: false,
            dead: false,
            owner: layer,
            cut: if what == What::Directory { 0 } else { layer },
            opaque: 0,
            meta_layer: 0,
            meta: NONE,
            next_in_chain,
            first_child: NONE,
            next_sibling,
        });
        Ok(node)
    }

    /// The path's place is free again; whoever holds the node works on something that is gone.
    fn detach(&mut self, node: Node) {
        self.at_mut(node).dead = true;
    }
}

/// Shared access to a tree that layers are merged into.
pub(crate) struct Merge {
    gate: RwLock<()>,
    table: Mutex<Table>,
    made: Condvar,
    /// Counts steps after which a directory may be hidden or gone.
    epoch: AtomicU64,
    root: Arc<OwnedFd>,
    trash: OwnedFd,
    trashed: AtomicU64,
    held: AtomicU64,
}

/// A hard link whose target its layer could not reach when it came by.
#[derive(Debug, Clone)]
pub(crate) struct Deferred {
    /// The layer that has the link.
    pub layer: Layer,
    /// What this layer and those below it have at the target is what is meant.
    pub view: Layer,
    /// The link.
    pub path: Vec<u8>,
    /// What it links to.
    pub target: Vec<u8>,
}

/// One layer's view: which directories it has open. Used by one thread.
pub(crate) struct View<'a> {
    merge: &'a Merge,
    layer: Layer,
    epoch: u64,
    dirs: HashMap<Node, Arc<OwnedFd>>,
    last: Option<(Vec<u8>, Node, Arc<OwnedFd>)>,
    /// Symbolic links of this very layer: a later entry of it may go through them.
    links: HashMap<Vec<u8>, Vec<u8>>,
    /// Links that have to wait until all layers are there.
    pub deferred: Vec<Deferred>,
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// It is in the tree.
    Done(T),
    /// A higher layer hides it.
    Hidden,
}

/// Why a step stopped: hidden, or it needs the tree for itself.
enum Stop {
    Hidden,
    Conflict,
    Error(rt_sys::error::Error),
}

impl From<rt_sys::error::Error> for Stop {
    fn from(e: rt_sys::error::Error) -> Stop {
        Stop::Error(e)
    }
}

impl Merge {
    /// Merges into `root`, an empty directory; `trash` is one beside it.
    pub(crate) fn new(root: OwnedFd, trash: OwnedFd) -> Merge {
        Merge {
            gate: RwLock::new(()),
            table: Mutex::new(Table::new(MAX_NODES)),
            made: Condvar::new(),
            epoch: AtomicU64::new(0),
            root: Arc::new(root),
            trash,
            trashed: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// The view of `layer`, 1 for the lowest.
    pub(crate) fn view(&self, layer: Layer) -> View<'_> {
        View {
            merge: self,
            layer,
            epoch: 0,
            dirs: HashMap::new(),
            last: None,
            links: HashMap::new(),
            deferred: Vec::new(),
        }
    }

    /// Counts what is kept in memory until the end.
    fn hold(&self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        if self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MAX_HELD {
            bail!("the image has more than {MAX_HELD} bytes of links and attributes of directories");
        }
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panicking thread ends the process (panic = abort), so a poisoned lock is impossible.
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes `path` the deferred link's other name, if the file that its layer saw is still there.
    /// Only when all layers are done. False where the data must be read again from the layers.
    pub(crate) fn link_deferred(&self, link: &Deferred) -> Result<Outcome<bool>> {
        self.link_if(link, link.view)
    }

    /// As [`link_deferred`](Self::link_deferred), with a target that is known to be the right one.
    pub(crate) fn link_deferred_to(&self, link: &Deferred) -> Result<Outcome<bool>> {
        self.link_if(link, Layer::MAX)
    }

    fn link_if(&self, link: &Deferred, highest: Layer) -> Result<Outcome<bool>> {
        let mut view = self.view(link.layer);
        let _alone = self.gate.write().unwrap_or_else(|e| e.into_inner());
        let mut table = self.table();
        let Some((node, parent)) = view.claimed(&table, &link.path) else { return Ok(Outcome::Hidden) };
        let (data, name) = (table.at(node), table.name(node).to_vec());
        if data.what != What::Missing || data.owner != link.layer {
            return Ok(Outcome::Hidden);
        }
        let Some((target, target_parent)) = view.claimed(&table, &link.target) else {
            return Ok(Outcome::Done(false));
        };
        if table.at(target).what != What::Leaf || table.at(target).owner > highest {
            return Ok(Outcome::Done(false));
        }
        let target_dir = view.dir(&table, target_parent)?;
        let dir = view.dir(&table, parent)?;
        disk::link(target_dir.as_fd(), table.name(target), dir.as_fd(), &name)?;
        table.at_mut(node).what = What::Leaf;
        Ok(Outcome::Done(true))
    }

    /// Makes the deferred link `path` by `make`, which is given its directory and name.
    pub(crate) fn make_deferred<T>(
        &self,
        link: &Deferred,
        make: impl FnOnce(&OwnedFd, &[u8]) -> Result<T>,
    ) -> Result<Outcome<T>> {
        let mut view = self.view(link.layer);
        let mut table = self.table();
        let Some((node, parent)) = view.claimed(&table, &link.path) else { return Ok(Outcome::Hidden) };
        if table.at(node).what != What::Missing || table.at(node).owner != link.layer {
            return Ok(Outcome::Hidden);
        }
        let dir = view.dir(&table, parent)?;
        let made = make(&dir, table.name(node))?;
        table.at_mut(node).what = What::Leaf;
        Ok(Outcome::Done(made))
    }

    /// Every directory of the tree with its metadata, handed to `set` open. Only at the very end.
    pub(crate) fn finish_dirs(
        &self,
        mut set: impl FnMut(&std::fs::File, &DirMeta) -> Result<()>,
    ) -> Result<u64> {
        let table = self.table();
        let mut view = self.view(Layer::MAX);
        let implicit = DirMeta { mode: 0o755, ..DirMeta::default() };
        let mut count = 0;
        let mut stack = vec![ROOT];
        while let Some(node) = stack.pop() {
            let mut child = table.at(node).first_child;
            while child != NONE {
                let data = table.at(child);
                if data.what == What::Directory && !data.dead {
                    stack.push(child);
                }
                child = data.next_sibling;
            }
            let data = table.at(node);
            let file = if node == ROOT {
                disk::reopen_self(self.root.as_fd())?
            } else {
                let parent = view.dir(&table, data.parent)?;
                disk::reopen_dir(parent.as_fd(), table.name(node))?
            };
            match data.meta {
                NONE => set(&file, &implicit)?,
                meta => set(&file, &table.metas[meta as usize])?,
            }
            count += 1;
        }
        Ok(count)
    }

    fn trash(&self, parent: &OwnedFd, name: &[u8]) -> Result<()> {
        let number = self.trashed.fetch_add(1, Ordering::Relaxed);
        disk::rename(parent.as_fd(), name, self.trash.as_fd(), number.to_string().as_bytes())
    }
}

/// An entry's name without leading slashes and without `.`; `x/..` is nothing. Empty for the root.
///
/// # Errors
/// A name that climbs out of the tree, or is too long.
pub(crate) fn clean(path: &[u8]) -> Result<Cow<'_, [u8]>> {
    if path.len() > MAX_PATH {
        bail!("a path of {} bytes", path.len());
    }
    let mut trimmed = path;
    while let Some(rest) = trimmed.strip_prefix(b"/").or_else(|| trimmed.strip_prefix(b"./")) {
        trimmed = rest;
    }
    while let Some(rest) = trimmed.strip_suffix(b"/") {
        trimmed = rest;
    }
    if trimmed.split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b"..") && part.len() <= 255) {
        return Ok(Cow::Borrowed(trimmed));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in trimmed.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if parts.pop().is_none() {
                    bail!("{:?} leaves the image", show(path));
                }
            }
            _ if part.len() > 255 => bail!("a file name of {} bytes", part.len()),
            _ => parts.push(part),
        }
    }
    Ok(Cow::Owned(parts.join(&b'/')))
}

/// The directory part and the last component of a clean path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

impl View<'_> {
    /// Makes something that is no directory at `path`, by `make` with its directory and name.
    pub(crate) fn place<T>(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&OwnedFd, &[u8]) -> Result<T>,
    ) -> Result<Outcome<T>> {
        self.leaf(path, What::Leaf, make)
    }

    /// A symbolic link, which later entries of this layer may go through.
    pub(crate) fn place_link(
        &mut self,
        path: &[u8],
        target: &[u8],
        make: impl FnOnce(&OwnedFd, &[u8]) -> Result<()>,
    ) -> Result<Outcome<()>> {
        if target.len() > MAX_PATH {
            bail!("a symbolic link of {} bytes", target.len());
        }
        let outcome = self.leaf(path, What::Leaf, make)?;
        let path = self.resolve(path)?.into_owned();
        self.merge.hold(path.len() + target.len())?;
        self.links.insert(path, target.to_vec());
        Ok(outcome)
    }

    /// Claims `path` for something that is left out.
    pub(crate) fn leave_out(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        self.leaf(path, What::Missing, |_, _| Ok(()))
    }

    /// A directory with its metadata.
    pub(crate) fn directory(&mut self, path: &[u8], meta: DirMeta) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        self.links.remove(&*path);
        self.merge.hold(meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum())?;
        let (parents, name) = split(&path);
        self.step(|view, exclusive| {
            let node = if name.is_empty() {
                ROOT
            } else {
                let (parent, _) = view.parent(parents, exclusive)?;
                view.enter(parent, name, exclusive)?.0
            };
            let mut table = view.merge.table();
            let data = table.at(node);
            if data.meta_layer <= view.layer {
                let slot = match data.meta {
                    NONE => {
                        table.metas.push(meta.clone());
                        (table.metas.len() - 1) as u32
                    }
                    slot => {
                        table.metas[slot as usize] = meta.clone();
                        slot
                    }
                };
                let layer = view.layer;
                let data = table.at_mut(node);
                (data.meta, data.meta_layer) = (slot, layer);
            }
            Ok(())
        })
    }

    /// A second name of a file. Where its data are not in the tree, the link is deferred.
    pub(crate) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<Outcome<bool>> {
        let path = self.resolve(path)?;
        let target = self.resolve(target)?;
        let (parents, name) = split(&path);
        if name.is_empty() || target.is_empty() {
            bail!("a hard link at or to the root");
        }
        if path == target {
            return Ok(Outcome::Done(true));
        }
        self.links.remove(&*path);
        let outcome = self.step(|view, exclusive| {
            let (parent, dir) = view.parent(parents, exclusive)?;
            let mut table = view.merge.table();
            let found = view.claimed(&table, &target);
            // Only what this layer wrote is certain to be what it means, as long as others run.
            let found = found.filter(|(node, _)| table.at(*node).owner == view.layer);
            let found = found.map(|(node, parent)| (table.at(node).what, node, parent));
            match found {
                Some((What::Directory, ..)) => {
                    Err(err!("a hard link to the directory {}", show(&target)).into())
                }
                Some((What::Leaf, node, target_parent)) => {
                    let target_dir = view.dir(&table, target_parent)?;
                    view.claim(&mut table, parent, &dir, name, What::Leaf, exclusive)?;
                    let target_name = table.name(node).to_vec();
                    drop(table);
                    disk::link(target_dir.as_fd(), &target_name, dir.as_fd(), name)?;
                    Ok(true)
                }
                _ => {
                    view.claim(&mut table, parent, &dir, name, What::Missing, exclusive)?;
                    Ok(false)
                }
            }
        })?;
        if let Outcome::Done(false) = outcome {
            let (path, target) = (path.into_owned(), target.into_owned());
            self.merge.hold(path.len() + target.len())?;
            self.deferred.push(Deferred { layer: self.layer, view: self.layer, path, target });
        }
        Ok(outcome)
    }

    /// Takes away what lower layers have at `path`.
    pub(crate) fn whiteout(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        let (parents, name) = split(&path);
        if name.is_empty() {
            bail!("a whiteout of the root");
        }
        self.step(|view, exclusive| {
            let (parent, dir) = view.parent(parents, exclusive)?;
            let layer = view.layer;
            let mut table = view.merge.table();
            let Some(node) = table.find(parent, name) else {
                let node = table.insert(parent, name, What::Absent, 0)?;
                table.at_mut(node).cut = layer;
                return Ok(());
            };
            let data = table.at(node);
            if data.cut >= layer {
                return Ok(());
            }
            if data.what == What::Absent {
                table.at_mut(node).cut = layer;
                return Ok(());
            }
            if !exclusive {
                return Err(Stop::Conflict);
            }
            if data.what != What::Directory {
                disk::unlink(dir.as_fd(), name)?;
                let data = table.at_mut(node);
                (data.what, data.owner, data.cut) = (What::Absent, 0, layer);
                return Ok(());
            }
            if data.owner < layer {
                view.merge.epoch.fetch_add(1, Ordering::Release);
                view.merge.trash(&dir, name)?;
                table.detach(node);
                let fresh = table.insert(parent, name, What::Absent, 0)?;
                table.at_mut(fresh).cut = layer;
                return Ok(());
            }
            view.cut(&mut table, node)
        })
    }

    /// Takes away what lower layers have below the directory `path`.
    pub(crate) fn opaque(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        self.step(|view, exclusive| {
            let (node, _) = view.parent(&path, exclusive)?;
            let mut table = view.merge.table();
            if table.at(node).opaque >= view.layer {
                return Ok(());
            }
            if !exclusive {
                return Err(Stop::Conflict);
            }
            view.merge.epoch.fetch_add(1, Ordering::Release);
            table.at_mut(node).opaque = view.layer;
            view.purge(&mut table, node)
        })
    }

    /// Hides what layers below this one have at and below the directory `node`, which stays.
    fn cut(&mut self, table: &mut Table, node: Node) -> Result<(), Stop> {
        self.merge.epoch.fetch_add(1, Ordering::Release);
        let layer = self.layer;
        let data = table.at_mut(node);
        data.cut = layer;
        if data.meta_layer < layer {
            (data.meta, data.meta_layer) = (NONE, 0);
        }
        self.purge(table, node)
    }

    /// Takes away everything below `node` that layers below this one put there.
    fn purge(&mut self, table: &mut Table, node: Node) -> Result<(), Stop> {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            let dir = self.dir(table, node)?;
            let mut child = table.at(node).first_child;
            while child != NONE {
                let data = table.at(child);
                let next = data.next_sibling;
                if !data.dead && data.owner < self.layer {
                    match data.what {
                        What::Absent => {}
                        What::Leaf | What::Missing => {
                            disk::unlink(dir.as_fd(), table.name(child))?;
                            table.at_mut(child).what = What::Absent;
                        }
                        What::Directory => {
                            self.merge.trash(&dir, table.name(child))?;
                            table.detach(child);
                        }
                    }
                } else if !data.dead && data.what == What::Directory {
                    if data.meta_layer < self.layer {
                        let data = table.at_mut(child);
                        (data.meta, data.meta_layer) = (NONE, 0);
                    }
                    stack.push(child);
                }
                child = next;
            }
        }
        Ok(())
    }

    fn leaf<T>(
        &mut self,
        path: &[u8],
        what: What,
        make: impl FnOnce(&OwnedFd, &[u8]) -> Result<T>,
    ) -> Result<Outcome<T>> {
        let mut make = Some(make);
        let path = self.resolve(path)?;
        let (parents, name) = split(&path);
        if name.is_empty() {
            bail!("a file at the root");
        }
        self.links.remove(&*path);
        self.step(|view, exclusive| {
            let (parent, dir) = view.parent(parents, exclusive)?;
            view.claim(&mut view.merge.table(), parent, &dir, name, what, exclusive)?;
            match make.take() {
                Some(make) => Ok(make(&dir, name)?),
                None => Err(err!("made twice").into()),
            }
        })
    }

    /// Runs `step` beside other layers, and alone if it has to take something away.
    fn step<T>(&mut self, mut step: impl FnMut(&mut Self, bool) -> Result<T, Stop>) -> Result<Outcome<T>> {
        let merge = self.merge;
        for exclusive in [false, true] {
            let stopped = if exclusive {
                let _gate = merge.gate.write().unwrap_or_else(|e| e.into_inner());
                self.freshen();
                step(self, true)
            } else {
                let _gate = merge.gate.read().unwrap_or_else(|e| e.into_inner());
                self.freshen();
                step(self, false)
            };
            match stopped {
                Ok(value) => return Ok(Outcome::Done(value)),
                Err(Stop::Hidden) => return Ok(Outcome::Hidden),
                Err(Stop::Conflict) => {}
                Err(Stop::Error(e)) => return Err(e),
            }
        }
        Err(err!("two entries of the image contend for one path"))
    }

    /// Forgets descriptors of directories that may be gone.
    fn freshen(&mut self) {
        let epoch = self.merge.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.dirs.clear();
            self.last = None;
        }
    }

    /// The clean `path` with this layer's own symbolic links above the last component followed.
    fn resolve<'p>(&self, path: &'p [u8]) -> Result<Cow<'p, [u8]>> {
        let path = clean(path)?;
        let slashes = || path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        if self.links.is_empty() || !slashes().any(|at| self.links.contains_key(&path[..at])) {
            return Ok(path);
        }
        let mut rest: Vec<&[u8]> = path.rsplit(|&b| b == b'/').collect();
        let mut done: Vec<&[u8]> = Vec::new();
        let mut followed = 0;
        while let Some(part) = rest.pop() {
            if part == b".." {
                done.pop();
                continue;
            }
            done.push(part);
            if rest.is_empty() {
                break;
            }
            let Some(target) = self.links.get(&done.join(&b'/')) else { continue };
            followed += 1;
            if followed > 40 || rest.len() + done.len() > MAX_PATH {
                bail!("{}: too many levels of symbolic links", show(&path));
            }
            done.pop();
            if target.starts_with(b"/") {
                done.clear();
            }
            rest.extend(target.rsplit(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b".")));
        }
        let done = done.join(&b'/');
        if done.len() > MAX_PATH {
            bail!("a path of {} bytes, by symbolic links", done.len());
        }
        Ok(Cow::Owned(done))
    }

    /// The directory for an entry of this layer, made where there is none.
    fn parent(&mut self, path: &[u8], exclusive: bool) -> Result<(Node, Arc<OwnedFd>), Stop> {
        if let Some((last, node, dir)) = &self.last
            && last == path
        {
            return Ok((*node, dir.clone()));
        }
        let mut node = ROOT;
        let mut dir = self.merge.root.clone();
        for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
            (node, dir) = self.enter(node, part, exclusive)?;
        }
        self.last = Some((path.to_vec(), node, dir.clone()));
        Ok((node, dir))
    }

    /// One step down, to a directory that is made where there is none.
    fn enter(&mut self, parent: Node, name: &[u8], exclusive: bool) -> Result<(Node, Arc<OwnedFd>), Stop> {
        let layer = self.layer;
        let merge = self.merge;
        let mut table = merge.table();
        if table.at(parent).opaque > layer {
            return Err(Stop::Hidden);
        }
        let node = match table.find(parent, name) {
            None => self.make(table, parent, name, NONE)?,
            Some(node) => {
                let data = table.at(node);
                if data.cut > layer {
                    return Err(Stop::Hidden);
                }
                match data.what {
                    What::Directory => {
                        table.at_mut(node).owner = data.owner.max(layer);
                        while !table.at(node).ready {
                            table = merge.made.wait(table).unwrap_or_else(|e| e.into_inner());
                        }
                        drop(table);
                        node
                    }
                    What::Absent => self.make(table, parent, name, node)?,
                    What::Leaf | What::Missing if data.owner > layer => return Err(Stop::Hidden),
                    What::Leaf | What::Missing => {
                        if !exclusive {
                            return Err(Stop::Conflict);
                        }
                        let dir = self.dir(&table, parent)?;
                        disk::unlink(dir.as_fd(), name)?;
                        let owner = table.at(node).owner;
                        let data = table.at_mut(node);
                        data.cut = data.cut.max(owner);
                        self.make(table, parent, name, node)?
                    }
                }
            }
        };
        let table = merge.table();
        let dir = self.dir(&table, node)?;
        Ok((node, dir))
    }

    /// Makes a directory; the lock is not held meanwhile, `ready` tells the others.
    fn make(
        &mut self,
        mut table: MutexGuard<'_, Table>,
        parent: Node,
        name: &[u8],
        node: Node,
    ) -> Result<Node, Stop> {
        let node = match node {
            NONE => table.insert(parent, name, What::Directory, self.layer)?,
            node => node,
        };
        let layer = self.layer;
        let data = table.at_mut(node);
        (data.what, data.owner, data.ready) = (What::Directory, data.owner.max(layer), false);
        (data.meta, data.meta_layer) = (NONE, 0);
        let dir = self.dir(&table, parent)?;
        drop(table);
        let made = disk::make_dir(dir.as_fd(), name);
        // Also after a failure: the others must not wait for ever; they fail at the open.
        let mut table = self.merge.table();
        table.at_mut(node).ready = true;
        self.merge.made.notify_all();
        made?;
        Ok(node)
    }

    /// Makes `name` this layer's, if no higher layer hides it. Nothing is at the name afterwards.
    fn claim(
        &mut self,
        table: &mut Table,
        parent: Node,
        dir: &OwnedFd,
        name: &[u8],
        what: What,
        exclusive: bool,
    ) -> Result<(), Stop> {
        if table.at(parent).opaque > self.layer {
            return Err(Stop::Hidden);
        }
        let layer = self.layer;
        let Some(node) = table.find(parent, name) else {
            table.insert(parent, name, what, layer)?;
            return Ok(());
        };
        let data = table.at(node);
        if data.cut > layer {
            return Err(Stop::Hidden);
        }
        if data.owner > layer {
            // A higher layer has a directory here again; what lies below this layer's file is gone.
            if data.what == What::Directory && data.cut < layer {
                if !exclusive {
                    return Err(Stop::Conflict);
                }
                self.cut(table, node)?;
            }
            return Err(Stop::Hidden);
        }
        match data.what {
            What::Absent => {}
            _ if !exclusive => return Err(Stop::Conflict),
            What::Leaf | What::Missing => disk::unlink(dir.as_fd(), name)?,
            What::Directory => {
                self.merge.epoch.fetch_add(1, Ordering::Release);
                self.merge.trash(dir, name)?;
                table.detach(node);
                table.insert(parent, name, what, layer)?;
                return Ok(());
            }
        }
        let data = table.at_mut(node);
        (data.what, data.owner, data.cut) = (what, layer, layer);
        Ok(())
    }

    /// The node at `path` and its parent, if something was claimed there and is not hidden.
    fn claimed(&self, table: &Table, path: &[u8]) -> Option<(Node, Node)> {
        let (mut node, mut parent) = (ROOT, ROOT);
        for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
            if table.at(node).what != What::Directory {
                return None;
            }
            parent = node;
            node = table.find(node, part)?;
        }
        (table.at(node).what != What::Absent).then_some((node, parent))
    }

    /// A descriptor of a directory that is on disk.
    fn dir(&mut self, table: &Table, node: Node) -> Result<Arc<OwnedFd>> {
        if node == ROOT {
            return Ok(self.merge.root.clone());
        }
        // Up to the nearest one that is open, then down again.
        let mut missing = Vec::new();
        let mut at = node;
        let mut dir = loop {
            if at == ROOT {
                break self.merge.root.clone();
            }
            if let Some(dir) = self.dirs.get(&at) {
                break dir.clone();
            }
            missing.push(at);
            at = table.at(at).parent;
        };
        for node in missing.into_iter().rev() {
            dir = Arc::new(disk::open_dir(dir.as_fd(), table.name(node))?);
            if self.dirs.len() >= OPEN_DIRS {
                self.dirs.clear();
            }
            self.dirs.insert(node, dir.clone());
        }
        Ok(dir)
    }
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted() {
        let mut table = Table::new(3);
        table.insert(ROOT, b"a", What::Leaf, 1).unwrap();
        table.insert(ROOT, b"b", What::Leaf, 1).unwrap();
        let e = table.insert(ROOT, b"c", What::Leaf, 1).unwrap_err();
        assert!(e.to_string().contains("more than 3 entries"), "{e}");
    }

    #[test]
    fn what_is_kept_is_counted() {
        let here = disk::open_root(std::path::Path::new(".")).unwrap();
        let merge = Merge::new(disk::open_dir_again(here.as_fd()).unwrap(), here);
        merge.hold(MAX_HELD as usize).unwrap();
        assert!(merge.hold(1).is_err());
    }
}
