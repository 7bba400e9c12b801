//! Tables that are looked up: embeddings of tokens, and of positions.

use super::Operator;
use crate::{
    Extent, Mistake, Operation, Value,
    graph::Graph,
    signature::{Arguments, required},
};
use roundelay_schedule::Initial;

/// Standard deviation of new tables, as in GPT-2.
const DEVIATION: f64 = 0.02;

/// tokens (..) i32 → (.., width); parameter `table` (vocab, width), normal(0.02).
pub(super) const EMBEDDING: Operator = Operator {
    name: "embedding",
    summary: "tokens (..) i32 → (.., width), rows of a table (vocab, width)",
    formals: &[required("tokens"), required("vocab"), required("width")],
    build: embedding,
};

/// → (seq, width), a parameter `table`, normal(0.02); add it to (batch, seq, width).
pub(super) const POSITIONS: Operator = Operator {
    name: "positions",
    summary: "→ (seq, width), a trained table to add to (batch, seq, width)",
    formals: &[required("seq"), required("width")],
    build: positions,
};

fn embedding(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let tokens = arguments.integer_tensor("tokens")?;
    let [vocab, width] = [arguments.size("vocab")?, arguments.size("width")?];
    let table =
        graph.parameter("table", vec![vocab, width], Initial::Normal(DEVIATION))?;
    graph.demand_below(&tokens, vocab);
    let mut shape = tokens.shape.clone();
    shape.push(Extent::fixed(width));
    graph.node("", Operation::Embedding, &[&tokens, &table], shape).map(Value::Tensor)
}

fn positions(arguments: &Arguments, graph: &mut Graph) -> Result<Value, Mistake> {
    let shape = vec![arguments.size("seq")?, arguments.size("width")?];
    graph.parameter("table", shape, Initial::Normal(DEVIATION)).map(Value::Tensor)
}
