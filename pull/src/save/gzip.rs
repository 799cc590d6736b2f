//! Gzip by several threads: one member, of blocks that are deflated apart from each other and joined (RFC 1951, 3.2: a stream is a
//! sequence of blocks). The blocks are cut by length alone, so however many threads there are, the bytes are the same.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// What is deflated in one go. Without what came before it a block is a thousandth larger or so.
const BLOCK: usize = 1 << 20;
/// As large as what docker's and podman's default gives, within a hundredth; level 6 takes half as long again for 3 % less.
const LEVEL: u32 = 3;
/// So much of a block is tried, in pieces from all of it, to see whether it can be made smaller: wheels, archives, pictures and the
/// weights of models take level 3 longer than all else, for nothing.
const TRIED: usize = 32 << 10;
const PIECES: usize = 8;
/// A member without a name and time, by an unknown system (RFC 1952, 2.3).
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A last block without content.
const LAST: [u8; 2] = [3, 0];

/// A block, deflated.
type Deflated = io::Result<(Vec<u8>, Crc)>;
/// A block, and where it goes when it is deflated.
type Job = (Vec<u8>, SyncSender<Deflated>);

/// Compresses what is written to it.
pub(super) struct Gzip<W: Write> {
    out: W,
    block: Vec<u8>,
    crc: Crc,
    /// The blocks that are at work, in their order.
    waiting: VecDeque<Receiver<Deflated>>,
    most: usize,
    /// None where no thread could be had.
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl<W: Write> Gzip<W> {
    /// Writes to `out` what at most `threads` threads deflate.
    pub(super) fn new(mut out: W, threads: usize) -> io::Result<Gzip<W>> {
        out.write_all(&HEAD)?;
        let (jobs, taken) = sync_channel::<Job>(threads);
        let taken = Arc::new(Mutex::new(taken));
        let mut started = Vec::new();
        for _ in 0..threads {
            let taken = taken.clone();
            let work = move || {
                loop {
                    let job = taken.lock().unwrap_or_else(|e| e.into_inner()).recv();
                    let Ok((block, to)) = job else { return };
                    // Nobody waits for it after an error.
                    let _ = to.send(deflate(&block));
                }
            };
            started.extend(std::thread::Builder::new().name("deflate".into()).spawn(work).ok());
        }
        let jobs = (!started.is_empty()).then_some(jobs);
        let (block, waiting) = (Vec::with_capacity(BLOCK), VecDeque::new());
        Ok(Gzip { out, block, crc: Crc::new(), waiting, most: 2 * threads, jobs, threads: started })
    }

    /// Passes on a whole block.
    fn pass_on(&mut self) -> io::Result<()> {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        let Some(jobs) = &self.jobs else { return self.take(deflate(&block)) };
        let (to, deflated) = sync_channel(1);
        jobs.send((block, to)).map_err(|_| ended())?;
        self.waiting.push_back(deflated);
        if self.waiting.len() > self.most { self.take_first() } else { Ok(()) }
    }

    fn take_first(&mut self) -> io::Result<()> {
        let Some(first) = self.waiting.pop_front() else { return Ok(()) };
        self.take(first.recv().map_err(|_| ended())?)
    }

    fn take(&mut self, deflated: Deflated) -> io::Result<()> {
        let (bytes, crc) = deflated?;
        self.crc.combine(&crc);
        self.out.write_all(&bytes)
    }

    /// Writes the end.
    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() {
            self.pass_on()?;
        }
        while !self.waiting.is_empty() {
            self.take_first()?;
        }
        self.jobs = None;
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| ended())?;
        }
        self.out.write_all(&LAST)?;
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..n]);
        if self.block.len() == BLOCK {
            self.pass_on()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ended() -> io::Error {
    io::Error::other("a thread that deflates has ended")
}

/// Deflates a block to its last byte, but not to the end of the stream.
fn deflate(block: &[u8]) -> Deflated {
    let mut crc = Crc::new();
    crc.update(block);
    let level = if is_dense(block)? { Compression::none() } else { Compression::new(LEVEL) };
    Ok((deflate_at(level, block)?, crc))
}

/// True for a block of which deflate would leave as much as there is.
fn is_dense(block: &[u8]) -> io::Result<bool> {
    if block.len() < BLOCK {
        return Ok(false);
    }
    let pieces = block.chunks(block.len() / PIECES).flat_map(|part| &part[..TRIED / PIECES]);
    let tried: Vec<u8> = pieces.copied().collect();
    Ok(deflate_at(Compression::fast(), &tried)?.len() > TRIED - TRIED / 32)
}

fn deflate_at(level: Compression, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflater = Compress::new(level, false);
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 100 + 64);
    loop {
        let done = usize::try_from(deflater.total_in()).unwrap_or(usize::MAX);
        let status = deflater.compress_vec(&bytes[done..], &mut out, FlushCompress::Sync)?;
        // Room that is left says that all of it is there (zlib.h, deflate).
        if status != Status::Ok || out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(bytes.len() / 8 + 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn packed(bytes: &[u8], threads: usize) -> Vec<u8> {
        let mut gzip = Gzip::new(Vec::new(), threads).unwrap();
        bytes.chunks(70_001).for_each(|piece| gzip.write_all(piece).unwrap());
        gzip.finish().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked_again() {
        let mut random = 1u32;
        let mut noise = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        let noise: Vec<u8> = (0..BLOCK * 2 + 17).map(|_| noise()).collect();
        for bytes in [&[][..], b"x", &vec![7; BLOCK], &vec![7; 3 * BLOCK + 1], &noise] {
            let one = packed(bytes, 1);
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&one[..]).read_to_end(&mut plain).unwrap();
            assert!(plain == bytes, "{} bytes", bytes.len());
            for threads in [0, 3] {
                assert!(packed(bytes, threads) == one, "the same by {threads} threads");
            }
        }
        // What cannot be smaller is stored, and no block of which a part can.
        assert!(packed(&noise, 1).len() < noise.len() + 1000);
        let mut mixed = noise[..BLOCK].to_vec();
        mixed[BLOCK / 2..BLOCK / 2 + BLOCK / 8].fill(0);
        assert!(is_dense(&noise[..BLOCK]).unwrap() && !is_dense(&mixed).unwrap());
    }
}
