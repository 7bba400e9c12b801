//! Multi-head self-attention (arXiv 1706.03762), made of four affine maps and the core.

use super::{
    Operator,
    linear::{Bias, linear},
};
use crate::{
    Code, Mistake, Operation, Tensor, Value,
    graph::Graph,
    limit,
    signature::{Arguments, Fallback, optional, required},
    value::spelled,
};

/// x (b, s, n) → (b, s, n); affine maps `query`, `key`, `value` and `output`.
pub(super) const ATTENTION: Operator = Operator {
    name: "attention",
    summary: "x (batch, s, n) → (batch, s, n), softmax(q kᵀ / √(n / heads)) v per head",
    formals: &[
        required("x"),
        required("heads"),
        optional("causal", Fallback::Truth(false)),
    ],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let x = arguments.real_tensor("x")?;
    let heads = arguments.size("heads")?;
    let causal = arguments.truth("causal")?;
    let width = checked_width(&x, heads)?;
    let mut part = |role: &str, from: &Tensor| {
        graph.within(role, |graph| linear(graph, from, width, Bias::With))
    };
    let [query, key, value] = [part("query", &x)?, part("key", &x)?, part("value", &x)?];
    let operation = Operation::Attention { heads, causal };
    let core = graph.node("", operation, &[&query, &key, &value], x.shape.clone())?;
    let output = graph.within("output", |graph| linear(graph, &core, width, Bias::With));
    output.map(Value::Tensor)
}

/// The width n of (batch, s, n), which the heads divide.
fn checked_width(x: &Tensor, heads: u64) -> Result<u64, Mistake> {
    let (sequence, width) = match x.shape[..] {
        [batch, sequence, width]
            if batch.per_example && !sequence.per_example && !width.per_example =>
        {
            (sequence.size, width.size)
        }
        _ => {
            let found = spelled(&x.shape);
            let message = format!("expected a tensor (batch, s, n), found {found}");
            return Err(Mistake::new(Code::Shape, message).argument("x"));
        }
    };
    if !width.is_multiple_of(heads) {
        let message = format!("{heads} heads do not divide the width {width}");
        let hint = "the width must be a multiple of the number of heads";
        return Err(Mistake::new(Code::Shape, message).hint(hint).argument("heads"));
    }
    let scores = sequence.checked_mul(sequence);
    match scores.and_then(|scores| scores.checked_mul(width)) {
        Some(work) if work <= limit::WORK && sequence <= 1 << 20 => Ok(width),
        _ => Err(Mistake::new(Code::Limit, "the sequence is too long").argument("x")),
    }
}
