//! Every kind of plan can be lowered, and what comes out has the promised sizes.

use crate::{
    models,
    support::{kinds, plan, program, program_of},
};
use roundelay_codegen::{Everywhere, LowerError, Lowerer, lower};
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Checked, Kind, Order, Placement, Queues, Rule, States, Subject, Work, check,
};
use std::collections::BTreeSet;

#[test]
fn every_plan_lowers() {
    for (n, s) in [(1, 1), (1, 2), (2, 2), (3, 3), (4, 4), (3, 2), (2, 3), (4, 3), (5, 2)]
    {
        let program = program(s, 4 * n);
        for kind in kinds(n, s) {
            let lowered = lower(&program, &plan(kind, n, s));
            assert!(lowered.is_ok(), "{kind:?}: {lowered:?}");
        }
    }
}

#[test]
fn more_queues_than_the_checker_follows_are_refused_before_waits_are_derived() {
    let n = 1400;
    let kind = (Rule::CyclicV2, Placement::Data, Order::Cyclic, States::Replicated);
    let plan = plan(kind, n, 1);
    let program = models::program(&format!(
        "model line {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            loss mse(linear(features, 16), wanted)
        }}
        {}",
        models::job(n).replace("64 x core", "1400 x core")
    ));
    let Err(refused @ LowerError::Queues(queues)) = lower(&program, &plan) else {
        panic!("it is lowered, or refused for something else")
    };
    assert!(queues > Queues::MOST, "{queues}");
    let lowerer = Lowerer::new(&program, &Everywhere);
    let admitted = lowerer.lower_if(&plan, |_| -> Result<(), ()> {
        panic!("nobody is asked about what is refused")
    });
    assert_eq!(admitted, Err(refused));
}

#[test]
fn concurrent_activation_rows_are_n_minus_j_plus_one() {
    for n in 2..=8 {
        let kind =
            (Rule::CyclicV2, Placement::Concurrent, Order::Cyclic, States::Replicated);
        let schedule = lower(&program(n, n), &plan(kind, n, n)).unwrap();
        for (_, buffer) in schedule.buffers.iter() {
            if let Subject::Activation(stage) = buffer.subject {
                let stage = roundelay_schedule::Id::index(stage) as u32;
                assert_eq!(buffer.slots, n - stage, "N = {n}, stage {stage}");
            }
        }
        assert!(schedule.buffers.values().any(|b| b.subject.kind() == Kind::Boundary));
    }
}

/// Values wait for their backward passes, and gradients take the places that these leave: where one
/// device makes all passes there are never more than one of each stage.
#[test]
fn gradients_between_stages_take_the_places_of_values() {
    for (n, s) in [(1, 4), (3, 4), (2, 7)] {
        let kind =
            (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
        let schedule = lower(&program(s, n), &plan(kind, n, s)).unwrap();
        let between = schedule.buffers.values().filter(|buffer| {
            matches!(buffer.subject, Subject::Value(_) | Subject::ValueGradient(_))
        });
        let ends =
            between.map(|buffer| (buffer.offset.0, buffer.offset.0 + buffer.size.0));
        let (starts, ends): (Vec<u64>, Vec<u64>) = ends.unzip();
        assert_eq!(starts.len(), 2 * (s as usize - 1));
        let first = starts.iter().min().unwrap();
        let last = ends.iter().max().unwrap();
        assert_eq!(last - first, u64::from(s) * 64, "N = {n}, S = {s}");
    }
}

/// Feeds of one period, and how many devices, inputs and micro-batches they differ in.
fn feeds(schedule: &Checked) -> (usize, usize) {
    let feeds = schedule.actions.values().filter_map(|action| match &action.work {
        Work::Feed { at, micro_batch, row } => {
            let ring = &schedule.rings[at.ring];
            let device = ring.device(at.place, i64::from(action.lag));
            Some((device, *micro_batch, row.buffer))
        }
        _ => None,
    });
    let all: Vec<_> = feeds.collect();
    let different: BTreeSet<_> = all.iter().copied().collect();
    (all.len(), different.len())
}

#[test]
fn stages_of_one_device_share_what_it_is_fed() {
    for (n, s) in [(2, 2), (3, 3), (2, 4), (4, 4)] {
        let program = program_of("x = linear(x + features, 16)", s, 4 * n);
        for kind in kinds(n, s) {
            let schedule = lower(&program, &plan(kind, n, s)).unwrap();
            let schedule = check(schedule, &Kernels);
            let schedule = schedule.unwrap_or_else(|wrong| panic!("{kind:?}: {wrong}"));
            let (all, different) = feeds(&schedule);
            assert_eq!(all, different, "{kind:?}, N = {n}, S = {s}");
            if kind.1 == Placement::Accumulate {
                assert_eq!(all, 2 * n as usize, "{kind:?}, N = {n}, S = {s}");
            }
        }
    }
}
