//! Numbers of a program that kernels compute with, and whether they are numbers there too.
//!
//! Kernels of 32 and of 16 bits compute in f32. A number that f32 rounds to zero or to infinity would be
//! another program's.

use crate::{Cap, Code, Mistake, Model, ModelParameter, Operation, Program, Scale};
use roundelay_schedule::{Float, Method, Optimizer, Rate};

/// A number that kernels compute with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constant {
    /// What it is called.
    name: &'static str,
    number: f64,
}

impl Constant {
    /// What to say where a training in `dtype` computes with another number.
    pub(crate) fn lost(self, dtype: Float) -> Option<Mistake> {
        let Self { name, number } = self;
        let held = dtype.computed(number);
        if held.is_finite() && (held != 0.0 || number == 0.0) {
            return None;
        }
        let message = format!(
            "`{name}` is {number:e}, which is {held} where kernels compute in f32"
        );
        let (least, most) = (f32::from_bits(1), f32::MAX);
        let hint = format!(
            "f32 holds numbers from {least:.1e} to {most:.1e}; `dtype f64` in `train` holds more"
        );
        Some(Mistake::new(Code::Value, message).hint(hint))
    }
}

fn constants<const N: usize>(named: [(&'static str, f64); N]) -> Vec<Constant> {
    named.into_iter().map(|(name, number)| Constant { name, number }).collect()
}

/// The constants of a model whose parameters and nodes are these or later ones.
pub(crate) fn of_model(
    model: &Model,
    [parameters, nodes]: [usize; 2],
) -> impl Iterator<Item = Constant> {
    let parameters = model.parameters.values().skip(parameters).flat_map(of_parameter);
    let nodes = model.nodes.values().skip(nodes);
    parameters.chain(nodes.flat_map(|node| of_operation(&node.operation)))
}

fn of_parameter(parameter: &ModelParameter) -> Vec<Constant> {
    let mut own = constants([("initial", parameter.initial.number())]);
    own.extend(
        parameter
            .treatment
            .momentum()
            .map(|number| Constant { name: "momentum", number }),
    );
    own
}

fn of_operation(operation: &Operation) -> Vec<Constant> {
    match *operation {
        Operation::LayerNorm { epsilon } | Operation::RmsNorm { epsilon } => {
            constants([("epsilon", epsilon)])
        }
        Operation::Attention { scale, cap, .. } => {
            let mut own = of_scale(scale);
            own.extend(of_cap(cap));
            own
        }
        Operation::Scores { scale, .. } => of_scale(scale),
        Operation::SoftCap { cap } => constants([("cap", cap)]),
        Operation::Scale { factor } => constants([("factor", factor)]),
        // Its rate is a share of whole random numbers, and what stays grows by less than 2^53.
        Operation::Dropout { .. }
        // Angles are found in f64.
        | Operation::Rotary(_)
        // Programs have none of these.
        | Operation::Part { .. }
        | Operation::Sliced(_)
        | Operation::Boundary(_)
        | Operation::Embedding
        | Operation::Linear
        | Operation::Mix { .. }
        | Operation::ClassToken
        | Operation::Select { .. }
        | Operation::Rows { .. }
        | Operation::Conv2d { .. }
        | Operation::MaxPool { .. }
        | Operation::AvgPool { .. }
        | Operation::GlobalPool
        | Operation::Upsample { .. }
        | Operation::BatchNorm
        | Operation::GroupNorm { .. }
        | Operation::Relu
        | Operation::Gelu
        | Operation::GeluTanh
        | Operation::Silu
        | Operation::Softmax
        | Operation::Add
        | Operation::Multiply
        | Operation::Reshape
        | Operation::CrossEntropy { .. }
        | Operation::LinearCrossEntropy { .. }
        | Operation::MeanSquaredError
        | Operation::Accuracy { .. } => Vec::new(),
    }
}

fn of_scale(scale: Scale) -> Vec<Constant> {
    match scale {
        Scale::Depth => Vec::new(),
        Scale::Factor(factor) => constants([("scale", factor)]),
    }
}

fn of_cap(cap: Cap) -> Vec<Constant> {
    match cap {
        Cap::Open => Vec::new(),
        Cap::At(cap) => constants([("cap", cap)]),
    }
}

/// The constants of an optimizer. Rates are found in f64, and so are shares that updates take.
pub(crate) fn of_optimizer(optimizer: &Optimizer) -> Vec<Constant> {
    let Optimizer { method, rate, weight_decay, clip } = optimizer;
    let mut own = constants([("weight_decay", *weight_decay), ("clip", *clip)]);
    own.extend(of_rate(rate));
    own.extend(match *method {
        Method::Sgd { .. } => Vec::new(),
        Method::Adamw { epsilon, .. } => constants([("epsilon", epsilon)]),
    });
    own
}

fn of_rate(rate: &Rate) -> Vec<Constant> {
    match rate {
        Rate::Constant(rate) => constants([("lr", *rate)]),
        Rate::Step { initial, .. } => constants([("lr", *initial)]),
        Rate::Cosine { initial, last, .. } => {
            constants([("lr", *initial), ("last", *last)])
        }
        Rate::Warmup { after, .. } => of_rate(after),
    }
}

impl Program {
    /// Constants that kernels would not compute with; a program that was read has none.
    pub(crate) fn lost_constants(&self) -> Vec<Mistake> {
        let Self { model, train, .. } = self;
        let heads = model.heads.iter().map(|head| &head.body);
        let models = std::iter::once(model).chain(heads);
        let all = models
            .flat_map(|model| of_model(model, [0, 0]))
            .chain(of_optimizer(&train.optimizer));
        all.filter_map(|constant| constant.lost(train.dtype)).collect()
    }
}
