//! The tables behind the inodes: owners and extended attributes.

use crate::compress::Compressor;
use crate::metadata::MetadataRow;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// What stands where there is no table, no fragment, no attribute.
pub(crate) const NONE: u32 = u32::MAX;

/// Users and groups: inodes have a number of 16 bits in a table of all ids.
#[derive(Default)]
pub(crate) struct Ids {
    numbers: HashMap<u32, u16>,
    ids: Vec<u32>,
}

impl Ids {
    pub(crate) fn number(&mut self, id: u32) -> io::Result<u16> {
        if let Some(&number) = self.numbers.get(&id) {
            return Ok(number);
        }
        let number = u16::try_from(self.ids.len())
            .ok()
            .filter(|&number| number < u16::MAX)
            .ok_or_else(|| io::Error::other("the files have more than 65535 owners and groups"))?;
        self.ids.push(id);
        self.numbers.insert(id, number);
        Ok(number)
    }

    pub(crate) fn len(&self) -> u16 {
        self.ids.len() as u16
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }
}

/// The prefixes of names of extended attributes that the format has, by their number.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Sets of extended attributes: inodes have a number in a table of sets.
#[derive(Default)]
pub(crate) struct Xattrs {
    numbers: HashMap<Vec<u8>, u32>,
    /// Each set as it is written, and how many attributes it has.
    sets: Vec<(Vec<u8>, u32)>,
    /// Attributes that the format does not have.
    pub left_out: u64,
}

impl Xattrs {
    /// The number of the set, or [`NONE`] where it is empty.
    pub(crate) fn number(&mut self, xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> u32 {
        let (mut set, mut count) = (Vec::new(), 0);
        for (name, value) in xattrs {
            let known = PREFIXES.iter().zip(0u16..).find_map(|(prefix, number)| {
                name.strip_prefix(*prefix).filter(|rest| !rest.is_empty()).map(|rest| (number, rest))
            });
            let Some((prefix, rest)) = known.filter(|(_, rest)| rest.len() <= 255 && value.len() <= 65536)
            else {
                self.left_out += 1;
                continue;
            };
            set.extend_from_slice(&prefix.to_le_bytes());
            set.extend_from_slice(&(rest.len() as u16).to_le_bytes());
            set.extend_from_slice(rest);
            set.extend_from_slice(&(value.len() as u32).to_le_bytes());
            set.extend_from_slice(value);
            count += 1;
        }
        if count == 0 {
            return NONE;
        }
        if let Some(&number) = self.numbers.get(&set) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.numbers.insert(set.clone(), number);
        self.sets.push((set, count));
        number
    }

    /// The table as it stands at `position` in the image, and where its head is. Nothing where there are no attributes.
    pub(crate) fn table(
        &self,
        position: u64,
        compressor: &mut Compressor,
    ) -> io::Result<Option<(Vec<u8>, u64)>> {
        if self.sets.is_empty() {
            return Ok(None);
        }
        let mut values = MetadataRow::new(compressor);
        let mut sets = Vec::new();
        for (set, count) in &self.sets {
            sets.extend_from_slice(&values.place().reference().to_le_bytes());
            sets.extend_from_slice(&count.to_le_bytes());
            sets.extend_from_slice(&(set.len() as u32).to_le_bytes());
            values.write(set)?;
        }
        let (mut bytes, _) = values.finish()?;
        let mut row = MetadataRow::new(compressor);
        row.write(&sets)?;
        let (blocks, starts) = row.finish()?;
        let first = position + bytes.len() as u64;
        bytes.extend_from_slice(&blocks);
        let head = position + bytes.len() as u64;
        bytes.extend_from_slice(&position.to_le_bytes());
        bytes.extend_from_slice(&(self.sets.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend(starts.iter().flat_map(|start| (first + start).to_le_bytes()));
        Ok(Some((bytes, head)))
    }
}

/// A table in metadata blocks, followed by the places of its blocks, as it stands at `position` in the image; and where the
/// places begin, which is what the superblock names.
pub(crate) fn indexed(
    table: &[u8],
    position: u64,
    compressor: &mut Compressor,
) -> io::Result<(Vec<u8>, u64)> {
    let mut row = MetadataRow::new(compressor);
    row.write(table)?;
    let (mut bytes, starts) = row.finish()?;
    let index = position + bytes.len() as u64;
    bytes.extend(starts.iter().flat_map(|start| (position + start).to_le_bytes()));
    Ok((bytes, index))
}
