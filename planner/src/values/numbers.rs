//! The numbers that a range stands for.

use roundelay_dsl::Numbers;
use std::collections::BTreeSet;

/// Ranges with more values than this are thinned out to their ends and powers of two.
const RANGE_VALUES: usize = 16;
/// Longer ranges are not even listed.
const LONG_RANGE: u64 = 4096;

/// Numbers to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// Nobody names any.
    Open,
    Listed(Vec<u32>),
}

impl Tried {
    /// Those that a program names, up to `most`.
    pub(super) fn new(numbers: &Numbers, most: u64) -> Self {
        match numbers {
            Numbers::Open => Self::Open,
            Numbers::Ranges(ranges) => Self::Listed(thinned(listed(ranges, most))),
        }
    }

    /// Those that are named; none where they are open.
    pub(super) fn named(&self) -> &[u32] {
        match self {
            Self::Open => &[],
            Self::Listed(values) => values,
        }
    }
}

/// The numbers of the ranges up to `most`; ranges that lie above keep their least number, so
/// that the reason why it is no plan can be told. Of a very long range only its ends and its
/// powers of two.
pub(super) fn listed(ranges: &[(u64, u64)], most: u64) -> Vec<u32> {
    let each = ranges.iter().flat_map(|(least, end)| {
        let least = (*least).max(1);
        let end = (*end).min(most).max(least);
        let whole = if end - least <= LONG_RANGE { least..=end } else { end..=end };
        let powers = powers_of_two(end).filter(move |value| *value >= least);
        whole.chain([least]).chain(powers)
    });
    sorted(each)
}

/// What divides a number: itself, and all that are not very large.
pub(super) fn divisors_of(number: u64) -> impl Iterator<Item = u64> {
    let divides = move |part: &u64| number.is_multiple_of(*part);
    (1..=number.min(LONG_RANGE)).filter(divides).chain([number])
}

/// Of many values only the ends and the powers of two.
pub(crate) fn thinned(values: Vec<u32>) -> Vec<u32> {
    let ends = [values.first().copied(), values.last().copied()];
    match values.len() > RANGE_VALUES {
        true => values
            .into_iter()
            .filter(|value| value.is_power_of_two() || ends.contains(&Some(*value)))
            .collect(),
        false => values,
    }
}

pub(super) fn powers_of_two(most: u64) -> impl Iterator<Item = u64> {
    (0..u64::BITS - 1).map(|power| 1 << power).take_while(move |value| *value <= most)
}

pub(super) fn sorted(values: impl Iterator<Item = u64>) -> Vec<u32> {
    let unique: BTreeSet<u64> = values.collect();
    unique.into_iter().map(number).collect()
}

pub(super) fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
