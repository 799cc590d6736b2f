//! Decompression of layers, and the pipe that carries the plain bytes to the thread that writes.
//!
//! What compresses a layer is told by its first bytes, since media types are often wrong. C's zstd is five times as fast
//! here as the pure Rust decoder; zlib-rs is the fastest inflate in Rust.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | compressions, and bounds on what a stream inflates to |
//! | `zstd_frame.rs` | headers of zstd frames, and memory for their windows |
//! | `frames.rs` | the frames of one stream, inflated by several threads |
//! | `pipe.rs` | the pipe between the threads of a layer |
//! | `expected.rs` | what the plain bytes must hash to |

mod expected;
mod frames;
mod pipe;
mod zstd_frame;

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::os::unix::fs::FileExt;

pub use self::expected::Expected;
pub use self::pipe::{PIECE, PipeReader, PipeWriter, pipe};
use self::zstd_frame::content_size;

/// No honest stream inflates to more than this many times its size once it is beyond the floor below: text reaches 20, and
/// deflate cannot exceed 1032.
const BOMB_RATIO: u64 = 200;
/// Streams that inflate to no more than this are never called bombs.
const BOMB_FLOOR: u64 = 4 << 30;

/// What a stream of `size` bytes may inflate to.
pub fn bomb_limit(size: u64) -> u64 {
    size.saturating_mul(BOMB_RATIO).max(BOMB_FLOOR)
}

/// The error for one that inflates to more.
pub fn bomb() -> io::Error {
    io::Error::other(format!("it inflates to more than {BOMB_RATIO} times its size"))
}

/// What the first bytes of a stream say about its compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Plain.
    None,
    /// RFC 1952, one member or several.
    Gzip,
    /// RFC 8878, frames and skippable frames.
    Zstd,
}

/// Bytes that tell all there is to know beforehand: a zstd frame's header is not longer.
const HEAD: usize = 14;

/// Recognises a stream by its first bytes.
///
/// # Errors
/// bzip2 and xz, which the image-spec does not have, are named.
pub fn sniff(head: &[u8]) -> io::Result<Compression> {
    match head {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [b'B', b'Z', b'h', ..] => Err(io::Error::other("compressed by bzip2, which OCI layers may not be")),
        [0xfd, b'7', b'z', b'X', ..] => {
            Err(io::Error::other("compressed by xz, which OCI layers may not be"))
        }
        _ => Ok(Compression::None),
    }
}

/// The plain bytes of `source`.
pub fn plain<'a>(source: impl BufRead + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let (compression, head, source) = begin(source)?;
    Ok(match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Compression::Zstd => zstd_frame::decoder(&head, source)?,
    })
}

/// Sends the plain bytes of `source` into a pipe; zstd frames are inflated by as many threads as `threads` says.
pub fn inflate(source: impl BufRead + Send, threads: usize, expected: Expected, pipe: &PipeWriter) {
    let begun = begin(source).and_then(|begun| expected.check(begun.0).map(|()| begun));
    let plain = match begun {
        Ok((Compression::Zstd, _, source)) if threads > 1 => {
            return frames::inflate(source, threads, expected, pipe);
        }
        Ok((Compression::Zstd, head, source)) => zstd_frame::decoder(&head, source),
        Ok((_, _, source)) => self::plain(source),
        Err(e) => Err(e),
    };
    pipe.copy(plain.map(|plain| expected.hashed(plain)));
}

/// What compresses `source`, its first bytes, and all of it.
fn begin<S: BufRead>(mut source: S) -> io::Result<(Compression, Vec<u8>, impl BufRead + use<S>)> {
    let mut head = Vec::with_capacity(HEAD);
    source.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    Ok((sniff(&head)?, head.clone(), Cursor::new(head).chain(source)))
}

/// How long the stream of `size` bytes in `file` at `base` is at least when it is inflated, as far as its first and
/// last bytes tell.
pub fn least_plain_size(file: &File, base: u64, size: u64) -> u64 {
    let mut head = [0; HEAD];
    let known = file.read_at(&mut head, base).ok().and_then(|n| match sniff(&head[..n]).ok()? {
        Compression::None => None,
        Compression::Zstd => content_size(&head[..n]),
        Compression::Gzip => {
            // ISIZE: of the last member, modulo 4 GiB.
            let mut last = [0; 4];
            file.read_exact_at(&mut last, base + size.checked_sub(4)?).ok()?;
            Some(u64::from(u32::from_le_bytes(last)))
        }
    });
    known.map_or(size, |known| known.max(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn through(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        plain(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_compression_and_several_members() {
        let text = vec![b'x'; 100_000];
        assert_eq!(through(&text).unwrap(), text);
        assert_eq!(through(b"").unwrap(), b"");
        let mut twice = gzip(&text);
        twice.extend(gzip(b"more"));
        assert_eq!(through(&twice).unwrap().len(), 100_004);
        let mut frames = zstd::encode_all(&text[..], 1).unwrap();
        frames.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        frames.extend(zstd::encode_all(&b"more"[..], 1).unwrap());
        assert_eq!(through(&frames).unwrap().len(), 100_004);
        assert!(through(b"BZh91AY").is_err());
    }

    #[test]
    fn plain_sizes_are_known_where_a_stream_says_them() {
        let path = std::env::temp_dir().join(format!("rt-decode-{}", std::process::id()));
        let least = |stream: &[u8]| {
            std::fs::write(&path, [b"base", stream].concat()).unwrap();
            least_plain_size(&File::open(&path).unwrap(), 4, stream.len() as u64)
        };
        for length in [1, 200, 300, 70_000, 1_000_000] {
            let plain = vec![7; length];
            for stream in [zstd::bulk::compress(&plain, 1).unwrap(), gzip(&plain)] {
                assert_eq!(least(&stream), length.max(stream.len()) as u64);
            }
        }
        let unknown = zstd::encode_all(&[7; 1000][..], 1).unwrap();
        assert_eq!(least(&unknown), unknown.len() as u64);
        assert_eq!(least(&[0; 512]), 512);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn large_windows_take_turns() {
        let frame = || {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(26).unwrap();
            encoder.write_all(&[7; 100_000]).unwrap();
            Cursor::new(encoder.finish().unwrap())
        };
        let first = plain(frame()).unwrap();
        let second =
            std::thread::spawn(move || plain(frame()).unwrap().read_to_end(&mut Vec::new()).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!second.is_finished(), "two large windows at once");
        drop(first);
        assert_eq!(second.join().unwrap(), 100_000);
    }

    #[test]
    fn truncation_is_an_error() {
        let whole = gzip(&vec![b'x'; 100_000]);
        assert!(through(&whole[..whole.len() - 4]).is_err());
        let whole = zstd::encode_all(&vec![b'x'; 100_000][..], 1).unwrap();
        assert!(through(&whole[..whole.len() - 1]).is_err());
    }
}
