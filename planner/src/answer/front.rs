//! The front: the plans that no other beats in step time, peak memory and number of devices
//! together.
//!
//! Law: a plan may be left out only when one that was clocked is no worse than its bounds in all
//! three numbers; then it is no worse than the plan either. So what is kept when nothing is left
//! open is the front of the whole space; plans that are equal in all three are kept once.

mod rest;

use self::rest::Rest;
use crate::{
    costs::calls::Costs,
    search::{
        Judge, Open, ROUND, SHARPENED,
        candidate::Candidate,
        clerk::{Clerk, Grouping},
        local,
        progress::{Look, Observer, Progress},
        ranking::Ranking,
    },
    space::{Space, outline::Outline},
};
use roundelay_dsl::{Objective, Program};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// What was found.
#[derive(Clone, Debug)]
pub struct Front {
    /// The plans, fastest first; each takes less memory or fewer devices than those before it.
    pub plans: Vec<Candidate>,
    /// Plans whose cost was computed, if only by its bounds.
    pub candidates: usize,
    /// Of these, plans that were bounded away before they were lowered.
    pub pruned: usize,
    /// Of these, plans that were lowered and clocked.
    pub clocked: usize,
    /// Plans that were left open at the limit, or where the search was stopped: some of them may belong
    /// to the front.
    pub open: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// Step time, peak memory and number of devices; less is better in each.
pub(crate) type Point = [u64; 3];

impl Front {
    /// Whether no allowed plan of the space is missing.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }
}

impl Candidate {
    /// Where it stands among others.
    pub(crate) fn point(&self) -> Point {
        [self.step_time.0, self.device_peak.0, self.plan.devices.len() as u64]
    }
}

impl Open {
    /// Where it stands at best.
    fn point(&self) -> Point {
        let devices = u64::from(self.outline.devices);
        [self.bound.step_time().0, self.bound.memory.0, devices]
    }
}

/// The front like [`front_watched`], where nobody watches.
#[cfg(test)]
pub(crate) fn front(program: &Program, ranking: &Ranking, clocked_max: usize) -> Front {
    searched((program, ranking), clocked_max, &mut Progress::default())
}

/// The front of the plans that a program allows; `ranking` is what was clocked of it before, and
/// `clocked_max` plans are clocked besides at most. Somebody watches, who may end the search: then it
/// is of what was found so far.
pub fn front_watched(
    program: &Program,
    ranking: &Ranking,
    clocked_max: usize,
    observer: &mut dyn Observer,
) -> Front {
    searched((program, ranking), clocked_max, &mut Progress::told_to(observer))
}

fn searched(
    (program, ranking): (&Program, &Ranking),
    clocked_max: usize,
    progress: &mut Progress<'_>,
) -> Front {
    let started = Instant::now();
    let known = known(program, ranking);
    let mut search = Search { found: Vec::new(), clocked: 0 };
    ranking.plans.iter().for_each(|candidate| search.add(candidate.clone()));
    let (mut candidates, mut open) = (0, 0);
    for program in local::programs(program) {
        let costs = Costs::new(&program);
        let own = plans(&program);
        let (mut clerk, classes) = Clerk::new(&program, &costs, own, Grouping::None);
        clerk.heed(progress.wish());
        let allowed = |plan: &&Outline| plan.exactness(&program) <= ranking.allowed;
        candidates += clerk.plans().iter().filter(allowed).count();
        let allowed = classes.into_iter().filter(|(class, _)| *class <= ranking.allowed);
        let plans = allowed.flat_map(|(_, parts)| parts).flatten();
        let is_new = |open: &Open| !known.contains(&open.outline);
        let new = plans.filter(is_new).collect();
        open += search.run(new, clocked_max, (&mut clerk, progress));
    }
    let clocked = search.clocked + known.len();
    let mut plans = search.found;
    plans.sort_by_key(|candidate| (candidate.point(), candidate.number));
    let pruned = candidates - clocked - open;
    let elapsed = started.elapsed();
    Front { plans, candidates, pruned, clocked, open, elapsed }
}

/// The plans of the space that a ranking shows. One that computes less again than its plan of
/// the space is not that plan, which takes less memory.
fn known(program: &Program, ranking: &Ranking) -> BTreeSet<Outline> {
    let shown = ranking.plans.iter().filter_map(|shown| {
        let outline = ranking.space.plans[shown.number];
        let is_itself = outline.recomputes(program) == shown.plan.recompute;
        is_itself.then_some(outline)
    });
    shown.collect()
}

/// The plans that may belong to a front. Here memory counts whatever is minimised, so none is left
/// out for another one that is as fast and may take a little more of it; what a ranking looks at is
/// among them.
fn plans(program: &Program) -> Vec<Outline> {
    let mut by_memory = program.clone();
    by_memory.search.objective = Objective::Memory;
    Space::new(&by_memory).plans
}

/// The plans that nothing found so far beats.
struct Search {
    found: Vec<Candidate>,
    clocked: usize,
}

impl Search {
    /// Clocks what may belong to the front, and returns how many such plans are left open. Rounds
    /// take turns in going for time, for memory and for few devices, so that a search that is cut
    /// short has seen all ends of the front. A plan is clocked when no bound of it is sharper.
    fn run(
        &mut self,
        plans: Vec<Open>,
        clocked_max: usize,
        (judge, progress): (&mut impl Judge, &mut Progress<'_>),
    ) -> usize {
        let mut rest = Rest::new(plans);
        for aspect in (0..3).cycle() {
            let is_beaten = |open: &Open| self.beats(&open.point());
            let Some(first) = rest.first(aspect, is_beaten) else { break };
            let room = ROUND.min(clocked_max.saturating_sub(self.clocked));
            let look = Look::Front { clocked: self.clocked, found: self.found.len() };
            if room == 0 || progress.look(look).is_break() {
                return rest.left(is_beaten);
            }
            if first.is_sharp() {
                let round = rest.take((aspect, room), Open::is_sharp, is_beaten);
                let clocked = judge.clock(&round);
                self.clocked += clocked.len();
                let unseen = &round[clocked.len()..];
                unseen.iter().for_each(|open| rest.give_back(*open));
                clocked.into_iter().flatten().for_each(|own| self.add(own));
            } else {
                let dull = |open: &Open| !open.is_sharp();
                let dull = rest.take((aspect, SHARPENED), dull, is_beaten);
                for (open, sharper) in dull.iter().zip(judge.sharper(&dull)) {
                    // One that cannot fit is left out.
                    if let Ok((bound, sharpness)) = sharper {
                        rest.give_back(Open { bound, sharpness, ..*open });
                    }
                }
            }
        }
        0
    }

    fn beats(&self, point: &Point) -> bool {
        self.found.iter().any(|found| covers(&found.point(), point))
    }

    fn add(&mut self, candidate: Candidate) {
        let point = candidate.point();
        if !self.beats(&point) {
            self.found.retain(|other| !covers(&point, &other.point()));
            self.found.push(candidate);
        }
    }
}

/// Whether one is no worse than the other in anything.
fn covers(one: &Point, other: &Point) -> bool {
    one.iter().zip(other).all(|(one, other)| one <= other)
}

#[cfg(test)]
mod tests;
