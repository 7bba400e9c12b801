//! Names of activations, as configurations and as the language spell them.

use super::fields::Fields;
use roundelay_dsl::Code;

/// Spellings, and the operator.
const ACTIVATIONS: [(&[&str], &str); 5] = [
    (&["relu"], "relu"),
    (&["gelu", "gelu_python"], "gelu"),
    (&["gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh"], "gelu_tanh"),
    (&["silu", "swish"], "silu"),
    (&["tanh"], "tanh"),
];

/// Activations that a gate can have.
const GATES: [&str; 4] = ["silu", "gelu", "gelu_tanh", "relu"];

/// The operator of an activation that a field names, or of a default.
pub(super) fn activation(
    fields: &mut Fields<'_>,
    name: &str,
    default: &'static str,
) -> &'static str {
    let Some(wanted) = fields.text(name) else { return default };
    let known = ACTIVATIONS.iter().find(|(names, _)| names.contains(&wanted.as_str()));
    if let Some((_, operator)) = known {
        return operator;
    }
    let names: Vec<&str> =
        ACTIVATIONS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    let message = format!("the activation `{wanted}` cannot be imported");
    let hint = format!("there are {}", names.join(", "));
    fields.refuse(name, Code::NotYet, message, &hint);
    default
}

/// The activation of a gate.
pub(super) fn gate(
    fields: &mut Fields<'_>,
    name: &str,
    default: &'static str,
) -> &'static str {
    let operator = activation(fields, name, default);
    if GATES.contains(&operator) {
        return operator;
    }
    let message = format!("a gate with the activation `{operator}` cannot be imported");
    fields.refuse(name, Code::NotYet, message, "");
    default
}
