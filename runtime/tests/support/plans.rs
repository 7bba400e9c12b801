//! Every kind of plan for N micro-batches and S stages.

use super::models::Layered;
use roundelay_schedule::{DeviceId, Id, Order, Placement, Plan, Reduction, Rule, States};

/// One plan of a layered model.
pub(crate) fn plan(
    layered: &Layered,
    (rule, placement, order, states): (Rule, Placement, Order, States),
    (n, s): (u32, u32),
) -> Plan {
    let pools = placement == Placement::Shared && rule != Rule::Sync;
    Plan {
        rule,
        placement,
        order,
        replicas: 1,
        stages: s,
        cuts: layered.cuts(s),
        micro_batches: n,
        states,
        reduction: if pools { Reduction::ByDevice } else { Reduction::Sequential },
        delays: rule.delays(placement.timeline(), n, s),
        devices: (0..placement.devices(rule, n, s) as usize).map(DeviceId::new).collect(),
    }
}

/// Every rule × placement × states that can be lowered.
pub(crate) fn plans(layered: &Layered, (n, s): (u32, u32)) -> Vec<Plan> {
    use Placement::{Accumulate, Concurrent, Data, Pipeline, Shared};
    let whole = States::Replicated;
    let mut kinds = vec![
        (Rule::Sync, Accumulate, Order::Sequential, whole),
        (Rule::Sync, Concurrent, Order::Parallel, whole),
        (Rule::Sync, Shared, Order::Parallel, whole),
        (Rule::Sync, Pipeline, Order::Gpipe, whole),
        (Rule::Sync, Pipeline, Order::OneForwardOneBackward, whole),
    ];
    for states in [whole, States::Zero1, States::Zero2, States::Zero3] {
        kinds.push((Rule::Sync, Data, Order::Parallel, states));
    }
    for rule in
        [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(1), Rule::CyclicSlack(2)]
    {
        kinds.push((rule, Accumulate, Order::Sequential, whole));
        for placement in [Concurrent, Data, Shared] {
            kinds.push((rule, placement, Order::Cyclic, whole));
        }
        kinds.push((rule, Data, Order::Cyclic, States::Handoff));
        if rule != Rule::CyclicV1 || n + 1 >= s {
            kinds.push((rule, Pipeline, Order::Cyclic, whole));
        }
    }
    kinds.into_iter().map(|kind| plan(layered, kind, (n, s))).collect()
}
