//! Equal stages, and plans with one layer per stage.

pub(crate) use crate::plans::kinds;
use crate::{models, plans, plans::Kind};
use roundelay_dsl::Program;
use roundelay_schedule::Plan;

/// `layers` square layers of one width and a mean squared error: equal stages but for the loss.
pub(crate) fn program(layers: u32, batch: u32) -> Program {
    program_of("x = linear(x, 16, bias = false)", layers, batch)
}

/// The same of other layers that make x from x, and perhaps from what went in.
pub(crate) fn program_of(layer: &str, layers: u32, batch: u32) -> Program {
    let body = vec![layer; layers as usize].join("\n");
    models::program(&format!(
        "model layers {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = features
            {body}
            loss mse(x, wanted)
        }}
        {}",
        models::job(batch)
    ))
}

/// A plan with one layer per stage (the loss goes with the last).
pub(crate) fn plan(kind: Kind, n: u32, s: u32) -> Plan {
    plans::plan(kind, n, (1..s).collect())
}
