//! The schedules that are mutated: every rule, placement and way of keeping states, each lowered
//! with as few waits as it needs.

use crate::plans::{Kind, kinds, plan};
use roundelay::{Schedule, SourceFile};
use roundelay_codegen::{lower, lower_halved};
use roundelay_dsl::{Operation, Program};
use roundelay_schedule::{Id, Order, Placement, Rule, States, Tie};

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

/// The first and the last layer with one map.
const TIED: [&str; 2] = [
    "param map: [4, 4] = normal(0.5)
    first = dropout(linear(x, weight = map), 0.1)",
    "third = dropout(linear(second, weight = map), 0.1)",
];

/// A plan's name, for messages, and its schedule.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
}

/// Schedules for S = N = 3, two with S ≠ N, and replicas.
pub(crate) fn cases() -> Vec<Case> {
    let program =
        roundelay::parse(&SourceFile::new("layers.rdl", PROGRAM)).expect("a program");
    let mut cases = Vec::new();
    for (n, s) in [(3, 3), (2, 3), (3, 2)] {
        // A second slack shows no fault that the first hides.
        let kinds = kinds(n, s).into_iter().filter(|kind| kind.0 != Rule::CyclicSlack(2));
        for kind in kinds {
            let plan = plan(kind, n, cuts(&program, s));
            let schedule = lower(&program, &plan).expect("every plan can be lowered");
            cases.push(Case { name: format!("{kind:?} of N, S = {n}, {s}"), schedule });
            if (n, s) == (3, 2) {
                let name = format!("{kind:?} of N, S = {n}, {s} in halves");
                let schedule = lower_halved(&program, &plan).expect("so can halves");
                cases.push(Case { name, schedule });
            }
        }
    }
    cases.extend(replicated().map(|(kind, (n, s, r, shards))| {
        let plan = plan(kind, n, cuts(&program, s)).replicated(r, shards);
        let schedule = lower(&program, &plan).expect("every plan can be lowered");
        let name = format!("{kind:?} of N, S, R = {n}, {s}, {r} with {shards} shards");
        Case { name, schedule }
    }));
    let mut program = program;
    program.train.optimizer.clip = 0.01;
    cases.extend(clipped().map(|(kind, (n, s, r, shards))| {
        let plan = plan(kind, n, cuts(&program, s)).replicated(r, shards);
        let schedule = lower(&program, &plan).expect("every plan can be lowered");
        Case { name: format!("{kind:?} that clips"), schedule }
    }));
    cases.extend(tied());
    cases
}

/// Pipelines whose first and last stage use one map.
fn tied() -> impl Iterator<Item = Case> {
    use Order as O;
    let mut text = PROGRAM.replace("first = dropout(linear(x, 4), 0.1)", TIED[0]);
    text = text.replace("third = dropout(linear(second, 4), 0.1)", TIED[1]);
    let program =
        roundelay::parse(&SourceFile::new("tied.rdl", text)).expect("a program");
    [(O::OneForwardOneBackward, 1, 0.0), (O::Gpipe, 2, 0.0), (O::ZeroBubbleH1, 1, 0.01)]
        .into_iter()
        .map(move |(order, replicas, clip)| {
            let mut program = program.clone();
            program.train.optimizer.clip = clip;
            let kind = (Rule::Sync, Placement::Pipeline, order, States::Replicated);
            let plan = plan(kind, 2, cuts(&program, 3)).replicated(replicas, 1);
            let plan = plan.with_ties(vec![Tie(vec![0, 2])]);
            let schedule = lower(&program, &plan).expect("every plan can be lowered");
            Case { name: format!("{order} of tied stages"), schedule }
        })
}

/// Stages and shards whose norms are added up to bound the gradient of the whole.
fn clipped() -> impl Iterator<Item = (Kind, (u32, u32, u32, u32))> {
    use {Order as O, Placement as P, Rule as R, States as T};
    [
        ((R::Sync, P::Accumulate, O::Sequential, T::Zero1), (2, 2, 2, 1)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Hsdp), (1, 2, 4, 2)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Replicated), (2, 3, 1, 1)),
        ((R::Sync, P::Pipeline, O::OneForwardOneBackward, T::Replicated), (2, 3, 1, 1)),
        ((R::Sync, P::Pipeline, O::ZeroBubbleH1, T::Replicated), (2, 2, 2, 1)),
        ((R::Sync, P::Pipeline, O::Gpipe, T::Zero2), (2, 3, 2, 1)),
    ]
    .into_iter()
}

/// Every way in which gradients of replicas are summed: after a whole sum, shard by shard, in
/// groups, and behind a pipeline whose micro-batches never stop.
fn replicated() -> impl Iterator<Item = (Kind, (u32, u32, u32, u32))> {
    use {Order as O, Placement as P, Rule as R, States as T};
    [
        ((R::Sync, P::Pipeline, O::Gpipe, T::Replicated), (2, 2, 2, 1)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Zero1), (2, 2, 2, 1)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Zero2), (2, 2, 2, 1)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Zero3), (3, 2, 2, 1)),
        ((R::Sync, P::Accumulate, O::Sequential, T::Hsdp), (1, 3, 4, 2)),
        ((R::CyclicV2, P::Pipeline, O::Cyclic, T::Replicated), (2, 2, 2, 1)),
    ]
    .into_iter()
}

/// Stages that start at linear layers.
fn cuts(program: &Program, s: u32) -> Vec<u32> {
    let linear = program.model.nodes.iter();
    let linear = linear.filter(|(_, node)| node.operation == Operation::Linear);
    let starts = linear.map(|(id, _)| id.index() as u32);
    starts.skip(1).take(s as usize - 1).collect()
}
