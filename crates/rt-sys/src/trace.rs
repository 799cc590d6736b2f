//! Where the time of a start goes: the ends of its phases, which the runtime and init note in memory that both see.
//!
//! Nothing is noted, and nothing is there, unless [`start`] was called: a note is then one comparison.

use crate::error::{Context, Result};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The notes, in memory that a child shares also where it has a copy of all other memory.
struct Area {
    count: AtomicUsize,
    notes: [Slot; SLOTS],
}

const SLOTS: usize = 120;

struct Slot {
    /// What [`Note`] has: kind, index and failure, and the two times.
    what: AtomicU64,
    from: AtomicU64,
    to: AtomicU64,
}

static AREA: AtomicPtr<Area> = AtomicPtr::new(null_mut());

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// A number of the caller's: a phase, or the stage of a hook.
    pub kind: u8,
    /// Which of its kind: the hook's place among those of its stage.
    pub index: u8,
    /// It is a hook, and has failed.
    pub failed: bool,
    /// When it began, in nanoseconds of CLOCK_MONOTONIC; 0 where it is the end of what was noted before.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// Begins to take notes.
pub fn start() -> Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: new memory is asked for, wherever the kernel has room.
    let base = unsafe { libc::mmap(null_mut(), size_of::<Area>(), protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error()).context(|| "make memory for the trace");
    }
    AREA.store(base.cast(), Ordering::Relaxed);
    Ok(())
}

fn area() -> Option<&'static Area> {
    let area = AREA.load(Ordering::Relaxed);
    // SAFETY: null, or what `start` has mapped and nothing unmaps. Zeroes are valid, and all of it is atomic.
    unsafe { area.as_ref() }
}

/// The time, where notes are taken.
pub fn now() -> Option<u64> {
    area().map(|_| clock())
}

#[cold]
fn clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Notes that the phase `kind` has ended.
#[inline]
pub fn phase(kind: u8) {
    if let Some(area) = area() {
        area.note(Note { kind, index: 0, failed: false, from: 0, to: clock() });
    }
}

/// Notes a hook that began at `from`, what [`now`] said then.
pub fn hook(kind: u8, index: usize, from: Option<u64>, failed: bool) {
    if let (Some(area), Some(from)) = (area(), from) {
        area.note(Note { kind, index: index.min(255) as u8, failed, from, to: clock() });
    }
}

impl Area {
    #[cold]
    fn note(&self, note: Note) {
        // What finds no room is left out.
        let Some(slot) = self.notes.get(self.count.fetch_add(1, Ordering::Relaxed)) else { return };
        let what = u64::from(note.kind) | u64::from(note.index) << 8 | u64::from(note.failed) << 16;
        slot.from.store(note.from, Ordering::Relaxed);
        slot.to.store(note.to, Ordering::Relaxed);
        slot.what.store(what, Ordering::Relaxed);
    }
}

/// All notes, in the order in which they were taken.
pub fn notes() -> Vec<Note> {
    let Some(area) = area() else { return Vec::new() };
    let count = area.count.load(Ordering::Relaxed).min(SLOTS);
    let read = |slot: &Slot| {
        let what = slot.what.load(Ordering::Relaxed);
        let (from, to) = (slot.from.load(Ordering::Relaxed), slot.to.load(Ordering::Relaxed));
        Note { kind: what as u8, index: (what >> 8) as u8, failed: what >> 16 & 1 == 1, from, to }
    };
    area.notes[..count].iter().map(read).collect()
}
