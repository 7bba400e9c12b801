//! `+`, `-`, `*` and `/` on tensors.

use crate::{
    Code, Mistake, Operation, TensorValue,
    graph::Graph,
    value::{overflow, spelled},
};
use roundelay_schedule::Element;

/// a + b, where one has the shape of the other or of its trailing extents.
pub(crate) fn add(
    graph: &mut Graph,
    a: &TensorValue,
    b: &TensorValue,
) -> Result<TensorValue, Mistake> {
    let (large, small) = ordered(a, b, "+")?;
    let node = |graph: &mut Graph| {
        graph.node("", Operation::Add, &[large, small], large.shape.clone())
    };
    graph.within("add", node)
}

/// a − b = a + (−1) · b.
pub(crate) fn subtract(
    graph: &mut Graph,
    a: &TensorValue,
    b: &TensorValue,
) -> Result<TensorValue, Mistake> {
    ordered(a, b, "-")?;
    let negative = negate(graph, b)?;
    add(graph, a, &negative)
}

/// a · b element by element, where one has the shape of the other or of its trailing extents.
pub(crate) fn multiply(
    graph: &mut Graph,
    a: &TensorValue,
    b: &TensorValue,
) -> Result<TensorValue, Mistake> {
    let (large, small) = ordered(a, b, "*")?;
    let node = |graph: &mut Graph| {
        graph.node("", Operation::Multiply, &[large, small], large.shape.clone())
    };
    graph.within("multiply", node)
}

/// factor · x.
pub(crate) fn scale(
    graph: &mut Graph,
    x: &TensorValue,
    factor: f64,
) -> Result<TensorValue, Mistake> {
    real(x, "*")?;
    if !factor.is_finite() {
        return Err(overflow());
    }
    let operation = Operation::Scale { factor };
    let node = |graph: &mut Graph| graph.node("", operation, &[x], x.shape.clone());
    graph.within("scale", node)
}

/// −x.
pub(crate) fn negate(graph: &mut Graph, x: &TensorValue) -> Result<TensorValue, Mistake> {
    scale(graph, x, -1.0)
}

fn real(x: &TensorValue, sign: &str) -> Result<(), Mistake> {
    match x.element {
        Element::Real | Element::Wide => Ok(()),
        Element::I32 => {
            let message =
                format!("`{sign}` needs real numbers, found whole numbers (i32)");
            Err(Mistake::new(Code::Type, message).hint("embed whole numbers first"))
        }
    }
}

/// The operand that gives the shape, then the one that has the same or repeats.
fn ordered<'a>(
    a: &'a TensorValue,
    b: &'a TensorValue,
    sign: &str,
) -> Result<(&'a TensorValue, &'a TensorValue), Mistake> {
    real(a, sign)?;
    real(b, sign)?;
    if a.shape.ends_with(&b.shape) {
        return Ok((a, b));
    }
    if b.shape.ends_with(&a.shape) {
        return Ok((b, a));
    }
    let [a, b] = [a, b].map(|tensor| spelled(&tensor.shape));
    let message = format!("`{sign}` does not fit the shapes {a} and {b}");
    let hint = "one shape must be the other or its trailing extents";
    Err(Mistake::new(Code::Shape, message).hint(hint))
}
