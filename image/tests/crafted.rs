//! Images that no program makes: what they say is written down byte by byte.

/// An image that is being made. Its metadata is not compressed.
#[derive(Default)]
pub struct Crafted {
    inodes: Vec<u8>,
    listings: Vec<u8>,
}

/// A name in a directory: the name, the inode's place in the table, and its type as directories have it.
pub type Name = (String, usize, u16);

/// The types of inodes with all fields, and what directories have for them.
const DIRECTORY: (u16, u16) = (8, 1);
const FILE: (u16, u16) = (9, 2);
const DEVICE: (u16, u16) = (5, 5);
const BLOCK: usize = 8192;

/// Where a place of a table is in the image: its block's offset, and the offset in the block.
fn place(at: usize) -> (u32, u16) {
    ((at / BLOCK * (BLOCK + 2)) as u32, (at % BLOCK) as u16)
}

/// A table in blocks that are stored as they are.
fn blocks(table: &[u8]) -> Vec<u8> {
    let stored = |block: &[u8]| [&(0x8000 | block.len() as u16).to_le_bytes(), block].concat();
    table.chunks(BLOCK).flat_map(stored).collect()
}

impl Crafted {
    fn inode(&mut self, kind: u16, fields: &[&[u8]]) -> usize {
        let at = self.inodes.len();
        self.inodes.extend([kind.to_le_bytes(), 0o755u16.to_le_bytes(), [0; 2], [0; 2]].concat());
        self.inodes.extend([0u32.to_le_bytes(), 1u32.to_le_bytes()].concat());
        self.inodes.extend(fields.concat());
        at
    }

    /// A file of so many blocks, all of them holes.
    pub fn holes(&mut self, blocks: usize) -> (usize, u16) {
        let size = blocks as u64 * 4096;
        let list = vec![0; blocks * 4];
        let fields: &[&[u8]] = &[
            &[0; 8],
            &size.to_le_bytes(),
            &[0; 8],
            &1u32.to_le_bytes(),
            &[0xff; 4],
            &[0; 4],
            &[0xff; 4],
            &list,
        ];
        (self.inode(FILE.0, fields), FILE.1)
    }

    /// A character device.
    pub fn device(&mut self) -> (usize, u16) {
        (self.inode(DEVICE.0, &[&1u32.to_le_bytes(), &0x103u32.to_le_bytes()]), DEVICE.1)
    }

    /// Names, for any number of directories.
    pub fn listing(&mut self, names: &[Name]) -> (usize, usize) {
        let at = self.listings.len();
        let run = |names: &[Name]| {
            let mut bytes = (names.len() as u32 - 1).to_le_bytes().to_vec();
            bytes.extend(place(names[0].1).0.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            for (name, inode, kind) in names {
                bytes.extend(
                    [place(*inode).1, 0, *kind, name.len() as u16 - 1].map(u16::to_le_bytes).concat(),
                );
                bytes.extend(name.as_bytes());
            }
            bytes
        };
        // A run has the inodes of one block.
        for names in names.chunk_by(|a, b| place(a.1).0 == place(b.1).0).flat_map(|names| names.chunks(256)) {
            self.listings.extend(run(names));
        }
        (at, self.listings.len() - at)
    }

    /// A directory with these names.
    pub fn directory(&mut self, (at, size): (usize, usize)) -> (usize, u16) {
        let (block, offset) = place(at);
        let size = (size as u32 + 3).to_le_bytes();
        let fields: &[&[u8]] =
            &[&2u32.to_le_bytes(), &size, &block.to_le_bytes(), &[0; 6], &offset.to_le_bytes(), &[0xff; 4]];
        (self.inode(DIRECTORY.0, fields), DIRECTORY.1)
    }

    /// The image with this root.
    pub fn image(self, (root, _): (usize, u16)) -> Vec<u8> {
        let (block, offset) = place(root);
        let mut image = vec![0; 96];
        let inodes = image.len() as u64;
        image.extend(blocks(&self.inodes));
        let listings = image.len() as u64;
        image.extend(blocks(&self.listings));
        let ids = image.len() as u64;
        image.extend(blocks(&[0; 4]));
        let index = image.len() as u64;
        image.extend(ids.to_le_bytes());
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"hsqs");
        put(4, &u32::MAX.to_le_bytes());
        put(12, &4096u32.to_le_bytes());
        put(20, &[1, 0, 12, 0, 0, 0, 1, 0, 4, 0, 0, 0]);
        put(32, &(u64::from(block) << 16 | u64::from(offset)).to_le_bytes());
        put(40, &(index + 8).to_le_bytes());
        put(48, &index.to_le_bytes());
        put(56, &[0xff; 8]);
        put(64, &inodes.to_le_bytes());
        put(72, &listings.to_le_bytes());
        put(80, &[0xff; 16]);
        image
    }
}
