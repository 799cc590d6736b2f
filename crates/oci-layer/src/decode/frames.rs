//! The frames of a zstd stream, inflated by several threads.
//!
//! pzstd and zstd:chunked write streams of many frames, each of which stands for itself. Where one ends is told by its
//! block headers (RFC 8878, 3.1.1), so a stream is cut without inflating it. Frames are dealt in turn to threads with a
//! pipe each, and the pipes are read in the same turn. A frame that is too long to be held goes to its thread together
//! with all that follows: a stream of one frame is inflated as if there were one thread.

use std::io::{self, BufRead, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::zstd_frame::{self, LARGE_WINDOW, fields, window};
use super::{Expected, PipeReader, PipeWriter, begin};

/// Compressed bytes that are dealt at least; zstd:chunked has frames of some hundred bytes.
const DEAL: usize = 1 << 20;
/// A longer frame is not held, nor one with a large window. pzstd cuts at 8 MiB of plain bytes.
const LONGEST: usize = 4 << 20;
/// Pieces that a thread may be ahead: as many bytes as [`LONGEST`].
const AHEAD: usize = 16;

/// Frames for a thread to inflate.
type Share<'a> = Box<dyn BufRead + Send + 'a>;

/// Sends the plain bytes of the frames in `source` into `pipe`.
pub(super) fn inflate(source: impl BufRead + Send, threads: usize, expected: Expected, pipe: &PipeWriter) {
    std::thread::scope(|scope| {
        let (mut shares, mut pipes) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (share, dealt) = sync_channel(1);
            let (writer, reader) = super::pipe(AHEAD, u64::MAX);
            shares.push(share);
            pipes.push(reader);
            let thread = std::thread::Builder::new().name("frames".into());
            if let Err(e) = thread.spawn_scoped(scope, move || work(&dealt, &writer)) {
                return pipe.copy(Err(e));
            }
        }
        let thread = std::thread::Builder::new().name("deal".into());
        if let Err(e) = thread.spawn_scoped(scope, move || deal(source, shares)) {
            return pipe.copy(Err(e));
        }
        // Dropped at an early end, the pipes end the threads.
        pipe.copy(Ok(expected.hashed(Box::new(InTurn { pipes, turn: 0 }))));
    });
}

/// Cuts the stream, until its end or a frame that is not held.
fn deal<'a>(mut source: impl BufRead + Send + 'a, shares: Vec<SyncSender<Share<'a>>>) {
    let mut turn = shares.iter().cycle();
    let mut send = |share: Share<'a>| turn.next().is_some_and(|thread| thread.send(share).is_ok());
    let mut frames = Vec::new();
    let mut next = 0;
    while take_frame(&mut source, &mut frames).is_some() {
        next = frames.len();
        if next >= DEAL {
            next = 0;
            if !send(Box::new(Cursor::new(std::mem::take(&mut frames)))) {
                return;
            }
        }
    }
    // What is no frame is the decoder's to complain about.
    let rest = frames.split_off(next);
    if frames.is_empty() || send(Box::new(Cursor::new(frames))) {
        send(Box::new(Cursor::new(rest).chain(source)));
    }
}

/// Appends the next frame of `source` to `frames`. None: only its beginning, or nothing, was there or could be held.
fn take_frame(source: &mut impl BufRead, frames: &mut Vec<u8>) -> Option<()> {
    let start = frames.len();
    let mut more = |frames: &mut Vec<u8>, length: usize| {
        let at = frames.len();
        if at - start + length > LONGEST {
            return None;
        }
        source.by_ref().take(length as u64).read_to_end(frames).ok()?;
        (frames.len() == at + length).then_some(at)
    };
    let at = more(frames, 4)?;
    if let [0x50..=0x5f, 0x2a, 0x4d, 0x18] = frames[at..] {
        let at = more(frames, 4)?;
        let length = u32::from_le_bytes(frames[at..].try_into().ok()?);
        return more(frames, length as usize).map(drop);
    }
    if frames[at..] != [0x28, 0xb5, 0x2f, 0xfd] {
        return None;
    }
    let descriptor = more(frames, 1).map(|at| frames[at])?;
    let (window_length, dictionary, content) = fields(descriptor);
    more(frames, window_length + dictionary + content)?;
    if window(&frames[start..]) > LARGE_WINDOW {
        return None;
    }
    loop {
        let at = more(frames, 3)?;
        let header = u32::from_le_bytes([frames[at], frames[at + 1], frames[at + 2], 0]);
        let length = match header >> 1 & 3 {
            // One byte that stands for all.
            1 => 1,
            0 | 2 => header >> 3,
            _ => return None,
        };
        more(frames, length as usize)?;
        if header & 1 != 0 {
            break;
        }
    }
    let checksum = descriptor >> 2 & 1;
    more(frames, 4 * usize::from(checksum)).map(drop)
}

/// Inflates what is dealt, with a mark after each share.
fn work(dealt: &Receiver<Share>, pipe: &PipeWriter) {
    for share in dealt {
        match begin(share) {
            Ok((_, head, _)) if head.is_empty() => {}
            Ok((_, head, share)) => pipe.copy(zstd_frame::decoder(&head, share)),
            Err(e) => pipe.copy(Err(e)),
        }
        if !pipe.mark() {
            return;
        }
    }
}

/// The pipes' bytes, a share of each in turn.
struct InTurn {
    pipes: Vec<PipeReader>,
    turn: usize,
}

impl Read for InTurn {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let pipe = &mut self.pipes[self.turn];
            if pipe.used < pipe.piece.len() {
                return pipe.read(buffer);
            }
            if !pipe.advance()? {
                // Nothing was dealt to this thread any more, so nothing to the others.
                return Ok(0);
            }
            if pipe.piece.is_empty() {
                self.turn = (self.turn + 1) % self.pipes.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe;
    use super::*;

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    }

    fn through(stream: &[u8]) -> io::Result<Vec<u8>> {
        let (writer, mut reader) = pipe(4, u64::MAX);
        std::thread::scope(|scope| {
            scope.spawn(move || super::super::inflate(stream, 3, Expected::Any, &writer));
            let mut plain = Vec::new();
            reader.read_to_end(&mut plain).map(|_| plain)
        })
    }

    /// Frames small and large, some with checksums or without sizes, one that is not held, and what is no frame
    /// between them.
    fn stream() -> (Vec<u8>, Vec<u8>) {
        let (mut stream, mut plain) = (Vec::new(), Vec::new());
        for number in 0..60 {
            let length = match number {
                40 => LONGEST + 1000,
                _ => [10, 70_000, 900_000][number % 3],
            };
            let part = if number % 2 == 0 { noise(length, number as u64) } else { vec![7; length] };
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(number % 4 == 0).unwrap();
            encoder.set_pledged_src_size((number % 5 == 0).then_some(length as u64)).unwrap();
            io::Write::write_all(&mut encoder, &part).unwrap();
            stream.extend(encoder.finish().unwrap());
            stream.extend([0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            plain.extend(part);
        }
        (stream, plain)
    }

    #[test]
    fn order_is_kept() {
        let (stream, plain) = stream();
        assert!(through(&stream).unwrap() == plain);
        let (mut rest, mut frames, mut count) = (&stream[..], Vec::new(), 0);
        while take_frame(&mut rest, &mut frames).is_some() {
            count += 1;
        }
        // Each with a skippable one; the next is longer than what is held.
        assert_eq!(count, 2 * 40);
        assert_eq!(through(&zstd::encode_all(&b""[..], 1).unwrap()).unwrap(), b"");
    }

    #[test]
    fn damage_is_an_error() {
        let (stream, plain) = stream();
        assert!(through(&stream[..stream.len() - 12]).is_err(), "cut in the last frame");
        assert!(through(&[&stream[..], b"garbage"].concat()).is_err());
        let mut damaged = stream;
        let middle = damaged.len() / 3;
        damaged[middle..middle + 2000].fill(0xff);
        assert!(through(&damaged).map_or(true, |wrong| wrong != plain));
    }

    #[test]
    fn who_stops_reading_ends_the_threads() {
        let (stream, _) = stream();
        let (writer, mut reader) = pipe(4, u64::MAX);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let writer = writer;
                super::super::inflate(&stream[..], 3, Expected::Any, &writer)
            });
            reader.read_exact(&mut [0; 100]).unwrap();
            drop(reader);
        });
    }
}
