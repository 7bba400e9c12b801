//! Best-first search with admissible bounds.
//!
//! Plans are clocked in the order of their bounds, and a plan whose bound is not better than the
//! worst that is kept is never clocked. So what is kept is the best of all, unless the limit on
//! clocked plans came first; then the least open bound says how far off it may be.

use crate::{
    bound::Bound,
    candidate::Candidate,
    objective::{Goal, Score},
    reason::Reason,
};
use roundelay_schedule::Plan;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Plans that are clocked between two looks at the bounds; fixed, so that the result does not
/// depend on the number of threads.
pub(crate) const ROUND: usize = 8;

/// A plan that is not yet clocked.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The plan.
    pub plan: Plan,
    /// Its bounds.
    pub bound: Bound,
    /// Place in the order of the search.
    pub number: usize,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim<'a> {
    /// What is minimised.
    pub goal: &'a Goal,
    /// How many of the best plans are kept.
    pub keep: usize,
    /// How many plans are clocked at most.
    pub clocked_max: usize,
    /// Threads that clock.
    pub threads: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The best plans, in order.
    pub best: Vec<Candidate>,
    /// Plans that turned out to be none.
    pub refused: Vec<(Plan, Reason)>,
    /// Plans that were lowered.
    pub clocked: usize,
    /// Plans whose bound is not better than what was found.
    pub pruned: usize,
    /// The best bound of the plans that were left open by the limit.
    pub open: Option<Score>,
}

impl Open {
    /// The bound's score.
    pub(crate) fn score(&self, goal: &Goal) -> Score {
        let Self { plan, bound, number } = self;
        goal.score(plan, bound.step_time(), bound.memory, *number)
    }
}

/// Clocks plans with `evaluate`, best bound first.
pub(crate) fn search(
    mut plans: Vec<Open>,
    aim: Aim<'_>,
    evaluate: &(impl Fn(&Open) -> Result<Candidate, Reason> + Sync),
) -> Found {
    plans.sort_by_key(|open| open.score(aim.goal));
    let mut found = Found::default();
    let mut rest = plans.as_slice();
    while let Some(next) = rest.first() {
        let open = next.score(aim.goal);
        if found.is_settled(open, aim) {
            found.pruned = rest.len();
            break;
        }
        let room = aim.clocked_max.saturating_sub(found.clocked);
        if room == 0 {
            found.open = Some(open);
            break;
        }
        let (round, later) = rest.split_at(ROUND.min(room).min(rest.len()));
        rest = later;
        found.take(round, clock(round, aim.threads, evaluate), aim);
    }
    found
}

impl Found {
    /// Whether no plan of this bound can join the best.
    fn is_settled(&self, open: Score, aim: Aim<'_>) -> bool {
        let worst = self.best.get(aim.keep.saturating_sub(1));
        worst.is_some_and(|worst| worst.score(aim.goal) <= open)
    }

    fn take(
        &mut self,
        round: &[Open],
        results: Vec<Result<Candidate, Reason>>,
        aim: Aim<'_>,
    ) {
        for (open, result) in round.iter().zip(results) {
            self.clocked += 1;
            match result {
                Ok(candidate) => self.best.push(candidate),
                Err(reason) => self.refused.push((open.plan.clone(), reason)),
            }
        }
        self.best.sort_by_key(|candidate| candidate.score(aim.goal));
        self.best.truncate(aim.keep);
    }
}

/// Evaluates one round; results stand in the order of the plans, whoever made them.
pub(crate) fn clock(
    round: &[Open],
    threads: usize,
    evaluate: &(impl Fn(&Open) -> Result<Candidate, Reason> + Sync),
) -> Vec<Result<Candidate, Reason>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match round.get(number) {
                Some(open) => own.push((number, evaluate(open))),
                None => return own,
            }
        }
    };
    let mut all = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for helper in helpers {
            match helper.join() {
                Ok(own) => all.extend(own),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Random};
    use roundelay_schedule::Nanos;

    fn aim(goal: &Goal, keep: usize, clocked_max: usize) -> Aim<'_> {
        Aim { goal, keep, clocked_max, threads: 2 }
    }

    fn goal() -> Goal {
        Goal::new(&sample::program(1, 8))
    }

    fn open((number, work): (usize, u64)) -> Open {
        Open { plan: sample::plan_on(1), bound: sample::bound(Nanos(work)), number }
    }

    /// A plan takes twice its bound, rounded up to the next ten.
    fn evaluate(open: &Open) -> Result<Candidate, Reason> {
        let time = Nanos((open.bound.work.0 * 2).next_multiple_of(10));
        match open.bound.work.0 % 7 {
            0 => Err(Reason::OneWorker),
            _ => Ok(sample::candidate(&open.plan, time, open.number)),
        }
    }

    #[test]
    fn the_best_of_all_is_found_without_clocking_all() {
        let mut random = Random::new(11);
        for _ in 0..50 {
            let plans: Vec<Open> =
                (0..60).map(|number| open((number, 1 + random.below(500)))).collect();
            let mut all: Vec<Nanos> = plans
                .iter()
                .filter_map(|open| evaluate(open).ok())
                .map(|candidate| candidate.step_time)
                .collect();
            all.sort();
            let found = search(plans, aim(&goal(), 3, usize::MAX), &evaluate);
            let best: Vec<Nanos> = found.best.iter().map(|c| c.step_time).collect();
            assert_eq!(best, all[..3]);
            assert_eq!(found.open, None);
            assert!(found.pruned > 0 && found.pruned + found.clocked == 60);
        }
    }

    #[test]
    fn a_limit_leaves_its_least_bound_open() {
        let works = (1..=40).map(|work| work * 8 + 1);
        let plans = works.enumerate().map(open).collect();
        let found = search(plans, aim(&goal(), 40, 10), &evaluate);
        assert_eq!((found.clocked, found.open), (10, Some([11 * 8 + 1, 0, 1, 0, 10])));
    }
}
