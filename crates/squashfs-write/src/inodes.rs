//! The inode table and the directory table.

use crate::blocks::Content;
use crate::compress::Compressor;
use crate::metadata::{MetadataRow, Place};
use crate::tables::{Ids, NONE, Xattrs};
use crate::tree::{Kind, Node, NodeId, Tree};
use std::collections::BTreeMap;
use std::io;

/// Types of basic inodes, which directories name too. An extended inode has the type plus [`EXTENDED`].
const DIRECTORY: u16 = 1;
const FILE: u16 = 2;
const SYMLINK: u16 = 3;
const BLOCK_DEVICE: u16 = 4;
const CHAR_DEVICE: u16 = 5;
const FIFO: u16 = 6;
const SOCKET: u16 = 7;
const EXTENDED: u16 = 7;

/// The most entries of a directory behind one header.
const ENTRIES_OF_HEADER: usize = 256;
/// The size of a directory counts "." and "..", which are not stored, as 3 bytes.
const DOTS: usize = 3;

/// The tables as they are written.
pub(crate) struct InodeTables {
    pub inodes: Vec<u8>,
    pub directories: Vec<u8>,
    /// Reference to the root's inode.
    pub root: u64,
    /// How many inodes there are.
    pub count: u32,
    pub ids: Ids,
    pub xattrs: Xattrs,
}

/// What is known of a node before its inode is written.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The inode's number, from 1; 0 where the node has no name.
    number: u32,
    /// How many names it has. For a directory: how many directories it has in it.
    links: u32,
    /// Number of the directory that it is in.
    parent: u32,
    place: Option<Place>,
}

struct InodeWriter<'a> {
    tree: &'a Tree,
    contents: &'a [Content],
    known: Vec<Known>,
    inodes: MetadataRow<'a>,
    directories: MetadataRow<'a>,
    ids: Ids,
    xattrs: Xattrs,
}

/// Writes the inodes of all nodes that have a name.
///
/// # Errors
/// Where the tree is more than the format can say: too many owners, a directory in itself or with two names.
pub(crate) fn write(
    tree: &Tree,
    contents: &[Content],
    for_inodes: &mut Compressor,
    for_directories: &mut Compressor,
) -> io::Result<InodeTables> {
    let (known, count) = number(tree)?;
    let mut writer = InodeWriter {
        tree,
        contents,
        known,
        inodes: MetadataRow::new(for_inodes),
        directories: MetadataRow::new(for_directories),
        ids: Ids::default(),
        xattrs: Xattrs::default(),
    };
    writer.write_all()?;
    let root = writer.known[0].place.unwrap_or_default().reference();
    Ok(InodeTables {
        inodes: writer.inodes.finish()?.0,
        directories: writer.directories.finish()?.0,
        root,
        count,
        ids: writer.ids,
        xattrs: writer.xattrs,
    })
}

fn directory(node: &Node) -> Option<&BTreeMap<Box<[u8]>, NodeId>> {
    match &node.kind {
        Kind::Directory(names) => Some(names),
        _ => None,
    }
}

/// Numbers the nodes, a directory before what is in it, and counts links.
fn number(tree: &Tree) -> io::Result<(Vec<Known>, u32)> {
    let mut known = vec![Known::default(); tree.nodes.len()];
    let mut count = 1;
    known[0].number = 1;
    // The kernel wants a parent of the root too, and takes one that no inode has.
    let mut open = vec![NodeId(0)];
    while let Some(dir) = open.pop() {
        let parent = known[dir.0 as usize].number;
        let mut inner = Vec::new();
        for &child in directory(&tree.nodes[dir.0 as usize]).into_iter().flat_map(|names| names.values()) {
            let is_directory = tree.is_directory(child);
            let of_child = &mut known[child.0 as usize];
            if of_child.number != 0 && is_directory {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a directory has two names"));
            }
            if of_child.number == 0 {
                count += 1;
                of_child.number = count;
                of_child.parent = parent;
            }
            if is_directory {
                inner.push(child);
                known[dir.0 as usize].links += 1;
            } else {
                of_child.links += 1;
            }
        }
        open.extend(inner.into_iter().rev());
    }
    known[0].parent = count + 1;
    Ok((known, count))
}

impl<'a> InodeWriter<'a> {
    /// What is in a directory is written before it, since a directory names the places of the inodes in it. Directories can be
    /// deep, so they are walked with a stack on the heap.
    fn write_all(&mut self) -> io::Result<()> {
        let tree = self.tree;
        let children = |dir: NodeId| {
            let names = directory(&tree.nodes[dir.0 as usize]);
            names.into_iter().flat_map(|names| names.values().copied())
        };
        let mut open = vec![(Tree::ROOT, children(Tree::ROOT))];
        while let Some((dir, left)) = open.last_mut() {
            let dir = *dir;
            match left.next() {
                Some(child) if tree.is_directory(child) => open.push((child, children(child))),
                Some(child) => {
                    if self.known[child.0 as usize].place.is_none() {
                        self.write_other(child)?;
                    }
                }
                None => {
                    self.write_directory(dir)?;
                    open.pop();
                }
            }
        }
        Ok(())
    }

    /// What every inode begins with.
    fn header(&mut self, id: NodeId, kind: u16) -> io::Result<Vec<u8>> {
        let metadata = &self.tree.nodes[id.0 as usize].metadata;
        let known = &mut self.known[id.0 as usize];
        known.place = Some(self.inodes.place());
        let mut bytes = Vec::with_capacity(64);
        put16(&mut bytes, kind);
        put16(&mut bytes, metadata.mode & 0o7777);
        put16(&mut bytes, self.ids.number(metadata.uid)?);
        put16(&mut bytes, self.ids.number(metadata.gid)?);
        put32(&mut bytes, metadata.mtime);
        put32(&mut bytes, known.number);
        Ok(bytes)
    }

    fn write_other(&mut self, id: NodeId) -> io::Result<()> {
        let node = &self.tree.nodes[id.0 as usize];
        let xattrs = self.xattrs.number(&node.metadata.xattrs);
        let kind = kind_of(node);
        if let Kind::File(content) = &node.kind {
            return self.write_file(id, &self.contents[content.0 as usize], xattrs);
        }
        let mut bytes = self.header(id, if xattrs == NONE { kind } else { kind + EXTENDED })?;
        put32(&mut bytes, self.known[id.0 as usize].links);
        match &node.kind {
            Kind::Symlink(target) => {
                put32(&mut bytes, target.len() as u32);
                bytes.extend_from_slice(target);
            }
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                // As the kernel encodes a device of 32 bits: new_encode_dev().
                put32(&mut bytes, minor & 0xff | major << 8 | (minor & !0xff) << 12);
            }
            Kind::Fifo | Kind::Socket | Kind::Directory(_) | Kind::File(_) => {}
        }
        if xattrs != NONE {
            put32(&mut bytes, xattrs);
        }
        self.inodes.write(&bytes)
    }

    fn write_file(&mut self, id: NodeId, content: &Content, xattrs: u32) -> io::Result<()> {
        let links = self.known[id.0 as usize].links;
        let (fragment, offset) = content.fragment.unwrap_or((NONE, 0));
        let basic = xattrs == NONE
            && links == 1
            && content.sparse == 0
            && u32::try_from(content.start).is_ok()
            && u32::try_from(content.size).is_ok();
        let mut bytes = self.header(id, if basic { FILE } else { FILE + EXTENDED })?;
        if basic {
            put32(&mut bytes, content.start as u32);
            put32(&mut bytes, fragment);
            put32(&mut bytes, offset);
            put32(&mut bytes, content.size as u32);
        } else {
            put64(&mut bytes, content.start);
            put64(&mut bytes, content.size);
            put64(&mut bytes, content.sparse);
            put32(&mut bytes, links);
            put32(&mut bytes, fragment);
            put32(&mut bytes, offset);
            put32(&mut bytes, xattrs);
        }
        bytes.extend(content.blocks.iter().flat_map(|size| size.to_le_bytes()));
        self.inodes.write(&bytes)
    }

    fn write_directory(&mut self, id: NodeId) -> io::Result<()> {
        let listing = self.write_listing(id)?;
        let node = &self.tree.nodes[id.0 as usize];
        let xattrs = self.xattrs.number(&node.metadata.xattrs);
        let known = self.known[id.0 as usize];
        let size = listing.size + DOTS;
        let links = known.links + 2;
        match u16::try_from(size).ok().filter(|_| xattrs == NONE && listing.index.is_empty()) {
            Some(size) => {
                let mut bytes = self.header(id, DIRECTORY)?;
                put32(&mut bytes, listing.place.block as u32);
                put32(&mut bytes, links);
                put16(&mut bytes, size);
                put16(&mut bytes, listing.place.offset);
                put32(&mut bytes, known.parent);
                self.inodes.write(&bytes)
            }
            None => {
                let mut bytes = self.header(id, DIRECTORY + EXTENDED)?;
                put32(&mut bytes, links);
                put32(&mut bytes, size as u32);
                put32(&mut bytes, listing.place.block as u32);
                put32(&mut bytes, known.parent);
                put16(&mut bytes, listing.index.len() as u16);
                put16(&mut bytes, listing.place.offset);
                put32(&mut bytes, xattrs);
                for entry in &listing.index {
                    put32(&mut bytes, entry.from_start as u32);
                    put32(&mut bytes, entry.block as u32);
                    put32(&mut bytes, entry.name.len() as u32 - 1);
                    bytes.extend_from_slice(entry.name);
                }
                self.inodes.write(&bytes)
            }
        }
    }

    /// Writes the names of a directory, in runs that share a header: inodes in one metadata block, whose numbers are near
    /// each other.
    fn write_listing(&mut self, id: NodeId) -> io::Result<Listing<'a>> {
        let tree = self.tree;
        let mut listing = Listing { place: self.directories.place(), size: 0, index: Vec::new() };
        let names: Vec<(&[u8], NodeId)> = directory(&tree.nodes[id.0 as usize])
            .into_iter()
            .flat_map(|names| names.iter().map(|(name, child)| (&**name, *child)))
            .collect();
        let mut indexed = listing.place.block;
        let mut rest = &names[..];
        while let Some(&(first_name, first)) = rest.first() {
            let first = self.known[first.0 as usize];
            let block = first.place.unwrap_or_default().block;
            let near = |child: &Known| {
                let delta = i64::from(child.number) - i64::from(first.number);
                child.place.unwrap_or_default().block == block && i16::try_from(delta).is_ok()
            };
            let of_run = |(_, child): &&(&[u8], NodeId)| near(&self.known[child.0 as usize]);
            let (run, later) = rest.split_at(rest.iter().take(ENTRIES_OF_HEADER).take_while(of_run).count());
            rest = later;
            let place = self.directories.place();
            if place.block != indexed {
                indexed = place.block;
                listing.index.push(IndexEntry {
                    from_start: listing.size,
                    block: place.block,
                    name: first_name,
                });
            }
            let mut bytes = Vec::new();
            put32(&mut bytes, run.len() as u32 - 1);
            put32(&mut bytes, block as u32);
            put32(&mut bytes, first.number);
            for (name, child) in run {
                let known = self.known[child.0 as usize];
                put16(&mut bytes, known.place.unwrap_or_default().offset);
                put16(&mut bytes, known.number.wrapping_sub(first.number) as u16);
                put16(&mut bytes, kind_of(&tree.nodes[child.0 as usize]));
                put16(&mut bytes, name.len() as u16 - 1);
                bytes.extend_from_slice(name);
            }
            self.directories.write(&bytes)?;
            listing.size += bytes.len();
        }
        // With too many to count there is no index: readers then read the directory from its start.
        if u16::try_from(listing.index.len()).is_err() {
            listing.index.clear();
        }
        Ok(listing)
    }
}

/// Where the names of a directory are.
struct Listing<'a> {
    place: Place,
    size: usize,
    index: Vec<IndexEntry<'a>>,
}

/// By the index of a large directory readers find a name without reading all before it.
struct IndexEntry<'a> {
    /// Bytes of the listing before the header that this leads to.
    from_start: usize,
    /// The metadata block in which that header begins.
    block: u64,
    /// The first name behind that header.
    name: &'a [u8],
}

fn kind_of(node: &Node) -> u16 {
    match node.kind {
        Kind::Directory(_) => DIRECTORY,
        Kind::File(_) => FILE,
        Kind::Symlink(_) => SYMLINK,
        Kind::BlockDevice(..) => BLOCK_DEVICE,
        Kind::CharDevice(..) => CHAR_DEVICE,
        Kind::Fifo => FIFO,
        Kind::Socket => SOCKET,
    }
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}
