//! The laws of the path and of the relay: how often parameters can be renewed.

use super::{network::Network, ports::place, work::splits};
use crate::costs::load::StageLoad;
use roundelay_schedule::{Hop, Nanos, Placement, Plan, Rule};

/// Law: a micro-batch i that sees θ^j of step t − τ is followed, after its forward and backward
/// through stages j..S, by the update that micro-batch i of step t + 1 + τ sees. So 1 + τ(i, j)
/// training steps take at least Σ_{k ≥ j} (f_k + b_k). Where backward passes are in halves, those
/// that make gradients of parameters do not follow each other. On devices of their own a stage
/// that reads nothing of the one before, or gives nothing back, follows no other; nor does one to
/// which a gradient hops back, which is no part of what goes on to the stage before.
pub(super) fn of_stages(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let timeline = plan.placement.timeline();
    let freshest = plan.rule.freshest(timeline, plan.micro_batches, plan.stages);
    let freshest: Vec<u32> = freshest.collect();
    let mut rest = Nanos(0);
    let mut longest = Nanos(0);
    let apart = matches!(plan.placement, Placement::Pipeline | Placement::Shared);
    // One unit is backpropagation. A plan that is bounded may have no boundaries yet.
    let hops = match plan.rule {
        Rule::Local { units, hop } => units > 1 && hop != Hop::None,
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => false,
    };
    for (load, freshest) in loads.iter().zip(freshest).rev() {
        if apart && (hops || load.down.is_none() || load.up.is_none()) {
            rest = Nanos(0);
        }
        rest += load.forward + if splits(plan) { load.turn() } else { load.backward };
        longest = longest.max(Nanos(rest.0 / (1 + u64::from(freshest))));
    }
    longest
}

/// Law: cyclic workers add to the sum of a stage one after another. The first one hands it on when
/// its backward pass is done, the next one adds in its own, and so on; the update behind the last
/// one makes the version that the first worker sees 1 + τ training steps after the one in which it
/// began. So these steps take at least the backward passes of all workers, and the messages
/// between them.
pub(super) fn relay(plan: &Plan, loads: &[StageLoad], network: &Network<'_>) -> Nanos {
    if plan.placement != Placement::Data || plan.rule.is_synchronous() {
        return Nanos(0);
    }
    let n = plan.micro_batches;
    let first = plan.rule.stalest(plan.placement.timeline(), n, plan.stages);
    let hops = |load: &StageLoad| -> Nanos {
        let hop = |i: u32| {
            let [from, to] = [i - 1, i].map(|worker| place(plan, worker));
            network.transfer(from, to, load.gradient)
        };
        (1..n).map(hop).sum()
    };
    let mut known: Option<(&StageLoad, Nanos)> = None;
    let mut longest = Nanos(0);
    for (load, delay) in loads.iter().zip(first) {
        let alike = known.filter(|(other, _)| other.gradient == load.gradient);
        let hops = alike.map_or_else(|| hops(load), |(_, hops)| hops);
        known = Some((load, hops));
        let around = load.backward * u64::from(n) + hops;
        longest = longest.max(Nanos(around.0 / (1 + u64::from(delay))));
    }
    longest
}
