//! The gated feed-forward blocks of Llama (SwiGLU) and Gemma (GeGLU), arXiv 2002.05202.

use super::{
    Operator, infix,
    linear::{Affine, Bias, Drawn, last_extent},
};
use crate::{
    Code, Mistake, Operation, TensorValue,
    graph::Graph,
    signature::{Arguments, Fallback, optional, required},
};

/// The activations of a gate, by name.
const ACTIVATIONS: [(&str, Operation); 4] = [
    ("silu", Operation::Silu),
    ("gelu", Operation::Gelu),
    ("gelu_tanh", Operation::GeluTanh),
    ("relu", Operation::Relu),
];

/// x (.., n) → (.., n) = output(silu(gate(x)) · up(x)); affine maps `gate` and `up` to `hidden`,
/// `output` back, without biases unless `bias = true`.
pub(super) const GATED: Operator = Operator {
    name: "gated",
    summary: "x (.., n) → (.., n) = output(silu(gate(x)) · up(x)), affine maps to `hidden` \
              and back; `activation`: \"silu\", \"gelu\", \"gelu_tanh\" or \"relu\"; `deviation`: weights are \
              drawn from normal(deviation)",
    formals: &[
        required("x"),
        required("hidden"),
        optional("activation", Fallback::Absent),
        optional("bias", Fallback::Truth(false)),
        optional("deviation", Fallback::Absent),
    ],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let (x, hidden) = (arguments.real_tensor("x")?, arguments.size("hidden")?);
    let (name, activation) = activation(arguments)?;
    let (bias, drawn) = (Bias::of(arguments)?, Drawn::of(arguments)?);
    let (width, _) = last_extent(&x)?;
    let affine = |graph: &mut Graph, role: &str, x: &TensorValue, width| {
        let map = Affine { width, bias, drawn };
        graph.within(role, |graph| map.build(graph, x))
    };
    let gate = affine(graph, "gate", &x, hidden)?;
    let open = graph.node(name, activation, &[&gate], gate.shape.clone())?;
    let up = affine(graph, "up", &x, hidden)?;
    let y = infix::multiply(graph, &open, &up)?;
    affine(graph, "output", &y, width)
}

/// The activation of the gate with its name; that of Llama unless the program says otherwise.
fn activation(arguments: &Arguments) -> Result<(&'static str, Operation), Mistake> {
    let Some(wanted) = arguments.optional("activation", Arguments::text)? else {
        return Ok(ACTIVATIONS[0]);
    };
    let known = ACTIVATIONS.iter().find(|(name, _)| *name == wanted);
    known.copied().ok_or_else(|| {
        let names = ACTIVATIONS.map(|(name, _)| format!("\"{name}\"")).join(", ");
        let message = format!("unknown activation \"{wanted}\"");
        let hint = format!("a gate has one of {names}");
        Mistake::new(Code::UnknownName, message).hint(hint).argument("activation")
    })
}
