//! Gradients that are bounded by the norm of the whole, where each device has a part: shards of
//! states, parts of split tensors, or both. They train like one device, and bit for bit like the
//! recursion.

use crate::{
    columns::grids,
    depth::{deep, divisible, losses},
    models::mlp,
    networks,
    oracle::compare_one,
    support::{compiled, plan},
};
use roundelay::{
    Plan, Program, Schedule,
    parts::{kernels::Kernels, schedule::check},
};
use roundelay_schedule::{
    Access, Collective, Content, Float, Order, Pass, Placement, Role, Routine, Rule,
    States, Subject, Tensor, Work,
};

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

/// One number of each shard goes round, once a step and stage; nothing more where nothing is clipped.
#[test]
fn one_number_of_each_shard_is_added_up() {
    let free = mlp(6, 16);
    for (program, expected) in [(clipped(free.clone()), 3), (free, 0)] {
        for states in SPLITS {
            let schedule = compiled(&program, &split(&program, states, (2, 3)));
            let sums = schedule.actions.values().filter(|action| match &action.work {
                Work::Collective { kind, content: Content::Squares(_), .. } => {
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

/// A schedule with one routine changed is refused with words.
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
    refused(shards, Pass::Update, alone, "clips by the norm of a part of the gradient");
    let program = clipped(divisible(8, Float::F32));
    let grid = deep(&program, Tensor::grid(2, 1), 1, 1);
    let grid = compiled(&program, &grid).into_inner();
    let apart = |norm: &mut Routine| {
        norm.calls.pop();
        norm.calls[0].operands[1].argument = 1;
    };
    refused(grid, Pass::Norm, apart, "finds the norm of one part of split tensors");
}
