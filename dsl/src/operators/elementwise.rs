//! Operators without parameters that keep the number of elements.

use super::{Operator, linear::last_extent};
use crate::{
    Code, Extent, Mistake, Operation, TensorValue,
    graph::{Graph, bounded},
    signature::{Arguments, required},
    value::spelled,
};

/// max(x, 0).
pub(super) const RELU: Operator = Operator {
    name: "relu",
    summary: "max(x, 0)",
    formals: &[required("x")],
    build: |arguments, graph| same_shape(Operation::Relu, arguments, graph),
};

/// x Φ(x) (arXiv 1606.08415).
pub(super) const GELU: Operator = Operator {
    name: "gelu",
    summary: "x Φ(x) with the normal distribution Φ",
    formals: &[required("x")],
    build: |arguments, graph| same_shape(Operation::Gelu, arguments, graph),
};

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (arXiv 1606.08415).
pub(super) const GELU_TANH: Operator = Operator {
    name: "gelu_tanh",
    summary: "x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, the GELU of GPT-2 and Gemma",
    formals: &[required("x")],
    build: |arguments, graph| same_shape(Operation::GeluTanh, arguments, graph),
};

/// (exp(x) − exp(−x)) / (exp(x) + exp(−x)).
pub(super) const TANH: Operator = Operator {
    name: "tanh",
    summary: "the hyperbolic tangent",
    formals: &[required("x")],
    build: |arguments, graph| {
        same_shape(Operation::SoftCap { cap: 1.0 }, arguments, graph)
    },
};

/// cap · tanh(x / cap) (Gemma 2, arXiv 2408.00118).
pub(super) const SOFT_CAP: Operator = Operator {
    name: "soft_cap",
    summary: "cap · tanh(x / cap), which never exceeds cap",
    formals: &[required("x"), required("cap")],
    build: soft_cap,
};

/// x / (1 + exp(−x)) (arXiv 1606.08415).
pub(super) const SILU: Operator = Operator {
    name: "silu",
    summary: "x / (1 + exp(−x))",
    formals: &[required("x")],
    build: |arguments, graph| same_shape(Operation::Silu, arguments, graph),
};

/// Over the last extent.
pub(super) const SOFTMAX: Operator = Operator {
    name: "softmax",
    summary: "exp(x) / Σ exp(x) over the last extent",
    formals: &[required("x")],
    build: softmax,
};

/// Zero with probability `rate`, else x / (1 − rate); only in training.
pub(super) const DROPOUT: Operator = Operator {
    name: "dropout",
    summary: "zero with probability rate, else x / (1 − rate); only in training",
    formals: &[required("x"), required("rate")],
    build: dropout,
};

/// The same elements in another shape.
pub(super) const RESHAPE: Operator = Operator {
    name: "reshape",
    summary: "the same elements in another shape",
    formals: &[required("x"), required("shape")],
    build: reshape,
};

fn same_shape(
    operation: Operation,
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    graph.node("", operation, &[&x], x.shape.clone())
}

fn soft_cap(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let cap = arguments.above_zero("cap")?;
    same_shape(Operation::SoftCap { cap }, arguments, graph)
}

fn softmax(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    last_extent(&arguments.real_tensor("x")?)?;
    same_shape(Operation::Softmax, arguments, graph)
}

fn dropout(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let rate = arguments.share("rate")?;
    same_shape(Operation::Dropout { rate }, arguments, graph)
}

fn reshape(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let shape = arguments.shape("shape")?;
    let elements = |shape: &[Extent]| {
        let examples = shape.iter().any(|extent| extent.per_example);
        bounded(shape).map(|product| (product, examples))
    };
    if elements(&x.shape)? != elements(&shape).map_err(|m| m.argument("shape"))? {
        let [from, to] = [&x.shape, &shape].map(|shape| spelled(shape));
        let message =
            format!("cannot reshape {from} to {to}: the elements differ in number");
        return Err(Mistake::new(Code::Shape, message).argument("shape"));
    }
    graph.node("", Operation::Reshape, &[&x], shape)
}
