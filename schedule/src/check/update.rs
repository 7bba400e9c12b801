//! Rule 1 for updates: with the constants of the job, one call of the optimizer makes the next
//! parameters, from all that its routine is given, each array where it is known to lie. So nothing is
//! updated twice or in parts that are bounded apart, no array stands for another, and what is kept
//! means the same to all schedules.

use super::norm;
use crate::{
    Attribute, Bytes, Call, Element, Method, Operand, Optimizer, Role, Routine, Schedule,
    Treatment,
};

/// An array that an optimizer's call works on: what it is bound to, and the bytes before it.
struct Array {
    what: &'static str,
    role: Role,
    before: u64,
    width: u64,
    elements: u64,
}

/// Checks the call of an optimizer in the routine of an update.
pub(super) fn check(
    schedule: &Schedule,
    routine: &Routine,
    call: &Call,
) -> Result<(), String> {
    constants(schedule, routine, call)?;
    treatments(schedule, routine, call)?;
    if routine.calls.len() != 1 {
        return Err("must be the only call of its routine".into());
    }
    let count = call.operands.get(1).and_then(Operand::elements).unwrap_or(0);
    let all = schedule.job.elements[schedule.plan.keeper(routine.stage)];
    if count > all {
        return Err(format!("updates {count} elements, but its stage has {all}"));
    }
    let arrays = arrays(schedule, routine, count);
    if arrays.len() != call.operands.len() {
        return Err(format!("must have {} operands, one an array", arrays.len()));
    }
    let mut pairs = arrays.iter().zip(&call.operands);
    match pairs.find(|(array, operand)| !array.is(routine, operand)) {
        None => sized(routine, &arrays),
        Some((Array { what, role, before, elements, width: _ }, _)) => Err(format!(
            "the operand `{what}` must begin at byte {before} of {role}, and have {elements} \
             elements"
        )),
    }
}

/// An optimizer's constants are those of the job; gradients are means over the whole batch.
fn constants(schedule: &Schedule, routine: &Routine, call: &Call) -> Result<(), String> {
    let Optimizer { method, rate: _, weight_decay, clip } = &schedule.job.optimizer;
    let kernel = method.kernel();
    if call.kernel != kernel {
        return Err(format!("the job's optimizer is {kernel}"));
    }
    if !norm::is_used(routine, call) {
        return Err("must bound the norm that the pass is given, and no other".into());
    }
    let micro_batches = f64::from(schedule.plan.all_micro_batches());
    let mut expected = vec![
        ("weight_decay", *weight_decay),
        ("clip", *clip),
        ("micro_batches", micro_batches),
    ];
    match method {
        Method::Sgd { momentum, nesterov } => {
            expected
                .extend([("momentum", *momentum), ("nesterov", f64::from(*nesterov))]);
        }
        Method::Adamw { beta1, beta2, epsilon } => {
            expected.extend([
                ("beta1", *beta1),
                ("beta2", *beta2),
                ("epsilon", *epsilon),
            ]);
        }
    }
    for (name, value) in expected {
        if call.attributes.get(name).and_then(number) != Some(value) {
            return Err(format!("`{name}` must be {value}, as the job says"));
        }
    }
    Ok(())
}

/// The value of a constant; flags count as 0 and 1.
fn number(attribute: &Attribute) -> Option<f64> {
    match attribute {
        Attribute::Flag(flag) => Some(f64::from(*flag)),
        Attribute::Integer(value) => Some(*value as f64),
        Attribute::Real(value) => Some(*value),
        Attribute::Integers(_) => None,
    }
}

/// Which parameters decay, which do not, and which are averages, is what the job says.
fn treatments(schedule: &Schedule, routine: &Routine, call: &Call) -> Result<(), String> {
    let keeper = schedule.plan.keeper(routine.stage);
    let own = || schedule.job.parameters_of(keeper);
    let averages = own().find_map(|parameter| parameter.treatment.momentum());
    if call.attributes.get("average_momentum").and_then(number) != averages {
        return Err("`average_momentum` must be that of the job's averages".into());
    }
    let spared = Treatment::ranges(own(), |one| one == Treatment::Spared);
    let averaged = Treatment::ranges(own(), |one| one.momentum().is_some());
    for (name, expected) in [("spared", spared), ("averaged", averaged)] {
        let found = match call.attributes.get(name) {
            Some(Attribute::Integers(ranges)) => ranges.as_slice(),
            _ => &[],
        };
        if found != expected {
            return Err(format!("`{name}` must be {expected:?}, as the job says"));
        }
    }
    Ok(())
}

/// The arrays in the order of the kernel's operands.
fn arrays(schedule: &Schedule, routine: &Routine, elements: u64) -> Vec<Array> {
    let job = &schedule.job;
    let (real, wide) = (Element::Real.size(job.dtype), job.dtype.wide_size());
    let bound = |role| routine.argument(role).map(|own| own.role);
    let next = bound(Role::NextParameter).unwrap_or(Role::Parameter);
    let array = |what, role, width| Array { what, role, before: 0, width, elements };
    let flat = [
        array("gradient", Role::Gradient, job.gradient_width()),
        array("parameter", Role::Parameter, real),
        array("next", next, real),
    ];
    let states = (0..job.optimizer.arrays(job.dtype)).map(|number| Array {
        before: number * wide * elements,
        ..array("state", Role::Optimizer, wide)
    });
    let squares = bound(Role::Squares)
        .map(|role| Array { elements: 1, ..array("squares", role, wide) });
    flat.into_iter().chain(states).chain(squares).collect()
}

impl Array {
    /// Whether an operand is this one.
    fn is(&self, routine: &Routine, operand: &Operand) -> bool {
        let argument = routine.arguments.get(operand.argument as usize);
        argument.is_some_and(|argument| argument.role == self.role)
            && operand.offset == Bytes(self.before)
            && operand.elements() == Some(self.elements)
    }

    fn end(&self) -> u64 {
        self.before + self.width * self.elements
    }
}

/// Arguments end with the last of their arrays: nothing behind it is read or kept.
fn sized(routine: &Routine, arrays: &[Array]) -> Result<(), String> {
    for argument in &routine.arguments {
        let own = arrays.iter().filter(|array| array.role == argument.role);
        let end = own.map(Array::end).max().unwrap_or(0);
        if argument.size != Bytes(end) {
            return Err(format!(
                "{} has {} bytes, of which an update knows {end}",
                argument.role, argument.size.0
            ));
        }
    }
    Ok(())
}
