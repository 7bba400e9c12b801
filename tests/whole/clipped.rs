//! Gradients that are bounded by the norm of the whole, where each device has a part: stages, shards of
//! states, parts of split tensors, or all of these. They train like one stage on one device, and bit for
//! bit like the recursion.

use crate::{
    columns::grids,
    depth::{deep, divisible, losses},
    models::{even_cuts, gpt, mlp},
    networks,
    oracle::compare_one,
    plans::{kinds, pipelines},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program, Schedule,
    parts::{
        kernels::Kernels,
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{check, simulate},
    },
};
use roundelay_schedule::{
    Access, Attribute, Collective, Content, Float, Id, Method, Nanos, Order, Pass,
    Placement, Reduction, Role, Routine, Rule, Stage, States, Subject, Tensor, Work,
};
use std::collections::BTreeSet;

/// Below the norm of the gradients in the first steps of all models here.
const CLIP: f64 = 1e-2;

fn clipped(mut program: Program) -> Program {
    program.train.optimizer.clip = CLIP;
    program
}

/// So many replicas that split their states.
fn split(program: &Program, (states, shards): (States, u32), (n, s): (u32, u32)) -> Plan {
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
    plan(program, kind, n, s).replicated(4, shards)
}

const SPLITS: [(States, u32); 4] =
    [(States::Zero1, 1), (States::Zero2, 1), (States::Zero3, 1), (States::Hsdp, 2)];

#[test]
fn shards_and_grids_clip_by_the_norm_of_the_whole() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        let free = divisible(8, dtype);
        let program = clipped(free.clone());
        let alone =
            |program: &Program| losses(program, &deep(program, Tensor::WHOLE, 1, 1));
        let expected = alone(&program);
        let bound = (expected[1] - alone(&free)[1]).abs();
        assert!(bound > 1e-3, "clipping changes the second loss by {bound} alone");
        let grids = grids().filter(|grid| grid.parts() <= 4);
        let deeps = grids.flat_map(|grid| {
            [(1, 1), (2, 2), (4, 2)].map(|(replicas, depth)| (grid, replicas, depth))
        });
        let deeps = deeps.filter(|(grid, replicas, _)| grid.parts() * replicas <= 8);
        let plans =
            deeps.map(|(grid, replicas, depth)| deep(&program, grid, replicas, depth));
        let states = SPLITS.map(|states| split(&program, states, (2, 1)));
        for plan in plans.chain(states) {
            for (one, other) in losses(&program, &plan).iter().zip(expected) {
                let error = (one - other).abs() / other.abs();
                assert!(error < most, "{dtype} {plan:?}: {one} {other}");
            }
        }
    }
}

#[test]
fn shards_that_clip_replay_like_the_recursion() {
    let program = clipped(mlp(6, 16));
    for states in SPLITS {
        for counts in [(2, 1), (2, 3)] {
            compare_one(&program, &split(&program, states, counts), &[&[2, 6]]);
        }
    }
}

#[test]
fn grids_that_clip_replay_like_the_recursion() {
    let program = clipped(divisible(8, Float::F32));
    for tensor in [Tensor::grid(2, 1), Tensor::grid(1, 2), Tensor::grid(2, 2)] {
        for (replicas, depth) in [(1, 1), (2, 2)] {
            compare_one(&program, &deep(&program, tensor, replicas, depth), &[&[2, 6]]);
        }
    }
}

/// Whoever a stage is handed to has the whole gradient; averages of batch norms are none.
#[test]
fn what_is_handed_on_and_networks_with_averages_clip_too() {
    let program = clipped(mlp(6, 6));
    let kind = (Rule::CyclicV2, Placement::Data, Order::Cyclic, States::Handoff);
    compare_one(&program, &plan(&program, kind, 3, 3), &[&[2, 6]]);
    let program = clipped(networks::resnet(16));
    for states in [(States::Zero2, 1), (States::Hsdp, 2)] {
        compare_one(&program, &split(&program, states, (2, 1)), &[&[6]]);
    }
}

/// Rounding, and no more, is between the losses of a plan and those of one stage on one device.
fn trains_like(program: &Program, plan: &Plan, expected: [f64; 3], most: f64) {
    for (one, other) in losses(program, plan).iter().zip(expected) {
        let error = (one - other).abs() / other.abs();
        assert!(error < most, "{plan:?}: {one} {other}");
    }
}

/// One stage on one device.
fn alone(program: &Program, n: u32) -> Plan {
    let order = Order::Sequential;
    let kind = (Rule::Sync, Placement::Accumulate, order, States::Replicated);
    plan(program, kind, n, 1)
}

/// Synchronous plans of this many stages, wherever these are.
fn staged(program: &Program, n: u32, s: u32) -> Vec<Plan> {
    let kinds = kinds(n, s).into_iter().filter(|kind| kind.0 == Rule::Sync);
    let placed = kinds.map(|kind| plan(program, kind, n, s));
    placed.chain(pipelines(n, &even_cuts(program, s))).collect()
}

/// Steps in proportion to the gradient, so that a bound shows; the first steps are far above it.
fn descending(mut program: Program, dtype: Float) -> Program {
    program.train.optimizer.method = Method::Sgd { momentum: 0.5, nesterov: false };
    program.train.dtype = dtype;
    program
}

#[test]
fn stages_clip_by_the_norm_of_the_whole() {
    let mut count = 0;
    for (n, s) in [(4, 2), (2, 3), (6, 3), (4, 4), (8, 4)] {
        let free = descending(mlp(6, n), Float::F64);
        let program = clipped(free.clone());
        let expected = losses(&program, &alone(&program, n));
        let bound = (expected[2] - losses(&free, &alone(&free, n))[2]).abs();
        assert!(bound > 1e-3, "clipping changes the third loss by {bound} alone");
        for plan in staged(&program, n, s) {
            trains_like(&program, &plan, expected, 1e-12);
            count += 1;
        }
    }
    assert!(count > 60, "{count} plans");
}

/// Pipelines whose replicas have whole states, or split them.
fn replicated(program: &Program, n: u32, s: u32) -> Vec<Plan> {
    let orders = [Order::OneForwardOneBackward, Order::ZeroBubbleH1, Order::Interleaved];
    let splits = [(States::Replicated, 1)].into_iter().chain(SPLITS);
    let both = orders.into_iter().flat_map(|order| {
        splits.clone().map(move |(states, shards)| (order, states, shards))
    });
    let of = |(order, states, shards)| {
        let kind = (Rule::Sync, Placement::Pipeline, order, states);
        let chunks = if order == Order::Interleaved { 2 } else { 1 };
        plan(program, kind, n, s).with_chunks(chunks).replicated(4, shards)
    };
    both.map(of).collect()
}

#[test]
fn replicas_of_stages_clip_by_the_norm_of_the_whole() {
    let program = clipped(descending(mlp(6, 16), Float::F64));
    let expected = losses(&program, &alone(&program, 16));
    for plan in replicated(&program, 4, 4) {
        trains_like(&program, &plan, expected, 1e-12);
    }
}

/// Pipelines of grids, whose parts have shards of their states or not.
fn grids_of_stages(program: &Program) -> Vec<Plan> {
    let grids = [Tensor::grid(2, 1), Tensor::grid(1, 2), Tensor::grid(2, 2)];
    let states =
        [(States::Replicated, 1, 1), (States::Zero2, 2, 1), (States::Hsdp, 4, 2)];
    let all = grids.into_iter().flat_map(|grid| states.map(|own| (grid, own)));
    let of = |(grid, (states, replicas, shards))| {
        let order = Order::OneForwardOneBackward;
        let kind = (Rule::Sync, Placement::Pipeline, order, states);
        plan(program, kind, 2, 3).replicated(replicas, shards).with_tensor(grid)
    };
    all.map(of).collect()
}

#[test]
fn grids_of_stages_clip_by_the_norm_of_the_whole() {
    let program = clipped(divisible(8, Float::F64));
    let expected = losses(&program, &alone(&program, 1));
    for plan in grids_of_stages(&program) {
        trains_like(&program, &plan, expected, 1e-12);
    }
}

/// Where all stages are on one device and where each has one, with sequences in slices, and with a
/// stage that has no parameters.
#[test]
fn stages_that_clip_replay_like_the_recursion() {
    let program = clipped(descending(mlp(6, 6), Float::F32));
    for (n, s) in [(3, 3), (6, 4)] {
        for plan in staged(&program, n, s) {
            compare_one(&program, &plan, &[&[2, 6]]);
        }
    }
    let order = Order::SlicesOneForwardOneBackward;
    let kind = (Rule::Sync, Placement::Pipeline, order, States::Replicated);
    let sliced = clipped(descending(gpt(2, 4), Float::F32));
    compare_one(&sliced, &plan(&sliced, kind, 2, 3).with_slices(2), &[&[6]]);
    let kind = (Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated);
    let mut empty = plan(&program, kind, 2, 3);
    let gelu = program.model.nodes.ids().nth(5).unwrap();
    empty.cuts = vec![gelu.index() as u32, gelu.index() as u32 + 2];
    compare_one(&program, &empty, &[&[2, 6]]);
}

#[test]
fn replicas_and_grids_of_stages_that_clip_replay_like_the_recursion() {
    let program = clipped(descending(mlp(6, 16), Float::F32));
    for plan in replicated(&program, 4, 4) {
        compare_one(&program, &plan, &[&[2, 6]]);
    }
    let program = clipped(divisible(8, Float::F32));
    for plan in grids_of_stages(&program) {
        compare_one(&program, &plan, &[&[2, 6]]);
    }
}

/// A run that stops goes on elsewhere with the same bits: stages are added up in one order, wherever
/// they are.
#[test]
fn clipped_runs_go_on_with_other_placements() {
    let program = clipped(descending(mlp(6, 6), Float::F32));
    let alike =
        |plan: &Plan| plan.reduction == Reduction::Sequential && plan.members() == 1;
    let schedules = staged(&program, 3, 3).into_iter().filter(alike);
    let mut state = State::initial(&compiled(&program, &alone(&program, 3)).job);
    let schedules: Vec<_> = schedules.map(|plan| compiled(&program, &plan)).collect();
    assert!(schedules.len() >= 6, "{}", schedules.len());
    let run = |schedule: &Checked, state: &State, end| {
        let data = Dataset::open(&schedule.job, None).unwrap();
        let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
        cpu.load(state).unwrap();
        cpu.replay(end, &mut |_| {}).unwrap();
        saved(&mut cpu)
    };
    let whole = run(&schedules[0], &state, schedules.len() as u64);
    for (end, schedule) in (1..).zip(&schedules) {
        state = run(schedule, &state, end);
    }
    assert!(state == whole, "another placement trains other numbers");
}

/// The moves of squares between devices, as the stages whose squares they carry.
fn hops(schedule: &Checked) -> Vec<(usize, usize)> {
    let actions = schedule.actions.values();
    let hop = |work: &Work| match work {
        Work::Transfer { content: Content::Squares(first, last), .. } => {
            Some((first.index(), last.index()))
        }
        _ => None,
    };
    actions.filter_map(|action| hop(&action.work)).collect()
}

/// From the last stage to the first one the sum grows by a stage with each hop, and then the whole
/// goes to each device once; on one device nothing moves, nor where each stage is bounded alone.
#[test]
fn one_number_goes_through_the_stages_and_back() {
    let program = clipped(mlp(6, 8));
    let pipeline = |order, s, chunks| {
        let kind = (Rule::Sync, Placement::Pipeline, order, States::Replicated);
        hops(&compiled(&program, &plan(&program, kind, 4, s).with_chunks(chunks)))
    };
    let line = [(3, 3), (2, 3), (1, 3), (0, 3), (0, 3), (0, 3)];
    assert_eq!(pipeline(Order::OneForwardOneBackward, 4, 1), line);
    let looped = [(3, 3), (2, 3), (1, 3), (0, 3)];
    assert_eq!(pipeline(Order::Interleaved, 4, 2), looped);
    // The lower two of four stages are on the devices of the upper two, in turn.
    let folded = [(3, 3), (1, 3), (0, 3)];
    assert_eq!(pipeline(Order::ZeroBubbleV, 4, 2), folded);
    for kind in kinds(4, 4) {
        let (rule, placement, ..) = kind;
        let moved = !hops(&compiled(&program, &plan(&program, kind, 4, 4))).is_empty();
        let apart = matches!(placement, Placement::Pipeline | Placement::Shared);
        assert_eq!(moved, rule == Rule::Sync && apart, "{kind:?}");
    }
}

/// Where passes take no time the stages find their parts one after another, and the first one cannot
/// go on before the last part is added.
#[test]
fn the_next_step_waits_for_the_norm() {
    let free = mlp(6, 8);
    let norm = Nanos(1_000_000);
    let order = Order::OneForwardOneBackward;
    let kind = (Rule::Sync, Placement::Pipeline, order, States::Replicated);
    let time = |program: &Program| {
        let mut schedule = compiled(program, &plan(program, kind, 4, 4)).into_inner();
        for (_, routine) in schedule.routines.iter_mut() {
            let finds = routine.pass == Pass::Norm;
            routine.predicted = if finds { norm } else { Nanos(0) };
        }
        simulate(&check(schedule, &Kernels).unwrap(), 8).step_time()
    };
    let [clipping, free] = [clipped(free.clone()), free].map(|program| time(&program));
    assert!(free < norm && clipping >= Nanos(4 * norm.0), "{clipping}, not {free}");
}

/// Under delays and local rules every stage is bounded alone, by updates that find their own norm.
#[test]
fn stages_are_bounded_alone_where_they_are_updated_apart() {
    let program = clipped(mlp(6, 4));
    for kind in kinds(4, 2) {
        let schedule = compiled(&program, &plan(&program, kind, 4, 2));
        let norms = schedule.routines.values().filter(|own| own.pass == Pass::Norm);
        let stages: BTreeSet<Stage> = norms.map(|own| own.stage).collect();
        let expected = if kind.0 == Rule::Sync { 2 } else { 0 };
        assert_eq!(stages.len(), expected, "{kind:?}");
    }
}

/// One number of each shard goes round, once a step; nothing more where nothing is clipped.
#[test]
fn one_number_of_each_shard_is_added_up() {
    let free = mlp(6, 16);
    for (program, expected) in [(clipped(free.clone()), 1), (free, 0)] {
        for states in SPLITS {
            let schedule = compiled(&program, &split(&program, states, (2, 3)));
            let sums = schedule.actions.values().filter(|action| match &action.work {
                Work::Collective { kind, content: Content::Squares(..), .. } => {
                    assert_eq!(*kind, Collective::AllReduce);
                    true
                }
                _ => false,
            });
            assert_eq!(sums.count(), expected, "{states:?}");
            let kept = schedule.buffers.values();
            let rows = kept.filter(|own| matches!(own.subject, Subject::Squares(..)));
            assert_eq!(rows.count(), 2 * expected, "{states:?}");
        }
    }
}

/// A schedule with one routine changed, the first of a pass, is refused with words.
fn refused(
    mut schedule: Schedule,
    pass: Pass,
    change: impl Fn(&mut Routine),
    words: &str,
) {
    let found = schedule.routines.iter().find(|(_, routine)| routine.pass == pass);
    let (id, _) = found.unwrap();
    change(&mut schedule.routines[id]);
    let refused = check(schedule, &Kernels).unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
}

/// Clipping by what one device has of the norm is no schedule.
#[test]
fn norms_of_parts_are_no_norms() {
    let program = clipped(mlp(6, 16));
    let shards = compiled(&program, &split(&program, SPLITS[1], (2, 1))).into_inner();
    let alone = |update: &mut Routine| {
        let own = update.arguments.iter_mut();
        own.filter(|own| own.role == Role::Squares).for_each(|own| {
            (own.role, own.access) = (Role::Workspace, Access::Write);
        });
        let call = &mut update.calls[0];
        call.operands.pop();
        call.attributes.remove("squares");
    };
    let words = "clips by the norm of a part of the gradient";
    refused(shards, Pass::Update, alone, words);
    let kind = (Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated);
    let stages = compiled(&program, &plan(&program, kind, 2, 3)).into_inner();
    refused(stages.clone(), Pass::Update, alone, words);
    let others =
        |update: &mut Routine| update.calls[0].operands.last_mut().unwrap().argument = 1;
    refused(
        stages.clone(),
        Pass::Update,
        others,
        "must bound the norm that the pass is given",
    );
    let program = clipped(divisible(8, Float::F32));
    let grid = deep(&program, Tensor::grid(2, 1), 1, 1);
    let grid = compiled(&program, &grid).into_inner();
    let apart = |norm: &mut Routine| {
        norm.calls.pop();
        norm.calls[0].operands[1].argument = 1;
    };
    refused(grid, Pass::Norm, apart, "finds the norm of one part of split tensors");
}

/// Every stage is counted once: none is left out, taken twice, of another step, or in another's place.
#[test]
fn each_stage_is_counted_once() {
    let program = clipped(mlp(6, 16));
    let kind = (Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated);
    let stages = compiled(&program, &plan(&program, kind, 2, 3)).into_inner();
    let norm = |stage: usize| {
        let mut all = stages.routines.iter();
        let own = |routine: &Routine| {
            routine.pass == Pass::Norm && routine.stage == Stage::new(stage)
        };
        all.find(|(_, routine)| own(routine)).unwrap().0
    };
    let mut left_out = stages.clone();
    let middle = &mut left_out.routines[norm(1)];
    middle.calls[0].attributes.remove("accumulate");
    let told = check(left_out.clone(), &Kernels).unwrap_err().to_string();
    assert!(told.contains("overwrites argument 1, which adds up"), "{told}");
    left_out.routines[norm(1)].arguments[1].access = Access::Write;
    let told = check(left_out, &Kernels).unwrap_err().to_string();
    let (wanted, found) = ("squares(s1 to s2, t)", "squares(s1, t)");
    assert!(told.contains(wanted) && told.contains(found), "{told}");
    let twice = |norm: &mut Routine| {
        let again = norm.calls[0].clone();
        norm.calls.push(again);
    };
    refused(stages.clone(), Pass::Norm, twice, "by one call");
    let weighed = |norm: &mut Routine| {
        let own = norm.calls[0].attributes.get_mut("micro_batches").unwrap();
        *own = Attribute::Integer(1);
    };
    refused(stages.clone(), Pass::Norm, weighed, "must count the mean of all");
    for (stage, words) in [(0, "squares(s1 to s2, t)"), (1, "squares(s2, t)")] {
        let mut swapped = stages.clone();
        let (one, other) = (norm(stage), norm(2));
        let calls = swapped.routines[other].clone();
        let first = &mut swapped.routines[one];
        (first.arguments, first.calls) = (calls.arguments, calls.calls);
        let told = check(swapped, &Kernels).unwrap_err().to_string();
        assert!(!told.is_empty(), "{words}");
    }
    let mut stale = stages.clone();
    let hop = |work: &Work| matches!(work, Work::Transfer { content: Content::Squares(first, _), .. } if first.index() == 0);
    let (id, _) = stale.actions.iter().find(|(_, action)| hop(&action.work)).unwrap();
    stale.actions[id].lag = 1;
    let told = check(stale, &Kernels).unwrap_err().to_string();
    assert!(told.contains("squares(s0 to s2"), "{told}");
}
