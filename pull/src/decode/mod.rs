//! Decompression of layers, and the pipe that carries the plain bytes to the thread that writes.
//!
//! What compresses a layer is told by its first bytes (media types lie). C's zstd is five times as
//! fast here as the pure Rust decoder; zlib-rs is the fastest inflate in Rust.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

use super::digest::{Digest, Hasher};
use rt_sys::err;
use rt_sys::error::Kind;

mod frames;

/// Bytes of one piece in the pipe between two threads of a layer.
pub const PIECE: usize = 256 << 10;
/// zstd windows up to 128 MiB, the most that `zstd --ultra -22` makes without `--long`.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Of decoders with a larger window than this there is one at a time.
const LARGE_WINDOW: u64 = 8 << 20;

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
        Compression::Zstd => zstd_decoder(&head, source)?,
    })
}

/// What the plain bytes of a layer are to be.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Whatever they are.
    Any,
    /// What hashes to `diff_id`, as far as that is known without hashing them: a layer that is not compressed has
    /// the digest under which it is stored.
    Stored {
        /// Of the plain bytes, by the image's config.
        diff_id: &'a Digest,
        /// Of the layer as it is stored.
        stored: &'a Digest,
    },
    /// What hashes to this; they are hashed.
    Hashed(&'a Digest),
}

impl Expected<'_> {
    fn check(&self, compression: Compression) -> io::Result<()> {
        match self {
            Expected::Stored { diff_id, stored }
                if compression == Compression::None
                    && diff_id.algorithm() == stored.algorithm()
                    && diff_id != stored =>
            {
                Err(another(diff_id, stored))
            }
            _ => Ok(()),
        }
    }

    /// `plain`, which ends in an error if it is something else.
    fn hashed<'a>(&self, plain: Box<dyn Read + Send + 'a>) -> Box<dyn Read + Send + 'a> {
        match self {
            Expected::Hashed(diff_id) => {
                Box::new(Hashed { plain, hasher: Some(diff_id.hasher()), diff_id: (*diff_id).clone() })
            }
            _ => plain,
        }
    }
}

fn another(diff_id: &Digest, got: &Digest) -> io::Error {
    let differs = err!("uncompressed it hashes to {got}, and the image's config says {diff_id}");
    io::Error::other(differs.of_kind(Kind::Damaged))
}

/// Hashes what is read, and compares at the end.
struct Hashed<R> {
    plain: R,
    hasher: Option<Hasher>,
    diff_id: Digest,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buffer)?;
        match &mut self.hasher {
            Some(hasher) if n > 0 => hasher.update(&buffer[..n]),
            _ => {
                let got = self.hasher.take().map(Hasher::finish);
                if let Some(got) = got.filter(|got| *got != self.diff_id) {
                    return Err(another(&self.diff_id, &got));
                }
            }
        }
        Ok(n)
    }
}

/// Sends the plain bytes of `source` into a pipe; zstd frames are inflated by as many threads as `threads` says.
pub fn inflate(source: impl BufRead + Send, threads: usize, expected: Expected, pipe: &PipeWriter) {
    let begun = begin(source).and_then(|begun| expected.check(begun.0).map(|()| begun));
    let plain = match begun {
        Ok((Compression::Zstd, _, source)) if threads > 1 => {
            return frames::inflate(source, threads, expected, pipe);
        }
        Ok((Compression::Zstd, head, source)) => zstd_decoder(&head, source),
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

/// A decoder of a stream that begins with `head`.
fn zstd_decoder<'a>(head: &[u8], source: impl BufRead + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(match window(head) > LARGE_WINDOW {
        true => Box::new(Large { _turn: Turn::wait(), decoder }),
        false => Box::new(decoder),
    })
}

/// The window of a zstd frame that begins with `head` (RFC 8878, 3.1.1.1); 0 for other streams.
fn window(head: &[u8]) -> u64 {
    match head {
        // A frame in one segment is its own window.
        [0x28, 0xb5, 0x2f, 0xfd, descriptor, ..] if descriptor & 0x20 != 0 => content_size(head).unwrap_or(0),
        [0x28, 0xb5, 0x2f, 0xfd, _, window, ..] => {
            let base = 1u64 << (10 + (window >> 3));
            base + (base / 8) * u64::from(window & 7)
        }
        _ => 0,
    }
}

/// How long the fields after the descriptor of a zstd frame are: window, dictionary's number, plain size.
fn fields(descriptor: u8) -> (usize, usize, usize) {
    let single = descriptor & 0x20 != 0;
    let content = [usize::from(single), 2, 4, 8][usize::from(descriptor >> 6)];
    (usize::from(!single), [0, 1, 2, 4][usize::from(descriptor & 3)], content)
}

/// The plain size of a zstd frame, where its header has it.
fn content_size(head: &[u8]) -> Option<u64> {
    let (window, dictionary, length) = fields(*head.get(4)?);
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(head.get(5 + window + dictionary..)?.get(..length)?);
    match length {
        0 => None,
        2 => Some(u64::from_le_bytes(bytes) + 256),
        _ => Some(u64::from_le_bytes(bytes)),
    }
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

/// A decoder that needs so much memory that others wait for it.
struct Large<R> {
    decoder: R,
    _turn: Turn,
}

impl<R: Read> Read for Large<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer)
    }
}

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

/// The right to have a large window.
struct Turn;

impl Turn {
    fn wait() -> Turn {
        let taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        *FREE.wait_while(taken, |taken| *taken).unwrap_or_else(|e| e.into_inner()) = true;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(|e| e.into_inner()) = false;
        FREE.notify_one();
    }
}

/// The writing end of a pipe between threads.
pub struct PipeWriter {
    full: SyncSender<io::Result<Vec<u8>>>,
    empty: Empty,
}

/// The reading end: whole pieces, without a copy.
pub struct PipeReader {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: Empty,
    piece: Vec<u8>,
    used: usize,
    arrived: u64,
    limit: u64,
}

/// Pieces to be filled, the one on top used last: it is in the processor's cache, and as long as the reader keeps up
/// the others' memory is never touched.
type Empty = Arc<Mutex<Vec<Vec<u8>>>>;

/// A bounded pipe, in which at most `pieces` of [`PIECE`] bytes wait, and through which no more than `limit` bytes go.
pub fn pipe(pieces: usize, limit: u64) -> (PipeWriter, PipeReader) {
    let (full_in, full) = sync_channel(pieces);
    let empty = Empty::default();
    (
        PipeWriter { full: full_in, empty: empty.clone() },
        PipeReader { full, empty, piece: Vec::new(), used: 0, arrived: 0, limit },
    )
}

impl PipeWriter {
    /// Sends an empty piece, for the reader to see a boundary. False where nobody reads any more.
    fn mark(&self) -> bool {
        self.full.send(Ok(Vec::new())).is_ok()
    }

    /// Sends all of `source`, then the end or the error. Returns early when nobody reads any more.
    pub fn copy(&self, source: io::Result<Box<dyn Read + Send + '_>>) {
        let mut source = match source {
            Ok(source) => source,
            Err(e) => return drop(self.full.send(Err(e))),
        };
        loop {
            let mut piece = self.empty.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default();
            match piece.capacity() {
                // Zero already, and not touched before it is filled.
                0 => piece = vec![0; PIECE],
                _ => piece.resize(PIECE, 0),
            }
            let mut filled = 0;
            let mut failed = None;
            while filled < PIECE {
                match source.read(&mut piece[filled..]) {
                    Ok(0) => break,
                    Ok(n) => filled += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => {
                        failed = Some(e);
                        break;
                    }
                }
            }
            piece.truncate(filled);
            if filled > 0 && self.full.send(Ok(piece)).is_err() {
                return;
            }
            if let Some(e) = failed {
                return drop(self.full.send(Err(e)));
            }
            if filled == 0 {
                return;
            }
        }
    }
}

impl PipeReader {
    /// Gives the used piece back and takes the next. False: the writer is gone, and has said all it had to say.
    fn advance(&mut self) -> io::Result<bool> {
        let empty = std::mem::take(&mut self.piece);
        self.used = 0;
        if empty.capacity() > 0 {
            self.empty.lock().unwrap_or_else(|e| e.into_inner()).push(empty);
        }
        let Ok(piece) = self.full.recv() else { return Ok(false) };
        self.piece = piece?;
        self.arrived += self.piece.len() as u64;
        if self.arrived > self.limit {
            return Err(bomb());
        }
        Ok(true)
    }

    /// True where `more` bytes still may come.
    pub fn may_bring(&self, more: u64) -> bool {
        self.arrived.saturating_add(more) <= self.limit
    }
}

impl BufRead for PipeReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            self.advance()?;
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used = (self.used + amount).min(self.piece.len());
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(buffer.len());
        buffer[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
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
    fn windows_are_what_the_encoder_was_told() {
        for log in [10, 20, 24, 27] {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.write_all(b"x").unwrap();
            let frame = encoder.finish().unwrap();
            assert_eq!(window(&frame), 1 << log);
        }
        assert_eq!(window(&gzip(b"x")), 0);
        assert_eq!(window(&zstd::bulk::compress(&[1; 5000], 1).unwrap()), 5000, "one segment");
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

    #[test]
    fn the_pipe_keeps_order_and_errors() {
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let (writer, mut reader) = pipe(4, u64::MAX);
        let copy = data.clone();
        let thread = std::thread::spawn(move || writer.copy(Ok(Box::new(Cursor::new(copy)))));
        let mut out = Vec::new();
        reader.read_to_end(&mut out).unwrap();
        thread.join().unwrap();
        assert_eq!(out, data);
        let (writer, mut reader) = pipe(4, u64::MAX);
        writer.copy(Err(io::Error::other("no")));
        assert!(reader.read_to_end(&mut out).is_err());
    }
}
