//! What a text takes of memory: an allocator that counts.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Bytes that one text may take at most, whatever numbers stand in it: the checker's declared
/// limits for the rows of a file, and the parser's for a program.
pub(crate) const MOST: i64 = 256 << 20;

/// The system's allocator, which counts what each thread holds.
struct Counting;

thread_local! {
    /// Bytes that this thread holds, and the most that it held.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn count(bytes: i64) {
    // A thread that ends has no counter any more.
    let _ = HELD.try_with(|held| {
        let now = held.get().0 + bytes;
        held.set((now, held.get().1.max(now)));
    });
}

// SAFETY: all work is the system allocator's; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that were held at once above those held before.
pub(crate) fn peak(work: impl FnOnce()) -> i64 {
    let before = HELD.get().0;
    HELD.set((before, before));
    work();
    HELD.get().1 - before
}
