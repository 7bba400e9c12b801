//! Which passes split parameters come together for: those that read them.

use crate::{orders::pipeline, support::program};
use roundelay_codegen::lower;
use roundelay_schedule::{
    Collective, Content, Id, Order, Pass, Plan, Role, Schedule, States, Work,
};
use std::collections::BTreeMap;

/// Gathers of each stage in a step.
fn gathers(schedule: &Schedule) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for action in schedule.actions.values() {
        if let Work::Collective { kind: Collective::AllGather, content, .. } =
            &action.work
        {
            let Content::Parameter(stage) = content else {
                panic!("parameters are gathered, not {content:?}")
            };
            *counts.entry(stage.index()).or_insert(0) += 1;
        }
    }
    counts.into_values().collect()
}

/// The first map makes no gradient of its input, so its backward pass reads no parameters; W of no
/// map does, for no gradient hops back here.
#[test]
fn parameters_are_gathered_for_the_passes_that_read_them() {
    let n = 8;
    for order in [Order::OneForwardOneBackward, Order::ZeroBubbleH1, Order::ZeroBubbleH2]
    {
        let plan = pipeline(order, 4, 1, n);
        let plan = Plan { states: States::Zero3, ..plan }.replicated(2, 1);
        let program = program(plan.stages, plan.all_micro_batches());
        let schedule = lower(&program, &plan).unwrap();
        let n = n as usize;
        assert_eq!(gathers(&schedule), [n, 2 * n, 2 * n, 2 * n], "{order}");
        for routine in schedule.routines.values() {
            let mut roles = routine.arguments.iter().map(|argument| argument.role);
            let reads = roles.any(|role| role == Role::Parameter);
            let idle = match routine.pass {
                Pass::WeightGradient | Pass::Combine | Pass::Norm => true,
                Pass::Backward | Pass::InputGradient => routine.stage.index() == 0,
                Pass::Forward | Pass::Update => false,
            };
            assert_eq!(reads, !idle, "{order} {}", routine.name);
        }
    }
}
