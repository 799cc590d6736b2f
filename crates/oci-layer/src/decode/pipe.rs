//! The pipe between the thread that inflates a layer and the one that writes it.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use super::bomb;

/// Bytes of one piece in the pipe between two threads of a layer.
pub const PIECE: usize = 256 << 10;
/// The writing end of a pipe between threads.
pub struct PipeWriter {
    full: SyncSender<io::Result<Vec<u8>>>,
    empty: Empty,
}

/// The reading end: whole pieces, without a copy.
pub struct PipeReader {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: Empty,
    pub(super) piece: Vec<u8>,
    pub(super) used: usize,
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
    pub(super) fn mark(&self) -> bool {
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
    pub(super) fn advance(&mut self) -> io::Result<bool> {
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
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

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
