//! Best-first search with admissible bounds.
//!
//! The plan with the least bound is looked at first: its bound is made sharper, or if it is sharp
//! the plan is clocked. A plan whose bound is not better than the worst that is kept is left. So
//! what is kept is the best of all, unless the limit on clocked plans came first, or somebody
//! wished to stop; then the least open bound says how far off it may be.

pub(crate) mod automatic;
pub(crate) mod bound;
pub(crate) mod candidate;
pub(crate) mod clerk;
pub(crate) mod evaluate;
pub(crate) mod local;
pub(crate) mod objective;
pub(crate) mod progress;
mod queue;
pub(crate) mod ranking;
pub(crate) mod sharpen;
mod waiting;

use self::queue::{Place, Queue};
use crate::{
    search::{
        bound::Bound,
        candidate::Candidate,
        objective::{Goal, Score},
        progress::{Look, Progress},
        sharpen::Sharpness,
    },
    space::{outline::Outline, reason::Reason},
};
use std::ops::ControlFlow;

/// Plans that are clocked between two looks at the bounds; fixed, so that the result does not
/// depend on the number of threads.
pub(crate) const ROUND: usize = 4;

/// Plans that are clocked side by side where as many may still be the best: bounds behind the first
/// sharp one are made sharper until this many are sharp.
const TOGETHER: usize = 2;

/// Plans whose bounds are made sharper between two looks: enough for several threads, and few that
/// the first of them would have shown to be needless.
pub(crate) const SHARPENED: usize = 16;

/// A plan that is not yet clocked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// The plan.
    pub outline: Outline,
    /// Its bounds.
    pub bound: Bound,
    /// By what they were found.
    pub sharpness: Sharpness,
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
    /// After this many clocked plans one that no other beats by more than half will do.
    pub enough: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The best plans, in order.
    pub best: Vec<Candidate>,
    /// Plans that were clocked or turned out to be none when they were lowered.
    pub clocked: usize,
    /// The plans that were left open.
    pub left: Vec<Open>,
    /// The best bound of the plans that were left open.
    pub open: Option<Score>,
}

/// Who knows the costs of plans.
pub(crate) trait Judge {
    /// Sharper bounds of some plans.
    fn sharper(&mut self, open: &[Open]) -> Vec<Result<(Bound, Sharpness), Reason>>;

    /// Lowers and clocks some plans on several threads; where an end is wished meanwhile, the first of
    /// them.
    fn clock(&mut self, round: &[Open]) -> Vec<Result<Candidate, Reason>>;

    /// A plan turned out to be none; another may take its place.
    fn refuse(&mut self, open: &Open, reason: &Reason) -> Option<Open>;
}

impl Open {
    /// Whether no bound is sharper.
    pub(crate) fn is_sharp(&self) -> bool {
        self.sharpness == Sharpness::Lists
    }

    /// The bound's score.
    pub(crate) fn score(&self, goal: &Goal) -> Score {
        let Outline { devices, family, counts, .. } = self.outline;
        let window = (counts.first_device, devices);
        let standing = goal.standing_at_best(window, family.rule);
        goal.score(standing, self.bound.step_time(), self.bound.memory, self.number)
    }
}

/// Clocks plans, best bound first; they come in any parts.
pub(crate) fn search(
    plans: Vec<Vec<Open>>,
    aim: Aim<'_>,
    judge: &mut impl Judge,
    progress: &mut Progress<'_>,
) -> Found {
    let mut queue = Queue::new(plans, aim.goal);
    let mut found = Found::default();
    while let Some((score, first)) = queue.first() {
        if found.is_settled(score, aim) {
            break;
        }
        let sharp = first.is_sharp();
        let room = aim.clocked_max.saturating_sub(found.clocked);
        if progress.look(found.look(aim, score)) == ControlFlow::Break(())
            || (sharp && (room == 0 || found.will_do(aim, score)))
        {
            found.open = Some(score);
            found.left = queue.into_left();
            break;
        }
        match sharp {
            false => found.sharpen(&mut queue, aim, judge),
            true => found.clock_together(&mut queue, (aim, room), judge),
        }
    }
    found
}

impl Found {
    /// Whether no plan of this bound can join the best.
    fn is_settled(&self, open: Score, aim: Aim<'_>) -> bool {
        let worst = self.best.get(aim.keep.saturating_sub(1));
        worst.is_some_and(|worst| worst.score(aim.goal) <= open)
    }

    /// Whether enough were looked at, and there is a plan that no open one beats by more than half.
    fn will_do(&self, aim: Aim<'_>, open: Score) -> bool {
        let half = |best: &Candidate| best.score(aim.goal).0 / 2 <= open.0;
        self.clocked >= aim.enough && self.best.first().is_some_and(half)
    }

    fn look(&self, aim: Aim<'_>, open: Score) -> Look {
        let best = self.best.first().map(|best| best.score(aim.goal).0);
        Look::Best { clocked: self.clocked, best, bound: open.0 }
    }

    fn sharpen(&mut self, queue: &mut Queue<'_>, aim: Aim<'_>, judge: &mut impl Judge) {
        let dull = |score, open: &Open| !open.is_sharp() && !self.is_settled(score, aim);
        let taken = queue.take(SHARPENED, dull);
        let open: Vec<Open> = taken.iter().map(|place| *queue.at(*place)).collect();
        for (place, result) in taken.into_iter().zip(judge.sharper(&open)) {
            match result {
                Ok(sharper) => queue.put_back(place, sharper),
                Err(reason) => {
                    let next = judge.refuse(queue.at(place), &reason);
                    next.into_iter().for_each(|next| queue.add(next));
                }
            }
        }
    }

    /// Clocks the sharp plans at the front of the queue; where they are few and a dull one behind them
    /// may still be the best, makes that sharper first.
    fn clock_together(
        &mut self,
        queue: &mut Queue<'_>,
        (aim, room): (Aim<'_>, usize),
        judge: &mut impl Judge,
    ) {
        let sharp = |score, open: &Open| open.is_sharp() && !self.is_settled(score, aim);
        let taken = queue.take(ROUND.min(room), sharp);
        let next = queue.first().filter(|(score, _)| !self.is_settled(*score, aim));
        if taken.len() < TOGETHER.min(room) && next.is_some() {
            self.sharpen(queue, aim, judge);
            queue.give_back(&taken);
        } else {
            self.clock(queue, &taken, (aim, judge));
        }
    }

    fn clock(
        &mut self,
        queue: &mut Queue<'_>,
        taken: &[Place],
        (aim, judge): (Aim<'_>, &mut impl Judge),
    ) {
        let round: Vec<Open> = taken.iter().map(|place| *queue.at(*place)).collect();
        let results = judge.clock(&round);
        queue.give_back(&taken[results.len()..]);
        for (open, result) in round.iter().zip(results) {
            self.clocked += 1;
            match result {
                Ok(candidate) => self.best.push(candidate),
                Err(reason) => {
                    let next = judge.refuse(open, &reason);
                    next.into_iter().for_each(|next| queue.add(next));
                }
            }
        }
        aim.goal.keep_best(&mut self.best, aim.keep);
    }
}

#[cfg(test)]
mod tests;
