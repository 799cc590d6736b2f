//! A blob while it arrives: one thread writes and hashes it, another reads behind it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use rt_sys::err;
use rt_sys::error::{Context, Error, Kind, Result};

/// Bytes that are hashed at once.
const STEP: usize = 256 << 10;

/// A blob of known digest and size that may not be complete yet.
pub(crate) struct Blob {
    /// What it must hash to.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    state: Mutex<BlobState>,
    changed: Condvar,
    /// How far the reader that is furthest has come, for what is shown.
    read: AtomicU64,
    /// What is in it has been unpacked.
    unpacked: AtomicBool,
}

#[derive(Default)]
struct BlobState {
    file: Option<(Arc<File>, u64)>,
    available: u64,
    received: u64,
    /// Nobody has hashed it, or somebody else can have changed it since.
    untrusted: bool,
    finished: Option<Result<()>>,
}

impl Blob {
    /// A blob of which nothing is there.
    pub(crate) fn new(digest: Digest, size: u64) -> Arc<Blob> {
        Arc::new(Blob {
            digest,
            size,
            state: Mutex::default(),
            changed: Condvar::new(),
            read: AtomicU64::new(0),
            unpacked: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, BlobState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// From now on `available` bytes can be read from `file` at `base`.
    pub(crate) fn available(&self, file: &Arc<File>, base: u64, available: u64) {
        let mut state = self.state();
        state.file = Some((file.clone(), base));
        state.available = available;
        state.received = available;
        self.changed.notify_all();
    }

    /// All of it can be read from `file` at `base`, which somebody else can change: each reader hashes what it reads.
    pub(crate) fn untrusted(&self, file: &Arc<File>, base: u64) {
        self.state().untrusted = true;
        self.available(file, base, self.size);
    }

    /// So many bytes have come, which nobody may read yet.
    pub(crate) fn received(&self, received: u64) {
        self.state().received = received;
    }

    /// The blob is complete and was checked, or will never be.
    pub(crate) fn finish(&self, result: Result<()>) {
        self.state().finished = Some(result);
        self.changed.notify_all();
    }

    /// The result, when there is one.
    pub(crate) fn result(&self) -> Option<Result<()>> {
        self.state().finished.clone()
    }

    /// Bytes that have come.
    pub(crate) fn progress(&self) -> u64 {
        self.state().received
    }

    /// Everything in it has been unpacked.
    pub(crate) fn set_unpacked(&self) {
        self.unpacked.store(true, Ordering::Relaxed);
    }

    /// True where that is so.
    pub(crate) fn is_unpacked(&self) -> bool {
        self.unpacked.load(Ordering::Relaxed)
    }

    /// Bytes that were read to be unpacked. All of them only where that was done: what was read may still have to be written.
    pub(crate) fn unpacked(&self) -> u64 {
        match self.is_unpacked() {
            true => self.size,
            false => self.read.load(Ordering::Relaxed).min(self.size / 100 * 99),
        }
    }

    /// A reader from the start that waits for what is not there yet.
    pub(crate) fn reader(self: &Arc<Blob>) -> BlobReader {
        BlobReader { blob: self.clone(), offset: 0, available: 0, file: None, hasher: None, wrong: None }
    }

    /// Checks digest and size of `size` bytes in `file` at `base`, which readers may use meanwhile. For what nobody else can
    /// change.
    pub(crate) fn verify(&self, file: &Arc<File>, base: u64, interrupt: &Interrupt) -> Result<()> {
        self.available(file, base, self.size);
        let mut hasher = self.digest.hasher();
        let mut buffer = vec![0; STEP];
        let mut at = 0;
        while at < self.size {
            interrupt.check()?;
            let most = buffer.len().min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
            let n = file
                .read_at(&mut buffer[..most], base + at)
                .context(|| format!("read blob {}", self.digest))?;
            if n == 0 {
                let short = err!("blob {}: only {} of {} bytes", self.digest, at, self.size);
                return Err(short.of_kind(Kind::Damaged));
            }
            hasher.update(&buffer[..n]);
            at += n as u64;
        }
        self.compare(&hasher.finish())
    }

    /// # Errors
    /// Both digests, where they differ.
    pub(crate) fn compare(&self, got: &Digest) -> Result<()> {
        if *got == self.digest { Ok(()) } else { Err(self.digest.mismatch(got).context("blob")) }
    }
}

/// Reads a [`Blob`] as it grows.
pub(crate) struct BlobReader {
    blob: Arc<Blob>,
    offset: u64,
    available: u64,
    file: Option<(Arc<File>, u64)>,
    /// Of what must be hashed as it is read.
    hasher: Option<Hasher>,
    /// The result; kept, because a decoder that reads ahead drops an error and asks again.
    wrong: Option<Error>,
}

impl BlobReader {
    fn check(&mut self) -> io::Result<()> {
        if let Some(hasher) = self.hasher.take() {
            self.wrong = self.blob.compare(&hasher.finish()).err();
        }
        self.wrong.clone().map_or(Ok(()), |wrong| Err(io::Error::other(wrong)))
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.offset == self.blob.size || buffer.is_empty() {
            return self.check().map(|()| 0);
        }
        if self.offset == self.available {
            let mut state = self.blob.state();
            loop {
                if let Some(Err(e)) = &state.finished {
                    return Err(io::Error::other(e.clone()));
                }
                if state.available > self.offset {
                    break;
                }
                if state.finished.is_some() {
                    return Ok(0);
                }
                state = self.blob.changed.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            if self.file.is_none() && state.untrusted {
                self.hasher = Some(self.blob.digest.hasher());
            }
            self.available = state.available;
            self.file = state.file.clone();
        }
        let Some((file, base)) = &self.file else { return Ok(0) };
        let most = buffer.len().min(usize::try_from(self.available - self.offset).unwrap_or(usize::MAX));
        let n = file.read_at(&mut buffer[..most], base + self.offset)?;
        if n == 0 {
            // The file has become shorter since its size was asked.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..n]);
        }
        self.offset += n as u64;
        self.blob.read.fetch_max(self.offset, Ordering::Relaxed);
        Ok(n)
    }
}
