//! The search against looking at every plan, where costs are made up.

use super::*;
use crate::{
    parallel::parallel,
    sample::{self, Random},
    search::progress::Progress,
};
use roundelay_schedule::Nanos;

pub(super) fn goal() -> Goal {
    Goal::new(&sample::program(1, 8))
}

fn aim(goal: &Goal, keep: usize, clocked_max: usize) -> Aim<'_> {
    Aim { goal, keep, clocked_max, enough: usize::MAX }
}

pub(super) fn open((number, work): (usize, u64)) -> Open {
    let outline = sample::outline(1);
    let bound = sample::bound(Nanos(work));
    Open { outline, bound, sharpness: Sharpness::Nodes, number }
}

/// A plan takes four times its first bound, rounded up to the next ten, and one in seven is no
/// plan; each step doubles a bound at most.
struct MadeUp {
    first: Vec<u64>,
    refused: usize,
    /// Sizes of the rounds in which plans were clocked.
    rounds: Vec<usize>,
}

impl MadeUp {
    fn new(first: &[u64]) -> Self {
        Self { first: first.to_vec(), refused: 0, rounds: Vec::new() }
    }
}

fn time(first: u64) -> Option<Nanos> {
    (!first.is_multiple_of(7)).then(|| Nanos((first * 4).next_multiple_of(10)))
}

impl Judge for MadeUp {
    fn sharper(&mut self, open: &[Open]) -> Vec<Result<(Bound, Sharpness), Reason>> {
        let each = open.iter().map(|open| {
            let (factor, next) = match open.sharpness {
                Sharpness::Nodes => (2 - open.bound.work.0 % 2, Sharpness::Stages),
                Sharpness::Stages | Sharpness::Lists => (2, Sharpness::Lists),
            };
            let work = open.bound.work * factor;
            Ok((Bound { work, ..open.bound }, next))
        });
        each.collect()
    }

    fn clock(&mut self, round: &[Open]) -> Vec<Result<Candidate, Reason>> {
        self.rounds.push(round.len());
        parallel(round, &|open: &Open| {
            let time = time(self.first[open.number]).ok_or(Reason::OneWorker)?;
            Ok(sample::candidate(&sample::plan_on(1), time, open.number))
        })
    }

    fn refuse(&mut self, open: &Open, _: &Reason) -> Option<Open> {
        self.refused += 1;
        assert!(time(self.first[open.number]).is_none());
        None
    }
}

fn found(first: &[u64], aim: Aim<'_>) -> Found {
    let plans = vec![first.iter().copied().enumerate().map(open).collect()];
    search(plans, aim, &mut MadeUp::new(first), &mut Progress::default())
}

#[test]
fn the_best_of_all_is_found_without_clocking_all() {
    let mut random = Random::new(11);
    for _ in 0..50 {
        let first: Vec<u64> = (0..60).map(|_| 1 + random.below(500)).collect();
        let mut all: Vec<Nanos> = first.iter().filter_map(|first| time(*first)).collect();
        all.sort();
        let found = found(&first, aim(&goal(), 3, usize::MAX));
        let best: Vec<Nanos> = found.best.iter().map(|c| c.step_time).collect();
        assert_eq!(best, all[..3]);
        assert_eq!(found.open, None);
        assert!(found.clocked < 60);
    }
}

#[test]
fn a_limit_leaves_its_least_bound_open() {
    let first: Vec<u64> = (1..=40).map(|work| work * 14 + 1).collect();
    let found = found(&first, aim(&goal(), 40, 10));
    let least = first[10] * 2;
    assert_eq!((found.clocked, found.open.map(|open| open.0)), (10, Some(least.into())));
}

#[test]
fn any_plan_will_do_when_enough_were_clocked() {
    let first: Vec<u64> = (1..=40).map(|work| work * 14 + 1).collect();
    let found = found(&first, Aim { enough: 8, ..aim(&goal(), 40, 30) });
    assert_eq!(found.clocked, 8);
    assert!(found.open.is_some() && found.best.len() == 8);
    // Each takes 410 and is bounded by 202, so another may be more than twice as good.
    let doubtful = self::found(&[101; 40], Aim { enough: 8, ..aim(&goal(), 40, 30) });
    assert_eq!(doubtful.clocked, 30);
    let refused: Vec<u64> = (1..=40).map(|work| work * 14).collect();
    let none = self::found(&refused, Aim { enough: 8, ..aim(&goal(), 1, 30) });
    assert!(none.best.is_empty() && none.clocked == 30);
}

#[test]
fn no_plan_is_clocked_alone_while_another_may_be_the_best() {
    let mut random = Random::new(5);
    let goal = goal();
    for _ in 0..20 {
        let first: Vec<u64> = (0..40).map(|_| 1 + random.below(500)).collect();
        let plans = vec![first.iter().copied().enumerate().map(open).collect()];
        let mut judge = MadeUp::new(&first);
        let aim = aim(&goal, 40, usize::MAX);
        search(plans, aim, &mut judge, &mut Progress::default());
        let (_, rounds) = judge.rounds.split_last().expect("something was clocked");
        assert!(rounds.iter().all(|round| (TOGETHER..=ROUND).contains(round)));
    }
}
