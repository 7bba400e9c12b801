//! Sets of bytes, as sorted disjoint ranges.

use std::ops::Range;

/// A set of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range; ranges that touch become one.
    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|own| own.end < range.start);
        let last = self.0.partition_point(|own| own.start <= range.end);
        let merged = self.0[first..last]
            .iter()
            .fold(range, |all, own| all.start.min(own.start)..all.end.max(own.end));
        self.0.splice(first..last, [merged]);
    }

    /// The ranges, in order.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Range<u64>> {
        self.0.iter()
    }

    /// Whether every byte of `range` is inside.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        let next = self.0.partition_point(|own| own.end < range.end);
        let holds = |own: &Range<u64>| own.start <= range.start;
        range.is_empty() || self.0.get(next).is_some_and(holds)
    }

    /// Whether some byte of `range` is inside.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        let next = self.0.partition_point(|own| own.end <= range.start);
        !range.is_empty() && self.0.get(next).is_some_and(|own| own.start < range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_bytes_agrees_with_a_table_of_flags() {
        let mut seed = 1u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (mut set, mut flags) = (Ranges::default(), [false; 40]);
            for _ in 0..12 {
                let start = draw(40);
                let range = start..start + draw(41 - start);
                let own = &flags[range.start as usize..range.end as usize];
                assert_eq!(set.covers(&range), own.iter().all(|flag| *flag));
                assert_eq!(set.meets(&range), own.iter().any(|flag| *flag));
                flags[range.start as usize..range.end as usize].fill(true);
                set.add(range);
            }
        }
    }
}
