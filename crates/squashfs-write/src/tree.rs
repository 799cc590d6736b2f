//! Names, modes and links of an image.

use crate::blocks::FileId;
use std::collections::BTreeMap;
use std::io;

/// A node of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u32);

/// What every node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Permissions with setuid, setgid and sticky: the lower 12 bits of st_mode.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Seconds since 1970; the format has no more than 32 bits.
    pub mtime: u32,
    /// Extended attributes by their full names. The format has those of user., trusted. and security.; others are left out.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory, by names.
    Directory(BTreeMap<Box<[u8]>, NodeId>),
    /// A file with the content that [`crate::ImageWriter::add_file`] returned.
    File(FileId),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

pub(crate) struct Node {
    pub metadata: Metadata,
    pub kind: Kind,
}

/// The tree of an image. A node can have several names, as hard links have; a directory has one.
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
}

impl Tree {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    /// A tree that is only a root directory.
    pub fn new(root: Metadata) -> Tree {
        Tree { nodes: vec![Node { metadata: root, kind: Kind::Directory(BTreeMap::new()) }] }
    }

    /// Adds a node that has no name yet. Nodes that get none are not written.
    pub fn add(&mut self, metadata: Metadata, kind: Kind) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { metadata, kind });
        id
    }

    /// Gives `node` a name in the directory `dir`. Returns the node that had it before.
    ///
    /// # Errors
    /// EINVAL for a name that no file can have; ENOTDIR where `dir` is none.
    pub fn insert(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> io::Result<Option<NodeId>> {
        let bad = name.is_empty() || name.len() > 255 || name == b"." || name == b"..";
        if bad || name.contains(&b'/') || name.contains(&0) {
            let text = format!("{:?} cannot be the name of a file", String::from_utf8_lossy(name));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match &mut self.nodes[dir.0 as usize].kind {
            Kind::Directory(names) => Ok(names.insert(name.into(), node)),
            _ => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    /// The node with this name in the directory `dir`.
    pub fn get(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        match &self.nodes[dir.0 as usize].kind {
            Kind::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Takes the name away, and with a directory all that is in it.
    pub fn remove(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        match &mut self.nodes[dir.0 as usize].kind {
            Kind::Directory(names) => names.remove(name),
            _ => None,
        }
    }

    /// True for a directory.
    pub fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes[node.0 as usize].kind, Kind::Directory(_))
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self, node: NodeId) -> bool {
        matches!(self.nodes[node.0 as usize].kind, Kind::Symlink(_))
    }

    /// Replaces what a node is, which is not a directory.
    pub fn set_kind(&mut self, node: NodeId, kind: Kind) {
        self.nodes[node.0 as usize].kind = kind;
    }

    /// The metadata of a node, to be changed.
    pub fn metadata(&mut self, node: NodeId) -> &mut Metadata {
        &mut self.nodes[node.0 as usize].metadata
    }
}
