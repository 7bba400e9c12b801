//! A model as text: one line per input, parameter and operation.

use crate::{
    Cap, Chunks, Heads, Masked, Model, ModelMetric, Node, NodeId, Operation, Projections,
    Scale, Sight, Source, Still, Stretch, Turning, Window, value::spelled,
};
use roundelay_schedule::{Element, Hop, Initial, Origin, Reading, Treatment};
use std::fmt;

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Model {
            name,
            inputs,
            parameters,
            nodes,
            loss,
            metrics,
            auxiliary,
            heads: _,
            spared: _,
        } = self;
        writeln!(f, "model {name}")?;
        for (id, input) in inputs.iter() {
            let element = match input.element {
                Element::Real => "real",
                Element::Wide => "wide",
                Element::I32 => "i32",
            };
            let shape = spelled(&input.shape);
            write!(f, "{id} {}: {element}{shape} ", input.name)?;
            match &input.origin {
                Origin::Data => writeln!(f, "below {}", input.bound)?,
                Origin::Shares { of, mask } => writeln!(f, "shares of {of} but {mask}")?,
            }
        }
        for (id, parameter) in parameters.iter() {
            let initial = initial(parameter.initial);
            let treatment = treatment(parameter.treatment);
            let shape = &parameter.shape;
            writeln!(f, "{id} {}: {shape:?} = {initial}{treatment}", parameter.name)?;
        }
        for (id, node) in nodes.iter() {
            writeln!(f, "{}", node.line(id, &format!(" {}", node.name)))?;
        }
        loss.iter().try_for_each(|loss| writeln!(f, "loss {loss}"))?;
        auxiliary.iter().try_for_each(|loss| writeln!(f, "auxiliary {loss}"))?;
        metrics.iter().try_for_each(|ModelMetric { name, node, reading }| {
            let reading = match reading {
                Reading::Mean => "mean",
                Reading::Exponential => "exponential",
            };
            writeln!(f, "metric {name} {node} {reading}")
        })
    }
}

impl Node {
    /// What is computed, of what, under a name.
    pub(crate) fn line(&self, id: NodeId, name: &str) -> String {
        let operands: Vec<String> = self.operands.iter().map(Source::to_string).collect();
        let [operands, shape] = [operands.join(", "), spelled(&self.shape)];
        format!("{id}{name}: {shape} = {}({operands})", self.operation)
    }
}

fn treatment(treatment: Treatment) -> String {
    match treatment {
        Treatment::Decayed => " decayed".to_owned(),
        Treatment::Spared => String::new(),
        Treatment::Averaged { momentum } => format!(" averaged({momentum})"),
    }
}

fn initial(initial: Initial) -> String {
    match initial {
        Initial::Constant(value) => format!("constant({value})"),
        Initial::Normal(deviation) => format!("normal({deviation})"),
        Initial::Uniform(bound) => format!("uniform({bound})"),
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Node(id) => write!(f, "{id}"),
            Source::Parameter(id) => write!(f, "{id}"),
            Source::Input(id) => write!(f, "{id}"),
        }
    }
}

/// Heads of queries and of keys.
fn counted(f: &mut fmt::Formatter<'_>, Heads { all, keys }: Heads) -> fmt::Result {
    write!(f, "heads = {all}, key_heads = {keys}")
}

/// Which scores there are, and their factor.
fn seen(
    f: &mut fmt::Formatter<'_>,
    Sight { causal, window }: Sight,
    scale: Scale,
) -> fmt::Result {
    write!(f, "causal = {causal}")?;
    if let Window::Nearest(count) = window {
        write!(f, ", window = {count}")?;
    }
    match scale {
        Scale::Depth => Ok(()),
        Scale::Factor(factor) => write!(f, ", scale = {factor}"),
    }
}

/// An operation that works head by head; of others nothing is written.
fn on_heads(f: &mut fmt::Formatter<'_>, operation: Operation) -> fmt::Result {
    match operation {
        Operation::Attention { heads, projections, sight, scale, cap } => {
            f.write_str("attention[")?;
            counted(f, heads)?;
            f.write_str(match projections {
                Projections::Packed => ", packed, ",
                Projections::Apart => ", ",
            })?;
            seen(f, sight, scale)?;
            if let Cap::At(cap) = cap {
                write!(f, ", cap = {cap}")?;
            }
        }
        Operation::Scores { heads, sight, scale } => {
            f.write_str("scores[")?;
            counted(f, heads)?;
            f.write_str(", ")?;
            seen(f, sight, scale)?;
        }
        Operation::Mix { heads } => {
            f.write_str("mix[")?;
            counted(f, heads)?;
        }
        Operation::Rotary(Turning { heads, base, turned, still, stretch }) => {
            write!(f, "rotary[heads = {heads}, base = {base}, turned = {turned}")?;
            if let Still::LastOf(count) = still {
                write!(f, ", still = {count}")?;
            }
            stretched(f, stretch)?;
        }
        _ => return Ok(()),
    }
    f.write_str("]")
}

/// By what angles are divided, where they are.
fn stretched(f: &mut fmt::Formatter<'_>, stretch: Stretch) -> fmt::Result {
    match stretch {
        Stretch::None => Ok(()),
        Stretch::Even { factor } => write!(f, ", factor = {factor}"),
        Stretch::Long { factor, original, low, high } => {
            write!(f, ", factor = {factor}, original = {original}")?;
            write!(f, ", low = {low}, high = {high}")
        }
    }
}

fn pool(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    [size, stride, padding]: [u64; 3],
) -> fmt::Result {
    write!(f, "{kind}_pool[size = {size}, stride = {stride}, padding = {padding}]")
}

/// What stands before the name of a loss.
fn mask(masked: Masked) -> &'static str {
    match masked {
        Masked::No => "",
        Masked::Yes => "masked_",
    }
}

fn boundary(hop: Hop) -> &'static str {
    match hop {
        Hop::None => "stop",
        Hop::Added => "hop[added]",
        Hop::Alone => "hop[alone]",
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Embedding => f.write_str("embedding"),
            Operation::Linear => f.write_str("linear"),
            Operation::Attention { .. }
            | Operation::Scores { .. }
            | Operation::Mix { .. }
            | Operation::Rotary(_) => on_heads(f, *self),
            Operation::ClassToken => f.write_str("class_token"),
            Operation::Select { index } => write!(f, "select[index = {index}]"),
            Operation::Rows { first } => write!(f, "rows[first = {first}]"),
            Operation::LayerNorm { epsilon } => {
                write!(f, "layer_norm[epsilon = {epsilon}]")
            }
            Operation::Conv2d { stride, padding, groups } => write!(
                f,
                "conv2d[stride = {stride}, padding = {padding}, groups = {groups}]"
            ),
            Operation::MaxPool { size, stride, padding } => {
                pool(f, "max", [*size, *stride, *padding])
            }
            Operation::AvgPool { size, stride, padding } => {
                pool(f, "avg", [*size, *stride, *padding])
            }
            Operation::GlobalPool => f.write_str("global_pool"),
            Operation::Upsample { factor } => write!(f, "upsample[factor = {factor}]"),
            Operation::BatchNorm => f.write_str("batch_norm"),
            Operation::GroupNorm { groups } => write!(f, "group_norm[groups = {groups}]"),
            Operation::RmsNorm { epsilon } => write!(f, "rms_norm[epsilon = {epsilon}]"),
            Operation::Relu => f.write_str("relu"),
            Operation::Gelu => f.write_str("gelu"),
            Operation::GeluTanh => f.write_str("gelu_tanh"),
            Operation::SoftCap { cap } => write!(f, "soft_cap[cap = {cap}]"),
            Operation::Silu => f.write_str("silu"),
            Operation::Softmax => f.write_str("softmax"),
            Operation::Dropout { rate } => write!(f, "dropout[rate = {rate}]"),
            Operation::Add => f.write_str("add"),
            Operation::Multiply => f.write_str("multiply"),
            Operation::Scale { factor } => write!(f, "scale[factor = {factor}]"),
            Operation::Reshape => f.write_str("reshape"),
            Operation::Boundary(hop) => f.write_str(boundary(*hop)),
            Operation::CrossEntropy { masked } => {
                write!(f, "{}cross_entropy", mask(*masked))
            }
            Operation::LinearCrossEntropy { chunks: Chunks::Usual, masked } => {
                write!(f, "{}linear_cross_entropy", mask(*masked))
            }
            Operation::LinearCrossEntropy { chunks: Chunks::Number(chunks), masked } => {
                write!(f, "{}linear_cross_entropy[chunks = {chunks}]", mask(*masked))
            }
            Operation::MeanSquaredError => f.write_str("mse"),
            Operation::Accuracy { masked } => write!(f, "{}accuracy", mask(*masked)),
            Operation::Part { part, line } => write!(f, "{part:?} of {}", line.parts),
            Operation::Sliced(sliced) => write!(f, "{sliced:?}"),
        }
    }
}
