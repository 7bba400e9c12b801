//! Cut points of stages that do not take the same for the same nodes: they are on devices of several
//! kinds, and each takes as long as on the slowest of its own.
//!
//! As for stages that are alike the largest stage time is minimal, then the sum of crossing bytes, then
//! the cuts come first in lexicographic order.
//!
//! Where devices differ in memory that holds for cuts that leave room: what stages hold at rest takes
//! no device further than three quarters of the way from where the emptiest cuts take it to its end, as
//! the last quarter is for what passes keep. If not even the emptiest cuts have room there is no such
//! limit.

use super::{
    Chain,
    reach::{Reach, Timely, all_fit},
    rows::least_crossing,
};
use crate::costs::{calls::Kinds, core::stages_between};
use roundelay_schedule::{Bytes, Nanos};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What stages take on their devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uneven<'a> {
    /// Forward plus backward of one micro-batch, per node, on each kind of device.
    pub times: &'a [Vec<Nanos>],
    /// The kinds of devices of each stage.
    pub kinds: &'a [Kinds],
    /// Elements of parameters that each node brings.
    pub elements: &'a [u64],
    /// For how many of them the devices of each stage have room; nothing where all have as much.
    pub rooms: &'a [u64],
}

/// Cuts, and whether they leave room.
pub(super) struct Roomy {
    pub cuts: Vec<u32>,
    pub has_room: bool,
}

/// A whole device, and how finely shares of it are told.
const WHOLE: u64 = 1 << 10;

/// The places of a chain where stages may begin or end, and what they take between them.
struct Places {
    /// The sort of each stage.
    stages: Vec<usize>,
    /// What stages of each sort may take.
    sorts: Vec<Sort>,
    /// Time of everything before each place, on each kind of device that has a stage.
    elapsed: Vec<Vec<Nanos>>,
    /// Bytes that cross there.
    crossing: Vec<Bytes>,
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
fn filled(emptiest: u64) -> u64 {
    emptiest + (WHOLE - emptiest) * 3 / 4
}

impl Uneven<'_> {
    /// Forward plus backward of each stage between cuts, on the slowest of its devices.
    pub(crate) fn stage_times(&self, cuts: &[u32]) -> Vec<Nanos> {
        let end = self.times.first().map_or(0, Vec::len);
        let stages = stages_between(cuts, end).zip(self.kinds);
        let slowest = |(own, kinds): (Range<usize>, &Kinds)| {
            kinds.slowest(|kind| self.times[kind][own.clone()].iter().copied().sum())
        };
        stages.map(slowest).collect()
    }

    /// The best cuts of a chain among some positions, the ends and all boundaries among them.
    pub(super) fn cut_at(&self, chain: &Chain, positions: &[usize]) -> Roomy {
        let mut places = Places::new(self, chain, positions);
        let has_room = places.leave_room();
        let reach = places.reach(&places.timely(places.least_largest()));
        let reach: Vec<&[usize]> =
            places.of_stages(&reach).into_iter().map(Reach::last).collect();
        let chosen = least_crossing(&places.crossing, &reach);
        let cut = |index: usize| u32::try_from(positions[index]).unwrap_or(u32::MAX);
        Roomy { cuts: chosen.into_iter().map(cut).collect(), has_room }
    }

    /// The kinds of devices that have a stage.
    fn used(&self) -> Vec<usize> {
        let used: BTreeSet<usize> = self.kinds.iter().flat_map(Kinds::each).collect();
        used.into_iter().collect()
    }

    /// The sort of each stage, and all sorts, still without bounds.
    fn sorts(&self, used: &[usize]) -> (Vec<usize>, Vec<Sort>) {
        let mut known = BTreeMap::new();
        let mut sorts = Vec::new();
        let sort = |(stage, kinds)| {
            let room = self.rooms.get(stage).copied();
            *known.entry((kinds, room)).or_insert_with(|| {
                let number = |kind| used.partition_point(|used| *used < kind);
                let kinds = Kinds::each(kinds).map(number).collect();
                sorts.push(Sort { kinds, room, bound: Vec::new() });
                sorts.len() - 1
            })
        };
        let stages = self.kinds.iter().enumerate().map(sort).collect();
        (stages, sorts)
    }
}

impl Places {
    fn new(uneven: &Uneven<'_>, chain: &Chain, positions: &[usize]) -> Self {
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
        let used = uneven.used();
        let (stages, sorts) = uneven.sorts(&used);
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

    /// Bounds all stages as the law of this file says; whether they have room.
    fn leave_room(&mut self) -> bool {
        if self.sorts.iter().all(|sort| sort.room.is_none()) {
            self.bound(|_| u64::MAX);
            return true;
        }
        if !self.fits_filled(WHOLE) {
            self.bound(|_| u64::MAX);
            return false;
        }
        let (mut low, mut high) = (0, WHOLE);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.fits_filled(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        self.fits_filled(filled(low))
    }

    /// Bounds all stages by a share of the room on their devices; whether they have that.
    fn fits_filled(&mut self, share: u64) -> bool {
        self.bound(|room| {
            let part = u128::from(room) * u128::from(share) / u128::from(WHOLE);
            u64::try_from(part).unwrap_or(u64::MAX)
        });
        all_fit(&self.of_stages(&self.reach(&self.timely(Nanos::NEVER))))
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
    fn of_stages<'b>(&self, reach: &'b [Reach]) -> Vec<&'b Reach> {
        self.stages.iter().map(|sort| &reach[*sort]).collect()
    }

    /// The least limit within which all stages can stay. What holds for one limit does for all others
    /// within which devices come as far.
    fn least_largest(&self) -> Nanos {
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

#[cfg(test)]
mod plain;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample::Random,
        space::cuts::{InsideUnits, Tie, cut, tests::all_cuts},
    };

    /// A chain of two kinds of devices, and the kinds of its stages.
    fn drawn(random: &mut Random) -> (Chain, [Vec<Nanos>; 2], Vec<Kinds>) {
        let nodes = 1 + random.below(9);
        let mut draw =
            |bound| -> Vec<u64> { (0..nodes).map(|_| random.below(bound)).collect() };
        let (one, other, crossing) = (draw(6), draw(20), draw(3));
        let nanos = |times: Vec<u64>| times.into_iter().map(Nanos).collect::<Vec<_>>();
        let (one, other) = (nanos(one), nanos(other));
        let first = random.below(nodes) as usize;
        let last = first + random.below(nodes - first as u64) as usize;
        let tie = Tie { parameter: "shared".into(), first, last };
        let boundary = random.below(nodes) as usize;
        let chain = Chain {
            reads: Vec::new(),
            times: one.clone(),
            crossing: crossing.into_iter().map(Bytes).collect(),
            ties: if random.below(3) == 0 { vec![tie] } else { Vec::new() },
            boundaries: Vec::new(),
            inside: InsideUnits::Cut,
        };
        let free = boundary > 0 && chain.tie_at(boundary).is_none();
        let bounded = free && random.below(3) == 0;
        let boundaries = if bounded { vec![boundary] } else { Vec::new() };
        let kinds: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
        let stages = 1 + random.below(4);
        let draw = |_| Kinds::new(kinds[random.below(3) as usize].iter().copied());
        (Chain { boundaries, ..chain }, [one, other], (0..stages).map(draw).collect())
    }

    #[test]
    fn cuts_equal_the_best_of_all_cuts() {
        let mut random = Random::new(11);
        let (mut compared, mut limited) = (0, 0);
        for _ in 0..1500 {
            let (chain, times, kinds) = drawn(&mut random);
            let nodes = chain.times.len() as u64;
            let mut draw = |count: u64, bound| -> Vec<u64> {
                (0..count).map(|_| random.below(bound)).collect()
            };
            let (elements, rooms) = (draw(nodes, 5), draw(kinds.len() as u64, 40));
            let rooms = if compared % 2 == 0 { Vec::new() } else { rooms };
            let uneven = Uneven {
                times: &times,
                kinds: &kinds,
                elements: &elements,
                rooms: &rooms,
            };
            let largest =
                |cuts: &Vec<u32>| uneven.stage_times(cuts).into_iter().max().unwrap();
            let bytes = |cuts: &Vec<u32>| -> Bytes {
                cuts.iter().map(|cut| chain.crossing[*cut as usize]).sum()
            };
            // The share of its room that the fullest stage takes, rounded up.
            let fill = |cuts: &Vec<u32>| {
                let stages = stages_between(cuts, elements.len());
                let each = stages.zip(&rooms).map(|(own, room)| {
                    let held: u64 = elements[own].iter().sum();
                    let least = (0..=WHOLE).find(|share| held <= room * share / WHOLE);
                    least.unwrap_or(u64::MAX)
                });
                each.max().unwrap_or(0)
            };
            let stages = u32::try_from(kinds.len()).unwrap();
            let all = all_cuts(&chain, stages);
            let emptiest = all.iter().map(fill).min().unwrap_or(0);
            let most = match emptiest <= WHOLE {
                true => filled(emptiest),
                false => u64::MAX,
            };
            limited += usize::from(!rooms.is_empty() && emptiest <= WHOLE);
            let roomy = all.into_iter().filter(|cuts| fill(cuts) <= most);
            let best =
                roomy.min_by_key(|cuts| (largest(cuts), bytes(cuts), cuts.clone()));
            assert_eq!(chain.check(stages).is_ok(), best.is_some(), "{chain:?}");
            let Some(best) = best else { continue };
            let found = uneven.cut_at(&chain, &chain.positions());
            assert_eq!(found.cuts, best, "{chain:?} {uneven:?}");
            assert_eq!(found.has_room, emptiest <= WHOLE);
            compared += 1;
        }
        assert!(compared > 500, "only {compared} chains can be cut");
        assert!(limited > 100, "only {limited} chains have room");
    }

    /// Chains of many stages, in which some nodes are too much for slow devices.
    #[test]
    fn cuts_of_long_chains_are_those_of_the_plain_form() {
        let mut random = Random::new(13);
        let (mut parted, mut roomy) = (0, 0);
        for round in 0..90 {
            let nodes = 12 + random.below(18);
            let mut draw = |bound: u64| -> Vec<u64> {
                (0..nodes).map(|_| random.below(bound)).collect()
            };
            let (fast, factor, heavy) = (draw(6), draw(4), draw(8));
            let (crossing, elements) = (draw(4), draw(9));
            let fast = fast.iter().zip(&heavy);
            let fast = fast.map(|(time, heavy)| time + 12 * u64::from(*heavy == 0));
            let fast: Vec<Nanos> = fast.map(Nanos).collect();
            let slow = fast.iter().zip(&factor).map(|(time, more)| *time * (1 + more));
            let times = [fast.clone(), slow.collect()];
            let boundary = random.below(nodes) as usize;
            let is_parted = round % 3 == 0 && boundary > 0;
            let chain = Chain {
                reads: Vec::new(),
                times: fast,
                crossing: crossing.into_iter().map(Bytes).collect(),
                ties: Vec::new(),
                boundaries: if is_parted { vec![boundary] } else { Vec::new() },
                inside: InsideUnits::Cut,
            };
            let of: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
            let stages = 2 + random.below(nodes - 3);
            let mut draw = || (random.below(3) as usize, 10 + random.below(120));
            let drawn: Vec<(usize, u64)> = (0..stages).map(|_| draw()).collect();
            let kinds =
                drawn.iter().map(|(kind, _)| Kinds::new(of[*kind].iter().copied()));
            let kinds: Vec<Kinds> = kinds.collect();
            let rooms: Vec<u64> = match round % 2 {
                0 => Vec::new(),
                _ => drawn.iter().map(|(_, room)| *room).collect(),
            };
            let uneven = Uneven {
                times: &times,
                kinds: &kinds,
                elements: &elements,
                rooms: &rooms,
            };
            let positions = chain.positions();
            let found = uneven.cut_at(&chain, &positions);
            let plain = plain::cut_at(uneven, &chain, &positions);
            assert_eq!(found.cuts, plain.cuts, "{chain:?} {uneven:?}");
            assert_eq!(found.has_room, plain.has_room);
            parted += usize::from(is_parted);
            roomy += usize::from(!rooms.is_empty() && found.has_room);
        }
        assert!(parted > 20 && roomy > 20, "{parted} in units, {roomy} with room");
    }

    #[test]
    fn stages_that_are_alike_are_cut_as_ever() {
        let mut random = Random::new(12);
        for _ in 0..400 {
            let (mut chain, [times, _], kinds) = drawn(&mut random);
            chain.boundaries.clear();
            let kinds = vec![Kinds::new([0].into_iter()); kinds.len()];
            let stages = u32::try_from(kinds.len()).unwrap();
            let Ok(cuts) = cut(&chain, stages) else { continue };
            let times = [times];
            let uneven =
                Uneven { times: &times, kinds: &kinds, elements: &[], rooms: &[] };
            let found = uneven.cut_at(&chain, &chain.positions()).cuts;
            assert_eq!(found, cuts, "{chain:?}");
            assert_eq!(uneven.stage_times(&cuts), chain.stage_times(&cuts));
        }
    }
}
