//! First fit: the lowest place in memory where something meets nothing that is there.

use roundelay_schedule::Bytes;

/// Buffers, and arrays inside of them, start at multiples of this many bytes: the widest vector
/// register, and a cache line.
pub(crate) const ALIGNMENT: u64 = 64;

/// A range of memory: its first byte, and one past its last.
pub(crate) type Taken = (Bytes, Bytes);

/// The lowest offset from `start` on at which so many bytes meet nothing that is taken.
pub(crate) fn lowest_gap(start: Bytes, size: Bytes, taken: &mut [Taken]) -> Bytes {
    taken.sort_unstable();
    let mut lowest = start;
    for &mut (first, end) in taken {
        if lowest + size <= first {
            break;
        }
        lowest = lowest.max(end.align_up(ALIGNMENT));
    }
    lowest
}
