//! Forward passes of models in units, with one element moved or none, and what each unit's loss is then.

use super::machine::{Machine, context};
use roundelay_codegen::Stages;
use roundelay_schedule::{Id, Parameter, Role, Stage};

/// The machine behind a forward pass, when one element is moved.
pub(crate) fn forward<'a>(
    stages: &'a Stages,
    moved: Option<(&Parameter, u64, f64)>,
) -> Machine<'a> {
    let mut machine = Machine::new::<f64>(stages, 0);
    if let Some((parameter, element, delta)) = moved {
        let place = parameter.offset + element;
        let old = machine.get::<f64>(parameter.stage, Role::Parameter, place);
        machine.set::<f64>(parameter.stage, place, old + delta);
    }
    machine.feed::<f64>(11);
    machine.forward::<f64>(&context(3, 0));
    machine
}

/// The loss of a unit, which stands behind that of the model; the last unit has the model's own.
pub(crate) fn loss_of(machine: &Machine<'_>, unit: usize, units: usize) -> f64 {
    let place = if unit + 1 == units { 0 } else { 1 + unit as u64 };
    machine.get::<f64>(Stage::new(unit), Role::Metric, place)
}
