//! Cuts beside those of the first plan. A space has cuts that balance stages by what these take alone;
//! on the clock a plan may do better where a stage begins a few operations earlier or later.

use crate::{
    answer::appraise::Appraiser,
    costs::calls::Costs,
    search::{
        candidate::Candidate,
        objective::{Goal, Score},
    },
    space::{cuts::Chain, family::Family, laws::check_cuts},
};
use roundelay_dsl::Program;
use roundelay_schedule::{MapWays, Plan, Rewrites};

/// By how many places one cut is moved, forwards and backwards.
const STEPS: [usize; 3] = [1, 2, 4];

/// Plans that are clocked at most.
const CLOCKED: usize = 48;

/// The cuts that moving one after another of a plan's leads to, each time as makes it best on the clock;
/// none where no move makes it better, or where the program has cuts.
pub(crate) fn better_cuts(program: &Program, first: &Candidate) -> Option<Vec<u32>> {
    if program.search.cuts.is_some() || first.plan.cuts.is_empty() {
        return None;
    }
    let trained = program.under(first.plan.rule).ok()?;
    let costs = Costs::new(&trained);
    let users = Family::from(&first.plan).users(&trained, first.plan.slices);
    let mut climber = Climber {
        goal: Goal::new(&trained),
        chain: Chain::uncosted(&trained.model).with(users),
        appraiser: Appraiser::new(&trained, &costs),
        left: CLOCKED,
    };
    let mut best = climber.step(first)?;
    while let Some(better) = climber.step(&best) {
        best = better;
    }
    Some(best.plan.cuts)
}

/// Goes from a plan to better ones.
struct Climber<'a> {
    goal: Goal,
    chain: Chain,
    appraiser: Appraiser<'a>,
    /// So many plans may still be clocked.
    left: usize,
}

impl Climber<'_> {
    /// The best of the plans that are one move away, if one is better.
    fn step(&mut self, from: &Candidate) -> Option<Candidate> {
        let mut found: Option<Candidate> = None;
        for plan in moved(&self.chain, &from.plan) {
            let least = found.as_ref().unwrap_or(from).score(&self.goal);
            if let Some(better) = self.better(plan, from.number, least) {
                found = Some(better);
            }
        }
        found
    }

    /// A plan with its costs, if it fits and is better than a score; it is clocked where its bound is.
    fn better(&mut self, plan: Plan, number: usize, least: Score) -> Option<Candidate> {
        let left = self.left.checked_sub(1)?;
        let bound = self.appraiser.bound(&plan).ok()?;
        let (standing, time) = (self.goal.standing(&plan), bound.step_time());
        if self.goal.score(standing, time, bound.memory, number) >= least {
            return None;
        }
        self.left = left;
        let clocked = self.appraiser.clock(&plan, (bound, number)).ok()?;
        (clocked.score(&self.goal) < least).then_some(clocked)
    }
}

/// The plans one of whose stages begins elsewhere. What was found for a plan's own stages is found
/// anew: lists, rewrites and ways of maps.
fn moved(chain: &Chain, plan: &Plan) -> Vec<Plan> {
    let places = chain.positions();
    let elsewhere = |cut: u32, step: usize| {
        let at = places.binary_search(&(cut as usize)).ok()?;
        let to = [at.checked_sub(step), at.checked_add(step)];
        let to = to.map(|to| u32::try_from(*places.get(to?)?).ok());
        Some(to.into_iter().flatten())
    };
    let with = |number: usize, cut: u32| {
        let mut own = plan.clone();
        own.cuts[number] = cut;
        own.ties = chain.stage_ties(&own.cuts);
        if plan.order.is_found() {
            own.lists.clear();
        }
        Plan { rewrites: Rewrites::default(), maps: MapWays::default(), ..own }
    };
    let cuts = || plan.cuts.iter().copied().enumerate();
    let each = STEPS.into_iter().flat_map(|step| cuts().map(move |own| (step, own)));
    let all = each.flat_map(|(step, (number, cut))| {
        let to = elsewhere(cut, step).into_iter().flatten();
        to.map(move |to| (number, to))
    });
    all.map(|(number, to)| with(number, to))
        .filter(|own| check_cuts(chain, &own.cuts, own.stages).is_ok())
        .collect()
}
