//! Threads that compress blocks. Results come back with the number of their block, in any order.

use crate::compress::{Compression, Compressor};
use ring::digest::{SHA256, digest};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// SHA-256 of a block before compression.
pub(crate) type Hash = [u8; 32];

/// The SHA-256 of `bytes`.
pub(crate) fn hash(bytes: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// A block as it is written.
pub(crate) struct PackedBlock {
    pub bytes: Vec<u8>,
    pub compressed: bool,
    pub hash: Hash,
}

type Job = (u64, Vec<u8>);
type JobResult = (u64, io::Result<PackedBlock>);

/// The threads. They end when the pool is dropped.
pub(crate) struct Pool {
    jobs: Option<Sender<Job>>,
    results: Receiver<JobResult>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn start(threads: usize, compression: Compression) -> io::Result<Pool> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (done, results) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Pool { jobs: Some(jobs), results, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let (queue, done) = (queue.clone(), done.clone());
            let mut compressor = Compressor::new(compression)?;
            let work = move || {
                loop {
                    // The lock is held while this thread waits for a job, and given up before it works on it.
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, block)) = job else { return };
                    let packed = pack(&mut compressor, block);
                    if done.send((number, packed)).is_err() {
                        return;
                    }
                }
            };
            pool.threads.push(std::thread::Builder::new().name("squashfs".into()).spawn(work)?);
        }
        Ok(pool)
    }

    pub(crate) fn submit(&self, number: u64, block: Vec<u8>) -> io::Result<()> {
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send((number, block)).map_err(|_| gone())
    }

    /// Waits for the next result.
    pub(crate) fn wait(&self) -> io::Result<(u64, PackedBlock)> {
        let (number, packed) = self.results.recv().map_err(|_| gone())?;
        Ok((number, packed?))
    }

    /// A result that is there already.
    pub(crate) fn poll(&self) -> io::Result<Option<(u64, PackedBlock)>> {
        match self.results.try_recv() {
            Ok((number, packed)) => Ok(Some((number, packed?))),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn pack(compressor: &mut Compressor, block: Vec<u8>) -> io::Result<PackedBlock> {
    let hash = hash(&block);
    Ok(match compressor.compress(&block)? {
        Some(bytes) => PackedBlock { bytes, compressed: true, hash },
        None => PackedBlock { bytes: block, compressed: false, hash },
    })
}

fn gone() -> io::Error {
    io::Error::other("a thread that compresses has ended")
}
