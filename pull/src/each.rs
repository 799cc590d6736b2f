//! Pieces of work of one kind, several at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use oci_content::interrupt::{Interrupt, is_interrupted};
use rt_sys::error::{Error, Result};

/// Does `work` for each of `items`, in their order, by at most `threads` threads.
///
/// # Errors
/// The first of `work`, which ends the rest.
pub(crate) fn each<T: Sync>(
    items: &[T],
    threads: usize,
    interrupt: &Interrupt,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::default();
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Err(e) = interrupt.check().and_then(|()| work(item)) else { continue };
            interrupt.stop();
            let mut first = failure.lock().unwrap_or_else(|e| e.into_inner());
            if first.as_ref().is_none_or(is_interrupted) {
                *first = Some(e);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            // Where no more threads can be had, these do it all.
            if std::thread::Builder::new().name("each".into()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    failure.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
}
