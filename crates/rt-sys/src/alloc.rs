//! An allocator for processes that live for a millisecond: take from the front, give nothing back.
//!
//! musl's own asks the kernel for a page at a time. This one serves the first 512 KiB from memory that
//! the executable has anyway, and leaves everything after that, and everything large, to the system. Its
//! numbers need no atomic instructions, since one thread alone has the arena: the first that allocates, which is
//! the only one of the programs that use it. Any other thread's blocks are the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

const ARENA: usize = 512 * 1024;
/// A larger block is the system's.
const LARGEST: usize = ARENA / 8;

/// The allocator; one per program. Its numbers stand in front of the arena, on a page that the kernel has
/// prepared with the executable's data; behind the arena they would take a page of their own.
#[repr(C)]
pub struct Bump {
    used: Cell<usize>,
    /// Where the newest block begins, plus one; 0 where it cannot be taken back. All of this is zero at first,
    /// so that the arena costs nothing in the executable.
    last: Cell<usize>,
    /// The thread that has the arena (pthread_self(3)); 0 until one allocates.
    owner: AtomicUsize,
    arena: UnsafeCell<MaybeUninit<[u8; ARENA]>>,
}

// SAFETY: the cells and the arena's free part are used by one thread alone ([`Bump::is_mine`]). The blocks are disjoint, and
// belong to whom they were given.
unsafe impl Sync for Bump {}

impl Bump {
    /// An empty arena.
    #[expect(clippy::new_without_default, reason = "it is only for statics")]
    pub const fn new() -> Self {
        Bump {
            arena: UnsafeCell::new(MaybeUninit::uninit()),
            owner: AtomicUsize::new(0),
            used: Cell::new(0),
            last: Cell::new(0),
        }
    }

    /// True for the thread that has the arena, or gets it now. It has it to the end: the first thread of a program to allocate
    /// is its main thread, so no later one has the same number.
    fn is_mine(&self) -> bool {
        // SAFETY: it takes nothing and changes nothing.
        let this = unsafe { libc::pthread_self() } as usize;
        match self.owner.load(Ordering::Relaxed) {
            0 => self.owner.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
            owner => owner == this,
        }
    }

    fn base(&self) -> *mut u8 {
        self.arena.get().cast()
    }

    fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = (block as usize).wrapping_sub(self.base() as usize);
        (offset < ARENA).then_some(offset)
    }
}

// SAFETY: blocks are disjoint parts of the arena, aligned as asked, or the system's. A block is given back to
// whom it came from, which its address tells.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.is_mine() {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.alloc(layout) };
        }
        let base = self.base() as usize;
        let start = (base + self.used.get()).next_multiple_of(layout.align()) - base;
        if layout.size() > LARGEST || start + layout.size() > ARENA {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.alloc(layout) };
        }
        self.used.set(start + layout.size());
        self.last.set(start + 1);
        // SAFETY: start + size is inside the arena.
        unsafe { self.base().add(start) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.offset(block) {
            // SAFETY: the block came from the system.
            None => unsafe { System.dealloc(block, layout) },
            // Only the newest block can be taken back, and only by its own thread.
            Some(start) if self.is_mine() && start + 1 == self.last.get() => {
                self.used.set(start);
                self.last.set(0);
            }
            Some(_) => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match self.offset(block) {
            // SAFETY: the block came from the system.
            None => unsafe { System.realloc(block, layout, size) },
            // A vector that grows at the end of the arena grows in place.
            Some(start)
                if self.is_mine()
                    && start + 1 == self.last.get()
                    && size <= LARGEST
                    && start + size <= ARENA =>
            {
                self.used.set(start + size);
                block
            }
            Some(_) => {
                // SAFETY: the caller promises that `size`, rounded up to the alignment, does not overflow.
                let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
                // SAFETY: the new block is disjoint from the old, and both hold at least the smaller size.
                unsafe {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_and_keep_what_they_hold() {
        let bump = Box::new(Bump::new());
        let layout = Layout::from_size_align(100, 64).unwrap();
        // SAFETY: the layouts are not empty, and each block is used within its size.
        unsafe {
            let a = bump.alloc(layout);
            let b = bump.alloc(layout);
            assert!((a as usize).is_multiple_of(64) && b as usize >= a as usize + 100);
            a.write_bytes(1, 100);
            b.write_bytes(2, 100);
            let grown = bump.realloc(a, layout, 5000);
            assert_eq!(grown.add(99).read(), 1);
            assert_eq!(b.read(), 2);
            let large = bump.alloc(Layout::from_size_align(ARENA, 8).unwrap());
            assert!(bump.offset(large).is_none());
            bump.dealloc(large, Layout::from_size_align(ARENA, 8).unwrap());
            let used = bump.used.get();
            let last = bump.alloc(layout);
            bump.dealloc(last, layout);
            assert!(bump.used.get() <= used + 64);
        }
    }

    #[test]
    fn other_threads_have_no_part_of_the_arena() {
        let bump = Box::new(Bump::new());
        let layout = Layout::from_size_align(64, 8).unwrap();
        // SAFETY: the layouts are not empty, and each block is used within its size, by one thread at a time.
        unsafe {
            let own = bump.alloc(layout);
            own.write_bytes(3, 64);
            let (used, own) = (bump.used.get(), own as usize);
            let bump = &*bump;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let other = bump.alloc(layout);
                    assert!(bump.offset(other).is_none());
                    // A block of the arena that was handed over: it moves to the system, and its old place is not taken back.
                    let grown = bump.realloc(own as *mut u8, layout, 128);
                    assert!(bump.offset(grown).is_none() && grown.add(63).read() == 3);
                    bump.dealloc(grown, Layout::from_size_align(128, 8).unwrap());
                    bump.dealloc(other, layout);
                });
            });
            assert_eq!(bump.used.get(), used);
        }
    }
}
