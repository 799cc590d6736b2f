//! Ctrl-C: threads are asked to stop, and do so at the next entry or piece of a file, so that the program can keep or remove what
//! is there by then. A second Ctrl-C ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use rt_sys::error::{Error, Kind, Result};

/// Whether the work should go on: false after a signal, or after another thread failed.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    signal: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Handlers run in this order: at the first signal the flag is not set yet, so only the second one ends the process.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, interrupt.signal.clone());
            let _ = signal_hook::flag::register(signal, interrupt.signal.clone());
        }
        interrupt
    }

    /// Asks all threads to stop, because one failed.
    pub fn stop(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// One for other threads: what failed before does not stop them, and a signal does.
    pub fn afresh(&self) -> Interrupt {
        Interrupt { signal: self.signal.clone(), failed: Arc::default() }
    }

    /// True after a signal.
    pub fn signalled(&self) -> bool {
        self.signal.load(Ordering::Relaxed)
    }

    /// # Errors
    /// "interrupted", once somebody asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.signalled() || self.failed.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        Ok(())
    }

    /// Sleeps, unless asked to stop.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// The error of a thread that was asked to stop: never the cause, so the other one is shown.
pub fn interrupted() -> Error {
    Error::new("interrupted").of_kind(Kind::Interrupted)
}

/// True for [`interrupted`] and what was added to it.
pub fn is_interrupted(error: &Error) -> bool {
    error.kind() == Kind::Interrupted
}
