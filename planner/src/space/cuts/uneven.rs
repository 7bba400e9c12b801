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

mod places;

use self::places::Places;
use super::{Chain, reach::Reach, rows::least_crossing};
use crate::costs::{calls::Kinds, core::stages_between};
use roundelay_schedule::Nanos;
use std::ops::Range;

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

/// Cuts, and how much room they leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roomy {
    pub cuts: Vec<u32>,
    /// The share of the room on the fullest device that the emptiest cuts among these places take, where
    /// devices differ in memory; nothing where they have no room.
    pub emptiest: Option<u64>,
}

impl Roomy {
    /// Cuts of devices that do not differ in memory.
    pub(super) fn anywhere(cuts: Vec<u32>) -> Self {
        Self { cuts, emptiest: Some(0) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.emptiest.is_some()
    }

    /// Whether all cuts are at some positions.
    pub(super) fn is_at(&self, positions: &[usize]) -> bool {
        let is_there = |cut: &u32| positions.binary_search(&(*cut as usize)).is_ok();
        self.cuts.iter().all(is_there)
    }
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

    /// The best cuts of a chain among some positions, the ends and all boundaries among them, where
    /// those among more positions may be known. These stay the best if they are at those that are left
    /// and what stages may hold is the same.
    pub(super) fn cut_at(
        &self,
        chain: &Chain,
        positions: &[usize],
        wider: Option<&Roomy>,
    ) -> Roomy {
        let mut places = Places::new(self, chain, positions);
        let emptiest = places.emptiest(wider.map_or(Some(0), |wider| wider.emptiest));
        let stays = |wider: &&Roomy| wider.emptiest == emptiest && wider.is_at(positions);
        if let Some(wider) = wider.filter(stays) {
            return wider.clone();
        }
        places.leave_room(emptiest);
        let reach = places.within(places.least_largest());
        let reach: Vec<&[usize]> =
            places.of_stages(&reach).into_iter().map(Reach::last).collect();
        let chosen = least_crossing(&places.crossing, &reach);
        let cut = |index: usize| u32::try_from(positions[index]).unwrap_or(u32::MAX);
        Roomy { cuts: chosen.into_iter().map(cut).collect(), emptiest }
    }
}

#[cfg(test)]
mod plain;

#[cfg(test)]
mod tests {
    use super::{
        places::{WHOLE, filled},
        *,
    };
    use crate::{
        sample::Random,
        space::cuts::{InsideUnits, Tie, Users, cut, tests::all_cuts},
    };
    use roundelay_schedule::Bytes;

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
        let tie =
            Tie { parameter: "shared".into(), users: vec![first, last], elements: 1 };
        let boundary = random.below(nodes) as usize;
        let chain = Chain {
            reads: Vec::new(),
            times: one.clone(),
            crossing: crossing.into_iter().map(Bytes).collect(),
            ties: if random.below(3) == 0 { vec![tie] } else { Vec::new() },
            users: Users::Together,
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
            let found = uneven.cut_at(&chain, &chain.positions(), None);
            assert_eq!(found.cuts, best, "{chain:?} {uneven:?}");
            assert_eq!(found.has_room(), emptiest <= WHOLE);
            compared += 1;
        }
        assert!(compared > 500, "only {compared} chains can be cut");
        assert!(limited > 100, "only {limited} chains have room");
    }

    /// A chain of some nodes, of which some are heavy and some in units of their own, on two kinds of
    /// devices, and their elements.
    fn long(random: &mut Random, nodes: u64) -> (Chain, [Vec<Nanos>; 2], Vec<u64>) {
        let mut draw = |bound: u64| -> Vec<u64> {
            (0..nodes).map(|_| random.below(bound)).collect()
        };
        let (light, heavy, factor) = (draw(6), draw(8), draw(4));
        let (crossing, elements) = (draw(4), draw(9));
        let fast = light.iter().zip(&heavy);
        let fast = fast.map(|(time, heavy)| time + 12 * u64::from(*heavy == 0));
        let fast: Vec<Nanos> = fast.map(Nanos).collect();
        let slow = fast.iter().zip(&factor).map(|(time, more)| *time * (1 + more));
        let times = [fast.clone(), slow.collect()];
        let boundary = random.below(3 * nodes) as usize;
        let is_parted = boundary > 0 && boundary < fast.len();
        let chain = Chain {
            reads: Vec::new(),
            times: fast,
            crossing: crossing.into_iter().map(Bytes).collect(),
            ties: Vec::new(),
            users: Users::Together,
            boundaries: if is_parted { vec![boundary] } else { Vec::new() },
            inside: InsideUnits::Cut,
        };
        (chain, times, elements)
    }

    /// Chains of many stages, in which some nodes are too much for slow devices: among all places, and
    /// among fewer where there still is one for every stage.
    #[test]
    fn cuts_of_long_chains_are_those_of_the_plain_form() {
        let mut random = Random::new(13);
        let (mut parted, mut roomy, mut stayed, mut moved) = (0, 0, 0, 0);
        for round in 0..90 {
            let nodes = 12 + random.below(18);
            let (chain, times, elements) = long(&mut random, nodes);
            let stages = 2 + random.below(nodes - 3);
            let kinds: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
            let mut kind = || kinds[random.below(3) as usize].iter().copied();
            let kinds: Vec<Kinds> = (0..stages).map(|_| Kinds::new(kind())).collect();
            let rooms = if round % 2 == 0 { 0 } else { stages };
            let rooms: Vec<u64> = (0..rooms).map(|_| 10 + random.below(120)).collect();
            let uneven = Uneven {
                times: &times,
                kinds: &kinds,
                elements: &elements,
                rooms: &rooms,
            };
            let all = chain.positions();
            let found = uneven.cut_at(&chain, &all, None);
            let plain = plain::cut_at(uneven, &chain, &all);
            assert_eq!(found, plain, "{chain:?} {uneven:?}");
            let kept = |at: &usize| {
                let cut = found.cuts.iter().position(|cut| *cut as usize == *at);
                cut.map_or(!at.is_multiple_of(3), |number| number > 0 || round % 5 > 1)
                    || [0, all.len() - 1].contains(at)
                    || chain.boundaries.contains(at)
            };
            let fewer: Vec<usize> = all.iter().copied().filter(kept).collect();
            if fewer.len() > kinds.len() {
                let own = uneven.cut_at(&chain, &fewer, Some(&found));
                let plain = plain::cut_at(uneven, &chain, &fewer);
                assert_eq!(own, plain, "{chain:?} {uneven:?} {fewer:?}");
                (stayed, moved) = match own.cuts == found.cuts {
                    true => (stayed + 1, moved),
                    false => (stayed, moved + 1),
                };
            }
            parted += usize::from(!chain.boundaries.is_empty());
            roomy += usize::from(!rooms.is_empty() && found.has_room());
        }
        assert!(parted > 20 && roomy > 20, "{parted} in units, {roomy} with room");
        assert!(stayed > 20 && moved > 10, "{stayed} stayed, {moved} moved");
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
            let found = uneven.cut_at(&chain, &chain.positions(), None).cuts;
            assert_eq!(found, cuts, "{chain:?}");
            assert_eq!(uneven.stage_times(&cuts), chain.stage_times(&cuts));
        }
    }
}
