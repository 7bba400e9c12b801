//! The places of a chain between which stages on uneven devices lie: what they take there, how far
//! they come within limits on time and room, and the least of these limits.

use super::Uneven;
use crate::{
    costs::calls::Kinds,
    space::cuts::{
        Chain,
        reach::{Reach, Timely, all_fit},
    },
};
use roundelay_schedule::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// A whole device, and how finely shares of it are told.
pub(super) const WHOLE: u64 = 1 << 10;

/// The places of a chain where stages may begin or end, and what they take between them.
pub(super) struct Places {
    /// The sort of each stage.
    stages: Vec<usize>,
    /// What stages of each sort may take.
    sorts: Vec<Sort>,
    /// Time of everything before each place, on each kind of device that has a stage.
    elapsed: Vec<Vec<Nanos>>,
    /// Bytes that cross there.
    pub(super) crossing: Vec<Bytes>,
    /// Elements of everything before each place.
    held: Vec<u64>,
    /// Where the unit of a local rule begins that ends at each place or goes on there: no stage that
    /// ends there begins before.
    unit: Vec<usize>,
}

/// Stages that take and have room for the same.
struct Sort {
    /// The kinds of their devices, by their number among those that have a stage.
    kinds: Vec<usize>,
    /// For how many elements they have room, where devices differ in memory.
    room: Option<u64>,
    /// The last place where one may end, by the place where it starts, however long it takes.
    bound: Vec<usize>,
}

/// How far devices may be filled where the emptiest cuts fill them so far.
pub(super) fn filled(emptiest: u64) -> u64 {
    emptiest + (WHOLE - emptiest) * 3 / 4
}

impl Places {
    pub(super) fn new(uneven: &Uneven<'_>, chain: &Chain, positions: &[usize]) -> Self {
        let elapsed = |kind: &usize| {
            let mut before = vec![Nanos(0)];
            let mut sum = Nanos(0);
            for time in &uneven.times[*kind] {
                sum += *time;
                before.push(sum);
            }
            positions.iter().map(|at| before[*at]).collect()
        };
        let crosses = |at: &usize| chain.crossing.get(*at).copied().unwrap_or_default();
        let mut held = vec![0];
        for own in uneven.elements {
            held.push(held[held.len() - 1] + own);
        }
        let all = held[held.len() - 1];
        let before = |at: &usize| held.get(*at).copied().unwrap_or(all);
        let used = used(uneven);
        let (stages, sorts) = sorts(uneven, &used);
        Self {
            stages,
            sorts,
            held: positions.iter().map(before).collect(),
            elapsed: used.iter().map(elapsed).collect(),
            crossing: positions.iter().map(crosses).collect(),
            unit: units(chain, positions),
        }
    }

    fn end(&self) -> usize {
        self.crossing.len() - 1
    }

    /// The share of their room that the emptiest cuts take, if it is no less than that among more places;
    /// nothing where they have no room.
    pub(super) fn emptiest(&mut self, wider: Option<u64>) -> Option<u64> {
        let least = wider?;
        if !self.is_limited() || self.fits_filled(least) {
            return Some(least);
        }
        if !self.fits_filled(WHOLE) {
            return None;
        }
        let (mut low, mut high) = (least + 1, WHOLE);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.fits_filled(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Some(low)
    }

    /// Whether devices differ in memory.
    fn is_limited(&self) -> bool {
        self.sorts.iter().any(|sort| sort.room.is_some())
    }

    /// Bounds all stages as the law of this file says, where the emptiest cuts take so much.
    pub(super) fn leave_room(&mut self, emptiest: Option<u64>) {
        match emptiest.filter(|_| self.is_limited()) {
            Some(emptiest) => self.fill(filled(emptiest)),
            None => self.bound(|_| u64::MAX),
        }
    }

    /// Whether all stages can stay within a share of the room on their devices, however long they take.
    fn fits_filled(&mut self, share: u64) -> bool {
        self.fill(share);
        let bounds = self.sorts.iter().map(|sort| Reach::new(sort.bound.clone()));
        all_fit(&self.of_stages(&bounds.collect::<Vec<Reach>>()))
    }

    /// Bounds all stages by a share of the room on their devices.
    fn fill(&mut self, share: u64) {
        self.bound(|room| {
            let part = u128::from(room) * u128::from(share) / u128::from(WHOLE);
            u64::try_from(part).unwrap_or(u64::MAX)
        });
    }

    /// Bounds all stages by their units and by what they hold: at most so much of their room.
    fn bound(&mut self, most: impl Fn(u64) -> u64) {
        let Self { sorts, held, unit, .. } = self;
        for sort in sorts {
            let most = most(sort.room.unwrap_or(u64::MAX));
            let mut last = 0;
            let bound = held.iter().enumerate().map(|(start, before)| {
                last = last.max(start);
                let may = |end: usize| unit[end] <= start && held[end] - before <= most;
                while last + 1 < held.len() && may(last + 1) {
                    last += 1;
                }
                last
            });
            sort.bound = bound.collect();
        }
    }

    /// How far stages of each sort come within a limit.
    pub(super) fn within(&self, limit: Nanos) -> Vec<Reach> {
        self.reach(&self.timely(limit))
    }

    /// How far each kind of device comes within a limit.
    fn timely(&self, limit: Nanos) -> Vec<Timely> {
        self.elapsed.iter().map(|elapsed| Timely::new(elapsed, limit)).collect()
    }

    /// How far stages of each sort come where devices come so far: as far as the slowest of their own.
    fn reach(&self, timely: &[Timely]) -> Vec<Reach> {
        let of_sort = |sort: &Sort| {
            let bound = sort.bound.clone();
            sort.kinds.iter().fold(bound, |bound, kind| timely[*kind].bounded(bound))
        };
        self.sorts.iter().map(of_sort).map(Reach::new).collect()
    }

    /// What holds for each sort, for each stage.
    pub(super) fn of_stages<'b>(&self, reach: &'b [Reach]) -> Vec<&'b Reach> {
        self.stages.iter().map(|sort| &reach[*sort]).collect()
    }

    /// The least limit within which all stages can stay. What holds for one limit does for all others
    /// within which devices come as far.
    pub(super) fn least_largest(&self) -> Nanos {
        let all = self.elapsed.iter().map(|elapsed| elapsed[self.end()]);
        let (mut low, mut high) = (self.even_share(), all.max().unwrap_or_default());
        while low < high {
            // It is hardly more than an even share.
            let near = high.min(low * 3);
            let timely = self.timely(Nanos(low.0 + (near.0 - low.0) / 2));
            match all_fit(&self.of_stages(&self.reach(&timely))) {
                true => high = timely.iter().map(Timely::longest).max().unwrap_or(high),
                false => low = timely.iter().map(Timely::next).min().unwrap_or(high),
            }
        }
        low
    }

    /// What the largest stage takes at least: its share of everything, on the fastest devices.
    fn even_share(&self) -> Nanos {
        let least = |end: usize| {
            let each = self.elapsed.iter().map(|elapsed| elapsed[end] - elapsed[end - 1]);
            each.min().unwrap_or_default()
        };
        let all: Nanos = (1..=self.end()).map(least).sum();
        Nanos(all.0.div_ceil(self.stages.len().max(1) as u64))
    }
}

/// The kinds of devices that have a stage.
fn used(uneven: &Uneven<'_>) -> Vec<usize> {
    let used: BTreeSet<usize> = uneven.kinds.iter().flat_map(Kinds::each).collect();
    used.into_iter().collect()
}

/// The sort of each stage, and all sorts, still without bounds.
fn sorts(uneven: &Uneven<'_>, used: &[usize]) -> (Vec<usize>, Vec<Sort>) {
    let mut known = BTreeMap::new();
    let mut sorts = Vec::new();
    let sort = |(stage, kinds)| {
        let room = uneven.rooms.get(stage).copied();
        *known.entry((kinds, room)).or_insert_with(|| {
            let number = |kind| used.partition_point(|used| *used < kind);
            let kinds = Kinds::each(kinds).map(number).collect();
            sorts.push(Sort { kinds, room, bound: Vec::new() });
            sorts.len() - 1
        })
    };
    let stages = uneven.kinds.iter().enumerate().map(sort).collect();
    (stages, sorts)
}

/// Where the unit begins that ends at each position or goes on there.
fn units(chain: &Chain, positions: &[usize]) -> Vec<usize> {
    let mut begin = 0;
    let unit = |(index, at): (usize, &usize)| {
        let own = begin;
        if chain.boundaries.binary_search(at).is_ok() {
            begin = index;
        }
        own
    };
    positions.iter().enumerate().map(unit).collect()
}
