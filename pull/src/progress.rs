//! What the user sees meanwhile: a bar for each layer on a terminal, a line for each elsewhere.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::blob::Blob;
use oci_content::meter::Meter;
use oci_content::notes;
use rt_sys::log::{one_line, tell};
use rt_sys::tty;

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
        match (quiet, tty::width_on_stderr()) {
            (true, _) => Style::Quiet,
            (false, Some(width)) if std::env::var_os("TERM").is_none_or(|t| t != "dumb") => {
                Style::Bars(width)
            }
            (false, _) => Style::Lines,
        }
    }

    /// Does `work` and shows meanwhile how far `meter` is, on a terminal.
    pub(crate) fn show<T>(self, label: &str, meter: &Meter, work: impl FnOnce() -> T) -> T {
        let Style::Bars(width) = self else { return work() };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let draw = || {
                while !done.load(Ordering::Acquire) {
                    let (have, all) = (meter.have(), meter.all());
                    let text = match all {
                        0 => format!("{label:12} {:>9}", size(have)),
                        _ => row(width, &format!("{label:12}"), have, all, ""),
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

/// Says a line to people; who closed stderr does not want to know.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("{}\n", one_line(text)).as_bytes());
}

/// How fast bytes have come and work was done in the last seconds.
struct Pace {
    /// When, how many bytes had come, and how much was done of all that is to be done.
    samples: VecDeque<(Instant, u64, u64)>,
}

impl Pace {
    /// The time over which the pace is taken.
    const WINDOW: Duration = Duration::from_secs(5);
    /// With less, it says nothing.
    const LEAST: Duration = Duration::from_millis(900);

    /// Notes how far the work is at `now`, and says the bytes in a second, and the time that is left for `left` bytes.
    fn at(&mut self, now: Instant, received: u64, work: u64, left: u64) -> String {
        self.samples.push_back((now, received, work));
        let is_old = |sample: &(Instant, u64, u64)| now.duration_since(sample.0) > Pace::WINDOW;
        while self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
        let Some((begin, received_then, work_then)) = self.samples.front() else { return String::new() };
        let seconds = now.duration_since(*begin);
        if seconds < Pace::LEAST {
            return String::new();
        }
        let per_second = |bytes: u64| bytes as f64 / seconds.as_secs_f64();
        let fetched = per_second(received - received_then.min(&received));
        let done = per_second(work - work_then.min(&work));
        let rest = match done > 0.0 {
            true => format!(", {} left", time(left as f64 / done)),
            false => String::new(),
        };
        format!(" {}/s{rest}", size(fetched as u64))
    }
}

/// For people: `12 s`, `3 min`, `2 h`.
fn time(seconds: f64) -> String {
    match seconds.ceil() {
        s if s < 100.0 => format!("{s} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// Shows the layers until `done`; a thread's work.
pub(crate) fn show(style: Style, blobs: &[Arc<Blob>], done: &AtomicBool) {
    let mut told = vec![false; blobs.len()];
    let mut drawn = 0;
    let mut pace = Pace { samples: VecDeque::new() };
    loop {
        let last = done.load(Ordering::Acquire);
        match style {
            Style::Quiet => return,
            Style::Lines => {
                for (at, blob) in blobs.iter().enumerate() {
                    if !told[at] && matches!(blob.result(), Some(Ok(()))) {
                        told[at] = true;
                        let (layer, all) = (at + 1, blobs.len());
                        let (digest, size) = (blob.digest.short(), size(blob.size));
                        tell(format_args!("layer {layer}/{all} {digest} {size}"));
                    }
                }
            }
            Style::Bars(width) => {
                let notes = notes::take(!last);
                drawn = draw(width, blobs, &Drawing { drawn, last, notes: &notes }, &mut pace);
            }
        }
        if last {
            return;
        }
        std::thread::sleep(REDRAW);
    }
}

/// What one drawing is to be like.
struct Drawing<'a> {
    /// The rows of the last one, which it is drawn over.
    drawn: usize,
    /// No other one follows.
    last: bool,
    /// Lines to stay above it.
    notes: &'a [String],
}

/// Draws the bars, and says how many rows they have.
fn draw(width: usize, blobs: &[Arc<Blob>], drawing: &Drawing, pace: &mut Pace) -> usize {
    let mut text = String::new();
    if drawing.drawn > 0 {
        text.push_str(&format!("\x1b[{}A", drawing.drawn));
    }
    for note in drawing.notes {
        text.push_str(&format!("\x1b[2K{note}\n"));
    }
    // A row for each layer that is being fetched or unpacked, and one for the sum of all. Of a layer that does both, the
    // fetching is shown, which the other waits for.
    let mut rows: Vec<String> = Vec::new();
    let is_fetched = |blob: &Blob| matches!(blob.result(), Some(Ok(())));
    for blob in blobs.iter().filter(|blob| !blob.is_unpacked()).take(if drawing.last { 0 } else { ROWS }) {
        let (doing, have) = match is_fetched(blob) {
            true => ("unpack", blob.unpacked()),
            false => ("fetch", blob.progress()),
        };
        rows.push(row(width, &format!("{doing:6} {:12}", blob.digest.short()), have, blob.size, ""));
    }
    let sum = |of: fn(&Blob) -> u64| blobs.iter().map(|blob| of(blob)).sum::<u64>();
    let (received, unpacked, all) = (sum(Blob::progress), sum(Blob::unpacked), sum(|blob| blob.size));
    let complete = blobs.iter().filter(|blob| blob.is_unpacked()).count();
    let (work, whole) = (received + unpacked, 2 * all);
    let pace = pace.at(Instant::now(), received, work, whole.saturating_sub(work));
    let pace = if drawing.last { "" } else { &pace };
    // Half of it is to fetch and half to unpack: what was fetched alone would stand at its end for long.
    let label = format!("{:19}", format!("{complete}/{} layers", blobs.len()));
    rows.push(row(width, &label, work / 2, all, pace));
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

/// A bar with numbers, and `behind` behind it where there is room.
fn row(width: usize, label: &str, have: u64, all: u64, behind: &str) -> String {
    let numbers = format!("{:>9} / {:>9}", size(have), size(all));
    let free = width.saturating_sub(label.len() + numbers.len() + 5);
    let (bar, behind) = match free.checked_sub(behind.len()) {
        Some(bar) if bar >= 8 => (bar.min(60), behind),
        _ => (free.min(60), ""),
    };
    let filled = if all == 0 { bar } else { (have as f64 / all as f64 * bar as f64) as usize };
    let filled = filled.min(bar);
    format!("{label} [{}{}] {numbers}{behind}", "#".repeat(filled), " ".repeat(bar - filled))
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
        let filled = |have| row(60, "x", have, 2, "").matches('#').count();
        assert_eq!(filled(1), filled(2) / 2);
        assert!(row(10, "label", 1, 0, " behind").contains("label"));
        assert!(row(60, "label", 1, 2, " behind").ends_with(" behind"));
        assert_eq!([time(0.2), time(99.0), time(600.0), time(7200.0)], ["1 s", "99 s", "10 min", "2 h"]);
    }

    #[test]
    fn a_pace_is_that_of_the_last_seconds() {
        let mut pace = Pace { samples: VecDeque::new() };
        let begin = Instant::now();
        let mut at = |seconds, received, left| {
            pace.at(begin + Duration::from_secs(seconds), received, 2 * received, left)
        };
        assert_eq!(at(0, 0, 100_000_000), "");
        assert_eq!(at(2, 20_000_000, 60_000_000), " 10.0 MB/s, 3 s left");
        // What was fast long ago does not count.
        assert_eq!(at(20, 20_000_000, 60_000_000), "");
        assert_eq!(at(22, 22_000_000, 56_000_000), " 1.0 MB/s, 28 s left");
        // Nothing comes any more, and nobody knows for how long.
        assert_eq!(at(30, 22_000_000, 56_000_000), "");
        assert_eq!(at(34, 22_000_000, 56_000_000), " 0 B/s");
    }
}
