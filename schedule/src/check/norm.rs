//! Rule 1 for norms: a pass N finds the square of the norm of its whole gradient, each element once,
//! and nothing else; an update that is given a norm bounds it by that one.
//!
//! Whose squares are in a number is followed as its content; what a routine makes of one gradient is
//! said by its calls.

use super::{Culprit, faults::Faults};
use crate::{
    Access, Attribute, Call, Role, Routine, RoutineId, Schedule, norm::uncounted,
};

/// Checks a pass N whose arguments are sound.
pub(super) fn check(
    schedule: &Schedule,
    id: RoutineId,
    routine: &Routine,
    faults: &mut Faults,
) {
    let mut demand = |holds: bool, problem: &str| {
        faults.require(holds, Culprit::Routine(id), || problem.to_owned());
    };
    demand(
        is_found_once(routine),
        "must find the squares of its gradient by one call, and add up those of parts by \
         another one at most",
    );
    let [Some(gradient), Some(squares)] =
        [Role::Gradient, Role::Squares].map(|role| routine.argument(role))
    else {
        return demand(false, "must read a gradient and find the square of its norm");
    };
    let behind = schedule.plan.normed_behind(routine.stage);
    demand(
        squares.access != Access::Update || behind.is_some(),
        "adds to what stages behind have found, but none has one norm with it; write it",
    );
    let found = routine.calls.first();
    let count = gradient.size.0 / schedule.job.gradient_width();
    let whole = found.and_then(|call| call.operands.first());
    let whole = whole.and_then(|read| (read.offset.0 == 0).then(|| read.elements())?);
    demand(whole == Some(count), "must find the squares of all of its gradient");
    demand(
        found.is_some_and(|call| counts_each_once(schedule, routine, call)),
        "must count the mean of all micro-batches, and what several parts hold by shares",
    );
}

/// Squares of the gradient, at once or as the sum of what all parts find.
fn is_found_once(routine: &Routine) -> bool {
    let argument = |call: &Call, number: usize| {
        call.operands.get(number).map(|operand| operand.argument)
    };
    let is = |place: Option<u32>, role: Role| {
        let own = place.and_then(|place| routine.arguments.get(place as usize));
        own.is_some_and(|own| own.role == role)
    };
    let reads =
        |call: &Call| call.kernel == "squares" && is(argument(call, 0), Role::Gradient);
    match &routine.calls[..] {
        [find] => reads(find) && is(argument(find, 1), Role::Squares),
        [find, meet] => {
            let own = argument(find, 1);
            reads(find)
                && meet.kernel == "all_reduce"
                && is(own, Role::Workspace)
                && argument(meet, 0) == own
                && is(argument(meet, 1), Role::Squares)
        }
        _ => false,
    }
}

fn counts_each_once(schedule: &Schedule, routine: &Routine, call: &Call) -> bool {
    let all = Attribute::Integer(schedule.plan.all_micro_batches().into());
    let keeper = schedule.plan.keeper(routine.stage);
    let own = schedule.job.parameters_of(keeper);
    let expected = uncounted(own, schedule.plan.tensor);
    let copied = match call.attributes.get("copied") {
        Some(Attribute::Integers(ranges)) => ranges.as_slice(),
        _ => &[],
    };
    call.attributes.get("micro_batches") == Some(&all) && copied == expected
}

/// Whether an update must be given the norm that it bounds: it has a shard of the gradient, or what a
/// device of a grid has of split tensors, or other stages have one norm with its own.
pub(super) fn is_given(schedule: &Schedule, routine: &Routine) -> bool {
    let (job, plan) = (&schedule.job, &schedule.plan);
    let whole = job.elements[plan.keeper(routine.stage)] * job.gradient_width();
    let gradient = routine.argument(Role::Gradient);
    let shard = gradient.is_some_and(|gradient| gradient.size.0 < whole);
    let part = shard || schedule.tensor_parts() > 1 || plan.has_joint_norm();
    job.optimizer.clip > 0.0 && part
}

/// Whether an optimizer's call bounds the norm that its routine is given, if it is given one.
pub(super) fn is_used(routine: &Routine, call: &Call) -> bool {
    let given = routine.place_of(Role::Squares);
    let asks = call.attributes.get("squares") == Some(&Attribute::Flag(true));
    let last = call.operands.last().map(|operand| operand.argument as usize);
    match given {
        Some(given) => asks && last == Some(given),
        None => !asks,
    }
}
