//! The front against all plans, on numbers and on random small programs.

use super::*;
use crate::{
    Bound, Options, plan,
    sample::{self, Random},
    search::{ranking::survey, sharpen::Sharpness},
    space::reason::Reason,
    tests::random_program,
};
use roundelay_dsl::{Choice, Numbers};
use roundelay_schedule::{Bytes, Nanos, Placement, Recompute};
use std::{collections::BTreeSet, ops::ControlFlow};

fn open((number, (time, memory)): (usize, (u64, u64))) -> Open {
    let bound = Bound { memory: Bytes(memory), ..sample::bound(Nanos(time)) };
    let devices = u32::try_from(1 + number % 3).expect("few devices");
    let sharpness = Sharpness::Nodes;
    Open { outline: sample::outline(devices), bound, sharpness, number }
}

/// What a plan really takes: up to twice its bounds.
fn real(open: &Open) -> Result<Candidate, Reason> {
    let factor = 1 + open.number as u64 % 2;
    let plan = sample::plan_on(open.outline.devices);
    let time = Nanos(open.bound.work.0 * factor);
    let candidate = sample::candidate(&plan, time, open.number);
    let device_peak = Bytes(open.bound.memory.0 * (3 - factor));
    if open.number.is_multiple_of(11) {
        Err(Reason::OneWorker)
    } else {
        Ok(Candidate { device_peak, ..candidate })
    }
}

/// Makes no bound sharper but in name.
struct MadeUp;

impl Judge for MadeUp {
    fn sharper(&mut self, open: &[Open]) -> Vec<Result<(Bound, Sharpness), Reason>> {
        open.iter().map(|open| Ok((open.bound, Sharpness::Lists))).collect()
    }

    fn clock(&mut self, round: &[Open]) -> Vec<Result<Candidate, Reason>> {
        round.iter().map(real).collect()
    }

    fn refuse(&mut self, _: &Open, _: &Reason) -> Option<Open> {
        None
    }
}

/// The points that no other is no worse than.
fn least(points: impl Iterator<Item = Point>) -> BTreeSet<Point> {
    let all: BTreeSet<Point> = points.collect();
    let beaten = |point: &Point| all.iter().any(|o| o != point && covers(o, point));
    all.iter().filter(|point| !beaten(point)).copied().collect()
}

fn points(found: &[Candidate]) -> BTreeSet<Point> {
    found.iter().map(Candidate::point).collect()
}

#[test]
fn nothing_that_belongs_to_the_front_is_left_out() {
    let mut random = Random::new(7);
    let (mut pruned, mut clocked) = (0, 0);
    for _ in 0..100 {
        let numbers: Vec<(u64, u64)> =
            (0..60).map(|_| (1 + random.below(300), 1 + random.below(300))).collect();
        let plans: Vec<Open> = numbers.into_iter().enumerate().map(open).collect();
        let every = plans.iter().filter_map(|open| real(open).ok());
        let expected = least(
            every.map(|candidate| candidate.point()).collect::<Vec<_>>().into_iter(),
        );
        let mut search = Search { found: Vec::new(), clocked: 0 };
        let silent = &mut Progress::default();
        assert_eq!(search.run(plans, usize::MAX, (&mut MadeUp, silent)), 0);
        assert_eq!(points(&search.found), expected);
        assert_eq!(search.found.len(), expected.len(), "equal plans are kept once");
        clocked += search.clocked;
        pruned += 60 - search.clocked;
    }
    assert!(pruned > clocked, "{pruned} pruned, {clocked} clocked");
}

#[test]
fn a_limit_says_how_many_may_be_missing() {
    let numbers = (0..40).map(|k| (100 + k, 200 - k));
    let plans: Vec<Open> = numbers.enumerate().map(open).collect();
    let mut search = Search { found: Vec::new(), clocked: 0 };
    let open = search.run(plans, 10, (&mut MadeUp, &mut Progress::default()));
    assert_eq!(search.clocked, 10);
    assert!(open > 0 && open <= 30);
    let front = Front {
        plans: search.found,
        candidates: 40,
        pruned: 30 - open,
        clocked: 10,
        open,
        elapsed: Duration::ZERO,
    };
    assert!(!front.is_complete());
}

/// All plans that a program allows, clocked.
fn every(program: &Program, ranking: &Ranking) -> Vec<Candidate> {
    let costs = Costs::new(program);
    let (mut clerk, classes) =
        Clerk::new(program, &costs, plans(program), Grouping::None);
    assert!(ranking.space.plans.iter().all(|plan| clerk.plans().contains(plan)));
    let allowed = classes.into_iter().filter(|(class, _)| *class <= ranking.allowed);
    let all: Vec<Open> = allowed.flat_map(|(_, parts)| parts).flatten().collect();
    clerk.clock(&all).into_iter().flatten().collect()
}

#[test]
fn the_front_is_that_of_clocking_every_plan() {
    let mut random = Random::new(29);
    let (mut found, mut several) = (0, 0);
    for round in 0..12 {
        let program = random_program(&mut random);
        let options = Options { top: 3, clocked_max: usize::MAX, ..Options::default() };
        let ranking = survey(&program, &options, &mut Progress::default());
        let front = front(&program, &ranking, usize::MAX);
        let expected = least(points(&every(&program, &ranking)).into_iter());
        assert_eq!(points(&front.plans), expected, "round {round}");
        assert!(front.is_complete());
        assert_eq!(front.candidates, front.pruned + front.clocked);
        found += usize::from(!front.plans.is_empty());
        several += usize::from(front.plans.len() > 2);
    }
    assert!(found > 6 && several > 3, "{found} programs, {several} with a choice");
}

/// Layers on one device that keeps all there is.
fn roomy(layers: u64) -> Program {
    let mut program = sample::program(1, 4);
    program.model = sample::gpt(layers, 16, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program
}

/// A first plan that computes some of it again is none of the space; the one that computes all again
/// takes less memory.
#[test]
fn a_plan_outside_the_space_hides_none_of_it() {
    let mut program = roomy(8);
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    let most = plan(&program, &Options::default()).expect("it fits").plans[0].device_peak;
    program.search.memory = Some(most - Bytes(1));
    let ranking = plan(&program, &Options::default()).expect("less is kept");
    let first = &ranking.plans[0];
    assert!(!Recompute::ALL.contains(&first.plan.recompute[0]), "{:?}", first.plan);
    let front = front(&program, &ranking, usize::MAX);
    let mut all = points(&every(&program, &ranking));
    all.insert(first.point());
    let expected = least(all.into_iter());
    assert_eq!(points(&front.plans), expected);
    assert!(expected.len() > 2 && front.is_complete(), "{expected:?}");
}

/// Ends a search when this many plans are clocked.
struct Ends(usize);

impl Observer for Ends {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        match look {
            Look::Front { clocked, .. } if clocked >= self.0 => ControlFlow::Break(()),
            Look::Front { .. } | Look::Best { .. } => ControlFlow::Continue(()),
        }
    }
}

#[test]
fn who_ends_the_search_gets_what_was_found() {
    let program = roomy(1);
    let first = Options { top: 1, ..Options::default() };
    let ranking = plan(&program, &first).expect("it fits");
    let whole = front(&program, &ranking, usize::MAX);
    assert!(whole.is_complete() && whole.clocked > 1 + 2 * ROUND && whole.open == 0);
    for most in [0, ROUND, 2 * ROUND] {
        let ended = front_watched(&program, &ranking, usize::MAX, &mut Ends(most));
        assert!(!ended.is_complete() && !ended.plans.is_empty());
        assert!((most..most + ROUND).contains(&(ended.clocked - 1)));
        assert_eq!(ended.candidates, ended.pruned + ended.clocked + ended.open);
        assert_eq!(ended.candidates, whole.candidates);
    }
}

/// On one device more stages are no faster, but some plans of two take a little less memory.
#[test]
fn the_front_is_the_same_whatever_is_minimised() {
    let mut program = roomy(1);
    let fronts = [Objective::StepTime, Objective::Memory].map(|objective| {
        program.search.objective = objective;
        let ranking = plan(&program, &Options::default()).expect("it fits");
        front(&program, &ranking, usize::MAX)
    });
    let [by_time, by_memory] = fronts.each_ref().map(|front| points(&front.plans));
    assert_eq!(by_time, by_memory);
    assert!(fronts[0].plans.iter().any(|found| found.plan.stages > 1));
}
