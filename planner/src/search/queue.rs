//! The plans that may still be the best, least bound first. They are many and few of them ever come
//! to the front, so most are never put in order.

use super::Open;
use crate::{
    parallel::parallel,
    search::{
        bound::Bound,
        objective::{Goal, Score},
        sharpen::Sharpness,
    },
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

/// Plans that are put in order together, when the least of them comes to the front.
const LEAF: usize = 1 << 9;

/// The part of a plan, and its place there.
pub(super) type Place = (usize, usize);

/// Plans by their bounds.
pub(super) struct Queue<'a> {
    /// Those in order.
    heap: BinaryHeap<Reverse<(Score, Place)>>,
    /// Leaves that are not yet among them: the least score of each, and its first plan.
    leaves: BinaryHeap<Reverse<(Score, Place)>>,
    /// Every plan; those that came later are the last part.
    parts: Vec<Vec<Open>>,
    goal: &'a Goal,
}

impl<'a> Queue<'a> {
    pub(super) fn new(mut parts: Vec<Vec<Open>>, goal: &'a Goal) -> Self {
        let least = parallel(&parts, &|part| {
            let scores = |leaf: &[Open]| leaf.iter().map(|open| open.score(goal)).min();
            part.chunks(LEAF).filter_map(scores).collect::<Vec<Score>>()
        });
        let leaf = |part| move |(leaf, score)| Reverse((score, (part, leaf * LEAF)));
        let of_part = |(part, least): (usize, Vec<Score>)| {
            least.into_iter().enumerate().map(leaf(part))
        };
        let leaves = least.into_iter().enumerate().flat_map(of_part).collect();
        parts.push(Vec::new());
        Self { heap: BinaryHeap::new(), leaves, parts, goal }
    }

    pub(super) fn at(&self, (part, place): Place) -> &Open {
        &self.parts[part][place]
    }

    /// The plan of the least score.
    pub(super) fn first(&mut self) -> Option<(Score, &Open)> {
        while let Some(leaf) = self.leaves.peek_mut() {
            let Reverse((least, (part, first))) = *leaf;
            if self.heap.peek().is_some_and(|Reverse((score, _))| *score < least) {
                break;
            }
            PeekMut::pop(leaf);
            let own = self.parts[part][first..].iter().take(LEAF).zip(first..);
            let entry = |(open, place): (&Open, _)| {
                Reverse((open.score(self.goal), (part, place)))
            };
            self.heap.extend(own.map(entry));
        }
        self.heap.peek().map(|Reverse((score, place))| (*score, self.at(*place)))
    }

    /// Takes plans from the front that are as wanted.
    pub(super) fn take(
        &mut self,
        most: usize,
        wanted: impl Fn(Score, &Open) -> bool,
    ) -> Vec<Place> {
        let mut taken = Vec::new();
        while taken.len() < most {
            match self.first() {
                Some((score, open)) if wanted(score, open) => {
                    taken.extend(self.heap.pop().map(|Reverse((_, place))| place));
                }
                _ => break,
            }
        }
        taken
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, taken: &[Place]) {
        taken.iter().for_each(|place| self.put_in_order(*place));
    }

    /// Gives back a plan whose bound is sharper.
    pub(super) fn put_back(
        &mut self,
        (part, place): Place,
        (bound, sharpness): (Bound, Sharpness),
    ) {
        let open = &mut self.parts[part][place];
        (open.bound, open.sharpness) = (bound, sharpness);
        self.put_in_order((part, place));
    }

    pub(super) fn add(&mut self, open: Open) {
        let last = self.parts.len() - 1;
        let place = self.parts[last].len();
        self.parts[last].push(open);
        self.put_in_order((last, place));
    }

    /// All plans that were not taken.
    pub(super) fn into_left(self) -> Vec<Open> {
        let ordered = self.heap.iter().map(|Reverse((_, place))| *self.at(*place));
        let leaf = |Reverse((_, (part, first))): &Reverse<(Score, Place)>| {
            self.parts[*part][*first..].iter().take(LEAF).copied()
        };
        ordered.chain(self.leaves.iter().flat_map(leaf)).collect()
    }

    fn put_in_order(&mut self, place: Place) {
        let score = self.at(place).score(self.goal);
        self.heap.push(Reverse((score, place)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample::{self, Random},
        search::tests::{goal, open},
    };

    /// However plans are parted, they come in the order of their bounds, those that are given back
    /// and those that come later among them, and whoever stops has all the others left.
    #[test]
    fn plans_come_in_the_order_of_their_bounds() {
        let (mut random, goal) = (Random::new(8), goal());
        let works: Vec<u64> = (0..5_000).map(|_| 1 + random.below(900)).collect();
        let plans: Vec<Open> = works.iter().copied().enumerate().map(open).collect();
        let mut expected: Vec<Score> =
            plans.iter().map(|open| open.score(&goal)).collect();
        expected.sort_unstable();
        for size in [1, 700, 5_000] {
            let parts = plans.chunks(size).map(<[Open]>::to_vec).collect();
            let mut queue = Queue::new(parts, &goal);
            let mut seen = Vec::new();
            for _ in 0..3_000 {
                seen.extend(queue.first().map(|(score, _)| score));
                queue.take(1, |_, _| true);
            }
            assert_eq!(seen, expected[..3_000]);
            queue.add(open((5_000, 1)));
            assert_eq!(queue.first().map(|(score, _)| score.0), Some(1));
            let back = queue.take(1, |_, _| true)[0];
            let slower = sample::bound(roundelay_schedule::Nanos(1_000));
            queue.put_back(back, (slower, Sharpness::Stages));
            let left = queue.into_left();
            let mut left: Vec<Score> =
                left.iter().map(|open| open.score(&goal)).collect();
            left.sort_unstable();
            let last = left.pop().expect("what was given back is left");
            assert_eq!((last.0, &left[..]), (1_000, &expected[3_000..]));
        }
    }
}
