//! The planner's answer: ranked plans, the best of each weaker class, and what was searched.

use crate::{
    bound::Bound,
    candidate::{Candidate, Score},
    cost::Costs,
    evaluate::evaluate,
    excluded::{Exclusions, Sizes},
    memory,
    outline::Outline,
    parallel::parallel,
    progress::Progress,
    reason::Reason,
    search::{Aim, Found, Judge, Open, search},
    sharpen::{Bounds, Sharpness},
    space::Space,
};
use roundelay_dsl::{Objective, Program};
use roundelay_schedule::{Exactness, Plan};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    thread,
    time::{Duration, Instant},
};

/// How far to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many plans to rank.
    pub top: usize,
    /// How many plans of the allowed classes of exactness to lower and clock at most; of each
    /// weaker class a fifth of it, or fewer when one is found.
    pub clocked_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { top: 10, clocked_max: 250 }
    }
}

/// What the planner found.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// What is minimised.
    pub objective: Objective,
    /// The weakest class that the program allows.
    pub allowed: Exactness,
    /// The best plans of the allowed classes, best first.
    pub plans: Vec<Candidate>,
    /// The best plan of each weaker class, from strict to weak.
    pub weaker: Vec<Weaker>,
    /// What was searched.
    pub space: Space,
    /// Plans whose cost was computed, if only by its bounds.
    pub candidates: usize,
    /// Of these, plans that were bounded away before they were lowered.
    pub pruned: usize,
    /// Of these, plans that were lowered and clocked.
    pub clocked: usize,
    /// Whether no allowed plan of the space can be better than the first.
    pub optimal: bool,
    /// Whether the search was stopped before its end.
    pub interrupted: bool,
    /// (best − least open bound) / best of the objective, at least zero.
    pub gap: f64,
    /// How long it took.
    pub elapsed: Duration,
}

/// The best plan of a class that the program does not allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Weaker {
    /// The class.
    pub exactness: Exactness,
    /// Its best plan.
    pub candidate: Candidate,
    /// The line that would allow it.
    pub line: String,
}

impl Ranking {
    /// The objective's name in the language.
    pub fn objective_name(&self) -> &'static str {
        match self.objective {
            Objective::StepTime => "step_time",
            Objective::Memory => "memory",
            Objective::Devices => "devices",
        }
    }

    /// The best allowed plan.
    pub fn best(&self) -> &Plan {
        &self.plans[0].plan
    }
}

/// Searches the whole space of a program; `plans` may come out empty.
pub(crate) fn survey(
    program: &Program,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Ranking {
    let started = Instant::now();
    let allowed = program.search.exactness.unwrap_or(Exactness::Reordered);
    let costs = Costs::new(program);
    let mut ranking = Ranking {
        objective: program.search.objective,
        allowed,
        plans: Vec::new(),
        weaker: Vec::new(),
        candidates: 0,
        pruned: 0,
        clocked: 0,
        optimal: false,
        interrupted: false,
        gap: 0.0,
        elapsed: Duration::ZERO,
        space: Space::default(),
    };
    if !program.target.devices.is_empty() {
        ranking.space = Space::new(program);
        let (mut clerk, classes) = Clerk::new(program, &costs, &mut ranking);
        ranking.pruned = ranking.candidates;
        ranking.look(&mut clerk, classes, options, progress);
        ranking.space.excluded.extend(clerk.unfit.into_all());
        ranking.space.plans = clerk.plans;
    }
    ranking.interrupted = progress.stopped;
    ranking.elapsed = started.elapsed();
    ranking
}

fn aim(program: &Program, options: &Options, keep: usize) -> Aim {
    Aim {
        objective: program.search.objective,
        keep: keep.max(1),
        clocked_max: options.clocked_max,
        enough: usize::MAX,
        threads: threads(),
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl Ranking {
    /// Searches the allowed classes, then each weaker one for its best.
    fn look(
        &mut self,
        clerk: &mut Clerk<'_>,
        classes: Classes,
        options: &Options,
        progress: &mut Progress<'_>,
    ) {
        let program = clerk.program;
        let (mine, others): (Classes, Classes) =
            classes.into_iter().partition(|(class, _)| *class <= self.allowed);
        let mine = mine.into_values().flatten().collect();
        let found = search(mine, aim(program, options, options.top), clerk, progress);
        self.count(clerk, &found);
        self.settle(found);
        for (exactness, plans) in others {
            let clocked_max = match options.clocked_max {
                usize::MAX => usize::MAX,
                limit => limit.div_ceil(WEAKER_PART),
            };
            let usual = aim(program, &Options { clocked_max, ..*options }, 1);
            let enough = match options.clocked_max {
                usize::MAX => usize::MAX,
                _ => WEAKER_ENOUGH,
            };
            let found = search(plans, Aim { enough, ..usual }, clerk, progress);
            self.count(clerk, &found);
            let line = format!("plan {{ exactness {exactness} }}");
            let weaker = |candidate| Weaker { exactness, candidate, line };
            self.weaker.extend(found.best.into_iter().next().map(weaker));
        }
    }

    fn count(&mut self, clerk: &Clerk<'_>, found: &Found) {
        let left = found.left.iter().map(|number| clerk.after(*number) - number);
        self.clocked += found.clocked;
        self.pruned -= found.clocked + left.sum::<usize>();
    }

    fn settle(&mut self, found: Found) {
        let best = found.best.first().map(|best| best.score(self.objective));
        self.gap = gap(best, found.open);
        self.optimal =
            found.open.is_none_or(|open| best.is_some_and(|best| best <= open));
        self.plans = found.best;
    }
}

/// (best − bound) / best of the first number of two scores.
fn gap(best: Option<Score>, open: Option<Score>) -> f64 {
    match (best, open) {
        (Some([best, ..]), Some([open, ..])) if open < best => {
            (best - open) as f64 / best as f64
        }
        _ => 0.0,
    }
}

/// A weaker class is shown by one plan: up to this part of the limit is clocked to find any.
const WEAKER_PART: usize = 5;

/// Plans of a weaker class after which the best of them is shown.
const WEAKER_ENOUGH: usize = 8;

/// Plans by class of exactness.
type Classes = BTreeMap<Exactness, Vec<Open>>;

/// Knows the costs of the plans of a program, and keeps what turned out.
struct Clerk<'a> {
    program: &'a Program,
    costs: &'a Costs,
    bounds: Bounds<'a>,
    /// All plans, those of a group side by side.
    plans: Vec<Outline>,
    /// Plans that turned out to be none.
    unfit: Exclusions,
}

impl<'a> Clerk<'a> {
    /// The plans of a space with their first bounds; those that cannot fit are counted.
    fn new(
        program: &'a Program,
        costs: &'a Costs,
        ranking: &mut Ranking,
    ) -> (Self, Classes) {
        let plans = std::mem::take(&mut ranking.space.plans);
        let bounds = Bounds::new(program, costs, &plans, threads());
        let unfit = Exclusions::default();
        let mut clerk = Self { program, costs, bounds, plans, unfit };
        let mut classes = Classes::new();
        let mut number = 0;
        while number < clerk.plans.len() {
            if let Some(open) = clerk.open(number) {
                let class = open.outline.exactness(program);
                classes.entry(class).or_default().push(open);
            }
            number = clerk.after(number);
        }
        ranking.candidates = clerk.plans.len();
        (clerk, classes)
    }

    /// The first plan of a group from this one on that may fit. The plans of a group differ in
    /// what they compute again, least first: one that does less of it is no slower, so unless
    /// memory is what counts the first that fits is the only one to look at.
    fn open(&mut self, mut number: usize) -> Option<Open> {
        let end = self.after(number);
        while number < end {
            let outline = self.plans[number];
            let found = self.bounds.first(&outline);
            match found.and_then(|bound| self.roomy(&outline, bound)) {
                Ok(bound) => {
                    let sharpness = Sharpness::Nodes;
                    return Some(Open { outline, bound, sharpness, number });
                }
                Err(reason) => self.unfit(&outline, &reason),
            }
            number += 1;
        }
        None
    }

    /// Where the group of a plan ends.
    fn after(&self, number: usize) -> usize {
        let alone = self.program.search.objective == Objective::Memory;
        let group = |outline: &Outline| (outline.family, outline.counts);
        let own = group(&self.plans[number]);
        let rest = self.plans[number + 1..].iter();
        let others = rest.take_while(|other| !alone && group(other) == own);
        number + 1 + others.count()
    }

    /// The bound of a plan that may fit.
    fn roomy(&self, outline: &Outline, bound: Bound) -> Result<Bound, Reason> {
        let fits = memory::may_fit(self.program, outline.devices, &bound);
        fits.map(|()| bound).map_err(Reason::Memory)
    }

    fn unfit(&mut self, outline: &Outline, reason: &Reason) {
        let which = (outline.family, Sizes::One(outline.counts));
        self.unfit.add(which, reason, 1);
    }
}

impl Judge for Clerk<'_> {
    fn sharper(&mut self, open: &[Open]) -> Vec<Result<(Bound, Sharpness), Reason>> {
        let known: Vec<_> =
            open.iter().map(|open| (open.outline, open.bound, open.sharpness)).collect();
        let sharper = self.bounds.sharper(&known).into_iter().zip(open);
        let roomy = |(found, open): (Result<(Bound, Sharpness), Reason>, &Open)| {
            let (bound, sharpness) = found?;
            Ok((self.roomy(&open.outline, bound)?, sharpness))
        };
        sharper.map(roomy).collect()
    }

    fn clock(
        &mut self,
        round: &[Open],
        threads: usize,
    ) -> Vec<Result<Candidate, Reason>> {
        parallel(round, threads, &|open: &Open| {
            let plan = self.bounds.plan(&open.outline)?;
            evaluate(self.program, self.costs, open, plan)
        })
    }

    fn refuse(&mut self, open: &Open, reason: &Reason) -> Option<Open> {
        self.unfit(&open.outline, reason);
        let next = open.number + 1;
        if next < self.after(open.number) { self.open(next) } else { None }
    }
}
