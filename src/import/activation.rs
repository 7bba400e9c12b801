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

/// The operator of a spelling.
fn operator(spelled: &str) -> Option<&'static str> {
    let known = ACTIVATIONS.iter().find(|(names, _)| names.contains(&spelled));
    known.map(|(_, operator)| *operator)
}

/// The operator of an activation that a field names, or of a default.
pub(super) fn activation(
    fields: &mut Fields<'_>,
    name: &str,
    default: &'static str,
) -> &'static str {
    let Some(wanted) = fields.text(name) else { return default };
    if let Some(operator) = operator(&wanted) {
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

/// The activation of a gate that `hidden_activation` alone names; `hidden_act`, which releases have
/// besides, is not read by the class.
pub(super) fn gate_beside_hidden_act(
    fields: &mut Fields<'_>,
    default: &'static str,
) -> &'static str {
    let taken = gate(fields, "hidden_activation", default);
    if let Some(named) = fields.text("hidden_act")
        && operator(&named) != Some(taken)
    {
        let message = format!(
            "`hidden_act` is \"{named}\", but this family is trained with `{taken}`; only \
             `hidden_activation` says otherwise"
        );
        fields.warn("hidden_act", message);
    }
    taken
}
