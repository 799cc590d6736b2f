//! Sparse files: maps of the pieces that have data.

use std::io::{self, BufRead};

use super::field::number;
use super::read::Reader;
use super::{BLOCK, Extent, bad};

/// Pieces of one sparse file at most.
pub const SPARSE_LIMIT: usize = 1 << 17;
/// A sparse file is not longer: /var/log/lastlog has 1.3 TB where the largest user number has logged in.
pub const SPARSE_SIZE: u64 = 4 << 40;

/// A sparse map's pieces are in order, inside the file, and together as long as the data.
pub(super) fn check_map(map: &[Extent], size: u64, data: u64) -> io::Result<()> {
    let (mut end, mut sum) = (0u64, 0u64);
    for extent in map {
        let next = extent.offset.checked_add(extent.length).filter(|&next| next <= size);
        let Some(next) = next.filter(|_| extent.offset >= end) else {
            return Err(bad("a damaged sparse map"));
        };
        end = next;
        sum += extent.length;
    }
    if size > SPARSE_SIZE {
        return Err(bad(format!("a sparse file of {size} bytes")));
    }
    if sum != data { Err(bad("a sparse map that does not fit its data")) } else { Ok(()) }
}

impl<R: BufRead> Reader<R> {
    /// The map of GNU's old sparse format: four pieces in the header, 21 in each block after it.
    pub(super) fn gnu_sparse(&mut self, block: &[u8; BLOCK]) -> io::Result<Vec<Extent>> {
        let mut map = Vec::new();
        let take = |bytes: &[u8], map: &mut Vec<Extent>| -> io::Result<()> {
            for pair in bytes.chunks_exact(24) {
                if pair[0] == 0 || pair[12] == 0 {
                    break;
                }
                map.push(Extent { offset: number(&pair[..12])?, length: number(&pair[12..])? });
                if map.len() > SPARSE_LIMIT {
                    return Err(bad("a sparse file of too many pieces"));
                }
            }
            Ok(())
        };
        take(&block[386..482], &mut map)?;
        let mut more = block[482] != 0;
        while more {
            let next = self.block()?.ok_or_else(|| bad("the archive ends in a sparse map"))?;
            let known = map.len();
            take(&next[..504], &mut map)?;
            if map.len() == known {
                return Err(bad("a sparse map that goes on with nothing"));
            }
            more = next[504] != 0;
        }
        Ok(map)
    }

    /// The map of pax sparse format 1.0: decimal lines at the start of the data, padded to a block.
    pub(super) fn pax_sparse(&mut self) -> io::Result<Vec<Extent>> {
        let mut taken = 0u64;
        let mut line = |reader: &mut Self| -> io::Result<u64> {
            let mut value = 0u64;
            let mut digits = 0;
            loop {
                let byte = *reader.piece()?.first().ok_or_else(|| bad("the archive ends in a sparse map"))?;
                reader.consume(1);
                taken += 1;
                match byte {
                    b'\n' if digits > 0 => return Ok(value),
                    b'0'..=b'9' if digits < 19 => {
                        value = value * 10 + u64::from(byte - b'0');
                        digits += 1;
                    }
                    _ => return Err(bad("a damaged sparse map")),
                }
            }
        };
        let count = line(self)?;
        if count > SPARSE_LIMIT as u64 {
            return Err(bad("a sparse file of too many pieces"));
        }
        let mut map = Vec::new();
        for _ in 0..count {
            map.push(Extent { offset: line(self)?, length: line(self)? });
        }
        let mut pad = taken.wrapping_neg() % BLOCK as u64;
        while pad > 0 {
            let n = self.piece()?.len().min(pad as usize);
            if n == 0 {
                return Err(bad("the archive ends in a sparse map"));
            }
            self.consume(n);
            pad -= n as u64;
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::ustar_block;
    use super::super::{EntryKind, Header};
    use super::*;

    #[test]
    fn sparse_formats_of_gnu_tar() {
        for format in ["--format=gnu", "--format=posix", "--sparse-version=0.0", "--sparse-version=0.1"] {
            let dir = std::env::temp_dir().join(format!("rt-tar-{}-{}", std::process::id(), format.len()));
            std::fs::create_dir_all(&dir).unwrap();
            let path = dir.join("holes");
            let f = std::fs::File::create(&path).unwrap();
            f.set_len(9 << 20).unwrap();
            for at in 0..40u64 {
                std::os::unix::fs::FileExt::write_all_at(&f, b"data", at * 200_000).unwrap();
            }
            let mut command = std::process::Command::new("tar");
            command.arg("-C").arg(&dir).args(["--sparse", "-cf", "-"]);
            if format.starts_with("--sparse") {
                command.arg("--format=posix");
            }
            let out = command.arg(format).arg("holes").output().unwrap();
            assert!(out.status.success());
            let mut reader = Reader::new(&out.stdout[..]);
            let entry = reader.next().unwrap().unwrap();
            assert_eq!((entry.path.as_slice(), entry.size), (&b"holes"[..], 9 << 20), "{format}");
            let map = entry.sparse.expect("a sparse map");
            let mut whole = vec![0u8; 9 << 20];
            for extent in map {
                let mut at = extent.offset as usize;
                let end = at + extent.length as usize;
                while at < end {
                    let piece = reader.piece().unwrap();
                    let n = piece.len().min(end - at);
                    whole[at..at + n].copy_from_slice(&piece[..n]);
                    reader.consume(n);
                    at += n;
                }
            }
            assert!(whole == std::fs::read(&path).unwrap(), "{format}");
            assert_eq!(reader.next().unwrap(), None);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }

    /// Each block of GNU's map says that another follows, and none has a piece.
    #[test]
    fn sparse_maps_go_on_with_something() {
        let mut block = ustar_block(&Header::new(b"name".to_vec(), EntryKind::Other(b'S'), 0o644));
        block[482] = 1;
        block[483..494].copy_from_slice(b"00000001000");
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut next = [0; BLOCK];
        next[504] = 1;
        let endless = block.into_iter().chain(std::iter::repeat_n(next, 1000).flatten());
        let endless: Vec<u8> = endless.collect();
        let e = Reader::new(&endless[..]).next().unwrap_err();
        assert!(e.to_string().contains("goes on with nothing"), "{e}");
    }
}
