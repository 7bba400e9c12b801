//! The planner's answer: ranked plans, the best of each weaker class, and what was searched.

use crate::{
    bound::Bound,
    candidate::Candidate,
    cost::Costs,
    evaluate::evaluate,
    load::{self, StageLoad},
    memory,
    objective::{Goal, Score},
    reason::Reason,
    search::{Aim, Found, Open, search},
    space::{Excluded, Sizes, Space},
};
use roundelay_dsl::Program;
use roundelay_schedule::{Exactness, Plan, Recompute};
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
    /// How many plans of one class of exactness to lower and clock at most.
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
    pub goal: Goal,
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
        self.goal.objective.name()
    }

    /// The best allowed plan.
    pub fn best(&self) -> &Plan {
        &self.plans[0].plan
    }
}

/// Searches the whole space of a program; `plans` may come out empty.
pub(crate) fn survey(program: &Program, options: &Options) -> Ranking {
    let started = Instant::now();
    let costs = Costs::new(program);
    let (mut ranking, others) = allowed(program, &costs, options);
    for (exactness, plans) in others {
        let found = ranking.look((program, &costs), plans, (options, 1));
        let line = format!("plan {{ exactness {exactness} }}");
        let weaker = |candidate| Weaker { exactness, candidate, line };
        ranking.weaker.extend(found.best.into_iter().next().map(weaker));
    }
    ranking.elapsed = started.elapsed();
    ranking
}

/// The best plan that a program allows; weaker classes are not looked at. It is the one that
/// [`survey`] ranks first, however many that ranks.
pub(crate) fn best(program: &Program, options: &Options) -> Option<Candidate> {
    let once = Options { top: 1, ..*options };
    let (ranking, _) = allowed(program, &Costs::new(program), &once);
    ranking.plans.into_iter().next()
}

/// The best plans of the classes that a program allows, and the plans of the others.
pub(crate) fn allowed(
    program: &Program,
    costs: &Costs,
    options: &Options,
) -> (Ranking, Classes) {
    let allowed = program.search.exactness.unwrap_or(Exactness::Reordered);
    let mut pool = Pool::new(program, costs);
    let mut ranking = Ranking {
        goal: Goal::new(program),
        allowed,
        plans: Vec::new(),
        weaker: Vec::new(),
        candidates: 0,
        pruned: pool.small,
        clocked: 0,
        optimal: false,
        gap: 0.0,
        elapsed: Duration::ZERO,
        space: std::mem::take(&mut pool.space),
    };
    ranking.candidates = ranking.pruned;
    let (mine, others): (Classes, Classes) =
        pool.classes.into_iter().partition(|(class, _)| *class <= allowed);
    let mine: Vec<Open> = mine.into_values().flatten().collect();
    let found = ranking.look((program, costs), mine.clone(), (options, options.top));
    let found = match found.open {
        Some(open) if found.best.is_empty() => {
            let tried = |open: &Open| found.refused.iter().any(|(p, _)| *p == open.plan);
            let rest = mine.into_iter().filter(|open| !tried(open)).collect();
            let best = ranking.smallest((program, costs), rest, options);
            Found { best, open: Some(open), ..Found::default() }
        }
        _ => found,
    };
    ranking.settle(found);
    (ranking, others)
}

/// Threads that clock plans.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl Ranking {
    /// Searches some plans and counts what was done with them.
    fn look(
        &mut self,
        (program, costs): (&Program, &Costs),
        plans: Vec<Open>,
        (options, keep): (&Options, usize),
    ) -> Found {
        self.candidates += plans.len();
        let (keep, clocked_max) = (keep.max(1), options.clocked_max);
        let aim = Aim { goal: &self.goal, keep, clocked_max, threads: threads() };
        let found = search(plans, aim, &|open: &Open| evaluate(program, costs, open));
        self.pruned += found.pruned;
        self.clocked += found.clocked;
        let refused = found.refused.iter();
        self.space.excluded.extend(refused.map(|(plan, reason)| excluded(plan, reason)));
        found
    }

    /// A second look where the limit was met before anything fitted: what is likeliest to fit is
    /// clocked first, as many plans again, however many are asked for.
    fn smallest(
        &mut self,
        (program, costs): (&Program, &Costs),
        plans: Vec<Open>,
        options: &Options,
    ) -> Vec<Candidate> {
        let goal = self.goal.by_memory();
        let clocked_max = options.clocked_max;
        let aim = Aim { goal: &goal, keep: usize::MAX, clocked_max, threads: threads() };
        let found = search(plans, aim, &|open: &Open| evaluate(program, costs, open));
        self.clocked += found.clocked;
        let refused = found.refused.iter();
        self.space.excluded.extend(refused.map(|(plan, reason)| excluded(plan, reason)));
        let mut best = found.best;
        best.sort_by_key(|candidate| candidate.score(&self.goal));
        best.truncate(options.top.max(1));
        best
    }

    fn settle(&mut self, found: Found) {
        let best = found.best.first().map(|best| best.score(&self.goal));
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

fn excluded(plan: &Plan, reason: &Reason) -> Excluded {
    let sizes = Sizes::One(plan.into());
    Excluded { family: plan.into(), sizes, reason: reason.clone() }
}

/// Plans by class of exactness.
pub(crate) type Classes = BTreeMap<Exactness, Vec<Open>>;

/// The plans of a space with their bounds.
pub(crate) struct Pool {
    pub(crate) space: Space,
    pub(crate) classes: Classes,
    /// Plans whose bound shows that they cannot fit.
    pub(crate) small: usize,
}

impl Pool {
    pub(crate) fn new(program: &Program, costs: &Costs) -> Self {
        if program.target.devices.is_empty() {
            return Self { space: Space::default(), classes: Classes::new(), small: 0 };
        }
        let chain = |examples| {
            load::chain(program, examples, costs)
                .map_err(|error| Reason::Refused(error.to_string()))
        };
        let mut pool =
            Self { space: Space::new(program, chain), classes: Classes::new(), small: 0 };
        let mut loads = Loads { program, costs, known: BTreeMap::new() };
        for (number, plan) in pool.space.plans.clone().into_iter().enumerate() {
            if let Err(reason) = pool.add(program, number, &plan, &mut loads) {
                pool.space.excluded.push(excluded(&plan, &reason));
            }
        }
        pool
    }

    fn add(
        &mut self,
        program: &Program,
        number: usize,
        plan: &Plan,
        loads: &mut Loads<'_>,
    ) -> Result<(), Reason> {
        let bound = Bound::new(plan, loads.of(plan)?, &program.target);
        if let Err(shortfall) = memory::may_fit(program, plan, &bound) {
            self.small += 1;
            return Err(Reason::Memory(shortfall));
        }
        let open = Open { plan: plan.clone(), bound, number };
        self.classes.entry(plan.exactness()).or_default().push(open);
        Ok(())
    }
}

/// Number of micro-batches, cuts, and what each stage computes again.
type Cutting = (u32, Vec<u32>, Vec<Recompute>);

/// Loads of the stages, once per cutting.
struct Loads<'a> {
    program: &'a Program,
    costs: &'a Costs,
    known: BTreeMap<Cutting, Result<Vec<StageLoad>, Reason>>,
}

impl Loads<'_> {
    fn of(&mut self, plan: &Plan) -> Result<&[StageLoad], Reason> {
        let all = plan.all_micro_batches();
        let key = (all, plan.cuts.clone(), plan.recompute.clone());
        let examples = self.program.train.batch / all;
        let loads = self.known.entry(key).or_insert_with(|| {
            let stages = (&plan.cuts[..], &plan.recompute[..]);
            load::load(self.program, stages, examples, self.costs)
                .map_err(|error| Reason::Refused(error.to_string()))
        });
        loads.as_deref().map_err(Clone::clone)
    }
}
