//! Affine maps of the last extent.

use super::Operator;
use crate::{
    Code, Extent, Mistake, Operation, Tensor, Value,
    graph::{Graph, bounded},
    limit,
    signature::{Arguments, Fallback, optional, required},
    value::spelled,
};
use roundelay_schedule::Initial;

/// x (.., m) → (.., n) = x · weightᵀ + bias; parameters `weight` (n, m) and `bias` (n), both
/// uniform(1/√m), as PyTorch's `nn.Linear`.
pub(super) const LINEAR: Operator = Operator {
    name: "linear",
    summary: "x (.., m) → (.., width) = x · weightᵀ + bias",
    formals: &[required("x"), required("width"), optional("bias", Fallback::Truth(true))],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let (x, width) = (arguments.real_tensor("x")?, arguments.size("width")?);
    let bias = match arguments.truth("bias")? {
        true => Bias::With,
        false => Bias::Without,
    };
    linear(graph, &x, width, bias).map(Value::Tensor)
}

/// Whether a vector is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bias {
    /// It is.
    With,
    /// It is not.
    Without,
}

/// An affine map at the present path.
pub(super) fn linear(
    graph: &mut Graph,
    x: &Tensor,
    width: u64,
    bias: Bias,
) -> Result<Tensor, Mistake> {
    let (from, leading) = last_extent(x)?;
    let rows = bounded(leading)?;
    let work = rows.checked_mul(from).and_then(|work| work.checked_mul(width));
    if work.is_none_or(|work| work > limit::WORK) {
        return Err(Mistake::new(Code::Limit, "the matrix product is too large"));
    }
    let initial = Initial::Uniform(1.0 / (from as f64).sqrt());
    let weight = graph.parameter("weight", vec![width, from], initial)?;
    let mut operands = vec![x.clone(), weight];
    if bias == Bias::With {
        operands.push(graph.parameter("bias", vec![width], initial)?);
    }
    let mut shape = leading.to_vec();
    shape.push(Extent::fixed(width));
    graph.node("", Operation::Linear, &operands.iter().collect::<Vec<_>>(), shape)
}

/// The last extent, which must be fixed, and the others.
pub(super) fn last_extent(x: &Tensor) -> Result<(u64, &[Extent]), Mistake> {
    match x.shape.split_last() {
        Some((last, leading)) if !last.per_example => Ok((last.size, leading)),
        _ => {
            let found = spelled(&x.shape);
            let message =
                format!("expected a tensor whose last extent is a number, found {found}");
            Err(Mistake::new(Code::Shape, message).argument("x"))
        }
    }
}
