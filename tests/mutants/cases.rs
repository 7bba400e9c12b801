//! The schedules that are mutated: every rule, placement and way of keeping states, each lowered
//! with as few waits as it needs.

use roundelay::{Schedule, SourceFile};
use roundelay_codegen::lower;
use roundelay_dsl::{Operation, Program};
use roundelay_schedule::{DeviceId, Id, Order, Placement, Plan, Reduction, Rule, States};

/// Three layers, a skip over two cuts, and dropout: a mask tells a wrong step or micro-batch.
const PROGRAM: &str = "
model layers {
    input x: real[batch, 4]
    input y: real[batch, 4]
    first = dropout(linear(x, 4), 0.1)
    second = dropout(relu(linear(first, 4)), 0.1)
    third = dropout(linear(second, 4), 0.1)
    loss mse(third + first, y)
}
device core { memory 1 MB, compute 1 GFLOP/s, bandwidth 1 GB/s }
link bus { bandwidth 1 GB/s, latency 1 us }
cluster box { 9 x core joined by bus }
train {
    data synthetic
    batch 12
    optimizer adamw(lr = step(0.05, 0.5, 2), weight_decay = 0.1)
    steps 4
}
";

/// A plan's name, for messages, and its schedule.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
}

/// Schedules for S = N = 3 and two with S ≠ N.
pub(crate) fn cases() -> Vec<Case> {
    let program =
        roundelay::parse(&SourceFile::new("layers.rdl", PROGRAM)).expect("a program");
    let mut cases = Vec::new();
    for (n, s) in [(3, 3), (2, 3), (3, 2)] {
        for kind in kinds(n, s) {
            let plan = plan(&program, kind, (n, s));
            let schedule = lower(&program, &plan).expect("every plan can be lowered");
            cases.push(Case { name: format!("{kind:?} of N, S = {n}, {s}"), schedule });
        }
    }
    cases
}

type Kind = (Rule, Placement, Order, States);

fn kinds(n: u32, s: u32) -> Vec<Kind> {
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
    for rule in [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(1)] {
        kinds.push((rule, Accumulate, Order::Sequential, whole));
        for placement in [Concurrent, Data, Shared] {
            kinds.push((rule, placement, Order::Cyclic, whole));
        }
        kinds.push((rule, Data, Order::Cyclic, States::Handoff));
        if rule != Rule::CyclicV1 || n + 1 >= s {
            kinds.push((rule, Pipeline, Order::Cyclic, whole));
        }
    }
    kinds
}

fn plan(
    program: &Program,
    (rule, placement, order, states): Kind,
    (n, s): (u32, u32),
) -> Plan {
    let rings = placement == Placement::Shared && rule != Rule::Sync;
    let linear = program.model.nodes.iter();
    let linear = linear.filter(|(_, node)| node.operation == Operation::Linear);
    let starts = linear.map(|(id, _)| id.index() as u32);
    Plan {
        rule,
        placement,
        order,
        replicas: 1,
        stages: s,
        cuts: starts.skip(1).take(s as usize - 1).collect(),
        micro_batches: n,
        states,
        reduction: if rings { Reduction::ByDevice } else { Reduction::Sequential },
        delays: rule.delays(placement.timeline(), n, s),
        devices: (0..placement.devices(rule, n, s) as usize).map(DeviceId::new).collect(),
    }
}
