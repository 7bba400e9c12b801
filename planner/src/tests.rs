//! The planner as a whole: bounds, determinism, refusals, and what is honest to say.

mod brute_force;
mod recompute;

use crate::{
    Candidate, Options, Ranking, Refusal, cost::tests::measured, document, explain, plan,
    progress::Progress, ranking::survey, sample, sample::Random, table,
};
use roundelay_dsl::{Choice, Numbers, Objective, Program};
use roundelay_schedule::{Bytes, Exactness, Nanos, Placement, Rule, States};

/// Every plan of the space, clocked.
fn everything() -> Options {
    Options { top: usize::MAX, clocked_max: usize::MAX }
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
    for program in guessed.iter().chain(&measured) {
        let ranking = all(program);
        for candidate in &ranking.plans {
            let Candidate { bound, step_time, device_peak, plan, .. } = candidate;
            assert!(bound.step_time() <= *step_time, "{bound:?} {step_time} {plan:?}");
            assert!(bound.memory <= *device_peak, "{bound:?} {device_peak} {plan:?}");
        }
        assert!(ranking.optimal && ranking.clocked > 0);
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
    assert!(few.optimal && few.gap == 0.0 && few.pruned > 0);
}

#[test]
fn the_same_program_gives_the_same_document() {
    let text = || {
        let mut document =
            document(&plan(&sample::program(4, 4), &Options::default()).unwrap());
        document.elapsed_s = 0.0;
        document.to_text()
    };
    assert_eq!(text(), text());
}

#[test]
fn a_tied_parameter_keeps_its_users_in_one_stage() {
    let mut program = sample::program(2, 2);
    program.model = sample::gpt(1, 8, 8, true);
    program.search.stages = Numbers::Ranges(vec![(3, 3)]);
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
        refusal(&program).to_string()
    };
    let one = refused(States::Zero2, 1, 1);
    assert!(one.contains("with one replica nothing is split"), "{one}");
    assert!(one.contains("leave `replicas` open"), "{one}");
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
    assert!(cyclic.contains("workers of a cyclic rule never meet"), "{cyclic}");
}

#[test]
fn each_objective_puts_its_own_first() {
    let best = |objective| {
        let mut program = delayed(4, 4);
        program.search.objective = objective;
        all(&program).plans
    };
    let fastest = best(Objective::StepTime);
    let smallest = best(Objective::Memory);
    let fewest = best(Objective::Devices);
    let times = |plans: &[Candidate]| plans.iter().map(|c| c.step_time).min();
    assert_eq!(Some(fastest[0].step_time), times(&fastest));
    assert_eq!(
        smallest.iter().map(|c| c.device_peak).min(),
        Some(smallest[0].device_peak)
    );
    assert_eq!(fewest[0].plan.devices.len(), 1);
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
    assert!(explain(&ranking).contains("memory: "), "{}", explain(&ranking));
}

#[test]
fn too_little_memory_is_refused_with_what_is_missing() {
    let mut program = sample::program(2, 8);
    program.search.memory = Some(Bytes(2_000));
    let refused = refusal(&program);
    assert!(refused.binding.starts_with("memory"), "{refused}");
    assert!(refused.repairs[0].contains("more on each device"), "{refused}");
    let needed = survey(&sample::program(2, 8), &everything(), &mut Progress::default());
    let least = needed.plans.iter().map(|c| c.device_peak).min().unwrap();
    let missing = least - Bytes(2_000);
    assert!(refused.repairs[0].starts_with(&missing.to_string()), "{refused}");
}

#[test]
fn too_few_devices_are_refused_with_how_many_it_takes() {
    let mut program = sample::program(2, 8);
    program.search.placement = Choice::OneOf(vec![Placement::Data]);
    program.search.micro_batches = Numbers::Ranges(vec![(4, 4)]);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("it needs 4 devices, the cluster has 2"), "{refused}");
    assert!(refused.contains("4 devices instead of 2"), "{refused}");
    assert!(refused.contains("leave `placement` open"), "{refused}");
    assert!(refused.contains("leave `micro_batches` open"), "{refused}");
}

#[test]
fn an_indivisible_batch_is_refused_with_one_that_divides() {
    let mut program = sample::program(2, 8);
    program.search.micro_batches = Numbers::Ranges(vec![(3, 3)]);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("batch of 8"), "{refused}");
    assert!(refused.contains("batch 9, which 3 micro-batches divide"), "{refused}");
}

#[test]
fn a_period_without_end_is_refused_at_once() {
    let mut program = sample::program(2, 4_000_000);
    program.search.micro_batches = Numbers::Ranges(vec![(4_000_000, 4_000_000)]);
    let refused = refusal(&program);
    assert!(refused.binding.contains("N · S = 4000000"), "{refused}");
}

#[test]
fn a_rule_beyond_the_allowed_exactness_is_refused_with_the_line() {
    let mut program = sample::program(2, 8);
    program.search.rule = Choice::OneOf(vec![Rule::CyclicV2]);
    let refused = refusal(&program);
    assert!(refused.binding.starts_with("exactness"), "{refused}");
    assert!(refused.repairs[0].contains("plan { exactness delayed }"), "{refused}");
}

#[test]
fn clipping_with_sharded_states_is_refused_with_the_reason() {
    let mut program = sample::program(2, 8);
    program.train.optimizer.clip = 1.0;
    program.search.states = Choice::OneOf(vec![States::Zero2]);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("whole gradient"), "{refused}");
    assert!(refused.contains("leave `states` open"), "{refused}");
}
