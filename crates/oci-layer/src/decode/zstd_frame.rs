//! zstd: what the header of a frame says (RFC 8878, 3.1.1.1), and decoders with a bound on their memory.

use std::io::{self, BufRead, Read};
use std::sync::{Condvar, Mutex};

/// zstd windows up to 128 MiB, the most that `zstd --ultra -22` makes without `--long`.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Of decoders with a larger window than this there is one at a time.
pub(super) const LARGE_WINDOW: u64 = 8 << 20;

/// A decoder of a stream that begins with `head`.
pub(super) fn decoder<'a>(
    head: &[u8],
    source: impl BufRead + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(match window(head) > LARGE_WINDOW {
        true => Box::new(LargeWindowDecoder { _turn: LargeWindowTurn::wait(), decoder }),
        false => Box::new(decoder),
    })
}

/// The window of a zstd frame that begins with `head` (RFC 8878, 3.1.1.1); 0 for other streams.
pub(super) fn window(head: &[u8]) -> u64 {
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
pub(super) fn fields(descriptor: u8) -> (usize, usize, usize) {
    let single = descriptor & 0x20 != 0;
    let content = [usize::from(single), 2, 4, 8][usize::from(descriptor >> 6)];
    (usize::from(!single), [0, 1, 2, 4][usize::from(descriptor & 3)], content)
}

/// The plain size of a zstd frame, where its header has it.
pub(super) fn content_size(head: &[u8]) -> Option<u64> {
    let (window, dictionary, length) = fields(*head.get(4)?);
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(head.get(5 + window + dictionary..)?.get(..length)?);
    match length {
        0 => None,
        2 => Some(u64::from_le_bytes(bytes) + 256),
        _ => Some(u64::from_le_bytes(bytes)),
    }
}

/// A decoder that needs so much memory that others wait for it.
struct LargeWindowDecoder<R> {
    decoder: R,
    _turn: LargeWindowTurn,
}

impl<R: Read> Read for LargeWindowDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer)
    }
}

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

/// The right to have a large window.
struct LargeWindowTurn;

impl LargeWindowTurn {
    fn wait() -> LargeWindowTurn {
        let taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        *FREE.wait_while(taken, |taken| *taken).unwrap_or_else(|e| e.into_inner()) = true;
        LargeWindowTurn
    }
}

impl Drop for LargeWindowTurn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(|e| e.into_inner()) = false;
        FREE.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn windows_are_what_the_encoder_was_told() {
        for log in [10, 20, 24, 27] {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.write_all(b"x").unwrap();
            let frame = encoder.finish().unwrap();
            assert_eq!(window(&frame), 1 << log);
        }
        assert_eq!(window(b"\x1f\x8b\x08 no zstd"), 0);
        assert_eq!(window(&zstd::bulk::compress(&[1; 5000], 1).unwrap()), 5000, "one segment");
    }
}
