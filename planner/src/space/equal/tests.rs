//! What is left out as superfluous has a plan in the space that is no worse.

use super::*;
use crate::{
    costs::calls::Costs,
    sample::{self, Random},
    search::{
        Judge, Open,
        bound::lists_of,
        candidate::Candidate,
        clerk::{Clerk, Grouping},
    },
    space::{
        Space,
        cuts::Messages,
        excluded::{Excluded, Sizes},
        outline::Outline,
        reason::Reason,
    },
    tests::{pick, some},
};
use roundelay_dsl::{Choice, Numbers, Objective, PinnedStages, Program};
use roundelay_schedule::{Bytes, Exactness, Recompute};

/// Some of the numbers, in any order.
fn numbers(random: &mut Random, known: &[u64]) -> Numbers {
    let each = some(random, known, 2).into_iter().map(|number| (number, number));
    Numbers::Ranges(each.collect())
}

/// A program that leaves few values to each decision, in any order, and has room for all.
fn small_space(random: &mut Random) -> Program {
    let mut program = sample::program(pick(random, &[1, 2, 4]), 4);
    let is_sliced = random.below(6) == 0;
    if is_sliced {
        program.model = sample::gpt(2, 16, 8, false);
        program.search.slices = numbers(random, &[1, 2, 4]);
    }
    sample::give_room(&mut program, Bytes(1 << 30));
    let search = &mut program.search;
    search.exactness = Some(Exactness::Delayed);
    search.objective = pick(random, &[Objective::StepTime, Objective::Memory]);
    let slack = Rule::CyclicSlack(pick(random, &[1, 9]));
    let rules = [Rule::Sync, Rule::Sync, Rule::CyclicV2, Rule::CyclicV1, slack];
    search.rule = Choice::OneOf(some(random, &rules, 2));
    search.placement = Choice::OneOf(some(random, Placement::ALL, 2));
    let pipelines = &Order::ALL[3..Order::ALL.len() - 1];
    let mut orders = some(random, pipelines, 3);
    let simple = [Order::Gpipe, Order::Sequential, Order::Parallel, Order::Cyclic];
    orders.extend(some(random, &simple, 6));
    if is_sliced {
        let sliced = [Order::SlicesOneForwardOneBackward, Order::TeraPipe];
        orders.extend(some(random, &sliced, 1));
    }
    search.order = Choice::OneOf(orders);
    search.states = Choice::OneOf(some(random, States::ALL, 2));
    search.recompute = Choice::OneOf(some(random, Recompute::ALL, 1));
    search.micro_batches = numbers(random, &[1, 2, 4]);
    search.stages = numbers(random, &[1, 2, 4]);
    search.replicas = numbers(random, &[1, 2, 4]);
    search.rows = Numbers::Ranges(vec![(1, 1)]);
    if random.below(3) == 0 {
        search.chunks = numbers(random, &[1, 2, 4]);
    }
    if random.below(4) == 0 {
        let last = u32::try_from(random.below(2)).expect("a small number");
        let recompute = pick(random, Recompute::ALL);
        search.pinned = vec![PinnedStages { first: 0, last, recompute }];
    }
    program
}

/// Every one of the plans, clocked.
fn clocked(program: &Program, plans: Vec<Outline>) -> Vec<Candidate> {
    let costs = Costs::new(program);
    let (mut clerk, classes) = Clerk::new(program, &costs, plans, Grouping::None);
    let open: Vec<Open> = classes.into_values().flatten().flatten().collect();
    clerk.clock(&open).into_iter().map(|found| found.expect("it is a plan")).collect()
}

/// The plan that came furthest of those that are left out for a reason.
fn outline(program: &Program, excluded: &Excluded) -> Option<Outline> {
    let Excluded { family, sizes: Sizes::One(counts), reason, .. } = excluded else {
        return None;
    };
    let superfluous = matches!(reason, Reason::Equal(by) if *by != Superior::NoLag);
    let devices = counts.devices(*family, 0);
    let recompute = *Values::new(program).recompute.first()?;
    let (family, counts, messages) = (*family, *counts, Messages::default());
    let outline = Outline { family, counts, messages, recompute, devices };
    superfluous.then_some(outline)
}

/// Parts of an arena may fit one another better by chance, so a little more memory is no worse
/// where it is not what is minimised.
#[test]
fn what_is_left_out_has_a_plan_that_is_no_worse() {
    let mut random = Random::new(97);
    let mut compared = 0;
    for round in 0..1500 {
        let program = small_space(&mut random);
        let space = Space::new(&program);
        let left_out = space
            .excluded
            .iter()
            .filter_map(|one| Some((one.reason.to_string(), outline(&program, one)?)));
        let left_out: Vec<(String, Outline)> = left_out.collect();
        if left_out.is_empty() {
            continue;
        }
        let kept = clocked(&program, space.plans);
        for (reason, outline) in left_out {
            compared += 1;
            let found = clocked(&program, vec![outline]);
            let [other] = &found[..] else { panic!("one plan") };
            let slack = match program.search.objective {
                Objective::Memory => Bytes(0),
                _ => Bytes(other.device_peak.0 / 8),
            };
            let no_worse = |one: &Candidate| {
                one.exactness() <= other.exactness()
                    && one.step_time <= other.step_time
                    && one.device_peak <= other.device_peak + slack
                    && one.plan.devices.len() <= other.plan.devices.len()
            };
            assert!(
                kept.iter().any(no_worse),
                "round {round}: {} is left out: {reason}",
                crate::summary(&other.plan)
            );
        }
    }
    assert!(compared > 150, "only {compared} plans are left out");
}

/// A worker with one micro-batch is a replica with one, and takes as much memory.
#[test]
fn workers_take_what_replicas_take() {
    let mut program = sample::program(4, 4);
    program.model = sample::gpt(6, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    let one = |number| Numbers::Ranges(vec![(number, number)]);
    program.search.rule = Choice::OneOf(vec![Rule::Sync]);
    program.search.rows = one(1);
    program.search.devices = one(4);
    for states in [States::Replicated, States::Zero2, States::Zero3] {
        for (stages, recompute) in
            [(1, Recompute::None), (4, Recompute::None), (8, Recompute::Full)]
        {
            let search = &mut program.search;
            search.states = Choice::OneOf(vec![states]);
            search.stages = one(stages);
            search.recompute = Choice::OneOf(vec![recompute]);
            let [workers, replicas] =
                [(Placement::Data, 4, 1), (Placement::Accumulate, 1, 4)].map(
                    |(placement, micro_batches, replicas)| {
                        let search = &mut program.search;
                        search.placement = Choice::OneOf(vec![placement]);
                        search.micro_batches = one(micro_batches);
                        search.replicas = one(replicas);
                        let found = crate::plan(&program, &crate::Options::default());
                        found.expect("there is room").plans.remove(0)
                    },
                );
            assert_eq!(workers.plan.cuts, replicas.plan.cuts);
            assert_eq!(workers.step_time, replicas.step_time, "{states} {stages}");
            assert_eq!(workers.device_peak, replicas.device_peak, "{states} {stages}");
        }
    }
}

/// The plans of a space, in a few words.
fn plans(program: &Program) -> Vec<String> {
    let space = Space::new(program);
    space.plans.iter().map(|one| format!("{}, {}", one.family, one.counts)).collect()
}

#[test]
fn rules_may_stand_in_any_order() {
    let mut program = sample::program(1, 4);
    program.search.exactness = Some(Exactness::Delayed);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let rules = [Rule::Sync, Rule::CyclicV2];
    let both = [rules, [rules[1], rules[0]]].map(|rules| {
        program.search.rule = Choice::OneOf(rules.to_vec());
        plans(&program)
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0], ["sync accumulate sequential replicated, N = 1, S = 1"]);
}

#[test]
fn chunks_on_one_device_stay_a_pipeline() {
    let mut program = sample::program(1, 4);
    let one = |number| Numbers::Ranges(vec![(number, number)]);
    program.search.chunks = one(2);
    program.search.stages = one(2);
    program.search.micro_batches = one(2);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let order = vec![Order::Sequential, Order::BreadthFirst];
    program.search.order = Choice::OneOf(order);
    let kept = plans(&program);
    assert_eq!(kept, ["sync pipeline breadth_first replicated, N = 2, S = 2, v = 2"]);
}

#[test]
fn one_worker_that_shares_is_no_data_parallel_one() {
    let mut program = sample::program(1, 4);
    let placements = vec![Placement::Data, Placement::Shared];
    program.search.rule = Choice::OneOf(vec![Rule::Sync]);
    program.search.placement = Choice::OneOf(placements);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let kept = plans(&program);
    assert_eq!(kept, ["sync shared parallel replicated, N = 1, S = 1"]);
}

/// One update of delay is too short for four stages of one micro-batch, so only the slack is left.
#[test]
fn a_rule_that_cannot_be_leaves_no_other_out() {
    let mut program = sample::program(4, 4);
    program.search.exactness = Some(Exactness::Delayed);
    let rules = vec![Rule::CyclicV1, Rule::CyclicSlack(9)];
    program.search.rule = Choice::OneOf(rules);
    program.search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.stages = Numbers::Ranges(vec![(4, 4)]);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let kept = plans(&program);
    assert_eq!(kept, ["cyclic(slack = 9) pipeline cyclic replicated, N = 1, S = 4"]);
}

#[test]
fn a_wave_on_one_device_takes_micro_batches_one_after_another() {
    for (stages, micro_batches) in [(2, 1), (2, 5), (4, 3), (8, 4)] {
        let plan = |placement, order| {
            sample::plan(Rule::Sync, placement, order, micro_batches, stages)
        };
        let wave = plan(Placement::Pipeline, Order::Wave).with_chunks(stages);
        let in_turn = plan(Placement::Accumulate, Order::Sequential);
        let [wave, in_turn] = [wave, in_turn].map(|plan| lists_of(&plan));
        assert!(wave.is_some() && wave == in_turn, "{wave:?} {in_turn:?}");
    }
}
