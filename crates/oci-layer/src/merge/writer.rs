//! The entries of one layer, written into the tree by the thread of that layer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::path::{MAX_PATH, clean, show, split};
use super::table::{DirMetadata, LayerNumber, NodeId, NodeState, ROOT};
use super::target::Target;
use super::{DeferredLink, MergedTree, Outcome};
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err};

/// Symbolic links that one path may lead through, as the kernel has it (path_resolution(7), ELOOP).
const MAX_SYMLINKS: usize = 40;

/// What writes the entries of one layer; used by one thread.
pub struct LayerWriter<'a, T: Target> {
    pub(super) tree: &'a MergedTree<T>,
    pub(super) layer: LayerNumber,
    /// The epoch of the tree since which `open` and `last` are good.
    pub(super) epoch: u64,
    /// Directories that are open.
    pub(super) open: HashMap<NodeId, T::Dir>,
    /// The directory of the last entry, by its path: the next entry is mostly in it too.
    pub(super) last: Option<(Vec<u8>, OpenDir<T::Dir>)>,
    /// Symbolic links of this very layer: a later entry of it may go through them.
    pub(super) symlinks: HashMap<Vec<u8>, Vec<u8>>,
    /// Links that have to wait until all layers are there.
    pub deferred: Vec<DeferredLink>,
}

/// A directory of the tree.
#[derive(Clone)]
pub(super) struct OpenDir<D> {
    pub node: NodeId,
    pub dir: D,
}

/// How a step holds the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Beside other layers: it may only make names.
    Shared,
    /// Alone: it may also remove and replace what is there.
    Exclusive,
}

impl Access {
    /// Stops a step that is beside other layers and has to remove something; it is run again, alone.
    pub(super) fn require_exclusive(self) -> Result<(), Stop> {
        match self {
            Access::Shared => Err(Stop::NeedsExclusive),
            Access::Exclusive => Ok(()),
        }
    }
}

/// Why a step stopped.
pub(super) enum Stop {
    /// A higher layer hides the entry.
    Hidden,
    /// Something has to be removed, for which no other layer may be at work.
    NeedsExclusive,
    /// It failed.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Error(e)
    }
}

impl<T: Target> LayerWriter<'_, T> {
    /// Makes something that is no directory at `path`, by `make` with its directory and name.
    pub fn place<V>(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&T::Dir, &[u8]) -> Result<V>,
    ) -> Result<Outcome<V>> {
        self.leaf(path, NodeState::Leaf, make)
    }

    /// Makes a symbolic link, which later entries of this layer may go through.
    pub fn place_symlink(
        &mut self,
        path: &[u8],
        target: &[u8],
        make: impl FnOnce(&T::Dir, &[u8]) -> Result<()>,
    ) -> Result<Outcome<()>> {
        if target.len() > MAX_PATH {
            bail!("a symbolic link to a path of {} bytes, longer than {MAX_PATH}", target.len());
        }
        let outcome = self.leaf(path, NodeState::Leaf, make)?;
        let path = self.resolve(path)?.into_owned();
        self.tree.hold(path.len() + target.len())?;
        self.symlinks.insert(path, target.to_vec());
        Ok(outcome)
    }

    /// Claims `path` for something that is left out: what lower layers have there is hidden all the same.
    pub fn leave_out(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        self.leaf(path, NodeState::Reserved, |_, _| Ok(()))
    }

    /// Makes a directory, and keeps its metadata for the end.
    pub fn directory(&mut self, path: &[u8], metadata: DirMetadata) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        self.symlinks.remove(&*path);
        self.tree.hold(metadata.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum())?;
        let (parents, name) = split(&path);
        self.step(|writer, access| {
            let node = if name.is_empty() {
                ROOT
            } else {
                let parent = writer.enter_path(parents, access)?;
                writer.enter(parent.node, name, access)?.node
            };
            writer.tree.table().set_metadata(node, writer.layer, metadata.clone());
            Ok(())
        })
    }

    /// Makes a second name of a file; true if it is there now. Where the data are not in the tree, the link is deferred.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<Outcome<bool>> {
        let path = self.resolve(path)?;
        let target = self.resolve(target)?;
        let (parents, name) = split(&path);
        if name.is_empty() || target.is_empty() {
            bail!("a hard link at or to the root directory");
        }
        if path == target {
            return Ok(Outcome::Done(true));
        }
        self.symlinks.remove(&*path);
        let outcome = self.step(|writer, access| {
            let parent = writer.enter_path(parents, access)?;
            let mut table = writer.tree.table();
            // Only what this layer wrote is certain to be what the link means, as long as other layers are at work.
            let found = writer.locate(&table, &target);
            let found = found.filter(|found| table.at(found.node).owner == writer.layer);
            match found.map(|found| (table.at(found.node).state, found)) {
                Some((NodeState::Directory, _)) => {
                    Err(err!("a hard link to the directory {}", show(&target)).into())
                }
                Some((NodeState::Leaf, found)) => {
                    let target_dir = writer.open_dir(&table, found.parent)?;
                    writer.claim(&mut table, &parent, name, NodeState::Leaf, access)?;
                    let target_name = table.name(found.node).to_vec();
                    drop(table);
                    writer.tree.target.link(&target_dir, &target_name, &parent.dir, name)?;
                    Ok(true)
                }
                _ => {
                    writer.claim(&mut table, &parent, name, NodeState::Reserved, access)?;
                    Ok(false)
                }
            }
        })?;
        if let Outcome::Done(false) = outcome {
            let (path, target) = (path.into_owned(), target.into_owned());
            self.tree.hold(path.len() + target.len())?;
            self.deferred.push(DeferredLink { layer: self.layer, target_layer: self.layer, path, target });
        }
        Ok(outcome)
    }

    /// Hides what lower layers have at `path` (image-spec, layer.md: `.wh.NAME`).
    pub fn whiteout(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        let (parents, name) = split(&path);
        if name.is_empty() {
            bail!("a whiteout of the root directory");
        }
        self.step(|writer, access| {
            let parent = writer.enter_path(parents, access)?;
            let layer = writer.layer;
            let mut table = writer.tree.table();
            let Some(node) = table.find(parent.node, name) else {
                // Lower layers are still to come.
                let node = table.insert(parent.node, name, NodeState::Absent, 0)?;
                table.at_mut(node).cut = layer;
                return Ok(());
            };
            let data = table.at(node);
            if data.cut >= layer {
                return Ok(());
            }
            if data.state == NodeState::Absent {
                table.at_mut(node).cut = layer;
                return Ok(());
            }
            access.require_exclusive()?;
            if data.state != NodeState::Directory {
                writer.tree.target.unlink(&parent.dir, name)?;
                let data = table.at_mut(node);
                (data.state, data.owner, data.cut) = (NodeState::Absent, 0, layer);
                return Ok(());
            }
            if data.owner < layer {
                writer.tree.epoch.fetch_add(1, Ordering::Release);
                writer.tree.target.discard_dir(&parent.dir, name)?;
                table.detach(node);
                let fresh = table.insert(parent.node, name, NodeState::Absent, 0)?;
                table.at_mut(fresh).cut = layer;
                return Ok(());
            }
            // This or a higher layer has something in the directory, which stays.
            writer.cut(&mut table, node)
        })
    }

    /// Hides what lower layers have below the directory `path` (image-spec, layer.md: `.wh..wh..opq`).
    pub fn opaque(&mut self, path: &[u8]) -> Result<Outcome<()>> {
        let path = self.resolve(path)?;
        self.step(|writer, access| {
            let dir = writer.enter_path(&path, access)?;
            let mut table = writer.tree.table();
            if table.at(dir.node).opaque >= writer.layer {
                return Ok(());
            }
            access.require_exclusive()?;
            writer.tree.epoch.fetch_add(1, Ordering::Release);
            table.at_mut(dir.node).opaque = writer.layer;
            writer.purge(&mut table, dir.node)
        })
    }

    fn leaf<V>(
        &mut self,
        path: &[u8],
        state: NodeState,
        make: impl FnOnce(&T::Dir, &[u8]) -> Result<V>,
    ) -> Result<Outcome<V>> {
        let mut make = Some(make);
        let path = self.resolve(path)?;
        let (parents, name) = split(&path);
        if name.is_empty() {
            bail!("a file in place of the root directory");
        }
        self.symlinks.remove(&*path);
        self.step(|writer, access| {
            let parent = writer.enter_path(parents, access)?;
            writer.claim(&mut writer.tree.table(), &parent, name, state, access)?;
            match make.take() {
                Some(make) => Ok(make(&parent.dir, name)?),
                None => Err(err!("made twice").into()),
            }
        })
    }

    /// Runs `step` beside other layers, and alone if it has to remove something.
    fn step<V>(&mut self, mut step: impl FnMut(&mut Self, Access) -> Result<V, Stop>) -> Result<Outcome<V>> {
        let tree = self.tree;
        for access in [Access::Shared, Access::Exclusive] {
            let stopped = match access {
                Access::Shared => {
                    let _gate = tree.gate.read().unwrap_or_else(|e| e.into_inner());
                    self.close_outdated();
                    step(self, access)
                }
                Access::Exclusive => {
                    let _gate = tree.gate.write().unwrap_or_else(|e| e.into_inner());
                    self.close_outdated();
                    step(self, access)
                }
            };
            match stopped {
                Ok(value) => return Ok(Outcome::Done(value)),
                Err(Stop::Hidden) => return Ok(Outcome::Hidden),
                Err(Stop::NeedsExclusive) => {}
                Err(Stop::Error(e)) => return Err(e),
            }
        }
        Err(err!("two entries of the image contend for one path"))
    }

    /// Closes the directories, since any of them may be in the trash, if one was moved there.
    fn close_outdated(&mut self) {
        let epoch = self.tree.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.open.clear();
            self.last = None;
        }
    }

    /// The clean `path` with this layer's own symbolic links above the last component followed. Other tools unpack by
    /// paths, so that the kernel follows them; here it never does, and links of other layers lead nowhere.
    fn resolve<'p>(&self, path: &'p [u8]) -> Result<Cow<'p, [u8]>> {
        let path = clean(path)?;
        let slashes = || path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        if self.symlinks.is_empty() || !slashes().any(|at| self.symlinks.contains_key(&path[..at])) {
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
            let Some(target) = self.symlinks.get(&done.join(&b'/')) else { continue };
            followed += 1;
            if followed > MAX_SYMLINKS || rest.len() + done.len() > MAX_PATH {
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
            bail!("a path of {} bytes by symbolic links, longer than {MAX_PATH}", done.len());
        }
        Ok(Cow::Owned(done))
    }
}
