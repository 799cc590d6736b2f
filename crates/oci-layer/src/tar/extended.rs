//! What pax and GNU write before an entry's own header, for what that has no place for.

use std::io;

use super::field::{decimal, pax_time};
use super::sparse::SPARSE_LIMIT;
use super::{Extent, bad};

/// Extended attributes of an entry at most: the kernel lists 64 KiB of names.
const XATTR_LIMIT: usize = 1024;

/// What pax and GNU headers before an entry say about it.
#[derive(Default)]
pub(super) struct ExtendedHeader {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub mtime: Option<(i64, u32)>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse_major: Option<u64>,
    pub sparse_name: Option<Vec<u8>>,
    pub sparse_size: Option<u64>,
    pub sparse_map: Option<Vec<Extent>>,
    sparse_offset: Option<u64>,
}

impl ExtendedHeader {
    /// Takes the records of a pax header: `LENGTH KEY=VALUE\n`.
    pub(super) fn pax(&mut self, mut text: &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            let space =
                text.iter().take(20).position(|&b| b == b' ').ok_or_else(|| bad("a damaged pax header"))?;
            let length: usize = decimal(&text[..space]).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            if length <= space + 2 || length > text.len() || text[length - 1] != b'\n' {
                return Err(bad("a damaged pax header"));
            }
            let record = &text[space + 1..length - 1];
            text = &text[length..];
            let equals = record.iter().position(|&b| b == b'=').ok_or_else(|| bad("a damaged pax header"))?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.record(key, value)?;
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let whole = || decimal(value).ok_or_else(|| bad("a damaged number in a pax header"));
        match key {
            b"path" if !value.is_empty() => self.path = Some(value.to_vec()),
            b"linkpath" if !value.is_empty() => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(whole()?),
            b"uid" => self.uid = Some(whole()?),
            b"gid" => self.gid = Some(whole()?),
            b"mtime" => self.mtime = Some(pax_time(value)?),
            b"GNU.sparse.major" => self.sparse_major = Some(whole()?),
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse_size = Some(whole()?),
            b"GNU.sparse.offset" => self.sparse_offset = Some(whole()?),
            b"GNU.sparse.numbytes" => {
                let offset = self.sparse_offset.take().ok_or_else(|| bad("a damaged sparse map"))?;
                self.extend_map(Extent { offset, length: whole()? })?;
            }
            b"GNU.sparse.map" => {
                let mut numbers = value.split(|&b| b == b',').map(decimal);
                while let Some(offset) = numbers.next() {
                    let (Some(offset), Some(Some(length))) = (offset, numbers.next()) else {
                        return Err(bad("a damaged sparse map"));
                    };
                    self.extend_map(Extent { offset, length })?;
                }
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.")
                    && !name.is_empty()
                    && !name.contains(&0)
                {
                    self.xattrs.retain(|(known, _)| known != name);
                    if self.xattrs.len() >= XATTR_LIMIT {
                        return Err(bad(format!("more than {XATTR_LIMIT} extended attributes")));
                    }
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    fn extend_map(&mut self, extent: Extent) -> io::Result<()> {
        let map = self.sparse_map.get_or_insert_default();
        if map.len() >= SPARSE_LIMIT {
            return Err(bad("a sparse file of too many pieces"));
        }
        map.push(extent);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EntryKind, Header, Reader, write_header};
    use super::*;

    #[test]
    fn attributes_are_counted() {
        let mut entry = Header::new(b"name".to_vec(), EntryKind::File, 0o644);
        let mut out = Vec::new();
        for (most, good) in [(XATTR_LIMIT, true), (XATTR_LIMIT + 1, false)] {
            entry.xattrs = (0..most).map(|n| (format!("user.{n}").into_bytes(), b"x".to_vec())).collect();
            out.clear();
            write_header(&mut out, &entry).unwrap();
            assert_eq!(Reader::new(&out[..]).next().is_ok(), good);
        }
    }
}
