//! How a layer takes a path for its entry, and hides what lower layers have there.
//!
//! Each function first asks the table whether a higher layer hides the entry. What stands in the way is removed only by
//! a step that is alone ([`Access::Exclusive`]).

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use super::path::components;
use super::table::{NONE, NodeId, NodeState, ROOT, Table};
use super::target::Target;
use super::writer::{Access, LayerWriter, OpenDir, Stop};
use rt_sys::error::Result;

/// Directory descriptors that a layer keeps open.
const MAX_OPEN_DIRS: usize = 48;

/// Where a path is in the table.
#[derive(Clone, Copy)]
pub(super) struct Located {
    pub node: NodeId,
    pub parent: NodeId,
}

impl<T: Target> LayerWriter<'_, T> {
    /// The directory for an entry of this layer, made where there is none.
    pub(super) fn enter_path(&mut self, path: &[u8], access: Access) -> Result<OpenDir<T::Dir>, Stop> {
        if let Some((last, dir)) = &self.last
            && last == path
        {
            return Ok(dir.clone());
        }
        let mut dir = OpenDir { node: ROOT, dir: self.tree.target.root() };
        for part in components(path) {
            dir = self.enter(dir.node, part, access)?;
        }
        self.last = Some((path.to_vec(), dir.clone()));
        Ok(dir)
    }

    /// One step down, to a directory that is made where there is none.
    pub(super) fn enter(
        &mut self,
        parent: NodeId,
        name: &[u8],
        access: Access,
    ) -> Result<OpenDir<T::Dir>, Stop> {
        let layer = self.layer;
        let tree = self.tree;
        let mut table = tree.table();
        if table.at(parent).opaque > layer {
            return Err(Stop::Hidden);
        }
        let node = match table.find(parent, name) {
            None => self.make_dir(table, parent, name, None)?,
            Some(node) => {
                let data = table.at(node);
                if data.cut > layer {
                    return Err(Stop::Hidden);
                }
                match data.state {
                    NodeState::Directory => {
                        table.at_mut(node).owner = data.owner.max(layer);
                        // Another layer's thread is about to make it.
                        while !table.at(node).ready {
                            table = tree.made.wait(table).unwrap_or_else(|e| e.into_inner());
                        }
                        drop(table);
                        node
                    }
                    NodeState::Absent => self.make_dir(table, parent, name, Some(node))?,
                    NodeState::Leaf | NodeState::Reserved if data.owner > layer => return Err(Stop::Hidden),
                    NodeState::Leaf | NodeState::Reserved => {
                        access.require_exclusive()?;
                        let dir = self.open_dir(&table, parent)?;
                        tree.target.unlink(&dir, name)?;
                        // What layers below the file have at or below its path stays hidden.
                        let owner = table.at(node).owner;
                        let data = table.at_mut(node);
                        data.cut = data.cut.max(owner);
                        self.make_dir(table, parent, name, Some(node))?
                    }
                }
            }
        };
        let table = tree.table();
        let dir = self.open_dir(&table, node)?;
        Ok(OpenDir { node, dir })
    }

    /// Makes a directory, at `node` if the path has one. The table is not locked during mkdir(2), which can take long on a
    /// network file system; `ready` tells the others when it is there.
    fn make_dir(
        &mut self,
        mut table: MutexGuard<'_, Table>,
        parent: NodeId,
        name: &[u8],
        node: Option<NodeId>,
    ) -> Result<NodeId, Stop> {
        let node = match node {
            None => table.insert(parent, name, NodeState::Directory, self.layer)?,
            Some(node) => node,
        };
        let layer = self.layer;
        let data = table.at_mut(node);
        (data.state, data.owner, data.ready) = (NodeState::Directory, data.owner.max(layer), false);
        (data.metadata, data.metadata_layer) = (NONE, 0);
        let dir = self.open_dir(&table, parent)?;
        drop(table);
        let made = self.tree.target.make_dir(&dir, name);
        // Also after a failure: the others must not wait for ever; they fail when they open it.
        let mut table = self.tree.table();
        table.at_mut(node).ready = true;
        self.tree.made.notify_all();
        made?;
        Ok(node)
    }

    /// Makes `name` this layer's, if no higher layer hides it. Nothing is at the name on disk afterwards.
    pub(super) fn claim(
        &mut self,
        table: &mut Table,
        parent: &OpenDir<T::Dir>,
        name: &[u8],
        state: NodeState,
        access: Access,
    ) -> Result<(), Stop> {
        if table.at(parent.node).opaque > self.layer {
            return Err(Stop::Hidden);
        }
        let layer = self.layer;
        let Some(node) = table.find(parent.node, name) else {
            table.insert(parent.node, name, state, layer)?;
            return Ok(());
        };
        let data = table.at(node);
        if data.cut > layer {
            return Err(Stop::Hidden);
        }
        if data.owner > layer {
            // A higher layer has a directory here again; what lies below this layer's file is gone.
            if data.state == NodeState::Directory && data.cut < layer {
                access.require_exclusive()?;
                self.cut(table, node)?;
            }
            return Err(Stop::Hidden);
        }
        match data.state {
            NodeState::Absent => {}
            NodeState::Leaf | NodeState::Reserved => {
                access.require_exclusive()?;
                self.tree.target.unlink(&parent.dir, name)?;
            }
            NodeState::Directory => {
                access.require_exclusive()?;
                self.tree.epoch.fetch_add(1, Ordering::Release);
                self.tree.target.discard_dir(&parent.dir, name)?;
                table.detach(node);
                table.insert(parent.node, name, state, layer)?;
                return Ok(());
            }
        }
        let data = table.at_mut(node);
        (data.state, data.owner, data.cut) = (state, layer, layer);
        Ok(())
    }

    /// Hides what layers below this one have at and below the directory `node`, which stays.
    pub(super) fn cut(&mut self, table: &mut Table, node: NodeId) -> Result<(), Stop> {
        self.tree.epoch.fetch_add(1, Ordering::Release);
        table.at_mut(node).cut = self.layer;
        table.drop_metadata_below(node, self.layer);
        self.purge(table, node)
    }

    /// Removes everything below `node` that layers below this one put there.
    pub(super) fn purge(&mut self, table: &mut Table, node: NodeId) -> Result<(), Stop> {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            let dir = self.open_dir(table, node)?;
            let mut child = table.at(node).first_child;
            while child != NONE {
                let data = table.at(child);
                let next = data.next_sibling;
                if !data.dead && data.owner < self.layer {
                    match data.state {
                        NodeState::Absent => {}
                        NodeState::Leaf | NodeState::Reserved => {
                            self.tree.target.unlink(&dir, table.name(child))?;
                            table.at_mut(child).state = NodeState::Absent;
                        }
                        NodeState::Directory => {
                            self.tree.target.discard_dir(&dir, table.name(child))?;
                            table.detach(child);
                        }
                    }
                } else if !data.dead && data.state == NodeState::Directory {
                    table.drop_metadata_below(child, self.layer);
                    stack.push(child);
                }
                child = next;
            }
        }
        Ok(())
    }

    /// Where `path` is, if something was claimed there and is not hidden.
    pub(super) fn locate(&self, table: &Table, path: &[u8]) -> Option<Located> {
        let mut place = Located { node: ROOT, parent: ROOT };
        for part in components(path) {
            if table.at(place.node).state != NodeState::Directory {
                return None;
            }
            place = Located { node: table.find(place.node, part)?, parent: place.node };
        }
        (table.at(place.node).state != NodeState::Absent).then_some(place)
    }

    /// A directory of the target, reached from the nearest one that is open, a name at a time.
    pub(super) fn open_dir(&mut self, table: &Table, node: NodeId) -> Result<T::Dir> {
        if node == ROOT {
            return Ok(self.tree.target.root());
        }
        let mut missing = Vec::new();
        let mut at = node;
        let mut dir = loop {
            if at == ROOT {
                break self.tree.target.root();
            }
            if let Some(dir) = self.open.get(&at) {
                break dir.clone();
            }
            missing.push(at);
            at = table.at(at).parent;
        };
        for node in missing.into_iter().rev() {
            dir = self.tree.target.open_dir(&dir, table.name(node))?;
            if self.open.len() >= MAX_OPEN_DIRS {
                self.open.clear();
            }
            self.open.insert(node, dir.clone());
        }
        Ok(dir)
    }
}
