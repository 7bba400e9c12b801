//! Memory of devices and pinned host memory: which addresses are live.
//!
//! Device memory lies in a range of addresses that nothing else has, with unreadable pages
//! between blocks, so that a kernel that leaves its block ends the process.

use crate::forbid;
use std::{collections::BTreeMap, ptr};

/// Where device memory is.
pub(crate) const FIRST: u64 = 0x2000_0000_0000;
const LAST: u64 = 0x2100_0000_0000;

/// Pieces in which memory is mapped.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// What fresh memory holds: no zeros.
const FRESH: u8 = 0xcd;

/// All memory.
pub(crate) struct Memory {
    /// The next address that was never given.
    next: u64,
    /// Live device memory: first byte and number of bytes.
    live: BTreeMap<u64, u64>,
    /// Addresses that are reserved.
    reserved: BTreeMap<u64, u64>,
    /// Physical memory by handle.
    pub(crate) physical: BTreeMap<u64, u64>,
    /// Pinned host memory.
    pinned: BTreeMap<u64, u64>,
    /// Bytes that are left.
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Memory {
    /// A device with this many bytes.
    pub(crate) fn new(total: u64) -> Self {
        Self {
            next: FIRST,
            live: BTreeMap::new(),
            reserved: BTreeMap::new(),
            physical: BTreeMap::new(),
            pinned: BTreeMap::new(),
            free: total,
            total,
        }
    }

    /// Reserves addresses.
    pub(crate) fn reserve(&mut self, bytes: u64) -> u64 {
        let start = self.next;
        let room = bytes.next_multiple_of(GRANULARITY);
        self.next += room + GRANULARITY;
        if self.next > LAST {
            forbid("all addresses are used up");
        }
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: the range is fresh, and the call fails rather than to take used addresses.
        let got = unsafe {
            libc::mmap(start as *mut _, room as usize, libc::PROT_NONE, flags, -1, 0)
        };
        if got as u64 != start {
            forbid("the addresses of device memory are taken");
        }
        self.reserved.insert(start, room);
        start
    }

    /// Gives addresses back.
    pub(crate) fn release(&mut self, start: u64) -> bool {
        let Some(room) = self.reserved.remove(&start) else { return false };
        // SAFETY: the range was mapped by `reserve`, and nothing live is in it.
        unsafe { libc::munmap(start as *mut _, room as usize) == 0 }
    }

    /// Whether a range is reserved.
    pub(crate) fn is_reserved(&self, start: u64, bytes: u64) -> bool {
        within(&self.reserved, start, bytes)
    }

    /// Makes reserved addresses usable.
    pub(crate) fn open(&mut self, start: u64, bytes: u64) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is reserved, and nothing uses it yet.
        unsafe {
            libc::mprotect(start as *mut _, bytes as usize, access);
            ptr::write_bytes(start as *mut u8, FRESH, bytes as usize);
        }
        self.live.insert(start, bytes);
    }

    /// Makes a live block unusable.
    pub(crate) fn close(&mut self, start: u64) -> Option<u64> {
        let bytes = self.live.remove(&start)?;
        // SAFETY: the range is reserved, and no work uses it any more, as the caller has seen.
        unsafe { libc::mprotect(start as *mut _, bytes as usize, libc::PROT_NONE) };
        Some(bytes)
    }

    /// A block of pinned host memory.
    pub(crate) fn pin(&mut self, bytes: usize) -> u64 {
        // SAFETY: any size may be asked for.
        let start = unsafe { libc::malloc(bytes.max(1)) } as u64;
        self.pinned.insert(start, bytes as u64);
        start
    }

    /// Gives a block of pinned host memory back.
    pub(crate) fn unpin(&mut self, start: u64) -> bool {
        let known = self.pinned.remove(&start).is_some();
        if known {
            // SAFETY: it was allocated by `pin`.
            unsafe { libc::free(start as *mut _) };
        }
        known
    }

    /// Whether a range of device memory is live.
    pub(crate) fn is_live(&self, start: u64, bytes: u64) -> bool {
        within(&self.live, start, bytes)
    }

    /// Whether a range of host memory is pinned.
    pub(crate) fn is_pinned(&self, start: u64, bytes: u64) -> bool {
        within(&self.pinned, start, bytes)
    }
}

/// Whether an address is one of device memory, live or not.
pub(crate) fn is_of_device(address: u64) -> bool {
    (FIRST..LAST).contains(&address)
}

fn within(blocks: &BTreeMap<u64, u64>, start: u64, bytes: u64) -> bool {
    let before = blocks.range(..=start).next_back();
    before.is_some_and(|(first, length)| start + bytes <= first + length)
}
