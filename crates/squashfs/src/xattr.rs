//! Extended attributes.

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::metadata::{Cursor, Place};
use crate::source::Source;

const WHAT: &str = "attributes";
/// The value stands elsewhere.
const ELSEWHERE: u16 = 0x100;
/// The longest name and value, and the most that all names of one file take, as Linux has them (limits.h).
const LONGEST_NAME: u64 = 255;
const LARGEST_VALUE: u32 = 64 << 10;
const LARGEST_LIST: u64 = 64 << 10;
/// The most that all values of one file take. Linux has no bound, and an image can give the same value many names.
const LARGEST_VALUES: u64 = 1 << 20;

/// The attributes of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XattrTable {
    /// Where names and values begin, up to `ids`.
    values: u64,
    /// How many entries there are, one for each different set of attributes.
    count: u32,
    /// Where the list of the blocks of these entries begins.
    ids: u64,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Its name with "user.", "trusted." or "security.".
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl XattrTable {
    /// `None` where the image has the table and nothing in it.
    pub(crate) fn read(source: &impl Source, at: u64, end: u64) -> Result<Option<Self>> {
        let mut bytes = [0u8; 16];
        source.read_exact_at(&mut bytes, at).map_err(|e| Error::io(WHAT, at, &e))?;
        let [a, b, c, d, e, f, g, h, count @ .., _, _, _, _] = bytes;
        let values = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let count = u32::from_le_bytes(count);
        let ids = at + bytes.len() as u64;
        let blocks = u64::from(count).div_ceil(512);
        if values > at || ids.saturating_add(blocks * 8) > end {
            return Err(Error::damaged(WHAT, at, "the table goes beyond the image"));
        }
        Ok((count > 0).then_some(XattrTable { values, count, ids }))
    }

    /// All attributes of this index.
    pub(crate) fn attributes<S: Source>(&self, fs: &Filesystem<S>, index: u32) -> Result<Vec<Xattr>> {
        if index >= self.count {
            return Err(Error::damaged(WHAT, self.ids, format!("entry {index} of {}", self.count)));
        }
        // Entries of 16 bytes in blocks of metadata, whose places stand at `ids`.
        let at = self.ids + u64::from(index / 512) * 8;
        let block = fs.table_index(WHAT, at, self.ids)?;
        let place = Place { block, offset: (index % 512) as usize * 16 };
        let mut cursor = Cursor::new(fs, WHAT, place, self.ids)?;
        let (first, count, _size) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        let mut cursor = self.cursor(fs, first)?;
        let (mut all, mut names, mut values) = (Vec::new(), 0, 0);
        for _ in 0..count {
            let kind = cursor.u16()?;
            let length = u64::from(cursor.u16()?);
            let prefix: &[u8] = match kind & 0xff {
                0 => b"user.",
                1 => b"trusted.",
                2 => b"security.",
                other => return Err(cursor.damaged(format!("an attribute of type {other}"))),
            };
            names += prefix.len() as u64 + length + 1;
            if length > LONGEST_NAME || names > LARGEST_LIST {
                return Err(Error::too_large("names of attributes", first, names, LARGEST_LIST));
            }
            let mut name = prefix.to_vec();
            name.resize(prefix.len() + length as usize, 0);
            cursor.read(&mut name[prefix.len()..])?;
            if name.contains(&0) {
                return Err(cursor.damaged("the name of an attribute has a NUL byte"));
            }
            let value = match kind & ELSEWHERE {
                0 => value(&mut cursor)?,
                _ => {
                    cursor.u32()?;
                    let place = cursor.u64()?;
                    value(&mut self.cursor(fs, place)?)?
                }
            };
            values += value.len() as u64;
            if values > LARGEST_VALUES {
                return Err(Error::too_large("values of attributes", first, values, LARGEST_VALUES));
            }
            all.push(Xattr { name, value });
        }
        Ok(all)
    }

    fn cursor<'a, S: Source>(&self, fs: &'a Filesystem<S>, place: u64) -> Result<Cursor<'a, S>> {
        let block = self.values.saturating_add(place >> 16);
        Cursor::new(fs, WHAT, Place { block, offset: (place & 0xffff) as usize }, self.ids)
    }
}

fn value<S: Source>(cursor: &mut Cursor<S>) -> Result<Vec<u8>> {
    let length = cursor.u32()?;
    if length > LARGEST_VALUE {
        let (at, most) = (cursor.place().block, LARGEST_VALUE);
        return Err(Error::too_large("value of an attribute", at, length.into(), most.into()));
    }
    let mut value = vec![0; length as usize];
    cursor.read(&mut value)?;
    Ok(value)
}
