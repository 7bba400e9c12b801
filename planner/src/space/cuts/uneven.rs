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
//!
//! Filling up one stage after another does not say which
//! times are possible: a stage must have a node, and one node may be too much for a slow device. So
//! for each number of stages all ends are known that they can reach.

use super::Chain;
use crate::costs::{calls::Kinds, core::stages_between};
use roundelay_schedule::{Bytes, Nanos};
use std::{collections::BTreeMap, ops::Range};

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
struct Places<'a> {
    kinds: &'a [Kinds],
    sorts: StageSorts,
    /// Time of everything before each place, on each kind of device.
    elapsed: Vec<Vec<Nanos>>,
    /// Bytes that cross there.
    crossing: Vec<Bytes>,
    /// Elements of everything before each place.
    held: Vec<u64>,
    /// The most elements of each stage.
    most: Vec<u64>,
    /// Where the unit of a local rule begins that ends at each place or goes on there: no stage that
    /// ends there begins before.
    unit: Vec<usize>,
}

/// Stages that take and have room for the same are of one sort.
struct StageSorts {
    /// The sort of each stage.
    of: Vec<usize>,
    /// A stage of each sort.
    some: Vec<usize>,
}

impl StageSorts {
    fn new(uneven: &Uneven<'_>) -> Self {
        let own = |stage: usize| (&uneven.kinds[stage], uneven.rooms.get(stage));
        let mut known = BTreeMap::new();
        let mut some = Vec::new();
        let of = (0..uneven.kinds.len()).map(|stage| {
            *known.entry(own(stage)).or_insert_with(|| {
                some.push(stage);
                some.len() - 1
            })
        });
        Self { of: of.collect(), some }
    }
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
        let has_room = places.leave_room(self.rooms);
        let chosen = places.least_crossing(places.least_largest()).into_iter();
        let cut = |index: usize| u32::try_from(positions[index]).unwrap_or(u32::MAX);
        Roomy { cuts: chosen.map(cut).collect(), has_room }
    }
}

impl<'a> Places<'a> {
    fn new(uneven: &Uneven<'a>, chain: &Chain, positions: &[usize]) -> Self {
        let elapsed = |times: &Vec<Nanos>| {
            let mut before = vec![Nanos(0)];
            let mut sum = Nanos(0);
            for time in times {
                sum += *time;
                before.push(sum);
            }
            positions.iter().map(|at| before[*at]).collect()
        };
        let crosses = |at: &usize| chain.crossing.get(*at).copied().unwrap_or_default();
        let unit = |at: &usize| {
            let begun = chain.boundaries.partition_point(|boundary| boundary < at);
            let begin = begun.checked_sub(1).map_or(0, |unit| chain.boundaries[unit]);
            positions.binary_search(&begin).unwrap_or(0)
        };
        let mut held = vec![0];
        for own in uneven.elements {
            held.push(held[held.len() - 1] + own);
        }
        let all = held[held.len() - 1];
        let before = |at: &usize| held.get(*at).copied().unwrap_or(all);
        Self {
            kinds: uneven.kinds,
            sorts: StageSorts::new(uneven),
            held: positions.iter().map(before).collect(),
            most: vec![u64::MAX; uneven.kinds.len()],
            elapsed: uneven.times.iter().map(elapsed).collect(),
            crossing: positions.iter().map(crosses).collect(),
            unit: positions.iter().map(unit).collect(),
        }
    }

    fn end(&self) -> usize {
        self.crossing.len() - 1
    }

    fn time(&self, stage: usize, start: usize, end: usize) -> Nanos {
        let of = |kind: usize| self.elapsed[kind][end] - self.elapsed[kind][start];
        self.kinds[stage].slowest(of)
    }

    /// Limits what stages hold as the law of this file says; whether it can.
    fn leave_room(&mut self, rooms: &[u64]) -> bool {
        let mut fits = |share: u64| {
            let part =
                |room: &u64| u128::from(*room) * u128::from(share) / u128::from(WHOLE);
            let most =
                rooms.iter().map(|room| u64::try_from(part(room)).unwrap_or(u64::MAX));
            self.most = most.collect();
            self.fits(Nanos(u64::MAX))
        };
        if rooms.is_empty() {
            return true;
        }
        if !fits(WHOLE) {
            self.most.fill(u64::MAX);
            return false;
        }
        let (mut low, mut high) = (0, WHOLE);
        while low < high {
            let middle = low + (high - low) / 2;
            (low, high) = if fits(middle) { (low, middle) } else { (middle + 1, high) };
        }
        fits(filled(low))
    }

    /// Whether what lies between two places is more than a stage may take or hold.
    fn exceeds(&self, stage: usize, (start, end): (usize, usize), limit: Nanos) -> bool {
        self.held[end] - self.held[start] > self.most[stage]
            || self.time(stage, start, end) > limit
    }

    /// The first place where a stage can begin that ends at each place and exceeds nothing;
    /// the place itself where there is none. It never comes before that of an earlier place.
    fn begins(&self, stage: usize, limit: Nanos) -> Vec<usize> {
        let mut begin = 0;
        let own = |end: usize| {
            begin = begin.max(self.unit[end]);
            while begin < end && self.exceeds(stage, (begin, end), limit) {
                begin += 1;
            }
            begin
        };
        (0..=self.end()).map(own).collect()
    }

    /// Where the stages of each sort begin.
    fn begins_of_sorts(&self, limit: Nanos) -> Vec<Vec<usize>> {
        self.sorts.some.iter().map(|stage| self.begins(*stage, limit)).collect()
    }

    /// Whether all stages can stay within a limit.
    fn fits(&self, limit: Nanos) -> bool {
        let begins = self.begins_of_sorts(limit);
        let mut reached = vec![false; self.end() + 1];
        reached[0] = true;
        for sort in &self.sorts.of {
            let mut latest: Option<usize> = None;
            let next = begins[*sort].iter().enumerate().map(|(end, begin)| {
                let fits = latest.is_some_and(|latest| *begin <= latest);
                latest = if reached[end] { Some(end) } else { latest };
                fits
            });
            reached = next.collect();
        }
        reached[self.end()]
    }

    fn least_largest(&self) -> Nanos {
        let all = self.elapsed.iter().map(|elapsed| elapsed[self.end()].0);
        let (mut low, mut high) = (0, all.max().unwrap_or(0));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.fits(Nanos(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Nanos(low)
    }

    /// Indices of the cuts with the least sum of crossing bytes, all stages within `limit`.
    fn least_crossing(&self, limit: Nanos) -> Vec<usize> {
        // By stage and begin: the least sum of what it and the later ones cross.
        let mut rows: Vec<Vec<Option<Bytes>>> = Vec::new();
        let mut follows = vec![None; self.end() + 1];
        follows[self.end()] = Some(Bytes(0));
        let begins = self.begins_of_sorts(limit);
        for sort in self.sorts.of.iter().rev() {
            let mut row = vec![None; self.end() + 1];
            for (end, begin) in begins[*sort].iter().enumerate() {
                let Some(sum) = follows[end] else { continue };
                for least in &mut row[*begin..end] {
                    *least = Some(least.map_or(sum, |least: Bytes| least.min(sum)));
                }
            }
            follows = row.iter().zip(&self.crossing).map(with).collect();
            rows.push(row);
        }
        rows.reverse();
        self.first_of(&rows, limit)
    }

    /// The first of the cuts with the least sums.
    fn first_of(&self, rows: &[Vec<Option<Bytes>>], limit: Nanos) -> Vec<usize> {
        let mut cuts: Vec<usize> = Vec::new();
        for stage in 1..self.kinds.len() {
            let start = cuts.last().copied().unwrap_or(0);
            let next = (start + 1..self.end()).find(|next| {
                self.unit[*next] <= start
                    && !self.exceeds(stage - 1, (start, *next), limit)
                    && with((&rows[stage][*next], &self.crossing[*next]))
                        == rows[stage - 1][start]
            });
            cuts.push(next.expect("all stages stay within the limit"));
        }
        cuts
    }
}

/// With what crosses.
fn with((sum, crossing): (&Option<Bytes>, &Bytes)) -> Option<Bytes> {
    sum.map(|sum| sum + *crossing)
}

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
