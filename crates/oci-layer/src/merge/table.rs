//! Which layer has which path: the table that decides, in memory, what is on disk in the end.
//!
//! A node stands for a name in a directory and is found by a hash of both. Nodes are never freed, since threads hold
//! their numbers; one whose path belongs to another by now is dead.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use crate::tar::Header;
use rt_sys::error::Result;
use rt_sys::{bail, err};

/// A layer's place in the image, 1 for the lowest.
pub type LayerNumber = u16;
/// A node of the table.
pub(super) type NodeId = u32;

/// The directory into which the image is unpacked.
pub(super) const ROOT: NodeId = 0;
/// No node, and no metadata.
pub(super) const NONE: NodeId = u32::MAX;
/// Entries of an image at most: the table needs some 70 bytes for each.
pub(super) const MAX_NODES: usize = 8_000_000;
/// Bytes of all their names at most.
const MAX_NAMES: usize = 256 << 20;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    /// Nothing: there is a whiteout, or what was here has been removed.
    Absent,
    /// Something that is no directory, on disk.
    Leaf,
    /// Something that is no directory and not on disk: a device, which is left out, or a hard link still to be made.
    Reserved,
    /// A directory.
    Directory,
}

/// What is known of a path.
pub(super) struct NodeData {
    pub parent: NodeId,
    /// Start and length in [`Table::names`].
    name: (u32, u16),
    pub state: NodeState,
    /// The directory is on disk.
    pub ready: bool,
    /// A detached node: its path belongs to another now.
    pub dead: bool,
    /// The highest layer with an entry here (of a directory: here or below).
    pub owner: LayerNumber,
    /// What layers below this one have here or below is hidden.
    pub cut: LayerNumber,
    /// What layers below this one have below is hidden.
    pub opaque: LayerNumber,
    /// The layer whose metadata a directory has; 0 where none gave any.
    pub metadata_layer: LayerNumber,
    /// Its place in [`Table::metadata`], or [`NONE`].
    pub metadata: u32,
    next_in_chain: NodeId,
    pub first_child: NodeId,
    pub next_sibling: NodeId,
}

/// Mode, owner, times and attributes of a directory as its layer has them, set when nothing is written into it any more.
#[derive(Debug, Clone, Default)]
pub struct DirMetadata {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Modification time.
    pub mtime: (i64, u32),
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl DirMetadata {
    /// The metadata that the entry of a directory has.
    pub fn of(entry: &Header) -> DirMetadata {
        DirMetadata {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            xattrs: entry.xattrs.clone(),
        }
    }
}

/// Passes a key on that is a hash already.
#[derive(Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// All nodes.
pub(super) struct Table {
    nodes: Vec<NodeData>,
    names: Vec<u8>,
    /// The newest node for each hash of parent and name; [`NodeData::next_in_chain`] leads to the others.
    chains: HashMap<u64, NodeId, BuildHasherDefault<IdentityHasher>>,
    /// Seeded at random, so that no image can be made whose names collide.
    hash: RandomState,
    pub metadata: Vec<DirMetadata>,
    max_nodes: usize,
}

impl Table {
    pub(super) fn new(max_nodes: usize) -> Table {
        let root = NodeData {
            parent: ROOT,
            name: (0, 0),
            state: NodeState::Directory,
            ready: true,
            dead: false,
            owner: 0,
            cut: 0,
            opaque: 0,
            metadata_layer: 0,
            metadata: NONE,
            next_in_chain: NONE,
            first_child: NONE,
            next_sibling: NONE,
        };
        Table {
            nodes: vec![root],
            names: Vec::new(),
            chains: HashMap::default(),
            hash: RandomState::new(),
            metadata: Vec::new(),
            max_nodes,
        }
    }

    pub(super) fn at(&self, node: NodeId) -> &NodeData {
        &self.nodes[node as usize]
    }

    pub(super) fn at_mut(&mut self, node: NodeId) -> &mut NodeData {
        &mut self.nodes[node as usize]
    }

    pub(super) fn name(&self, node: NodeId) -> &[u8] {
        let (start, length) = self.at(node).name;
        &self.names[start as usize..start as usize + usize::from(length)]
    }

    fn key(&self, parent: NodeId, name: &[u8]) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u32(parent);
        hasher.write(name);
        hasher.finish()
    }

    pub(super) fn find(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
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

    /// Adds a node that [`find`](Self::find) does not find yet.
    ///
    /// # Errors
    /// More entries or names than an image may have.
    pub(super) fn insert(
        &mut self,
        parent: NodeId,
        name: &[u8],
        state: NodeState,
        layer: LayerNumber,
    ) -> Result<NodeId> {
        if self.nodes.len() >= self.max_nodes {
            bail!("the image has more than {} entries", self.max_nodes);
        }
        if self.names.len() + name.len() > MAX_NAMES {
            bail!("the image has more than {MAX_NAMES} bytes of names");
        }
        let length = u16::try_from(name.len()).map_err(|_| err!("a name of {} bytes", name.len()))?;
        let node = self.nodes.len() as NodeId;
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        let key = self.key(parent, name);
        let next_in_chain = self.chains.insert(key, node).unwrap_or(NONE);
        let next_sibling = std::mem::replace(&mut self.at_mut(parent).first_child, node);
        self.nodes.push(NodeData {
            parent,
            name: (start, length),
            state,
            ready: false,
            dead: false,
            owner: layer,
            cut: if state == NodeState::Directory { 0 } else { layer },
            opaque: 0,
            metadata_layer: 0,
            metadata: NONE,
            next_in_chain,
            first_child: NONE,
            next_sibling,
        });
        Ok(node)
    }

    /// Frees the path for another node. Threads that hold this one work on a directory that is in the trash.
    pub(super) fn detach(&mut self, node: NodeId) {
        self.at_mut(node).dead = true;
    }

    /// Gives a directory the metadata of `layer`, unless a higher layer gave it some.
    pub(super) fn set_metadata(&mut self, node: NodeId, layer: LayerNumber, metadata: DirMetadata) {
        let data = self.at(node);
        if data.metadata_layer > layer {
            return;
        }
        let slot = match data.metadata {
            NONE => {
                self.metadata.push(metadata);
                (self.metadata.len() - 1) as u32
            }
            slot => {
                self.metadata[slot as usize] = metadata;
                slot
            }
        };
        let data = self.at_mut(node);
        (data.metadata, data.metadata_layer) = (slot, layer);
    }

    /// Takes the metadata of layers below `layer` from a directory.
    pub(super) fn drop_metadata_below(&mut self, node: NodeId, layer: LayerNumber) {
        let data = self.at_mut(node);
        if data.metadata_layer < layer {
            (data.metadata, data.metadata_layer) = (NONE, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted() {
        let mut table = Table::new(3);
        table.insert(ROOT, b"a", NodeState::Leaf, 1).unwrap();
        table.insert(ROOT, b"b", NodeState::Leaf, 1).unwrap();
        let e = table.insert(ROOT, b"c", NodeState::Leaf, 1).unwrap_err();
        assert!(e.to_string().contains("more than 3 entries"), "{e}");
    }

    #[test]
    fn the_highest_layer_gives_the_metadata() {
        let mut table = Table::new(3);
        let node = table.insert(ROOT, b"a", NodeState::Directory, 1).unwrap();
        let mode = |table: &Table| table.metadata.get(table.at(node).metadata as usize).map(|m| m.mode);
        let metadata = |mode| DirMetadata { mode, ..DirMetadata::default() };
        assert_eq!(mode(&table), None);
        for (layer, given, has) in
            [(2, 0o700, 0o700), (1, 0o711, 0o700), (3, 0o755, 0o755), (3, 0o750, 0o750)]
        {
            table.set_metadata(node, layer, metadata(given));
            assert_eq!(mode(&table), Some(has), "after layer {layer}");
        }
        table.drop_metadata_below(node, 3);
        assert_eq!(mode(&table), Some(0o750));
        table.drop_metadata_below(node, 4);
        assert_eq!(mode(&table), None);
    }
}
