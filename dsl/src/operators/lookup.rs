//! Tables that are looked up: embeddings of tokens, and of positions.

use super::{
    Operator,
    linear::{Matrix, matrix},
};
use crate::{
    Code, Extent, Mistake, Operation, TensorValue, Value,
    graph::Graph,
    signature::{Arguments, Fallback, missing, optional, required},
};
use roundelay_schedule::Initial;

/// Standard deviation of new tables, as in GPT-2.
const DEVIATION: f64 = 0.02;

/// tokens (..) i32 → (.., width); parameter `table` (vocab, width), normal(0.02), unless a table
/// that others use too is given.
pub(super) const EMBEDDING: Operator = Operator {
    name: "embedding",
    summary: "tokens (..) i32 → (.., width), rows of a table (vocab, width); \
              `embedding(tokens, table)`: rows of a parameter that other operators use too; \
              `deviation`: the table is drawn from normal(deviation)",
    formals: &[
        required("tokens"),
        optional("vocab", Fallback::Absent),
        optional("width", Fallback::Absent),
        optional("table", Fallback::Absent),
        optional("deviation", Fallback::Number(DEVIATION)),
    ],
    build: embedding,
};

/// → (seq, width), a parameter `table`, normal(0.02), or rows `first` .. `first` + seq of one with
/// more rows; add it to (batch, seq, width).
pub(super) const POSITIONS: Operator = Operator {
    name: "positions",
    summary: "→ (seq, width), a trained table to add to (batch, seq, width); with `rows`: \
              the table has so many rows, of which those from `first` on are taken",
    formals: &[
        required("seq"),
        required("width"),
        optional("rows", Fallback::Absent),
        optional("first", Fallback::Absent),
        optional("deviation", Fallback::Number(DEVIATION)),
    ],
    build: positions,
};

fn embedding(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let tokens = arguments.integer_tensor("tokens")?;
    let Matrix { tensor: table, extents: (vocab, width) } = table(arguments, graph)?;
    graph.demand_below(&tokens, vocab);
    let mut shape = tokens.shape.clone();
    shape.push(Extent::fixed(width));
    graph.node("", Operation::Embedding, &[&tokens, &table], shape)
}

/// The table that is given, by name or as second argument, else a new one.
fn table(arguments: &Arguments, graph: &mut Graph) -> Result<Matrix, Mistake> {
    let name = match (arguments.given("table"), arguments.given("vocab")) {
        (Some(_), None) => "table",
        (None, Some(Value::Tensor(_))) => "vocab",
        (Some(_), Some(_)) => return Err(extents_follow("vocab")),
        (None, _) => return new_table(arguments, graph),
    };
    match arguments.given("width") {
        None => matrix(&arguments.real_tensor(name)?, name),
        Some(_) => Err(extents_follow("width")),
    }
}

fn extents_follow(name: &'static str) -> Mistake {
    let message = format!("`{name}` follows from the table");
    Mistake::new(Code::Duplicate, message).argument(name)
}

fn new_table(arguments: &Arguments, graph: &mut Graph) -> Result<Matrix, Mistake> {
    for name in ["vocab", "width"] {
        if arguments.given(name).is_none() {
            return Err(missing("embedding", name, &["tokens", "vocab", "width"]));
        }
    }
    let extents = (arguments.size("vocab")?, arguments.size("width")?);
    let initial = Initial::Normal(arguments.real_in("deviation", 0.0, f64::MAX)?);
    let tensor = graph.parameter("table", vec![extents.0, extents.1], initial)?;
    Ok(Matrix { tensor, extents })
}

fn positions(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let (seq, width) = (arguments.size("seq")?, arguments.size("width")?);
    let given = arguments.optional("rows", Arguments::size)?;
    let rows = given.unwrap_or(seq);
    let first = arguments.optional("first", Arguments::whole)?.unwrap_or(0);
    if first.checked_add(seq).is_none_or(|end| end > rows) {
        let message =
            format!("{seq} rows from row {first} on are not in a table of {rows}");
        let hint = "rows count from zero; `rows` says how many the table has";
        let at = if given.is_some() { "rows" } else { "first" };
        return Err(Mistake::new(Code::Value, message).hint(hint).argument(at));
    }
    let initial = Initial::Normal(arguments.real_in("deviation", 0.0, f64::MAX)?);
    let table = graph.parameter("table", vec![rows, width], initial)?;
    if rows == seq {
        return Ok(table);
    }
    let shape = [seq, width].map(Extent::fixed).to_vec();
    graph.node("", Operation::Rows { first }, &[&table], shape)
}
