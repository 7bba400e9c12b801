//! Normalisation.

use super::{Operator, linear::last_extent};
use crate::{
    Code, Extent, Mistake, Operation, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, Formal, optional, required},
    value::spelled,
};
use roundelay_schedule::{Initial, Treatment};

/// ε of a norm that says no other.
const EPSILON: Formal = optional("epsilon", Fallback::Number(1e-5));

/// x (.., n) → normalised over n; parameters `gain` (n) of ones and `bias` (n) of
/// zeros (arXiv 1607.06450).
pub(super) const LAYER_NORM: Operator = Operator {
    name: "layer_norm",
    summary: "x (.., n) → normalised over n, times a trained gain, plus a trained bias; \
              `epsilon` is below 1",
    formals: &[required("x"), EPSILON],
    build: layer_norm,
};

/// x (.., n) → every channel normalised over all other extents of a micro-batch, outside
/// training by running averages; parameters `gain`, `bias`, and `running_mean` of zeros and
/// `running_variance` of ones, which average what the micro-batches of every step show
/// (arXiv 1502.03167).
pub(super) const BATCH_NORM: Operator = Operator {
    name: "batch_norm",
    summary: "x (.., n) → every channel normalised over a micro-batch, times a trained \
              gain, plus a trained bias; in evaluation by running averages",
    formals: &[required("x"), optional("momentum", Fallback::Number(0.1))],
    build: batch_norm,
};

/// x (b, .., n) → normalised per example over all positions and the channels of one group;
/// parameters `gain` and `bias` (arXiv 1803.08494).
pub(super) const GROUP_NORM: Operator = Operator {
    name: "group_norm",
    summary: "x (batch, .., n) → normalised per example and group of channels, times a \
              trained gain, plus a trained bias",
    formals: &[required("x"), required("groups")],
    build: group_norm,
};

/// x (.., n) → x over its root mean square; parameter `gain` (arXiv 1910.07467).
pub(super) const RMS_NORM: Operator = Operator {
    name: "rms_norm",
    summary: "x (.., n) → x / √(mean of x² over n), times a trained gain; `epsilon` is below 1",
    formals: &[required("x"), EPSILON],
    build: rms_norm,
};

/// n of (.., n), with `gain` of ones and `bias` of zeros.
fn affine(
    x: &TensorValue,
    graph: &mut Graph,
) -> Result<(u64, [TensorValue; 2]), Mistake> {
    let (width, _) = last_extent(x)?;
    let gain = graph.parameter("gain", vec![width], Initial::Constant(1.0))?;
    let bias = graph.parameter("bias", vec![width], Initial::Constant(0.0))?;
    Ok((width, [gain, bias]))
}

fn layer_norm(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let (_, [gain, bias]) = affine(&x, graph)?;
    let operation = Operation::LayerNorm { epsilon: epsilon(arguments, "epsilon")? };
    graph.node("", operation, &[&x, &gain, &bias], x.shape.clone())
}

fn batch_norm(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let momentum = arguments.real_in("momentum", 0.0, 1.0)?;
    let (_, leading) = last_extent(&x)?;
    if leading.iter().all(|extent| *extent == Extent::fixed(1)) {
        let found = spelled(&x.shape);
        let message = format!("{found} has one value per channel, which has no variance");
        let hint = "normalise a tensor that starts with `batch`";
        return Err(Mistake::new(Code::Shape, message).hint(hint).argument("x"));
    }
    let (width, [gain, bias]) = affine(&x, graph)?;
    let mut running = |role, start| {
        let initial = Initial::Constant(start);
        graph.treated(role, vec![width], initial, Treatment::Averaged { momentum })
    };
    let mean = running("running_mean", 0.0)?;
    let variance = running("running_variance", 1.0)?;
    let operands = [&x, &gain, &bias, &mean, &variance];
    graph.node("", Operation::BatchNorm, &operands, x.shape.clone())
}

fn group_norm(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let groups = arguments.size("groups")?;
    let (width, leading) = last_extent(&x)?;
    if leading.is_empty() {
        let found = spelled(&x.shape);
        let message = format!("expected a tensor (batch, .., n), found {found}");
        return Err(Mistake::new(Code::Shape, message).argument("x"));
    }
    if !width.is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide {width} channels");
        let hint = "the number of channels must be a multiple of the number of groups";
        return Err(Mistake::new(Code::Shape, message).hint(hint).argument("groups"));
    }
    let (_, [gain, bias]) = affine(&x, graph)?;
    let operation = Operation::GroupNorm { groups };
    graph.node("", operation, &[&x, &gain, &bias], x.shape.clone())
}

fn rms_norm(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    root_mean_square(graph, &x, epsilon(arguments, "epsilon")?)
}

/// x over its root mean square, times a gain at the present path.
pub(super) fn root_mean_square(
    graph: &mut Graph,
    x: &TensorValue,
    epsilon: f64,
) -> Result<TensorValue, Mistake> {
    let (width, _) = last_extent(x)?;
    let gain = graph.parameter("gain", vec![width], Initial::Constant(1.0))?;
    graph.node("", Operation::RmsNorm { epsilon }, &[x, &gain], x.shape.clone())
}

/// The ε of a norm: a number of 1 or more would be a width that others write in its place.
pub(super) fn epsilon(arguments: &Arguments, name: &'static str) -> Result<f64, Mistake> {
    let epsilon = arguments.above_zero(name)?;
    if epsilon < 1.0 {
        return Ok(epsilon);
    }
    let message = format!("`{name}` of a norm must be below 1, found {epsilon}");
    let mistake = Mistake::new(Code::Value, message).argument(name);
    Err(mistake.hint("the width that is normalised follows from `x`"))
}
