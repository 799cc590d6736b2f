//! Where the program begins: what the standard library does before `main`, less what a process that lives for
//! a millisecond has no use for (a guard page's signal handlers, an alternate stack, names of threads).

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

const PAGE: usize = 4096;

static ARGS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Defines the C `main` of a binary, which runs `$main` and ends with its exit code. `$allocator` is its allocator.
#[macro_export]
macro_rules! entry {
    ($main:path, $allocator:path) => {
        // SAFETY: the C library calls this name, and a binary without a main of Rust's has no other.
        #[unsafe(no_mangle)]
        extern "C" fn main(count: i32, words: *const *const std::ffi::c_char) -> i32 {
            // SAFETY: these are what the C library passes to main, before anything else runs.
            unsafe { $crate::start::begin(count, words, (&raw const $allocator).addr()) };
            $crate::process::exit_now($main().into())
        }
    };
}

pub use entry;

/// Keeps the arguments, ignores SIGPIPE and sees to it that the descriptors 0 to 2 are open, so that no file
/// opened later is taken for a standard stream. `memory` is where the allocator takes from.
///
/// # Safety
///
/// `words` must be `count` pointers to C strings that are never freed, and the process must have one thread.
pub unsafe fn begin(count: i32, words: *const *const libc::c_char, memory: usize) {
    protect_constants();
    prefault(memory);
    // SAFETY: as the caller promises.
    let word = |n: usize| OsStr::from_bytes(unsafe { CStr::from_ptr(*words.add(n)) }.to_bytes()).to_owned();
    let _ = ARGS.set((0..usize::try_from(count).unwrap_or(0)).map(word).collect());
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: SIG_IGN is a valid handler; `streams` lives over the call and its length is given.
    let closed = unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::poll(streams.as_mut_ptr(), 3, 0) > 0
    };
    if closed {
        for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
            // SAFETY: the path is a C string. The lowest free number is taken, which is the stream's.
            if unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } < 0 {
                super::process::exit_now(1);
            }
        }
    }
}

/// Makes read-only what is constant once the program is loaded (the ELF segment PT_GNU_RELRO): pointers to functions among
/// it. glibc does so by itself, musl only in programs that are linked dynamically.
pub fn protect_constants() {
    extern "C" fn protect(object: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> i32 {
        // SAFETY: dl_iterate_phdr(3) passes an object, whose program headers are in its memory.
        let (base, headers) = unsafe {
            let object = &*object;
            (
                object.dlpi_addr as usize,
                std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()),
            )
        };
        if let Some(constants) = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO) {
            let begin = base + constants.p_vaddr as usize;
            let (first, end) = (begin & !(PAGE - 1), (begin + constants.p_memsz as usize) & !(PAGE - 1));
            // SAFETY: the linker has put nothing else on these pages that is written. What is refused, as with larger
            // pages, changes nothing.
            unsafe { libc::mprotect(first as *mut libc::c_void, end.saturating_sub(first), libc::PROT_READ) };
        }
        // The first object is the program.
        1
    }
    // SAFETY: the function is called during this call only, and has no data.
    unsafe { libc::dl_iterate_phdr(Some(protect), std::ptr::null_mut()) };
}

/// Has the kernel map in two calls what every start would touch in eight page faults: the stack, and the first of the
/// allocator's memory. A page that is not used costs as much as half a page fault.
///
/// It is a hint: kernels before 5.14 do not know it, and what is not there is left out.
fn prefault(memory: usize) {
    let here = 0u8;
    populate(&raw const here as usize - 4 * PAGE, 4);
    populate(memory, 4);
}

/// The same for what reading and using `text`, the allocator's newest block, will take: some times its length.
pub fn prefault_after(text: &[u8]) {
    let pages = (4 * text.len() / PAGE).min(32);
    // A short one has been seen to.
    if pages > 8 {
        populate(text.as_ptr_range().end as usize, pages);
    }
}

fn populate(address: usize, pages: usize) {
    let address = (address & !(PAGE - 1)) as *mut libc::c_void;
    // SAFETY: no memory is changed; a page that the process may not have is refused.
    unsafe { libc::madvise(address, pages * PAGE, libc::MADV_POPULATE_WRITE) };
}

/// The words of the command line, the program's name first.
pub fn args() -> Vec<OsString> {
    ARGS.get().cloned().unwrap_or_else(|| std::env::args_os().collect())
}

/// Where this program is, or the file of which it is a copy in memory.
pub fn program() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    let name = path.to_str().and_then(|path| path.strip_prefix("/memfd:")?.strip_suffix(" (deleted)"));
    Some(name.map(PathBuf::from).unwrap_or(path))
}

/// The path that this program was executed by (getauxval(3), `AT_EXECFN`).
pub fn exec_path() -> Option<&'static OsStr> {
    // SAFETY: the kernel's value is null or a C string that lives as long as the process.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) as *const libc::c_char };
    if path.is_null() {
        return None;
    }
    // SAFETY: as above.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}
