//! Programs and plans that the tests of whole schedules share.

use roundelay::{
    Checked, Plan, Program, SourceFile,
    parts::{
        codegen::lower,
        kernels::Kernels,
        schedule::{DeviceId, Id, Order, Placement, Reduction, Rule, States, check},
    },
};

/// Layers of one width with dropout, a skip over all of them, and a mean squared error.
pub(crate) fn mlp(layers: u32, batch: u32) -> Program {
    let hidden = "x = dropout(gelu(linear(x, 16)), 0.1)";
    let body = vec![hidden; layers as usize].join("\n");
    program(&format!(
        "model mlp {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = linear(features, 16)
            early = x
            {body}
            loss mse(layer_norm(x + early), wanted)
        }}
        {}",
        job(batch)
    ))
}

/// A language model with dropout; the residual stream crosses every cut.
pub(crate) fn gpt(layers: u32, batch: u32) -> Program {
    program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 24, 16) + positions(8, 16)
            early = x
            repeat {layers} as layer {{
                x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
                x = x + linear(relu(linear(layer_norm(x), 32)), 16)
            }}
            loss cross_entropy(linear(layer_norm(x + early), 24), targets)
        }}
        {}",
        job(batch)
    ))
}

/// Six steps of AdamW whose rate drops after three.
pub(crate) fn job(batch: u32) -> String {
    format!(
        "device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        link bus {{ bandwidth 1 GB/s, latency 1 us }}
        cluster many {{ 64 x core joined by bus }}
        train {{
            data synthetic
            batch {batch}
            optimizer adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)
            steps 6
            seed 11
        }}"
    )
}

/// Parses a program that must be right.
pub(crate) fn program(text: &str) -> Program {
    roundelay::parse(&SourceFile::new("test.rdl", text))
        .unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// A plan with cuts that split the nodes evenly.
pub(crate) fn plan(
    program: &Program,
    (rule, placement, order, states): (Rule, Placement, Order, States),
    n: u32,
    s: u32,
) -> Plan {
    let nodes = program.model.cuttable() as u32;
    let pools = placement == Placement::Shared && rule != Rule::Sync;
    Plan {
        rule,
        placement,
        order,
        replicas: 1,
        stages: s,
        cuts: (1..s).map(|stage| stage * nodes / s).collect(),
        micro_batches: n,
        states,
        reduction: if pools { Reduction::ByDevice } else { Reduction::Sequential },
        delays: rule.delays(placement.timeline(), n, s),
        devices: (0..placement.devices(rule, n, s) as usize).map(DeviceId::new).collect(),
    }
}

/// Every kind of plan: rule, placement, order, states.
pub(crate) fn kinds(n: u32, s: u32) -> Vec<(Rule, Placement, Order, States)> {
    use {Order as O, Placement as P, States as T};
    let mut kinds = vec![
        (Rule::Sync, P::Accumulate, O::Sequential, T::Replicated),
        (Rule::Sync, P::Concurrent, O::Parallel, T::Replicated),
        (Rule::Sync, P::Shared, O::Parallel, T::Replicated),
        (Rule::Sync, P::Pipeline, O::Gpipe, T::Replicated),
        (Rule::Sync, P::Pipeline, O::OneForwardOneBackward, T::Replicated),
    ];
    let sharded = [T::Replicated, T::Zero1, T::Zero2, T::Zero3];
    kinds.extend(sharded.map(|states| (Rule::Sync, P::Data, O::Parallel, states)));
    for rule in
        [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(1), Rule::CyclicSlack(2)]
    {
        kinds.push((rule, P::Accumulate, O::Sequential, T::Replicated));
        for placement in [P::Concurrent, P::Data, P::Shared] {
            kinds.push((rule, placement, O::Cyclic, T::Replicated));
        }
        kinds.push((rule, P::Data, O::Cyclic, T::Handoff));
        if rule != Rule::CyclicV1 || n + 1 >= s {
            kinds.push((rule, P::Pipeline, O::Cyclic, T::Replicated));
        }
    }
    kinds
}

/// Lowers and proves a plan.
pub(crate) fn compiled(program: &Program, plan: &Plan) -> Checked {
    let schedule =
        lower(program, plan).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"));
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"))
}
