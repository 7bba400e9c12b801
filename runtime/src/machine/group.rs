//! Who takes part in a collective, and which part of a row belongs to whom.

use super::Span;
use roundelay_schedule::{AxisId, Group, Id, Place, Schedule};
use std::ops::Range;

/// A member of an instance of a group.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Number of the coordinate.
    pub(crate) coordinate: usize,
    pub(crate) place: Place,
}

/// Members of every instance of a group, in group order.
pub(crate) type Members = Vec<Vec<Member>>;

/// The instances of a group: one per coordinate of the axes that it does not run along.
pub(crate) fn members(schedule: &Schedule, group: &Group) -> Members {
    let coordinates = schedule.coordinates();
    let across: Vec<AxisId> =
        schedule.axes.ids().filter(|axis| !group.axes.contains(axis)).collect();
    let is_first = |c: &&Vec<u32>| group.axes.iter().all(|axis| c[axis.index()] == 0);
    let same = |one: &[u32], other: &[u32]| {
        across.iter().all(|axis| one[axis.index()] == other[axis.index()])
    };
    let instance = |first: &Vec<u32>| {
        let own = coordinates.iter().enumerate().filter(|(_, c)| same(first, c));
        let at = |coordinate: usize| {
            let places = group.places.iter();
            places.map(move |place| Member { coordinate, place: *place })
        };
        own.flat_map(|(number, _)| at(number)).collect()
    };
    coordinates.iter().filter(is_first).map(instance).collect()
}

/// Bytes of part `index` of a row of `length` bytes in `count` parts, at whole elements.
pub(crate) fn part(length: u64, count: usize, index: usize, element: u64) -> Range<u64> {
    let elements = length / element;
    let cut = |index: usize| elements * index as u64 / count as u64 * element;
    cut(index)..cut(index + 1)
}

/// Where a part is in a member's row: the row holds the whole of `length`, or the part alone.
pub(crate) fn placed(row: &Span, length: u64, part: &Range<u64>) -> Span {
    if row.len() == length {
        row.part(part.clone())
    } else {
        row.part(0..part.end - part.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_row_at_whole_elements() {
        let parts: Vec<_> = (0..3).map(|index| part(40, 3, index, 4)).collect();
        assert_eq!(parts, [0..12, 12..24, 24..40]);
    }
}
