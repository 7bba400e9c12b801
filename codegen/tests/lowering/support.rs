//! Small programs and plans for the tests of the lowering.

use roundelay_dsl::{
    Extent, Model, ModelInput, ModelParameter, Node, Operation, Program, Search, Source,
    Train,
};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Data, Device, DeviceId, Domain, Element, Evaluation, Float,
    FlopsPerSecond, Id, Initial, Link, Method, Nanos, Optimizer, Order, Placement, Plan,
    Pool, Rate, Reduction, Rule, States, Target, Treatment,
};

/// `layers` square layers of one width and a mean squared error: equal stages but for the loss.
pub(crate) fn program(layers: usize, devices: u32, batch: u32) -> Program {
    Program {
        model: model(layers, 16),
        target: target(devices),
        train: train(batch),
        search: Search::default(),
    }
}

fn model(layers: usize, width: u64) -> Model {
    let per_example = Extent { size: 1, per_example: true };
    let shape = vec![per_example, Extent { size: width, per_example: false }];
    let mut model = Model { name: "layers".to_owned(), ..Model::default() };
    let input = |name: &str| ModelInput {
        name: name.to_owned(),
        element: Element::Real,
        shape: shape.clone(),
        bound: 0,
    };
    let first = model.inputs.push(input("x"));
    let target = model.inputs.push(input("y"));
    let mut value = Source::Input(first);
    for layer in 0..layers {
        let weight = model.parameters.push(ModelParameter {
            name: format!("layer.{layer}.weight"),
            shape: vec![width, width],
            initial: Initial::Uniform(0.25),
            treatment: Treatment::Decayed,
        });
        let operands = vec![value, Source::Parameter(weight)];
        let name = format!("layer.{layer}");
        let node =
            Node { name, operation: Operation::Linear, operands, shape: shape.clone() };
        value = Source::Node(model.nodes.push(node));
    }
    let operands = vec![value, Source::Input(target)];
    let operation = Operation::MeanSquaredError;
    let loss = Node { name: "loss".to_owned(), operation, operands, shape: Vec::new() };
    model.loss = Some(model.nodes.push(loss));
    model
}

fn target(devices: u32) -> Target {
    let mut target = Target { name: "test".to_owned(), ..Target::default() };
    let capacity = Bytes(1 << 30);
    for number in 0..devices {
        let pool = target.pools.push(Pool { name: format!("memory {number}"), capacity });
        target.devices.push(Device {
            name: format!("core {number}"),
            pool,
            memory: capacity,
            compute: FlopsPerSecond(1_000_000_000),
            bandwidth: BytesPerSecond(1_000_000_000),
            threads: 1,
            overhead: Nanos(0),
        });
    }
    let bandwidth = BytesPerSecond(1_000_000_000);
    let link =
        target.links.push(Link { name: "bus".to_owned(), bandwidth, latency: Nanos(0) });
    target.domains.push(Domain { link, devices: 0..devices });
    target
}

fn train(batch: u32) -> Train {
    Train {
        data: Data::Synthetic,
        batch,
        seed: 7,
        steps: 6,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 },
            rate: Rate::Constant(0.01),
            weight_decay: 0.1,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
    }
}

/// A plan with one layer per stage (the loss goes with the last).
pub(crate) fn plan(
    rule: Rule,
    placement: Placement,
    order: Order,
    states: States,
    n: u32,
    s: u32,
) -> Plan {
    let pools = placement == Placement::Shared && rule != Rule::Sync;
    Plan {
        rule,
        placement,
        order,
        replicas: 1,
        stages: s,
        cuts: (1..s).collect(),
        micro_batches: n,
        states,
        reduction: if pools { Reduction::ByDevice } else { Reduction::Sequential },
        delays: rule.delays(placement.timeline(), n, s),
        devices: (0..placement.devices(rule, n, s) as usize).map(DeviceId::new).collect(),
    }
}

/// Every kind of plan for N micro-batches and S stages.
pub(crate) fn plans(n: u32, s: u32) -> Vec<Plan> {
    let sync =
        |placement, order, states| plan(Rule::Sync, placement, order, states, n, s);
    let mut plans = vec![
        sync(Placement::Accumulate, Order::Sequential, States::Replicated),
        sync(Placement::Concurrent, Order::Parallel, States::Replicated),
        sync(Placement::Shared, Order::Parallel, States::Replicated),
        sync(Placement::Pipeline, Order::Gpipe, States::Replicated),
        sync(Placement::Pipeline, Order::OneForwardOneBackward, States::Replicated),
    ];
    for states in [States::Replicated, States::Zero1, States::Zero2, States::Zero3] {
        plans.push(sync(Placement::Data, Order::Parallel, states));
    }
    for rule in
        [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(1), Rule::CyclicSlack(2)]
    {
        let cyclic =
            |placement, order, states| plan(rule, placement, order, states, n, s);
        plans.push(cyclic(Placement::Accumulate, Order::Sequential, States::Replicated));
        for placement in [Placement::Concurrent, Placement::Data, Placement::Shared] {
            plans.push(cyclic(placement, Order::Cyclic, States::Replicated));
        }
        plans.push(cyclic(Placement::Data, Order::Cyclic, States::Handoff));
        if rule != Rule::CyclicV1 || n + 1 >= s {
            plans.push(cyclic(Placement::Pipeline, Order::Cyclic, States::Replicated));
        }
    }
    plans
}
