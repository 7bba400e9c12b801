//! The gated feed-forward block of Llama (SwiGLU, arXiv 2002.05202).

use super::{
    Operator, infix,
    linear::{Bias, last_extent, linear},
};
use crate::{
    Mistake, Operation, Tensor, Value,
    graph::Graph,
    signature::{Arguments, required},
};

/// x (.., n) → (.., n) = output(silu(gate(x)) · up(x)); affine maps without bias `gate` and `up`
/// to `hidden`, `output` back.
pub(super) const GATED: Operator = Operator {
    name: "gated",
    summary: "x (.., n) → (.., n) = output(silu(gate(x)) · up(x)), affine maps to `hidden` \
              and back",
    formals: &[required("x"), required("hidden")],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let (x, hidden) = (arguments.real_tensor("x")?, arguments.size("hidden")?);
    let (width, _) = last_extent(&x)?;
    let affine = |graph: &mut Graph, role: &str, x: &Tensor, width| {
        graph.within(role, |graph| linear(graph, x, width, Bias::Without))
    };
    let gate = affine(graph, "gate", &x, hidden)?;
    let open = graph.node("silu", Operation::Silu, &[&gate], gate.shape.clone())?;
    let up = affine(graph, "up", &x, hidden)?;
    match infix::multiply(graph, &open, &up)? {
        Value::Tensor(y) => affine(graph, "output", &y, width).map(Value::Tensor),
        _ => unreachable!("the product of tensors is a tensor"),
    }
}
