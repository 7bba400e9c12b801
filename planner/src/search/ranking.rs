//! The planner's answer: ranked plans, the best of each weaker class, and what was searched.

mod looks;

use crate::{
    answer::approach::{Leader, leaders},
    costs::calls::Costs,
    rewrite::Stop,
    search::{
        Aim, Found, Open,
        candidate::Candidate,
        clerk::{Classes, Clerk, Grouping},
        local,
        objective::{Goal, Score},
        progress::Progress,
        search,
    },
    space::{Space, outline::Outline, pieces::Pieces},
};
use roundelay_dsl::Program;
use roundelay_schedule::{Exactness, Plan, Recompute};
use std::{
    collections::BTreeMap,
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
    /// What is compared besides.
    pub compare: Compare,
}

/// What a search compares besides plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Nothing.
    Plans,
    /// Also the best plans of all approaches, where a program allows more than summing gradients
    /// in another order; each of them is one more search.
    Approaches,
}

impl Default for Options {
    fn default() -> Self {
        Self { top: 10, clocked_max: 250, compare: Compare::Plans }
    }
}

/// What the planner found.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// What is minimised.
    pub goal: Goal,
    /// The weakest class that the program allows.
    pub allowed: Exactness,
    /// The best plans of the allowed classes, best first.
    pub plans: Vec<Candidate>,
    /// The best plan of each weaker class, from strict to weak.
    pub weaker: Vec<Weaker>,
    /// The best plan of each approach, best first, where approaches are compared and there are
    /// several.
    pub approaches: Vec<Leader>,
    /// What was searched.
    pub space: Space,
    /// Plans whose cost was computed, if only by its bounds.
    pub candidates: usize,
    /// Of these, plans that were bounded away before they were lowered.
    pub pruned: usize,
    /// Of these, plans that were lowered and clocked.
    pub clocked: usize,
    /// Whether the search was stopped before its end.
    pub interrupted: bool,
    /// The least bound of the plans that were neither clocked nor bounded away.
    pub(crate) open: Option<Score>,
    /// How many e-graphs were asked which calls are one, by why they grew no further.
    pub rewriting: BTreeMap<Stop, usize>,
    /// The same of those that were asked how maps are split.
    pub sharding: BTreeMap<Stop, usize>,
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
    /// How much better another of its class may be: (it − least open bound) / it.
    pub gap: f64,
}

impl Ranking {
    /// The best allowed plan.
    pub fn best(&self) -> &Plan {
        &self.plans[0].plan
    }

    /// Whether no allowed plan of the space can be better than the first.
    pub fn is_optimal(&self) -> bool {
        let best = self.best_score();
        self.open.is_none_or(|open| best.is_some_and(|best| best <= open))
    }

    /// Whether the first plan is none of the space, but one of these that computes less again.
    pub(crate) fn is_first_lessened(&self) -> bool {
        let Some(first) = self.plans.first() else { return false };
        self.space.plans.get(first.number).is_some_and(|own| {
            let (own, recompute) = (own.recompute, &first.plan.recompute);
            let is_less = |less: &Recompute| *less < own && less.rank() == own.rank();
            !recompute.contains(&own) && recompute.iter().any(is_less)
        })
    }

    /// How much better another plan may be than the first: (best − least open bound) / best of
    /// the objective, at least zero.
    pub fn gap(&self) -> f64 {
        gap(self.best_score(), self.open)
    }

    fn best_score(&self) -> Option<Score> {
        self.plans.first().map(|best| best.score(&self.goal))
    }
}

/// Searches the whole space of a program; `plans` may come out empty.
pub(crate) fn survey(
    program: &Program,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Ranking {
    let mut ranking = ranked(program, options, Breadth::AllClasses, progress);
    if options.compare == Compare::Plans {
        ranking.approaches.clear();
    }
    ranking
}

/// The best plan that a program allows; weaker classes are not looked at. It is the one that
/// [`survey`] ranks first, however many that ranks.
pub(crate) fn best(program: &Program, options: &Options) -> Option<Candidate> {
    let once = Options { top: 1, ..*options };
    allowed(program, &once).into_iter().next()
}

/// The best plans of the classes that a program allows.
pub(crate) fn allowed(program: &Program, options: &Options) -> Vec<Candidate> {
    let silent = &mut Progress::default();
    let plain = Options { compare: Compare::Plans, ..*options };
    ranked(program, &plain, Breadth::AllowedClasses, silent).plans
}

/// Plans of a program that are searched, and what they cost.
pub(crate) struct Plans<'a> {
    pub(crate) program: &'a Program,
    pub(crate) costs: &'a Costs,
    pub(crate) outlines: Vec<Outline>,
}

/// Which plans are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breadth {
    /// Those that the program allows, then the best of each weaker class.
    AllClasses,
    /// Those that the program allows.
    AllowedClasses,
}

/// What is found of the program for each model that its rules train.
fn ranked(
    program: &Program,
    options: &Options,
    breadth: Breadth,
    progress: &mut Progress<'_>,
) -> Ranking {
    let programs = local::programs(program);
    let each = programs.iter().map(|own| ranked_alone(own, options, breadth, progress));
    let mut ranking = local::joined(each.collect(), options.top);
    // Where the limit was met, an approach that is searched alone may have a better plan.
    if !ranking.is_optimal() || options.compare == Compare::Approaches {
        ranking.look_at_approaches(program, options, progress);
    }
    ranking
}

fn ranked_alone(
    program: &Program,
    options: &Options,
    breadth: Breadth,
    progress: &mut Progress<'_>,
) -> Ranking {
    let started = Instant::now();
    let costs = Costs::new(program);
    let mut ranking = Ranking::blank(program);
    if !program.target.devices.is_empty() {
        ranking.space = Space::new(program);
        let outlines = std::mem::take(&mut ranking.space.plans);
        let plans = Plans { program, costs: &costs, outlines };
        ranking.take_plans(plans, options, breadth, progress);
    }
    ranking.rewriting = costs.algebra.stops();
    ranking.sharding = costs.algebra.map_stops();
    ranking.elapsed = started.elapsed();
    ranking
}

fn aim<'a>(goal: &'a Goal, options: &Options, keep: usize) -> Aim<'a> {
    let (keep, clocked_max) = (keep.max(1), options.clocked_max);
    Aim { goal, keep, clocked_max, enough: usize::MAX }
}

impl Ranking {
    /// Nothing yet.
    fn blank(program: &Program) -> Self {
        Self {
            goal: Goal::new(program),
            allowed: program.search.weakest(),
            plans: Vec::new(),
            weaker: Vec::new(),
            approaches: Vec::new(),
            candidates: 0,
            pruned: 0,
            clocked: 0,
            interrupted: false,
            open: None,
            rewriting: BTreeMap::new(),
            sharding: BTreeMap::new(),
            elapsed: Duration::ZERO,
            space: Space::default(),
        }
    }

    /// The best of some plans of a program.
    pub(crate) fn of_plans(
        plans: Plans<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> Self {
        let mut ranking = Self::blank(plans.program);
        ranking.take_plans(plans, options, Breadth::AllowedClasses, progress);
        ranking
    }

    /// Searches some plans, and keeps them in its space.
    fn take_plans(
        &mut self,
        plans: Plans<'_>,
        options: &Options,
        breadth: Breadth,
        progress: &mut Progress<'_>,
    ) {
        let Plans { program, costs, outlines } = plans;
        let without = outlines.len();
        let grouping = Grouping::of(program.search.objective);
        let (mut clerk, mut classes) = Clerk::new(program, costs, outlines, grouping);
        clerk.heed(progress.wish());
        let all = clerk.plans().len();
        (self.candidates, self.pruned) = (all, all);
        self.space.combinations += (all - without) as u64;
        if breadth == Breadth::AllowedClasses {
            classes.retain(|class, _| *class <= self.allowed);
        }
        self.look(&mut clerk, classes, options, progress);
        let (plans, unfit) = clerk.into_all();
        self.space.excluded.extend(unfit);
        self.space.plans = plans;
        self.interrupted = progress.stopped;
    }

    /// Finds the best plan of each approach, if the program allows several, and ranks those that are
    /// better than what was found.
    fn look_at_approaches(
        &mut self,
        program: &Program,
        options: &Options,
        progress: &mut Progress<'_>,
    ) {
        if self.allowed <= Exactness::Reordered || progress.stopped {
            return;
        }
        let started = Instant::now();
        self.approaches = leaders(program, options, self, progress);
        self.welcome(options.top);
        self.interrupted = progress.stopped;
        self.elapsed += started.elapsed();
    }

    /// Ranks the leaders of approaches among the plans, of which this many are kept.
    fn welcome(&mut self, top: usize) {
        let leaders =
            self.approaches.iter().filter_map(|leader| leader.candidate.clone());
        for leader in leaders {
            let is_new = self.plans.iter().all(|known| known.number != leader.number);
            if is_new && leader.number < self.space.plans.len() {
                self.plans.push(leader);
            }
        }
        self.goal.keep_best(&mut self.plans, top);
    }

    /// Plans that were neither clocked nor bounded away.
    pub(crate) fn left_open(&self) -> usize {
        self.candidates.saturating_sub(self.clocked + self.pruned)
    }

    /// Searches the allowed classes, then each weaker one for its best.
    fn look(
        &mut self,
        clerk: &mut Clerk<'_>,
        classes: Classes,
        options: &Options,
        progress: &mut Progress<'_>,
    ) {
        let top = options.top;
        let options = &Options { top: clerk.kept(top), ..*options };
        let (mine, others): (Classes, Classes) =
            classes.into_iter().partition(|(class, _)| *class <= self.allowed);
        let found = self.of_allowed(mine, clerk, options, progress);
        // Less is looked for only behind a search that was not cut short, whose first plan is then proven.
        let is_cut = progress.stopped || progress.wish().is_made();
        self.plans = match is_cut && found.open.is_some() {
            true => found.best,
            false => clerk.lessened(found.best),
        };
        self.open = found.open;
        progress.stopped |= progress.wish().is_made();
        self.goal.keep_best(&mut self.plans, top);
        for (exactness, plans) in others {
            let weaker = self.of_weaker((exactness, plans), clerk, options, progress);
            self.weaker.extend(weaker);
        }
    }

    /// The best plans of the allowed classes; where the limit was met, after more looks.
    fn of_allowed(
        &mut self,
        classes: Classes,
        clerk: &mut Clerk<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> Found {
        let plans = classes.into_values().flatten().collect();
        let aim = aim(&self.goal, options, options.top);
        let mut found = search(plans, aim, clerk, progress);
        self.count(clerk, &found);
        if found.open.is_some() && !found.best.is_empty() && !progress.stopped {
            self.look_again(&mut found, clerk, options, progress);
        }
        if found.best.is_empty() && found.open.is_some() && !progress.stopped {
            let left = std::mem::take(&mut found.left);
            let left = left.into_iter().filter_map(|open| clerk.open(open.number));
            let left = left.collect();
            found.best = self.smallest(left, clerk, options, progress);
        }
        found
    }

    /// The best plan of a weaker class, if one is found.
    fn of_weaker(
        &mut self,
        (exactness, plans): (Exactness, Pieces<Open>),
        clerk: &mut Clerk<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> Option<Weaker> {
        let (clocked_max, enough) = match options.clocked_max {
            usize::MAX => (usize::MAX, usize::MAX),
            limit => (limit.div_ceil(WEAKER_PART), WEAKER_ENOUGH),
        };
        let usual = aim(&self.goal, &Options { clocked_max, ..*options }, 1);
        let aim = Aim { enough, ..usual };
        let found = search(plans.into_iter().collect(), aim, clerk, progress);
        self.count(clerk, &found);
        let candidate = found.best.into_iter().next()?;
        let line = format!("plan {{ exactness {exactness} }}");
        let gap = gap(Some(candidate.score(&self.goal)), found.open);
        Some(Weaker { exactness, candidate, line, gap })
    }

    fn count(&mut self, clerk: &Clerk<'_>, found: &Found) {
        let left = found.left.iter().map(|open| clerk.after(open.number) - open.number);
        self.clocked += found.clocked;
        self.pruned -= found.clocked + left.sum::<usize>();
    }
}

/// (best − bound) / best of the first number of two scores.
fn gap(best: Option<Score>, open: Option<Score>) -> f64 {
    match (best, open) {
        (Some((best, _)), Some((open, _))) if open < best => {
            (best - open) as f64 / best as f64
        }
        _ => 0.0,
    }
}

/// A weaker class is shown by one plan: up to this part of the limit is clocked to find any.
const WEAKER_PART: usize = 5;

/// Plans of a weaker class after which the best of them is shown, unless another may be twice as
/// good.
const WEAKER_ENOUGH: usize = 8;
