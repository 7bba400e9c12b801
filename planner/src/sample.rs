//! Small programs, plans and numbers for the tests of this crate.

use crate::{
    costs::measured::Origins,
    search::{bound::Bound, candidate::Candidate, objective::Goal, ranking::Ranking},
    space::{Space, cuts::Messages, outline::Outline},
};
use roundelay_codegen::{BackwardForm, StageForm};
use roundelay_dsl::{
    Cap, Extent, Heads, Masked, Model, ModelInput, ModelMetric, ModelParameter, NoFiles,
    Node, NodeId, Operation, Program, Projections, Scale, Search, Sight, Source,
    SourceFile, Train, Window, parse,
};
use roundelay_schedule::{
    Belonging, Bytes, BytesPerSecond, CallTime, Contraction, Copies, Data, Device,
    Division, Domain, Element, Evaluation, Exactness, Float, FlopsPerSecond, Host, Id,
    Initial, Kind, Link, Method, Nanos, Optimizer, Order, Origin, PROFILE_FORMAT,
    ParameterKind, Placement, Plan, Pool, Profile, Rate, Reading, Recompute, Rule,
    Sequence, States, Table, Target, Tensor, Thousandths, Treatment,
};
use std::{collections::BTreeMap, time::Duration};

/// One row, two whose tokens are whole or split between them, the same of a grid, columns that
/// gather, and columns whose maps choose.
pub(crate) const SPLITS: [Tensor; 7] = [
    Tensor::WHOLE,
    Tensor::rows(2, Sequence::Whole),
    Tensor::rows(2, Sequence::Split),
    Tensor::grid(2, 2),
    Tensor { sequence: Sequence::Split, ..Tensor::grid(2, 2) },
    Tensor { contraction: Contraction::Gather, ..Tensor::grid(1, 2) },
    Tensor { contraction: Contraction::Each, ..Tensor::grid(1, 2) },
];

/// All forms of a stage.
pub(crate) fn forms() -> impl Iterator<Item = StageForm> {
    let backwards = [BackwardForm::Whole, BackwardForm::Split];
    let all = Recompute::STEPS.iter().copied();
    all.flat_map(move |recompute| {
        backwards.map(|backward| StageForm { backward, recompute })
    })
}

/// A seeded generator: splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

pub(crate) fn optimizer(clip: f64) -> Optimizer {
    Optimizer {
        method: Method::Adamw { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
        rate: Rate::Constant(1e-3),
        weight_decay: 0.0,
        clip,
    }
}

pub(crate) fn device() -> Device {
    Device {
        name: "core".into(),
        pool: Id::new(0),
        memory: Bytes(1_000_000),
        compute: FlopsPerSecond(1_000_000_000),
        bandwidth: BytesPerSecond(1_000_000_000),
        updates: Thousandths::ALL,
        losses: Thousandths::ALL,
        threads: 1,
        overhead: Nanos(1_000),
        issue: Nanos(0),
        products: roundelay_schedule::Products::default(),
        reserved: Bytes(0),
        overlap: Thousandths::NONE,
    }
}

/// Equal devices that share one memory and are joined by one link.
pub(crate) fn target(devices: usize) -> Target {
    let mut links = Table::new();
    let (bandwidth, latency) = (BytesPerSecond(1_000_000_000), Nanos(2_000));
    let link = links.push(Link::plain("bus", bandwidth, latency));
    let capacity = Bytes(4_000_000);
    let numbered = |number| Device { name: format!("core{number}"), ..device() };
    Target {
        name: "bench".into(),
        pools: [Pool { name: "shared".into(), capacity }].into_iter().collect(),
        devices: (0..devices).map(numbered).collect(),
        links,
        domains: vec![Domain { link, devices: 0..u32::try_from(devices).unwrap() }],
        host: Host::default(),
    }
}

/// Gives every device and every memory that some share so much.
pub(crate) fn give_room(program: &mut Program, room: Bytes) {
    let Target { devices, pools, .. } = &mut program.target;
    devices.iter_mut().for_each(|(_, device)| device.memory = room);
    pools.iter_mut().for_each(|(_, pool)| pool.capacity = room);
}

/// Four layers of width 16 with a rectifier between, mean squared error at the end.
pub(crate) fn model() -> Model {
    let per_example = |size| vec![Extent { size: 1, per_example: true }, one(size)];
    let mut model = Model { name: "mlp".into(), ..Model::default() };
    let [x, y] = ["x", "y"].map(|name| input(&mut model, name, per_example(16)));
    let mut last = x;
    for layer in 0..4 {
        let weight = parameter(&mut model, &format!("layer.{layer}.weight"), &[16, 16]);
        last = push(&mut model, Operation::Linear, vec![last, weight], per_example(16));
        last = push(&mut model, Operation::Relu, vec![last], per_example(16));
    }
    push(&mut model, Operation::MeanSquaredError, vec![last, y], Vec::new());
    model.loss = model.nodes.ids().last();
    model
}

/// Four maps of one input whose results are added: branches that stages can take side by side.
pub(crate) fn branches() -> Model {
    let mut model = Model { name: "branches".into(), ..Model::default() };
    let shape = |size| vec![Extent { size: 1, per_example: true }, one(size)];
    let [x, y] = ["x", "y"].map(|name| input(&mut model, name, shape(16)));
    let maps = [0, 1, 2, 3].map(|branch| {
        let weight = parameter(&mut model, &format!("branch.{branch}"), &[16, 16]);
        push(&mut model, Operation::Linear, vec![x, weight], shape(16))
    });
    let mut sum = maps[0];
    for map in &maps[1..] {
        sum = push(&mut model, Operation::Add, vec![sum, *map], shape(16));
    }
    push(&mut model, Operation::MeanSquaredError, vec![sum, y], Vec::new());
    model.loss = model.nodes.ids().last();
    model
}

/// Layers of which the loss reads the third map again, and only a metric the second one.
pub(crate) fn read_again() -> Model {
    let mut model = model();
    let layers: Vec<NodeId> = model.nodes.ids().collect();
    let loss = model.loss.expect("it has one");
    let operands = model.nodes[loss].operands.clone();
    let shape = model.nodes[layers[0]].shape.clone();
    model.nodes = model.nodes.values().take(loss.index()).cloned().collect();
    let sum = vec![operands[0], Source::Node(layers[4])];
    let sum = push(&mut model, Operation::Add, sum, shape);
    let end =
        push(&mut model, Operation::MeanSquaredError, vec![sum, operands[1]], vec![]);
    let measured = vec![Source::Node(layers[2]), operands[1]];
    push(&mut model, Operation::MeanSquaredError, measured, vec![]);
    let Source::Node(end) = end else { unreachable!("a node was pushed") };
    model.loss = Some(end);
    let node = model.nodes.ids().last().expect("it was pushed");
    let (name, reading) = ("measured".into(), Reading::Mean);
    model.metrics.push(ModelMetric { name, node, reading });
    model
}

/// Features through an affine map, positions added to them, a second map: what is added is as
/// large as one example.
pub(crate) fn positioned() -> Model {
    let mut model = Model { name: "positioned".into(), ..Model::default() };
    let shape = || vec![Extent { size: 1, per_example: true }, one(8), one(16)];
    let [x, y] = ["x", "y"].map(|name| input(&mut model, name, shape()));
    let mut map = |x, name: &str| {
        let weight = parameter(&mut model, name, &[16, 16]);
        let bias = parameter(&mut model, &format!("{name}.bias"), &[16]);
        let map = push(&mut model, Operation::Linear, vec![x, weight, bias], shape());
        let positions = parameter(&mut model, &format!("{name}.positions"), &[8, 16]);
        push(&mut model, Operation::Add, vec![map, positions], shape())
    };
    let first = map(x, "first");
    let last = map(first, "last");
    push(&mut model, Operation::MeanSquaredError, vec![last, y], Vec::new());
    model.loss = model.nodes.ids().last();
    model
}

/// A byte-level transformer: embedding, positions, layers of attention and a feed-forward block,
/// cross entropy. With `tied` the head reads the embedding's table.
pub(crate) fn gpt(layers: u64, sequence: u64, width: u64, tied: bool) -> Model {
    let vocabulary = 256;
    let tokens = |name: &str| ModelInput {
        element: Element::I32,
        bound: vocabulary,
        ..real(name, vec![Extent { size: 1, per_example: true }, one(sequence)])
    };
    let mut model = Model { name: "gpt".into(), ..Model::default() };
    let input = model.inputs.push(tokens("tokens"));
    let targets = model.inputs.push(tokens("targets"));
    let shape =
        |last| vec![Extent { size: 1, per_example: true }, one(sequence), one(last)];
    let table = parameter(&mut model, "table", &[vocabulary, width]);
    let operands = vec![Source::Input(input), table];
    let mut x = push(&mut model, Operation::Embedding, operands, shape(width));
    let positions = parameter(&mut model, "positions", &[sequence, width]);
    x = push(&mut model, Operation::Add, vec![x, positions], shape(width));
    let linear = |model: &mut Model, name: &str, x, m, n| {
        let weight = parameter(model, name, &[n, m]);
        let bias = parameter(model, &format!("{name}.bias"), &[n]);
        push(model, Operation::Linear, vec![x, weight, bias], shape(n))
    };
    let norm = |model: &mut Model, name: &str, x| {
        let gain = parameter(model, &format!("{name}.gain"), &[width]);
        let bias = parameter(model, &format!("{name}.bias"), &[width]);
        let norm = Operation::LayerNorm { epsilon: 1e-5 };
        push(model, norm, vec![x, gain, bias], shape(width))
    };
    for layer in 0..layers {
        let name = |part: &str| format!("layer.{layer}.{part}");
        let h = norm(&mut model, &name("norm"), x);
        let [q, k, v] = ["query", "key", "value"]
            .map(|part| linear(&mut model, &name(part), h, width, width));
        let attention = Operation::Attention {
            heads: Heads { all: 4, keys: 4 },
            projections: Projections::Apart,
            sight: Sight { causal: true, window: Window::Open },
            scale: Scale::Depth,
            cap: Cap::Open,
        };
        let mixed = push(&mut model, attention, vec![q, k, v], shape(width));
        let out = linear(&mut model, &name("out"), mixed, width, width);
        x = push(&mut model, Operation::Add, vec![x, out], shape(width));
        let h = norm(&mut model, &name("norm2"), x);
        let wide = linear(&mut model, &name("wide"), h, width, 4 * width);
        let bent = push(&mut model, Operation::Gelu, vec![wide], shape(4 * width));
        let narrow = linear(&mut model, &name("narrow"), bent, 4 * width, width);
        x = push(&mut model, Operation::Add, vec![x, narrow], shape(width));
    }
    let h = norm(&mut model, "last", x);
    let logits = if tied {
        push(&mut model, Operation::Linear, vec![h, table], shape(vocabulary))
    } else {
        linear(&mut model, "head", h, width, vocabulary)
    };
    let operands = vec![logits, Source::Input(targets)];
    let loss = Operation::CrossEntropy { masked: Masked::No };
    push(&mut model, loss, operands, Vec::new());
    model.loss = model.nodes.ids().last();
    model
}

/// An input of real numbers.
fn real(name: &str, shape: Vec<Extent>) -> ModelInput {
    let (element, origin) = (Element::Real, Origin::Data);
    ModelInput { name: name.into(), element, shape, bound: 0, origin }
}

fn input(model: &mut Model, name: &str, shape: Vec<Extent>) -> Source {
    Source::Input(model.inputs.push(real(name, shape)))
}

fn parameter(model: &mut Model, name: &str, shape: &[u64]) -> Source {
    Source::Parameter(model.parameters.push(ModelParameter {
        belonging: Belonging::Model,
        name: name.into(),
        shape: shape.to_vec(),
        kind: ParameterKind::Plain,
        split: Division::Whole,
        initial: Initial::Normal(0.1),
        treatment: Treatment::Decayed,
    }))
}

fn one(size: u64) -> Extent {
    Extent { size, per_example: false }
}

fn push(
    model: &mut Model,
    operation: Operation,
    operands: Vec<Source>,
    shape: Vec<Extent>,
) -> Source {
    let name = format!("node.{}", model.nodes.len());
    let id: NodeId = model.nodes.push(Node { name, operation, operands, shape });
    Source::Node(id)
}

pub(crate) fn program(devices: usize, batch: u32) -> Program {
    Program {
        model: model(),
        target: target(devices),
        train: Train {
            data: Data::Synthetic,
            batch,
            seed: 1,
            steps: 10,
            dtype: Float::F32,
            optimizer: optimizer(0.0),
            evaluate: Evaluation::Never,
        },
        search: Search::default(),
        profiles: BTreeMap::new(),
        prices: BTreeMap::new(),
        peaks: BTreeMap::new(),
    }
}

/// The program that a text is.
pub(crate) fn parsed(text: &str) -> Program {
    let source = SourceFile::new("it.rdl", text.to_owned());
    parse(&source, &NoFiles).unwrap_or_else(|wrong| panic!("{wrong}")).0
}

pub(crate) fn profile(calls: Vec<CallTime>) -> Profile {
    let copies = Copies {
        latency: Nanos(0),
        bandwidth: BytesPerSecond(1_000_000_000),
        residual: 0.0,
        points: Vec::new(),
    };
    Profile {
        format: PROFILE_FORMAT,
        processor: "sample".into(),
        threads: 1,
        dtype: Float::F32,
        launch: Nanos(0),
        wake: Nanos(0),
        copies,
        rows: calls.len(),
        calls,
    }
}

/// A plan with evenly spread cuts of a model of nine nodes.
pub(crate) fn plan(
    rule: Rule,
    placement: Placement,
    order: Order,
    n: u32,
    s: u32,
) -> Plan {
    let cuts = (1..s).map(|stage| 2 * stage).collect();
    Plan::new(rule, placement, order, States::Replicated, n, cuts)
}

pub(crate) fn plan_on(devices: u32) -> Plan {
    Plan {
        devices: (0..devices as usize).map(Id::new).collect(),
        ..plan(Rule::Sync, Placement::Accumulate, Order::Sequential, 1, 1)
    }
}

/// A plan on this many devices, before it is written out.
pub(crate) fn outline(devices: u32) -> Outline {
    let plan = plan_on(devices);
    let recompute = roundelay_schedule::Recompute::None;
    let (family, counts, messages) =
        ((&plan).into(), (&plan).into(), Messages::default());
    Outline { family, counts, messages, recompute, devices }
}

/// A candidate with a given time.
pub(crate) fn candidate(plan: &Plan, step_time: Nanos, number: usize) -> Candidate {
    Candidate {
        plan: plan.clone(),
        batch: 8,
        step_time,
        device_peak: Bytes(1_500),
        memory: BTreeMap::new(),
        pools: BTreeMap::new(),
        comm_bytes_per_device: Bytes(0),
        comm_rounds: 0,
        bubble: 0.25,
        idle: BTreeMap::new(),
        origins: Origins::default(),
        bound: bound(Nanos(750)),
        number,
    }
}

/// A bound with a given time.
pub(crate) fn bound(time: Nanos) -> Bound {
    Bound {
        work: time,
        path: Nanos(0),
        traffic: Nanos(0),
        memory: Bytes(0),
        kind: Kind::Parameter,
    }
}

/// A ranking without plans.
pub(crate) fn ranking() -> Ranking {
    Ranking {
        goal: Goal::new(&program(1, 8)),
        allowed: Exactness::Reordered,
        plans: Vec::new(),
        weaker: Vec::new(),
        approaches: Vec::new(),
        space: Space::default(),
        candidates: 12,
        pruned: 9,
        clocked: 3,
        interrupted: false,
        open: None,
        rewriting: BTreeMap::new(),
        sharding: BTreeMap::new(),
        elapsed: Duration::ZERO,
    }
}
