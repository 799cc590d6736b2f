//! What the user sees meanwhile: a bar for each layer on a terminal, a line for each elsewhere.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::blob::Blob;
use super::disk;

/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(120);
/// Layers shown at once.
const ROWS: usize = 12;

/// How much to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Nothing but errors.
    Quiet,
    /// A line when a layer is complete.
    Lines,
    /// Bars, redrawn, this wide.
    Bars(usize),
}

impl Style {
    /// What standard error can show.
    pub(crate) fn of_terminal(quiet: bool) -> Style {
        match (quiet, disk::terminal_width()) {
            (true, _) => Style::Quiet,
            (false, Some(width)) if std::env::var_os("TERM").is_none_or(|t| t != "dumb") => {
                Style::Bars(width)
            }
            (false, _) => Style::Lines,
        }
    }
}

/// Shows the layers until `done`; a thread's work.
pub(crate) fn show(style: Style, blobs: &[Arc<Blob>], done: &AtomicBool) {
    let mut told = vec![false; blobs.len()];
    let mut drawn = 0;
    loop {
        let last = done.load(Ordering::Acquire);
        match style {
            Style::Quiet => return,
            Style::Lines => {
                for (at, blob) in blobs.iter().enumerate() {
                    if !told[at] && matches!(blob.result(), Some(Ok(()))) {
                        told[at] = true;
                        let text = format!(
                            "layer {}/{} {} {}",
                            at + 1,
                            blobs.len(),
                            blob.digest.short(),
                            size(blob.size)
                        );
                        let _ = writeln!(std::io::stderr(), "{text}");
                    }
                }
            }
            Style::Bars(width) => drawn = draw(width, blobs, drawn, last),
        }
        if last {
            return;
        }
        std::thread::sleep(REDRAW);
    }
}

/// Bytes of one task, counted by the thread that has it and shown by another one.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    have: AtomicU64,
    /// Zero where it is not known.
    all: AtomicU64,
}

impl Meter {
    /// A task of so many bytes.
    pub(crate) fn of(all: u64) -> Meter {
        Meter { have: AtomicU64::new(0), all: AtomicU64::new(all) }
    }

    /// How many are done.
    pub(crate) fn have(&self) -> u64 {
        self.have.load(Ordering::Relaxed)
    }

    /// So many are done, of all.
    pub(crate) fn set(&self, bytes: u64) {
        self.have.store(bytes, Ordering::Relaxed);
    }

    /// So many more are done.
    pub(crate) fn add(&self, bytes: u64) {
        self.have.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Does `work` and shows meanwhile how far it is, on a terminal.
    pub(crate) fn shown<T>(&self, style: Style, label: &str, work: impl FnOnce() -> T) -> T {
        let Style::Bars(width) = style else { return work() };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let draw = || {
                while !done.load(Ordering::Acquire) {
                    let (have, all) = (self.have.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed));
                    let text = match all {
                        0 => format!("{label:12} {:>9}", size(have)),
                        _ => row(width, &format!("{label:12}"), have, all),
                    };
                    let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
                    // The work's thread wakes this one: nobody waits for the next drawing.
                    std::thread::park_timeout(REDRAW);
                }
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            };
            // Nothing is shown where no thread can be had for it.
            let show = std::thread::Builder::new().name("show".into()).spawn_scoped(scope, draw).ok();
            let result = work();
            done.store(true, Ordering::Release);
            if let Some(show) = show {
                show.thread().unpark();
            }
            result
        })
    }
}

fn draw(width: usize, blobs: &[Arc<Blob>], drawn: usize, last: bool) -> usize {
    let mut text = String::new();
    if drawn > 0 {
        text.push_str(&format!("\x1b[{drawn}A"));
    }
    // A row for each layer that is not complete, and one for the sum of all.
    let mut rows: Vec<String> = Vec::new();
    let open = blobs.iter().filter(|blob| !matches!(blob.result(), Some(Ok(()))));
    for blob in open.take(if last { 0 } else { ROWS }) {
        rows.push(row(width, &format!("{:12}", blob.digest.short()), blob.progress(), blob.size));
    }
    let have = blobs.iter().map(|blob| blob.progress()).sum();
    let all = blobs.iter().map(|blob| blob.size).sum();
    let complete = blobs.iter().filter(|blob| matches!(blob.result(), Some(Ok(())))).count();
    rows.push(row(width, &format!("{:12}", format!("{complete}/{} layers", blobs.len())), have, all));
    let count = rows.len();
    for row in rows {
        text.push_str("\x1b[2K");
        text.push_str(&row);
        text.push('\n');
    }
    // Erases rows of the last time that are not needed any more.
    text.push_str("\x1b[J");
    let _ = std::io::stderr().write_all(text.as_bytes());
    count
}

fn row(width: usize, label: &str, have: u64, all: u64) -> String {
    let numbers = format!("{:>9} / {:>9}", size(have), size(all));
    let bar = width.saturating_sub(label.len() + numbers.len() + 5).min(60);
    let filled = if all == 0 { bar } else { (have as f64 / all as f64 * bar as f64) as usize };
    format!("{label} [{}{}] {numbers}", "#".repeat(filled.min(bar)), " ".repeat(bar - filled.min(bar)))
}

/// For people: `12.3 MB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.5 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rows() {
        assert_eq!([size(0), size(999), size(1000), size(370_400_000)], ["0 B", "999 B", "1.0 kB", "370 MB"]);
        assert_eq!(row(60, "x", 1, 2).matches('#').count(), row(60, "x", 2, 2).matches('#').count() / 2);
        assert!(row(10, "label", 1, 0).contains("label"));
    }
}
