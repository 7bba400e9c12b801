//! The law of the path: how often parameters can be renewed.

use super::work::splits;
use crate::load::StageLoad;
use roundelay_schedule::{Nanos, Placement, Plan};

/// Law: a micro-batch i that sees θ^j of step t − τ is followed, after its forward and backward
/// through stages j..S, by the update that micro-batch i of step t + 1 + τ sees. So 1 + τ(i, j)
/// training steps take at least Σ_{k ≥ j} (f_k + b_k). Where backward passes are in halves, those
/// that make gradients of parameters do not follow each other. On devices of their own a stage
/// that reads nothing of the one before, or gives nothing back, follows no other.
pub(super) fn of_stages(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let timeline = plan.placement.timeline();
    let freshest = plan.rule.freshest(timeline, plan.micro_batches, plan.stages);
    let freshest: Vec<u32> = freshest.collect();
    let mut rest = Nanos(0);
    let mut longest = Nanos(0);
    let apart = matches!(plan.placement, Placement::Pipeline | Placement::Shared);
    for (load, freshest) in loads.iter().zip(freshest).rev() {
        if apart && (load.down.is_none() || load.up.is_none()) {
            rest = Nanos(0);
        }
        rest += load.forward + if splits(plan) { load.turn() } else { load.backward };
        longest = longest.max(Nanos(rest.0 / (1 + u64::from(freshest))));
    }
    longest
}
