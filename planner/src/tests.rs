//! The planner as a whole: bounds, determinism, refusals, and what is honest to say.

mod approach;
mod brute_force;
mod cuts;
mod kinds;
mod local;
mod overdecompose;
mod recompute;
mod repair;
mod slices;
mod unproven;

pub(crate) use brute_force::{pick, random_program, some};

use crate::{
    Candidate, Goal, Look, NoPlan, Observer, Options, Ranking, Refusal, Wish,
    costs::calls::tests::measured, document, explain, plan, plan_watched, sample,
    sample::Random, search::ranking::best, table,
};
use roundelay_dsl::{Choice, Learning, NanoDollarsPerHour, Numbers, Objective, Program};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Exactness, Nanos, Order, Placement, Recompute, Rule, States,
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Every plan of the space, clocked.
fn everything() -> Options {
    Options { top: usize::MAX, clocked_max: usize::MAX, ..Options::default() }
}

fn delayed(devices: usize, batch: u32) -> Program {
    let mut program = sample::program(devices, batch);
    program.search.exactness = Some(Exactness::Delayed);
    program
}

fn all(program: &Program) -> Ranking {
    plan(program, &everything()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn refusal(program: &Program) -> Refusal {
    match plan(program, &Options::default()) {
        Ok(ranking) => panic!("it fits:\n{}", table(&ranking, program)),
        Err(refusal) => refusal,
    }
}

/// A program's objectives, with prices and constants that differ.
fn each_goal(program: &Program) -> Vec<Goal> {
    let goal = |objective| Goal::new(&priced(program, objective));
    Objective::ALL.into_iter().map(goal).collect()
}

fn priced(program: &Program, objective: Objective) -> Program {
    let mut program = program.clone();
    program.search.objective = objective;
    for (number, id) in (1..).zip(program.target.devices.ids()) {
        program.prices.insert(id, NanoDollarsPerHour(number * 1_000_000_000));
    }
    program.search.learning = Learning {
        least_steps: Some(1000),
        critical_batch: Some(16),
        staleness: Some(1000),
    };
    program
}

#[test]
fn no_plan_beats_its_bounds() {
    let mut random = Random::new(41);
    let guessed = [(1, 2), (3, 6), (4, 4)];
    let guessed = guessed.map(|(devices, batch)| delayed(devices, batch));
    let measured = [2, 3].map(|devices| {
        let mut program = measured(&mut random, devices);
        program.train.batch = 2;
        program.search.exactness = Some(Exactness::Delayed);
        program.target.host.wake = Nanos(500);
        program
    });
    let mut branching = delayed(4, 4);
    branching.model = sample::branches();
    // The first map's backward pass reads no parameters, so it waits for no gathering.
    let mut slow = sample::program(2, 8);
    slow.search.states = Choice::OneOf(vec![States::Zero3]);
    for link in slow.target.links.ids().collect::<Vec<_>>() {
        slow.target.links[link].bandwidth = BytesPerSecond(10_000_000);
    }
    let mut mixed = delayed(3, 2);
    brute_force::second_kind(&mut random, &mut mixed);
    let odd = [&branching, &slow, &mixed];
    for program in guessed.iter().chain(&measured).chain(odd) {
        let ranking = all(program);
        let goals = each_goal(program);
        for candidate in &ranking.plans {
            let Candidate { bound, step_time, device_peak, plan, .. } = candidate;
            brute_force::within_bounds(candidate);
            for goal in &goals {
                let devices = u32::try_from(plan.devices.len()).unwrap();
                let window = (plan.first_device(), devices);
                let open = goal.standing_at_best(window, plan.rule);
                let open = goal.score(open, bound.step_time(), bound.memory, 0);
                let real = goal.standing(plan);
                let real = goal.score(real, *step_time, *device_peak, 0);
                assert!(open <= real && open.0 <= real.0, "{goal:?} {plan:?}");
            }
        }
        assert!(ranking.is_optimal() && ranking.clocked > 0);
    }
}

#[test]
fn nothing_that_is_lawful_is_refused_by_the_compiler() {
    let ranking = all(&delayed(4, 4));
    let refused: Vec<String> = ranking
        .space
        .excluded
        .iter()
        .filter(|excluded| matches!(excluded.reason, crate::Reason::Refused(_)))
        .map(|excluded| format!("{excluded:?}"))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let placements = |placement| {
        ranking.plans.iter().filter(|c| c.plan.placement == placement).count()
    };
    assert!(Placement::ALL.iter().all(|placement| placements(*placement) > 0));
}

#[test]
fn bounding_away_changes_no_rank() {
    let program = delayed(4, 4);
    let few = plan(&program, &Options { top: 5, ..everything() }).unwrap();
    assert_eq!(few.plans, all(&program).plans[..5]);
    assert!(few.is_optimal() && few.gap() == 0.0 && few.pruned > 0);
}

#[test]
fn the_same_program_gives_the_same_document() {
    let text = || {
        let program = sample::program(4, 4);
        let ranking = plan(&program, &Options::default()).unwrap();
        let mut document = document(&ranking, &program);
        document.elapsed_s = 0.0;
        serde_json::to_string_pretty(&document).unwrap()
    };
    assert_eq!(text(), text());
}

/// Synchronous pipelines of whole states part the users of a table; whatever else has three stages
/// does not, nor may a program that wants exact sums.
#[test]
fn a_tied_parameter_is_parted_in_pipelines_alone() {
    let mut program = sample::program(3, 6);
    program.model = sample::gpt(1, 8, 8, true);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.stages = Numbers::Ranges(vec![(3, 3)]);
    let found = all(&program).plans;
    assert!(!found.is_empty());
    for Candidate { plan, .. } in &found {
        assert_eq!((plan.placement, plan.rule), (Placement::Pipeline, Rule::Sync));
        assert_eq!((plan.ties.len(), plan.ties[0].0.len()), (1, 2), "{plan:?}");
        assert_eq!(plan.exactness(), Exactness::Reordered);
    }
    program.search.exactness = Some(Exactness::Exact);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("at most 2") && refused.contains("table"), "{refused}");
    program.model = sample::gpt(1, 8, 8, false);
    assert!(all(&program).plans.iter().all(|c| c.plan.stages == 3));
}

#[test]
fn what_is_the_same_twice_is_listed_once() {
    let mut program = sample::program(4, 8);
    program.search.rule = Choice::OneOf(vec![Rule::Sync]);
    program.search.states = Choice::OneOf(vec![States::Zero3, States::Hsdp]);
    let counts = |candidate: &Candidate| {
        let plan = &candidate.plan;
        (plan.placement, plan.states, plan.micro_batches, plan.replicas, plan.shards)
    };
    let ranking = all(&program);
    let plans: Vec<_> = ranking.plans.iter().map(counts).collect();
    let has = |plan| plans.contains(&plan);
    assert!(has((Placement::Data, States::Zero3, 4, 1, 1)));
    assert!(has((Placement::Data, States::Hsdp, 4, 1, 2)));
    assert!(has((Placement::Accumulate, States::Zero3, 2, 4, 1)));
    assert!(!has((Placement::Accumulate, States::Zero3, 1, 4, 1)));
    assert!(!has((Placement::Data, States::Zero3, 2, 2, 1)));
    let said = ranking.space.excluded.iter().map(|excluded| excluded.reason.to_string());
    assert!(said.into_iter().any(|reason| reason == "data with 4 workers is the same"));
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    let alone: Vec<_> = all(&program).plans.iter().map(counts).collect();
    assert!(alone.contains(&(Placement::Accumulate, States::Zero3, 1, 4, 1)));
    assert!(alone.contains(&(Placement::Accumulate, States::Hsdp, 1, 4, 2)));
}

#[test]
fn replicas_that_cannot_be_are_refused_with_the_reason() {
    let refused = |states, replicas, shards: u64| {
        let mut program = sample::program(4, 8);
        program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
        program.search.states = Choice::OneOf(vec![states]);
        program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
        program.search.replicas = Numbers::Ranges(vec![(replicas, replicas)]);
        program.search.shards = Numbers::Ranges(vec![(shards, shards)]);
        program.search.rows = Numbers::Ranges(vec![(1, 1)]);
        refusal(&program).to_string()
    };
    let one = refused(States::Zero2, 1, 1);
    assert!(one.contains("with one replica nothing is split"), "{one}");
    assert!(one.contains("- replicas 2: "), "{one}");
    let uneven = refused(States::Hsdp, 4, 3);
    assert!(uneven.contains("4 replicas do not split into equal groups"), "{uneven}");
    let many = refused(States::Zero3, 3, 1);
    assert!(many.contains("batch of 8"), "{many}");
    let mut program = delayed(4, 8);
    program.search.rule = Choice::OneOf(vec![Rule::CyclicV2]);
    program.search.placement = Choice::OneOf(vec![Placement::Data]);
    program.search.micro_batches = Numbers::Ranges(vec![(2, 2)]);
    program.search.replicas = Numbers::Ranges(vec![(2, 2)]);
    let cyclic = refusal(&program).to_string();
    assert!(cyclic.contains("workers never meet: use rule sync"), "{cyclic}");
}

/// No batch and no number of stages would give them replicas.
#[test]
fn pipelines_in_opposite_directions_are_refused_replicas_for_what_they_are() {
    let mut program = sample::program(4, 32);
    program.search.order = Choice::OneOf(vec![Order::Chimera]);
    program.search.replicas = Numbers::Ranges(vec![(2, 2)]);
    let refused = refusal(&program);
    let law = "two pipelines in opposite directions have no replicas";
    assert!(refused.binding.contains(law), "{refused}");
}

#[test]
fn each_objective_puts_its_own_first() {
    let program = |objective| priced(&delayed(3, 4), objective);
    let first = |objective| best(&program(objective), &everything()).expect("it fits");
    // Where memory is not minimised, one list of plans does for all objectives.
    let plans = all(&program(Objective::StepTime)).plans;
    let smallest = all(&program(Objective::Memory)).plans;
    assert_eq!(plans.iter().map(|c| c.step_time).min(), Some(plans[0].step_time));
    let least = smallest.iter().map(|c| c.device_peak).min();
    assert_eq!(least, Some(smallest[0].device_peak));
    assert_eq!(first(Objective::Devices).plan.devices.len(), 1);
    let goal = Goal::new(&program(Objective::Cost));
    let cost = |c: &Candidate| goal.cost(&c.plan, c.step_time);
    assert_eq!(plans.iter().map(cost).min(), Some(cost(&first(Objective::Cost))));
    let result = |c: &Candidate| goal.time_to_result(&c.plan, c.step_time);
    let soonest = first(Objective::TimeToResult);
    assert_eq!(plans.iter().map(result).min(), Some(result(&soonest)));
}

#[test]
fn a_delay_wins_only_where_its_steps_are_cheap() {
    let fastest = |staleness| {
        let mut program = priced(&delayed(4, 4), Objective::TimeToResult);
        program.search.learning.staleness = Some(staleness);
        best(&program, &everything()).expect("it fits")
    };
    let plain = best(&delayed(4, 4), &everything()).expect("it fits");
    assert!(plain.staleness() > 0, "the fastest step is a delayed one here");
    assert_eq!(fastest(0).plan, plain.plan);
    assert_eq!(fastest(100_000).staleness(), 0);
}

#[test]
fn costs_and_steps_stand_in_table_and_document() {
    let mut program = priced(&sample::program(2, 4), Objective::Cost);
    let ranking = plan(&program, &Options::default()).unwrap();
    let text = table(&ranking, &program);
    for name in ["cost/step", "cost/1M samples", "steps to result", "time to result"] {
        assert!(text.contains(name), "{text}");
    }
    let row = &document(&ranking, &program).plans[0];
    let first = &ranking.plans[0];
    let cost = ranking.goal.cost(&first.plan, first.step_time).unwrap();
    assert_eq!(row.cost_per_step_usd, Some(cost.dollars()));
    assert_eq!(row.steps_to_result, Some(5000));
    let seconds = row.step_time_s * 5000.0;
    assert!((row.time_to_result_s.unwrap() - seconds).abs() < 1e-9);
    program.prices.clear();
    program.search.learning = Learning::default();
    let missing = refusal(&program).to_string();
    assert!(missing.contains("price 2.5 USD/h"), "{missing}");
    program.search.objective = Objective::TimeToResult;
    let missing = refusal(&program).to_string();
    assert!(missing.contains("least_steps 1000"), "{missing}");
    program.search.objective = Objective::StepTime;
    let text = table(&plan(&program, &Options::default()).unwrap(), &program);
    assert!(!text.contains("cost/step") && !text.contains("result"), "{text}");
}

/// Watches to the end.
struct Patient;

impl Observer for Patient {
    fn look(&mut self, _: Look) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Wishes an end once there is a plan, but says so at a look a while later alone.
#[derive(Default)]
struct Hesitant {
    wishes: Arc<AtomicBool>,
    /// Plans that were clocked at the wish.
    clocked: usize,
    looks: usize,
}

impl Observer for Hesitant {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        let Look::Best { clocked, best, .. } = look else { unreachable!("no front") };
        if !self.wishes.load(Ordering::Relaxed) && best.is_some() {
            self.wishes.store(true, Ordering::Relaxed);
            self.clocked = clocked;
        }
        self.looks += usize::from(self.wishes.load(Ordering::Relaxed));
        match self.looks < 100 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn wish(&self) -> Wish {
        let wishes = Arc::clone(&self.wishes);
        Wish::asked(move || wishes.load(Ordering::Relaxed))
    }
}

/// One plan may take longer than anybody waits, and a round has several.
#[test]
fn no_plan_is_begun_after_an_end_is_wished_and_what_was_found_stays() {
    let program = sample::program(4, 16);
    let whole = plan(&program, &Options::default()).unwrap();
    let mut hesitant = Hesitant::default();
    let cut = plan_watched(&program, &Options::default(), &mut hesitant).unwrap();
    assert!(cut.interrupted && !cut.is_optimal() && !cut.plans.is_empty());
    assert_eq!(cut.clocked, hesitant.clocked);
    assert!(cut.clocked < whole.clocked, "{} of {}", cut.clocked, whole.clocked);
    assert!(cut.left_open() > 0);
}

#[test]
fn what_an_objective_lacks_is_refused_before_any_search() {
    let mut program = sample::program(2, 4);
    for (objective, lacking) in [
        (Objective::Cost, "device `core0` has no price"),
        (Objective::TimeToResult, "least_steps, critical_batch, staleness of `result`"),
    ] {
        program.search.objective = objective;
        let refused = refusal(&program);
        let watched = plan_watched(&program, &Options::default(), &mut Patient);
        assert_eq!(watched.err(), Some(NoPlan::Refused(refused.clone())));
        let text = refused.to_string();
        assert!(text.contains(lacking) && !text.contains("that was tried"), "{text}");
    }
}

#[test]
fn weaker_classes_stand_below_with_the_line_that_allows_them() {
    let program = sample::program(4, 4);
    let ranking = plan(&program, &Options::default()).unwrap();
    assert!(ranking.plans.iter().all(|c| c.exactness() <= Exactness::Reordered));
    let [weaker] = ranking.weaker.as_slice() else { panic!("one weaker class") };
    assert_eq!(weaker.line, "plan { exactness delayed }");
    assert_eq!(weaker.candidate.exactness(), Exactness::Delayed);
    let allowed = plan(&delayed(4, 4), &Options::default()).unwrap();
    let delayed: Vec<_> =
        allowed.plans.iter().filter(|c| c.exactness() == Exactness::Delayed).collect();
    assert!(delayed.iter().all(|c| weaker.candidate.step_time <= c.step_time));
    let text = table(&ranking, &program);
    assert!(text.contains("plan { exactness delayed }"), "{text}");
    let text = explain(&program, &Options::default(), &ranking).to_string();
    assert!(text.contains("memory: "), "{text}");
}

#[test]
fn a_period_without_end_is_refused_at_once() {
    let mut program = sample::program(2, 4_000_000);
    program.search.micro_batches = Numbers::Ranges(vec![(4_000_000, 4_000_000)]);
    let refused = refusal(&program);
    let law = "4000000 micro-batches of a replica, at most 16384 are planned";
    assert!(refused.binding.contains(law), "{refused}");
}

/// A stage frees its gradients before the next one has any, so on one device too there are plans
/// that fit by their stages alone.
#[test]
fn more_stages_fit_where_fewer_do_not() {
    let mut program = sample::program(1, 4);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.order = Choice::OneOf(vec![Order::Sequential]);
    let plans = all(&program).plans;
    let tightest = plans.iter().min_by_key(|c| c.device_peak).expect("plans fit");
    assert!(tightest.plan.stages > 1 && plans[0].plan.stages == 1, "{plans:?}");
    for (_, device) in program.target.devices.iter_mut() {
        device.memory = tightest.device_peak;
    }
    let found = plan(&program, &Options::default()).expect("one plan fits");
    assert_eq!(found.plans[0].plan, tightest.plan);
}

/// Bounds may be far from the truth for one placement and close to it for another; where the limit
/// is met, the likeliest plan of each was clocked.
#[test]
fn a_limit_leaves_no_placement_unseen() {
    let mut program = sample::program(4, 8);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let few = Options { top: 1, clocked_max: 1, ..Options::default() };
    let answer = plan(&program, &few).expect("something fits");
    assert!(!answer.is_optimal() && answer.clocked > 3, "{answer:?}");
    for placement in [Placement::Accumulate, Placement::Data, Placement::Pipeline] {
        let mut alone = program.clone();
        alone.search.placement = Choice::OneOf(vec![placement]);
        let likeliest = crate::search::ranking::allowed(&alone, &few).remove(0);
        let best = &answer.plans[0];
        assert!(best.step_time <= likeliest.step_time, "{placement} {best:?}");
    }
}
