//! Two small models with a skip over two cuts and dropout in every layer.

use roundelay_dsl::{
    Extent, Model, ModelInput, ModelParameter, Node, Operation, Program, Search, Source,
    Train,
};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Data, Device, Domain, Element, Evaluation, Float,
    FlopsPerSecond, Initial, Link, Method, Nanos, Optimizer, Pool, Rate, Target,
    Treatment,
};

const WIDTH: u64 = 16;
const SEQUENCE: u64 = 4;
const VOCABULARY: u64 = 13;

/// A model and the nodes at which its layers start.
pub(crate) struct Layered {
    pub(crate) model: Model,
    starts: Vec<u32>,
}

impl Layered {
    /// S − 1 cuts between layers, evenly spread.
    pub(crate) fn cuts(&self, stages: u32) -> Vec<u32> {
        let layers = self.starts.len();
        let layer = |cut: u32| cut as usize * layers / stages as usize;
        (1..stages).map(|cut| self.starts[layer(cut)]).collect()
    }
}

fn fixed(size: u64) -> Extent {
    Extent { size, per_example: false }
}

fn batch() -> Extent {
    Extent { size: 1, per_example: true }
}

#[derive(Default)]
struct Build {
    model: Model,
    starts: Vec<u32>,
}

impl Build {
    fn input(&mut self, name: &str, shape: &[Extent], element: Element) -> Source {
        let bound = if element == Element::I32 { VOCABULARY } else { 0 };
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Source::Input(self.model.inputs.push(ModelInput { name, element, shape, bound }))
    }
    fn parameter(&mut self, name: &str, shape: &[u64]) -> Source {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let initial = Initial::Normal(0.2);
        let treatment = match shape.len() {
            1 => Treatment::Spared,
            _ => Treatment::Decayed,
        };
        let parameter = ModelParameter { name, shape, initial, treatment };
        Source::Parameter(self.model.parameters.push(parameter))
    }
    fn node(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Source {
        let name = format!("node.{}", self.model.nodes.len());
        let (operands, shape) = (operands.to_vec(), shape.to_vec());
        Source::Node(self.model.nodes.push(Node { name, operation, operands, shape }))
    }
    fn start_layer(&mut self) {
        self.starts.push(self.model.nodes.len() as u32);
    }
    fn linear(&mut self, name: &str, x: Source, shape: &[Extent], from: u64) -> Source {
        let to = shape.last().map_or(1, |extent| extent.size);
        let weight = self.parameter(&format!("{name}.weight"), &[to, from]);
        let bias = self.parameter(&format!("{name}.bias"), &[to]);
        self.node(Operation::Linear, &[x, weight, bias], shape)
    }
    fn layer_norm(&mut self, name: &str, x: Source, shape: &[Extent]) -> Source {
        let gain = self.parameter(&format!("{name}.gain"), &[WIDTH]);
        let bias = self.parameter(&format!("{name}.bias"), &[WIDTH]);
        self.node(Operation::LayerNorm, &[x, gain, bias], shape)
    }
    fn end(mut self, loss: Source) -> Layered {
        self.model.loss = match loss {
            Source::Node(id) => Some(id),
            Source::Parameter(_) | Source::Input(_) => None,
        };
        Layered { model: self.model, starts: self.starts }
    }
}

/// Four layers: linear, relu, dropout; what the first gives is added in the last.
pub(crate) fn mlp() -> Layered {
    let mut build = Build::default();
    build.model.name = "mlp".to_owned();
    let shape = [batch(), fixed(WIDTH)];
    let mut x = build.input("x", &shape, Element::Real);
    let y = build.input("y", &shape, Element::Real);
    let mut early = x;
    for layer in 0..4 {
        build.start_layer();
        x = build.linear(&format!("layer.{layer}"), x, &shape, WIDTH);
        x = build.node(Operation::Relu, &[x], &shape);
        x = build.node(Operation::Dropout { rate: 0.1 }, &[x], &shape);
        if layer == 0 {
            early = x;
        }
    }
    x = build.node(Operation::Add, &[x, early], &shape);
    let loss = build.node(Operation::MeanSquaredError, &[x, y], &[]);
    build.end(loss)
}

/// Four transformer layers; the embedding is added again before the last norm.
pub(crate) fn gpt() -> Layered {
    let mut build = Build::default();
    build.model.name = "gpt".to_owned();
    let shape = [batch(), fixed(SEQUENCE), fixed(WIDTH)];
    let tokens = build.input("tokens", &shape[..2], Element::I32);
    let targets = build.input("targets", &shape[..2], Element::I32);
    let table = build.parameter("embedding.table", &[VOCABULARY, WIDTH]);
    let positions = build.parameter("positions", &[SEQUENCE, WIDTH]);
    build.start_layer();
    let x = build.node(Operation::Embedding, &[tokens, table], &shape);
    let early = build.node(Operation::Add, &[x, positions], &shape);
    let mut x = early;
    for layer in 0..4 {
        if layer > 0 {
            build.start_layer();
        }
        x = transformer(&mut build, &format!("layer.{layer}"), x);
    }
    x = build.node(Operation::Add, &[x, early], &shape);
    x = build.layer_norm("last", x, &shape);
    let logits = [batch(), fixed(SEQUENCE), fixed(VOCABULARY)];
    x = build.linear("head", x, &logits, WIDTH);
    let loss = build.node(Operation::CrossEntropy, &[x, targets], &[]);
    build.end(loss)
}

fn transformer(build: &mut Build, name: &str, x: Source) -> Source {
    let shape = [batch(), fixed(SEQUENCE), fixed(WIDTH)];
    let wide = [batch(), fixed(SEQUENCE), fixed(2 * WIDTH)];
    let h = build.layer_norm(&format!("{name}.norm.1"), x, &shape);
    let [q, k, v] = ["query", "key", "value"]
        .map(|part| build.linear(&format!("{name}.{part}"), h, &shape, WIDTH));
    let attention = Operation::Attention { heads: 2, causal: true };
    let h = build.node(attention, &[q, k, v], &shape);
    let h = build.linear(&format!("{name}.out"), h, &shape, WIDTH);
    let h = build.node(Operation::Dropout { rate: 0.1 }, &[h], &shape);
    let x = build.node(Operation::Add, &[x, h], &shape);
    let h = build.layer_norm(&format!("{name}.norm.2"), x, &shape);
    let h = build.linear(&format!("{name}.up"), h, &wide, WIDTH);
    let h = build.node(Operation::Gelu, &[h], &wide);
    let h = build.linear(&format!("{name}.down"), h, &shape, 2 * WIDTH);
    build.node(Operation::Add, &[x, h], &shape)
}

/// A program for a model: AdamW, a drop of the learning rate after three steps.
pub(crate) fn program(model: Model, devices: u32, batch: u32) -> Program {
    let train = Train {
        data: Data::Synthetic,
        batch,
        seed: 7,
        steps: 6,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 },
            rate: Rate::Step { initial: 0.01, factor: 0.1, every: 3 },
            weight_decay: 0.1,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
    };
    Program { model, target: target(devices), train, search: Search::default() }
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
