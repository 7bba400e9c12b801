//! Every kind of plan can be lowered, and what comes out has the promised sizes.

use crate::support::{kinds, plan, program};
use roundelay_codegen::lower;
use roundelay_schedule::{Kind, Order, Placement, Rule, States, Subject};

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
