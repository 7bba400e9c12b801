//! Rows of sequences (batch, s, n): one more in front, one alone.

use super::Operator;
use crate::{
    Code, Extent, Mistake, Operation, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, optional, required},
    value::spelled,
};
use roundelay_schedule::Initial;

/// x (b, s, n) → (b, s + 1, n); parameter `token` (n), normal(deviation), is the first row of every
/// example (arXiv 2010.11929).
pub(super) const CLASS_TOKEN: Operator = Operator {
    name: "class_token",
    summary: "x (batch, s, n) → (batch, s + 1, n) with a trained row in front, drawn \
              from normal(deviation)",
    formals: &[required("x"), optional("deviation", Fallback::Number(0.02))],
    build: class_token,
};

/// x (b, s, n) → row `index` (b, n).
pub(super) const SELECT: Operator = Operator {
    name: "select",
    summary: "x (batch, s, n) → (batch, n), row `index` of every example",
    formals: &[required("x"), required("index")],
    build: select,
};

fn class_token(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let (sequence, width) = sequence(&x)?;
    let drawn = Initial::Normal(arguments.real_in("deviation", 0.0, f64::MAX)?);
    let token = graph.parameter("token", vec![width], drawn)?;
    let longer = Extent::fixed(sequence.saturating_add(1));
    let shape = vec![x.shape[0], longer, Extent::fixed(width)];
    graph.node("", Operation::ClassToken, &[&x, &token], shape)
}

fn select(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let (sequence, width) = sequence(&x)?;
    let index = arguments.whole("index")?;
    if index >= sequence {
        let message = format!("row {index} is outside of a sequence of {sequence}");
        let mistake = Mistake::new(Code::Value, message).argument("index");
        return Err(mistake.hint("rows count from zero"));
    }
    let shape = vec![x.shape[0], Extent::fixed(width)];
    graph.node("", Operation::Select { index }, &[&x], shape)
}

/// The extents s and n of a tensor (batch, s, n).
pub(super) fn sequence(x: &TensorValue) -> Result<(u64, u64), Mistake> {
    match x.shape[..] {
        [batch, sequence, width]
            if batch.per_example && !sequence.per_example && !width.per_example =>
        {
            Ok((sequence.size, width.size))
        }
        _ => {
            let found = spelled(&x.shape);
            let message = format!("expected a tensor (batch, s, n), found {found}");
            Err(Mistake::new(Code::Shape, message).argument("x"))
        }
    }
}
