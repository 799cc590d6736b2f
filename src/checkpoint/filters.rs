//! Seccomp filters of a container's programs.
//!
//! criu suspends a filter while it looks at a process, and reads it from the kernel; both take CAP_SYS_ADMIN of the first user
//! namespace. For anybody else criu works under the filter, and `rt`, which has loaded the filters, says what they are: criu's
//! ptrace(2) has a filter of its own, whose listener is here. When criu restores, it loads the filters by seccomp(2), as every
//! program may. Before that, those of the image are compared with the config's.

use super::aside::{self, Runtime};
use super::criu::Opened;
use super::image::Image;
use super::numbers;
use crate::container;
use rt_sys::error::Result;
use rt_sys::notify::{self, Answer, Call, Listener};
use rt_sys::ns::Namespaces;
use rt_sys::process::Child;
use rt_sys::seccomp::{self, Filter};
use rt_sys::{bail, err, process};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

// linux/ptrace.h
const SETOPTIONS: u64 = 0x4200;
const GET_FILTER: u64 = 0x420c;
const GET_METADATA: u64 = 0x420d;

const NAME: &str = "seccomp.img";
/// SeccompEntry.seccomp_filters; SeccompFilter.filter and .prev (images/seccomp.proto of criu).
const FILTERS: u64 = 1;
const FILTER: u64 = 1;
const PREV: u64 = 2;

/// Runs criu, which hears of `filters`, in the order in which they were loaded, and does not suspend them.
pub(super) fn run_criu(
    opened: &Opened,
    args: &[String],
    keep: &[&OwnedFd],
    filters: &[Filter],
    runtime: &Runtime<'_>,
) -> Result<()> {
    let filter = container::criu_filter()?;
    let (mut listener, mut failure) = (None, None);
    // The descriptors are shared until criu is executed, so the listener is this process's, too.
    let child = process::spawn_sharing_descriptors(Namespaces::NONE, || {
        match seccomp::load(&filter) {
            Ok(loaded) => {
                listener = loaded;
                failure = Some(opened.exec(args, keep));
            }
            Err(e) => failure = Some(e),
        }
        1
    })?;
    if let Some(e) = failure {
        process::wait(child.pid)?;
        return Err(e);
    }
    let Some(listener) = listener else { bail!("the kernel gave no listener for criu's calls") };
    let answered = answer_all(&Listener::new(listener), filters, &child, runtime);
    answered.inspect_err(|_| child.kill())?;
    runtime.wait_for(&child)?;
    aside::succeeded(&child, "criu")
}

fn answer_all(listener: &Listener, filters: &[Filter], child: &Child, runtime: &Runtime<'_>) -> Result<()> {
    loop {
        runtime.wait_beside(child, listener)?;
        let Some(call) = listener.receive()? else { return Ok(()) };
        listener.answer(&call, answer(&call, filters))?;
    }
}

/// What ptrace(2) gives to criu.
fn answer(call: &Call, filters: &[Filter]) -> Answer {
    let [request, _, number, buffer, ..] = call.args;
    let write =
        |mut bytes: Vec<u8>, returned: usize| match notify::write_memory(call.thread, buffer, &mut bytes) {
            Ok(()) => Answer::Returned(returned as i64),
            Err(errno) => Answer::Failed(errno),
        };
    match request {
        SETOPTIONS => Answer::Done,
        GET_FILTER => match usize::try_from(number).ok().and_then(|number| filters.get(number)) {
            Some(filter) => write(bytes_of(filter), filter.instructions.len()),
            None => Answer::Failed(Errno::NOENT),
        },
        // An old kernel's answer, which criu takes. The flags that it would hear of are for the log alone.
        GET_METADATA => Answer::Failed(Errno::IO),
        _ => Answer::Continue,
    }
}

/// A filter as `struct sock_filter` has it.
fn bytes_of(filter: &Filter) -> Vec<u8> {
    let bytes = |i: &libc::sock_filter| {
        let ([a, b], [c, d, e, f]) = (i.code.to_ne_bytes(), i.k.to_ne_bytes());
        [a, b, i.jt, i.jf, c, d, e, f]
    };
    filter.instructions.iter().flat_map(bytes).collect()
}

/// Fails unless the filters of an image are `filters`, in the order in which they were loaded, for each process that has any.
/// Whether each has them, the kernel says when the processes are there.
pub(super) fn check_image(image: &Image, filters: &[Filter]) -> Result<()> {
    let shown = || format!("image {}: {NAME}", image.path.display());
    let Some(text) = image.file(NAME)? else { return Ok(()) };
    let expected: Vec<Vec<u8>> = filters.iter().map(bytes_of).collect();
    match is_of(&text, &expected) {
        Some(true) => Ok(()),
        Some(false) => Err(err!("{} has another seccomp filter than the config", shown())
            .hint("the bundle has changed, or another version of rt has made the image")),
        None => bail!("{} is damaged", shown()),
    }
}

/// Whether the filters of a file are chains of `expected`. criu writes the newest of a chain first; each other one names the
/// place of that which comes after it.
fn is_of(text: &[u8], expected: &[Vec<u8>]) -> Option<bool> {
    let filters = numbers::fields(text, numbers::message(text)?, FILTERS)?;
    if expected.is_empty() || filters.len() % expected.len() != 0 {
        return Some(filters.is_empty());
    }
    for (n, filter) in filters.iter().enumerate() {
        let place = n % expected.len();
        let code = numbers::fields(text, filter.clone(), FILTER)?.pop()?;
        let prev = numbers::fields(text, filter.clone(), PREV)?.pop();
        let prev =
            prev.map(|range| numbers::number(text, range)).map_or(Some(None), |prev| prev.map(Some))?;
        let wanted = if place == 0 { None } else { Some(n as u64 - 1) };
        if text[code] != expected[expected.len() - 1 - place][..] || prev != wanted {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these filters, each with the place that it names.
    fn file(filters: &[(&[u8], Option<u8>)]) -> Vec<u8> {
        let mut text = vec![0; 12];
        for (code, prev) in filters {
            let mut filter = vec![0x0a, code.len() as u8];
            filter.extend_from_slice(code);
            filter.extend(prev.map(|prev| [0x10, prev]).into_iter().flatten());
            text.extend([0x0a, filter.len() as u8]);
            text.extend(filter);
        }
        text
    }

    #[test]
    fn chains_are_compared() {
        let expected = [b"first".to_vec(), b"second".to_vec()];
        let of = |filters: &[(&[u8], Option<u8>)]| is_of(&file(filters), &expected);
        let (first, second): (&[u8], &[u8]) = (b"first", b"second");
        let chain = [(second, None), (first, Some(0))];
        assert_eq!(of(&[]), Some(true));
        assert_eq!(of(&chain), Some(true));
        assert_eq!(of(&[chain[0], chain[1], (second, None), (first, Some(2))]), Some(true));
        assert_eq!(of(&[(first, None), (second, Some(0))]), Some(false), "in the other order");
        assert_eq!(of(&[(second, None), (second, Some(0))]), Some(false), "one twice");
        assert_eq!(of(&[(second, None), (first, None)]), Some(false), "a chain of one");
        assert_eq!(
            of(&[chain[0], chain[1], (second, None), (first, Some(0))]),
            Some(false),
            "into another chain"
        );
        assert_eq!(of(&[(first, None)]), Some(false));
        assert_eq!(is_of(&file(&chain), &[]), Some(false), "the config has none");
        assert_eq!(is_of(&file(&[]), &[]), Some(true));
        let whole = file(&chain);
        for cut in 0..whole.len() {
            assert_ne!(is_of(&whole[..cut], &expected), Some(true).filter(|_| cut != 12), "{cut}");
        }
    }
}
