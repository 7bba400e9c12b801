//! The numbers that a decision is tried with.

use roundelay_dsl::Numbers;
use std::{collections::BTreeSet, ops::RangeInclusive};

/// So many of the first numbers of a range are tried.
pub(super) const FIRST_OF_RANGE: usize = 16;
/// So many numbers of a range are looked at from each of its ends.
const LOOKED_AT: usize = 1 << 16;

/// What is known of a decision's numbers, whether a program names some or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The least and the most that a plan can have.
    pub within: RangeInclusive<u64>,
    /// Which of these can go into a plan.
    pub fitting: Fitting,
    /// Those that are tried where nobody names any.
    pub open: Vec<u32>,
}

/// Which numbers can go into a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fitting {
    All,
    DivisorsOf(u64),
}

impl Fitting {
    pub(super) fn has(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::DivisorsOf(whole) => number > 0 && whole.is_multiple_of(number),
        }
    }
}

impl Known {
    /// The numbers to try. Where none of those that are named fits, they stay, so that the reason why
    /// they are no plan can be told.
    pub(crate) fn tried(&self, numbers: &Numbers) -> Vec<u32> {
        let Numbers::Ranges(ranges) = numbers else { return self.open.clone() };
        let fitting = self.named(ranges, self.fitting);
        if fitting.is_empty() { self.named(ranges, Fitting::All) } else { fitting }
    }

    /// Whether a program names numbers that would fit and are not tried.
    pub(crate) fn leaves_out(&self, numbers: &Numbers) -> bool {
        let Numbers::Ranges(ranges) = numbers else { return false };
        let tried = self.tried(numbers);
        let is_left = |value: u64| tried.binary_search(&number(value)).is_err();
        let fits = |value: &u64| self.fitting.has(*value);
        ranges.iter().any(|range| {
            let mut looked_at = self.clamped(*range).take(LOOKED_AT).filter(fits);
            looked_at.any(is_left)
        })
    }

    /// Of each range its first numbers, its powers of two, those that are tried where nobody names
    /// any, and its last. Law: a longer range has all that a shorter one from the same number on
    /// has, but for the last.
    fn named(&self, ranges: &[(u64, u64)], fitting: Fitting) -> Vec<u32> {
        let fits = |value: &u64| fitting.has(*value);
        let each = ranges.iter().flat_map(|range| {
            let range = self.clamped(*range);
            let first = range.clone().take(LOOKED_AT).filter(fits).take(FIRST_OF_RANGE);
            let last = range.clone().rev().take(LOOKED_AT).find(fits);
            let open = self.open.iter().map(|value| u64::from(*value));
            let known = open.chain(powers_of_two(*range.end()));
            let known = known.filter(|value| range.contains(value)).filter(fits);
            let known: Vec<u64> = known.collect();
            first.chain(last).chain(known).collect::<Vec<u64>>()
        });
        sorted(each)
    }

    /// What of a range a plan can have; of one that lies above, its least number.
    fn clamped(&self, (least, most): (u64, u64)) -> RangeInclusive<u64> {
        let least = least.max(*self.within.start());
        least..=most.min(*self.within.end()).max(least)
    }
}

/// Numbers to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// Nobody names any.
    Open,
    Listed(Vec<u32>),
}

impl Tried {
    pub(super) fn new(numbers: &Numbers, known: &Known) -> Self {
        match numbers {
            Numbers::Open => Self::Open,
            Numbers::Ranges(_) => Self::Listed(known.tried(numbers)),
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

/// The largest that finds a device each.
pub(super) fn largest(devices: u64, fitting: Fitting) -> Option<u64> {
    (1..=devices).rev().find(|all| fitting.has(*all))
}

/// What divides a number: itself, and all that are not very large.
pub(super) fn divisors_of(number: u64) -> impl Iterator<Item = u64> {
    let divides = move |part: &u64| number.is_multiple_of(*part);
    (1..=number.min(LOOKED_AT as u64)).filter(divides).chain([number])
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Law: a wider bound takes nothing away but its last number, and a range has what is tried where
    /// nothing is named.
    #[test]
    fn a_wider_range_has_what_a_narrower_one_has() {
        for fitting in [Fitting::All, Fitting::DivisorsOf(5040)] {
            let fits = |value: &u32| fitting.has((*value).into());
            let open: Vec<u32> = [1, 7, 21, 40, 63].into_iter().filter(fits).collect();
            let known = Known { within: 1..=70, fitting, open };
            let tried = |least, most| known.tried(&Numbers::Ranges(vec![(least, most)]));
            let has_some = |(least, most): &(u64, u64)| {
                (*least..=(*most).min(70)).any(|value| fitting.has(value))
            };
            for (least, most) in (1..60)
                .flat_map(|low| (low..80).map(move |top| (low, top)))
                .filter(has_some)
            {
                let wider = tried(least, most + 1);
                let (last, kept) = tried(least, most)
                    .split_last()
                    .map(|(last, kept)| (*last, kept.to_vec()))
                    .expect("a range is never empty");
                assert!(
                    kept.iter().all(|value| wider.contains(value)),
                    "{least} .. {most}"
                );
                let open = known
                    .open
                    .iter()
                    .filter(|value| (least..=most).contains(&u64::from(**value)));
                assert!(
                    open.into_iter().all(|value| *value == last || kept.contains(value))
                );
            }
        }
    }

    #[test]
    fn what_a_range_leaves_out_is_known() {
        let known = Known { within: 1..=70, fitting: Fitting::All, open: vec![1, 24] };
        let leaves_out =
            |ranges: &[(u64, u64)]| known.leaves_out(&Numbers::Ranges(ranges.to_vec()));
        assert!(!known.leaves_out(&Numbers::Open) && !leaves_out(&[(3, 18)]));
        assert!(leaves_out(&[(3, 20)]) && leaves_out(&[(3, u64::MAX)]));
        let each: Vec<(u64, u64)> = (3..=40).map(|value| (value, value)).collect();
        assert!(!leaves_out(&each) && !leaves_out(&[(90, u64::MAX)]));
        let known = Known { fitting: Fitting::DivisorsOf(64), ..known };
        assert!(!known.leaves_out(&Numbers::Ranges(vec![(1, u64::MAX)])));
    }
}
