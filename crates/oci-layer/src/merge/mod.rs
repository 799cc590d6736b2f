//! Several layers become one tree at the same time, each from its own thread.
//!
//! Applied one after the other (image-spec, layer.md), a layer's entry is in the final tree unless a higher layer has an
//! entry or a whiteout at its path, or a whiteout, a non-directory or an opaque whiteout above it. That rule asks for no
//! order, so layers are applied in any. A table in memory says which layer owns each path. An entry that a higher layer
//! hides is not written at all, and what a lower layer wrote too early is removed. Layers are started from the top, so
//! that is rare.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | the tree that all layers share, and what is done when all layers are there |
//! | `writer.rs` | the entries of one layer: files, directories, links, whiteouts |
//! | `claim.rs` | how a layer takes a path from others, and hides what they have |
//! | `table.rs` | the table |
//! | `target.rs` | what the tree is written to: a directory, or an image file |
//! | `path.rs` | paths |
//!
//! # Locks
//!
//! `gate` is held shared while a name is made, and exclusively while something is removed or replaced. `table` is held for
//! look-ups only, and for the whole of an exclusive step. A path is claimed in the table before anything is made on disk,
//! so no two threads make the same name. Directories are the exception: several layers share one, and the others wait on
//! `made` until the first has made it.
//!
//! A directory that has to go is renamed into a trash directory, since rename(2) takes one call however much is in it.
//! Threads that still hold its descriptor write into the trash, where it does no harm.

mod claim;
mod path;
mod table;
mod target;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock};

pub use self::path::{MAX_PATH, clean};
pub use self::table::{DirMetadata, LayerNumber};
use self::table::{MAX_NODES, NONE, NodeState, ROOT, Table};
pub use self::target::Target;
pub use self::writer::LayerWriter;
use rt_sys::bail;
use rt_sys::error::Result;

/// Bytes at most that links and attributes of directories hold until all layers are there.
const MAX_HELD: u64 = 256 << 20;

/// A tree into which layers are merged, shared by their threads.
pub struct MergedTree<T: Target> {
    gate: RwLock<()>,
    table: Mutex<Table>,
    /// Told when a directory has been made.
    made: Condvar,
    /// Raised whenever a directory may have gone to the trash. A thread that holds descriptors of directories from an
    /// older epoch looks them up again.
    epoch: AtomicU64,
    /// What the tree is written to.
    pub target: T,
    held: AtomicU64,
}

/// A hard link whose target its layer could not reach when it came by.
#[derive(Debug, Clone)]
pub struct DeferredLink {
    /// The layer that has the link.
    pub layer: LayerNumber,
    /// Only an entry of this layer, or of one below it, is the target. What a higher layer has at that path is another
    /// file.
    pub target_layer: LayerNumber,
    /// The link.
    pub path: Vec<u8>,
    /// What it links to.
    pub target: Vec<u8>,
}

/// What became of an entry.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The entry is in the tree.
    Done(T),
    /// A higher layer hides it.
    Hidden,
}

impl<T: Target> MergedTree<T> {
    /// Merges into `target`, which is empty.
    pub fn new(target: T) -> MergedTree<T> {
        MergedTree {
            gate: RwLock::new(()),
            table: Mutex::new(Table::new(MAX_NODES)),
            made: Condvar::new(),
            epoch: AtomicU64::new(0),
            target,
            held: AtomicU64::new(0),
        }
    }

    /// The target, when all layers are done.
    pub fn into_target(self) -> T {
        self.target
    }

    /// What writes the entries of `layer`, 1 for the lowest.
    pub fn writer(&self, layer: LayerNumber) -> LayerWriter<'_, T> {
        LayerWriter {
            tree: self,
            layer,
            epoch: 0,
            open: HashMap::new(),
            last: None,
            symlinks: HashMap::new(),
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

    /// Makes the deferred link a second name of the file that its layer saw, if that is still in the tree. Only when all
    /// layers are done. False where the data must be read again from the layers.
    pub fn link_deferred(&self, link: &DeferredLink) -> Result<Outcome<bool>> {
        self.link_to_layer(link, link.target_layer)
    }

    /// As [`link_deferred`](Self::link_deferred), with a target that is known to be the right one.
    pub fn link_deferred_to(&self, link: &DeferredLink) -> Result<Outcome<bool>> {
        self.link_to_layer(link, LayerNumber::MAX)
    }

    /// Links if the target belongs to a layer that is no higher than `highest`.
    fn link_to_layer(&self, link: &DeferredLink, highest: LayerNumber) -> Result<Outcome<bool>> {
        let mut writer = self.writer(link.layer);
        let _exclusive = self.gate.write().unwrap_or_else(|e| e.into_inner());
        let mut table = self.table();
        let Some(place) = writer.locate(&table, &link.path) else { return Ok(Outcome::Hidden) };
        let (data, name) = (table.at(place.node), table.name(place.node).to_vec());
        if data.state != NodeState::Reserved || data.owner != link.layer {
            return Ok(Outcome::Hidden);
        }
        let Some(target) = writer.locate(&table, &link.target) else { return Ok(Outcome::Done(false)) };
        let found = table.at(target.node);
        if found.state != NodeState::Leaf || found.owner > highest {
            return Ok(Outcome::Done(false));
        }
        let target_dir = writer.open_dir(&table, target.parent)?;
        let dir = writer.open_dir(&table, place.parent)?;
        self.target.link(&target_dir, table.name(target.node), &dir, &name)?;
        table.at_mut(place.node).state = NodeState::Leaf;
        Ok(Outcome::Done(true))
    }

    /// Makes a file at the path of a deferred link by `make`, which is given its directory and name.
    pub fn make_deferred<V>(
        &self,
        link: &DeferredLink,
        make: impl FnOnce(&T::Dir, &[u8]) -> Result<V>,
    ) -> Result<Outcome<V>> {
        let mut writer = self.writer(link.layer);
        let mut table = self.table();
        let Some(place) = writer.locate(&table, &link.path) else { return Ok(Outcome::Hidden) };
        let data = table.at(place.node);
        if data.state != NodeState::Reserved || data.owner != link.layer {
            return Ok(Outcome::Hidden);
        }
        let dir = writer.open_dir(&table, place.parent)?;
        let made = make(&dir, table.name(place.node))?;
        table.at_mut(place.node).state = NodeState::Leaf;
        Ok(Outcome::Done(made))
    }

    /// Gives every directory its metadata; returns how many there are. Only at the very end: a mode can forbid to write, and
    /// each name that is made in a directory sets its modification time.
    pub fn finish_dirs(&self) -> Result<u64> {
        let table = self.table();
        let mut writer = self.writer(LayerNumber::MAX);
        // Of directories that no layer has an entry for, only files in them.
        let implicit = DirMetadata { mode: 0o755, ..DirMetadata::default() };
        let mut count = 0;
        let mut stack = vec![ROOT];
        while let Some(node) = stack.pop() {
            let mut child = table.at(node).first_child;
            while child != NONE {
                let data = table.at(child);
                if data.state == NodeState::Directory && !data.dead {
                    stack.push(child);
                }
                child = data.next_sibling;
            }
            let data = table.at(node);
            let metadata = match data.metadata {
                NONE => &implicit,
                slot => &table.metadata[slot as usize],
            };
            if node == ROOT {
                self.target.finish_dir(None, metadata)?;
            } else {
                let parent = writer.open_dir(&table, data.parent)?;
                self.target.finish_dir(Some((&parent, table.name(node))), metadata)?;
            }
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted() {
        let tree = MergedTree::new(target::Nowhere);
        tree.hold(MAX_HELD as usize).unwrap();
        assert!(tree.hold(1).is_err());
    }
}
