//! Combinations that are no plan to try: how many there are, and the one that came furthest, by
//! family and reason.

use crate::space::{counts::Counts, equal::Superior, family::Family, reason::Reason};
use std::collections::BTreeMap;

/// Combinations of one family that are no plan for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Excluded {
    /// The decisions without a number.
    pub family: Family,
    /// The numbers of the one that came furthest.
    pub sizes: Sizes,
    /// Why that one is no plan.
    pub reason: Reason,
    /// How many there are.
    pub number: u64,
}

/// The numbers of an exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sizes {
    /// All that are tried.
    All,
    /// These.
    One(Counts),
}

/// A group of exclusions: those of one reason, told apart where it has no number of its own. Those of
/// one family differ in the reason, so that comes first.
type Group = (&'static str, Option<Told>, Family);

/// What tells exclusions of one reason apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    By(Superior),
    In(String),
}

/// Exclusions while they are gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exclusions {
    /// Where each group stands.
    places: BTreeMap<Group, usize>,
    groups: Vec<Excluded>,
    /// The group that was added to last, for the next one is nearly always of it.
    last: Option<(Group, usize)>,
}

impl Exclusions {
    /// Counts some combinations; keeps the numbers of the one that came furthest.
    pub(crate) fn add(
        &mut self,
        (family, sizes): (Family, Sizes),
        reason: &Reason,
        number: u64,
    ) {
        let told = match reason {
            Reason::Equal(superior) => Some(Told::By(*superior)),
            Reason::Refused(text)
            | Reason::WrongCuts(text)
            | Reason::WrongLists(text) => Some(Told::In(text.clone())),
            _ => None,
        };
        let new = || Excluded { family, sizes, reason: reason.clone(), number: 0 };
        let place = self.place((reason.name(), told, family), new);
        let known = &mut self.groups[place];
        known.number += number;
        if rank(reason, sizes) < rank(&known.reason, known.sizes) {
            *known = Excluded { number: known.number, ..new() };
        }
    }

    /// Where a group stands, a new one last.
    fn place(&mut self, group: Group, new: impl FnOnce() -> Excluded) -> usize {
        match &self.last {
            Some((last, place)) if *last == group => *place,
            _ => {
                let end = self.groups.len();
                let place = *self.places.entry(group.clone()).or_insert(end);
                if place == end {
                    self.groups.push(new());
                }
                self.last = Some((group, place));
                place
            }
        }
    }

    /// Adds others.
    pub(crate) fn extend(&mut self, others: Self) {
        for place in others.places.into_values() {
            let own = &others.groups[place];
            self.add((own.family, own.sizes), &own.reason, own.number);
        }
    }

    /// How many combinations there are of each reason, by its name.
    pub(crate) fn numbers(&self) -> BTreeMap<&'static str, u64> {
        let mut numbers = BTreeMap::new();
        for ((reason, ..), place) in &self.places {
            *numbers.entry(*reason).or_default() += self.groups[*place].number;
        }
        numbers
    }

    /// All groups, in order of family.
    pub(crate) fn into_all(self) -> Vec<Excluded> {
        let Self { places, groups, .. } = self;
        let mut order: Vec<usize> = places.into_values().collect();
        // Groups of a family stay in their order.
        order.sort_by_key(|place| groups[*place].family);
        order.into_iter().map(|place| groups[place].clone()).collect()
    }
}

/// How far a combination is from being a plan; less is nearer.
fn rank(reason: &Reason, sizes: Sizes) -> (u64, u32) {
    let all = match sizes {
        Sizes::All => 0,
        Sizes::One(counts) => counts.all_micro_batches(),
    };
    (reason.lacking(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Order, Placement, Rule};

    #[test]
    fn a_group_is_found_again_behind_others() {
        let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 2, 2);
        let family = Family::from(&plan);
        let earlier = Family { placement: Placement::Data, ..family };
        let mut all = Exclusions::default();
        for (own, number) in [(family, 1), (earlier, 2), (family, 4), (family, 8)] {
            all.add((own, Sizes::All), &Reason::OneReplica, number);
        }
        let numbers = all.into_all().into_iter().map(|own| (own.family, own.number));
        assert_eq!(numbers.collect::<Vec<_>>(), [(earlier, 2), (family, 13)]);
    }

    #[test]
    fn one_group_keeps_its_nearest_and_counts_all() {
        let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 2, 2);
        let family = Family::from(&plan);
        let mut all = Exclusions::default();
        for (needed, number) in [(9, 2), (5, 1), (7, 3)] {
            let counts = Counts { stages: needed, ..Counts::from(&plan) };
            let reason = Reason::TooFewDevices { needed, available: 4 };
            all.add((family, Sizes::One(counts)), &reason, number);
        }
        for superior in [Superior::NoLag, Superior::NoOverlap] {
            all.add((family, Sizes::All), &Reason::Equal(superior), 1);
        }
        let earlier = Family { rule: Rule::Sync, placement: Placement::Data, ..family };
        assert!(earlier < family);
        all.add((earlier, Sizes::All), &Reason::OneReplica, 5);
        assert_eq!(all.numbers().values().sum::<u64>(), 13);
        let found = all.into_all();
        assert_eq!(found.len(), 4);
        assert!(found.is_sorted_by_key(|own| (own.family, own.reason.name())));
        let devices = found.iter().find(|e| e.reason.name() == "too_few_devices");
        let devices = devices.expect("one group is about devices");
        assert_eq!(devices.number, 6);
        assert_eq!(devices.reason, Reason::TooFewDevices { needed: 5, available: 4 });
    }
}
