//! System calls that wait, and that a checkpoint has fail with EINTR, which programs without signal handlers do not expect.
//!
//! criu writes that failure into the image and into the program where the kernel would have gone on by a note of its own
//! (restart_syscall(2)); some calls the kernel itself ends so. They are made anew, in the image and in a program that goes on: what waits
//! until a time does so until then, and what waits for a time for what is left of it where the kernel has told the program, else for
//! all of it. This is for x86-64. On aarch64 the kernel has the registers made for the call once more before a tracer sees them.

use super::image::Image;
use super::numbers::{self, Change};
use super::processes::{self, Tree};
use super::stops::{STOPS_WITHIN, stops_before};
use rt_sys::error::Result;
use rt_sys::inject::Held;
use std::ops::Range;
use std::time::Instant;

/// How long a file of a thread may be, in bytes.
const MOST: usize = 1 << 20;
/// CoreEntry.thread_info.gpregs (core.proto), a thread's registers on x86-64, and of those (core-x86.proto) what a system call returns,
/// its number, where the next instruction is, and whether they are of 32 bits.
const REGISTERS: [u64; 2] = [2, 2];
const AX: u64 = 11;
const ORIG_AX: u64 = 16;
const IP: u64 = 17;
const MODE: u64 = 28;
const COMPAT: u64 = 2;
/// CoreEntry.thread_core.blk_sigset and .tc.blk_sigset: the signals that are blocked.
const BLOCKED: [[u64; 2]; 2] = [[5, 6], [3, 5]];
/// CoreEntry.thread_core.signals_p.signals.siginfo and .tc.signals_s.signals.siginfo: those that wait for the thread, and for its process. The
/// number of a signal comes first (sigaction(2)).
const PENDING: [[u64; 4]; 2] = [[5, 9, 1, 1], [3, 10, 1, 1]];
/// The first four arguments: di, si, dx and r10.
const ARGUMENTS: [u64; 4] = [15, 14, 13, 8];
/// The instruction that makes a call, in bytes.
const INSTRUCTION: u64 = 2;
const INTERRUPTED: u64 = -libc::EINTR as u64;

const POLL: u64 = 7;
const NANOSLEEP: u64 = 35;
const FUTEX: u64 = 202;
const CLOCK_NANOSLEEP: u64 = 230;
const EPOLL_WAIT: u64 = 232;
const EPOLL_PWAIT: u64 = 281;
const EPOLL_PWAIT2: u64 = 441;

/// An argument that another one takes the place of.
#[derive(Debug, PartialEq, Eq)]
struct Moved {
    from: usize,
    to: usize,
}

/// Whether a call is made anew, and with which argument in the place of another: where a sleep has been told to write the rest of its
/// time, that is the time.
fn anew(number: u64, args: [u64; 4]) -> Option<Option<Moved>> {
    let rest = |from: usize, to| (args[from] != 0).then_some(Moved { from, to });
    match number {
        POLL | FUTEX | EPOLL_WAIT | EPOLL_PWAIT | EPOLL_PWAIT2 => Some(None),
        NANOSLEEP => Some(rest(1, 0)),
        CLOCK_NANOSLEEP if args[1] & libc::TIMER_ABSTIME as u64 != 0 => Some(None),
        CLOCK_NANOSLEEP => Some(rest(3, 2)),
        _ => None,
    }
}

/// Makes them anew in an image.
pub(super) fn make_anew_in(image: &Image) -> Result<()> {
    numbers::change_each(image, "core-", MOST, |text| change(text))
}

/// Changes the registers of a thread that criu has stopped in such a call, and returns where; `None` where `text` has another form.
fn change(text: &mut [u8]) -> Option<Change> {
    let Some(registers) = numbers::nested(text, numbers::message(text)?, &REGISTERS)?.pop() else {
        return Some(Vec::new());
    };
    let of = |field| numbers::fields(text, registers.clone(), field)?.pop();
    let number = |place: &Range<usize>| numbers::number(text, place.clone());
    let (ax, ip, call) = (of(AX)?, of(IP)?, number(&of(ORIG_AX)?)?);
    let is_compat = of(MODE).is_some_and(|mode| number(&mode) == Some(COMPAT));
    let places = ARGUMENTS.map(of);
    let args = places.clone().map(|place| place.and_then(|place| number(&place)).unwrap_or_default());
    let interrupted = !is_compat && number(&ax)? == INTERRUPTED;
    let Some(moved) = anew(call, args).filter(|_| interrupted) else { return Some(Vec::new()) };
    if has_signal(text)? {
        return Some(Vec::new());
    }
    let before = number(&ip)?.checked_sub(INSTRUCTION)?;
    numbers::replace(&mut text[ax.clone()], call)?;
    numbers::replace(&mut text[ip.clone()], before)?;
    let mut changed = vec![ax, ip];
    if let Some((place, value)) = moved.and_then(|moved| Some((places[moved.to].clone()?, args[moved.from])))
    {
        // One that takes more bytes than there are is left out: the call waits for the whole time.
        let mut bytes = text[place.clone()].to_vec();
        if numbers::replace(&mut bytes, value).is_some() {
            text[place.clone()].copy_from_slice(&bytes);
            changed.push(place);
        }
    }
    Some(changed)
}

/// Whether a signal waits for the thread whose file `text` is, and is not blocked: a handler runs first, and ends the call, as ever.
fn has_signal(text: &[u8]) -> Option<bool> {
    let core = numbers::message(text)?;
    let mut blocked = None;
    for place in BLOCKED {
        let masks = numbers::nested(text, core.clone(), &place)?;
        blocked = blocked.or_else(|| numbers::number(text, masks.last()?.clone()));
    }
    for queue in PENDING {
        for signal in numbers::nested(text, core.clone(), &queue)? {
            let number = u32::from_le_bytes(text.get(signal)?.first_chunk().copied()?);
            let bit = 1u64.checked_shl(number.checked_sub(1)?)?;
            if blocked.is_none_or(|blocked| blocked & bit == 0) {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Makes them anew in the threads of a tree, as far as they are stopped.
///
/// # Errors
/// That of the first thread of which it could not be said. All others have been looked at.
pub(super) fn make_anew(tree: &Tree) -> Result<()> {
    let end = Instant::now() + STOPS_WITHIN;
    let mut made = Ok(());
    for process in &tree.processes {
        for thread in processes::threads(process.pid)? {
            made = made.and(make_thread_anew(process.pid, thread, end));
        }
    }
    made
}

fn make_thread_anew(pid: i32, thread: i32, end: Instant) -> Result<()> {
    // To hold one that is not stopped would itself interrupt it.
    if !stops_before(pid, thread, end)? {
        return Ok(());
    }
    let held = Held::begin(thread)?;
    let Some((number, mut args)) = held.interrupted()? else { return Ok(()) };
    let Some(moved) = anew(number, args) else { return Ok(()) };
    if let Some(moved) = moved {
        args[moved.to] = args[moved.from];
    }
    held.make_again(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EINTR: [u8; 10] = [0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];

    /// A file of criu's of a thread with these registers: r10, ax, dx, si, di, orig_ax, ip and the rest.
    fn core(r10: u8, ax: &[u8], dx: u8, si: &[u8], di: &[u8], call: u8, rest: &[u8]) -> Vec<u8> {
        let registers =
            [&[0x40, r10, 0x58], ax, &[0x68, dx, 0x70], si, &[0x78], di, &[0x80, 1, call], rest].concat();
        file_of(&registers)
    }

    fn file_of(registers: &[u8]) -> Vec<u8> {
        let info = [&[0x12, registers.len() as u8][..], registers].concat();
        let entry = [&[0x08, 1, 0x12, info.len() as u8][..], &info].concat();
        [&[0; numbers::MAGIC][..], &(entry.len() as u32).to_le_bytes(), &entry].concat()
    }

    const IP_AT: [u8; 5] = [0x88, 1, 0x81, 0x80, 0x02];

    #[test]
    fn calls_of_images_are_made_anew() {
        let mut text = core(0, &EINTR, 5, &[1], &[9], 7, &IP_AT);
        let (whole, end) = (text.clone(), text.len());
        assert_eq!(change(&mut text), Some(vec![end - 24..end - 14, end - 3..end]));
        let again = [0x87, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
        assert_eq!((&text[end - 24..end - 14], &text[end - 3..]), (&again[..], &[0xff, 0xff, 0x01][..]));
        assert_eq!(text[end - 14..end - 3], whole[end - 14..end - 3]);
        // One that has come to its end, one of 32 bits, another call, and a thread of another machine.
        let no_signal = [&[0xfb][..], &EINTR[1..]].concat();
        let compat = [&IP_AT[..], &[0xe0, 1, 2]].concat();
        let mut other_machine = file_of(&[]);
        other_machine[numbers::HEAD + 2] = 0x42;
        let others = [
            core(0, &no_signal, 5, &[1], &[9], 7, &IP_AT),
            core(0, &EINTR, 5, &[1], &[9], 7, &compat),
            core(0, &EINTR, 5, &[1], &[9], 0, &IP_AT),
            other_machine,
        ];
        for mut text in others {
            assert_eq!(change(&mut text), Some(Vec::new()));
        }
        assert_eq!(change(&mut text[..end - 1]), None);
    }

    #[test]
    fn signals_that_wait_end_a_call() {
        // Of the process: what is blocked, and a signal with its siginfo.
        let file = |blocked: u8, signal: u8| {
            let info = [0x0a, 4, signal, 0, 0, 0];
            let queue = [&[0x0a, info.len() as u8][..], &info].concat();
            let task = [&[0x28, blocked, 0x52, queue.len() as u8][..], &queue].concat();
            let entry = [&[0x08, 1, 0x1a, task.len() as u8][..], &task].concat();
            [&[0; numbers::MAGIC][..], &(entry.len() as u32).to_le_bytes(), &entry].concat()
        };
        assert_eq!(has_signal(&file(0, 5)), Some(true));
        assert_eq!(has_signal(&file(1 << 4, 5)), Some(false));
        assert_eq!(has_signal(&file(1 << 4, 6)), Some(true));
        assert_eq!(has_signal(&file(0, 0)), None);
        assert_eq!(has_signal(&file_of(&[])), Some(false));
    }

    #[test]
    fn sleeps_of_images_last_for_what_is_left() {
        // nanosleep with a rest that fits into the place of the time, and one that does not.
        let mut text = core(0, &EINTR, 0, &[0x42], &[0x81, 1], 35, &IP_AT);
        let at = text.len() - 10..text.len() - 8;
        assert_eq!(change(&mut text).unwrap().pop(), Some(at.clone()));
        assert_eq!(text[at], [0xc2, 0]);
        let mut text = core(0, &EINTR, 0, &[0x81, 1], &[0x42], 35, &IP_AT);
        let whole = text.clone();
        assert_eq!(change(&mut text).unwrap().len(), 2);
        let end = text.len();
        assert_eq!(text[end - 12..end - 3], whole[end - 12..end - 3]);
    }

    #[test]
    fn what_is_left_of_a_sleep_is_its_time() {
        assert_eq!(anew(NANOSLEEP, [1, 2, 3, 4]), Some(Some(Moved { from: 1, to: 0 })));
        assert_eq!(anew(NANOSLEEP, [1, 0, 3, 4]), Some(None));
        assert_eq!(anew(CLOCK_NANOSLEEP, [0, 0, 3, 4]), Some(Some(Moved { from: 3, to: 2 })));
        assert_eq!(anew(CLOCK_NANOSLEEP, [0, 1, 3, 4]), Some(None), "until a time");
        assert_eq!(anew(CLOCK_NANOSLEEP, [0, 0, 3, 0]), Some(None));
        assert_eq!(anew(POLL, [1, 2, 3, 4]), Some(None));
        assert_eq!(anew(0, [1, 2, 3, 4]), None, "read");
    }
}
