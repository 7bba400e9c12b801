//! Multi-head self-attention (arXiv 1706.03762), made of four affine maps and the core; with
//! rotary positions (arXiv 2104.09864), key heads that several heads share (arXiv 2305.13245)
//! and a sliding window (arXiv 2004.05150).

use super::{
    Operator,
    linear::{Bias, linear},
    rows::sequence,
};
use crate::{
    Code, Mistake, Operation, Tensor, Value, Window,
    graph::Graph,
    limit,
    signature::{Arguments, Fallback, optional, required},
};

/// Base of the rotary angles that `rotary = true` stands for.
const BASE: f64 = 10_000.0;

/// x (b, s, n) → (b, s, n); affine maps `query`, `key`, `value` and `output`.
pub(super) const ATTENTION: Operator = Operator {
    name: "attention",
    summary: "x (batch, s, n) → (batch, s, n), softmax(q kᵀ / √(n / heads)) v per head; \
              `key_heads`: fewer heads of key and value; `window`: how many positions one \
              sees; `rotary`: base of the angles, 10000",
    formals: &[
        required("x"),
        required("heads"),
        optional("causal", Fallback::Truth(false)),
        optional("key_heads", Fallback::Absent),
        optional("window", Fallback::Absent),
        optional("rotary", Fallback::Absent),
        optional("bias", Fallback::Truth(true)),
    ],
    build,
};

/// Whether queries and keys are turned by their positions.
#[derive(Clone, Copy, Debug)]
enum Rotary {
    /// They are not.
    Without,
    /// By angles of this base.
    Base(f64),
}

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let x = arguments.real_tensor("x")?;
    let heads = arguments.size("heads")?;
    let key_heads = key_heads(arguments, heads)?;
    let (causal, window) = (arguments.truth("causal")?, window(arguments)?);
    let rotary = rotary(arguments)?;
    let bias = Bias::of(arguments)?;
    let width = checked_width(&x, heads)?;
    let depth = width / heads;
    even(rotary, depth)?;
    let affine = |graph: &mut Graph, heads| linear(graph, &x, heads * depth, bias);
    let turned = |graph: &mut Graph, heads| {
        let y = affine(graph, heads)?;
        let Rotary::Base(base) = rotary else { return Ok(y) };
        let operation = Operation::Rotary { heads, base };
        graph.node("rotary", operation, &[&y], y.shape.clone())
    };
    let query = graph.within("query", |graph| turned(graph, heads))?;
    let key = graph.within("key", |graph| turned(graph, key_heads))?;
    let value = graph.within("value", |graph| affine(graph, key_heads))?;
    let operation = Operation::Attention { heads, key_heads, causal, window };
    let core = graph.node("", operation, &[&query, &key, &value], x.shape.clone())?;
    let output = graph.within("output", |graph| linear(graph, &core, width, bias));
    output.map(Value::Tensor)
}

/// Heads of key and value; as many as there are heads unless the program says otherwise.
fn key_heads(arguments: &Arguments, heads: u64) -> Result<u64, Mistake> {
    if arguments.given("key_heads").is_none() {
        return Ok(heads);
    }
    let key_heads = arguments.size("key_heads")?;
    if heads.is_multiple_of(key_heads) {
        return Ok(key_heads);
    }
    let message = format!("{key_heads} key heads do not divide {heads} heads");
    let hint = "every key head serves the same number of heads";
    Err(Mistake::new(Code::Value, message).hint(hint).argument("key_heads"))
}

fn window(arguments: &Arguments) -> Result<Window, Mistake> {
    match arguments.given("window") {
        None => Ok(Window::Open),
        Some(_) => arguments.size("window").map(Window::Nearest).map_err(|mistake| {
            mistake.hint("it counts the positions that one sees, its own among them")
        }),
    }
}

fn rotary(arguments: &Arguments) -> Result<Rotary, Mistake> {
    match arguments.given("rotary") {
        None | Some(Value::Truth(false)) => Ok(Rotary::Without),
        Some(Value::Truth(true)) => Ok(Rotary::Base(BASE)),
        Some(_) => arguments.real_in("rotary", 1.0, f64::MAX).map(Rotary::Base),
    }
}

/// Rotary positions turn pairs, so a head has an even depth.
fn even(rotary: Rotary, depth: u64) -> Result<(), Mistake> {
    match rotary {
        Rotary::Base(_) if !depth.is_multiple_of(2) => {
            let message = format!("rotary positions turn pairs, but a head has {depth}");
            let hint = "the width must be an even multiple of the number of heads";
            Err(Mistake::new(Code::Shape, message).hint(hint).argument("rotary"))
        }
        Rotary::Base(_) | Rotary::Without => Ok(()),
    }
}

/// The width n of (batch, s, n), which the heads divide.
fn checked_width(x: &Tensor, heads: u64) -> Result<u64, Mistake> {
    let (sequence, width) = sequence(x)?;
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
