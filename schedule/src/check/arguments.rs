//! Rule 1 for the arguments of routines: what a pass may bind, and what it must.

use super::{Culprit, faults::Faults, limit, norm};
use crate::{
    Access, Argument, Bytes, Float, Id, Operand, Pass, Role, Routine, RoutineId,
    Schedule, counted,
};
use std::collections::BTreeSet;

/// Arguments exist, once each, and the pass may do with them what they say.
pub(super) fn check(
    schedule: &Schedule,
    id: RoutineId,
    routine: &Routine,
    faults: &mut Faults,
) {
    let culprit = Culprit::Routine(id);
    let plan = &schedule.plan;
    let states = match routine.pass.is_on_micro_batch() {
        true => plan.pass_stages(),
        false => plan.state_count(),
    };
    faults.require(routine.stage.number() < states, culprit, || {
        format!("belongs to {}, of {}", routine.stage, counted(states.into(), "stage"))
    });
    let mut roles = BTreeSet::new();
    for Argument { role, access, size } in &routine.arguments {
        let known = match role {
            Role::Value(value) | Role::ValueGradient(value) => {
                value.index() < limit::VALUES
            }
            Role::Input(input) => schedule.job.inputs.get(*input).is_some(),
            Role::Tied(state) | Role::TiedGradient(state) => {
                let tie = plan.tie(*state);
                tie.is_some_and(|tie| tie.place_of(routine.stage).is_some())
            }
            _ => true,
        };
        faults.require(known, culprit, || {
            format!("binds {role} of {} bytes; no such thing exists", size.0)
        });
        faults.limit(size.0 < limit::BYTES, culprit, || {
            format!("binds {role} of {} bytes; it must stay below 2^48", size.0)
        });
        faults.require(allowed(routine.pass, *role, *access), culprit, || {
            format!("pass {} must not {access} {role}", routine.pass)
        });
        faults.require(roles.insert(*role), culprit, || {
            format!("binds {role} twice; bind it once and let calls share it")
        });
    }
}

/// What a pass may do with an argument.
fn allowed(pass: Pass, role: Role, access: Access) -> bool {
    use Access::{Read, Update, Write};
    match (pass, role) {
        (_, Role::Workspace) => access != Read,
        (Pass::Forward, Role::Parameter | Role::Tied(_) | Role::Input(_)) => {
            access == Read
        }
        (Pass::Forward, Role::Activation | Role::Retained | Role::Metric) => {
            access == Write
        }
        (Pass::Forward, Role::Value(_)) => access != Update,
        (
            Pass::Backward | Pass::InputGradient | Pass::WeightGradient,
            Role::Parameter | Role::Tied(_) | Role::Value(_) | Role::Input(_),
        ) => access == Read,
        (Pass::Backward | Pass::InputGradient, Role::Activation) => access != Write,
        (Pass::Backward | Pass::InputGradient, Role::ValueGradient(_)) => true,
        // What hops back between units of a local rule is for weights alone.
        (Pass::WeightGradient, Role::ValueGradient(_)) => access == Read,
        (Pass::Backward | Pass::WeightGradient, role) if role.is_sum() => access != Read,
        (Pass::InputGradient | Pass::WeightGradient, Role::Retained) => access == Read,
        (Pass::InputGradient, Role::Adjoint) => access == Write,
        (Pass::WeightGradient, Role::Adjoint) => access == Read,
        (Pass::Combine, Role::Gradient) => access == Update,
        (Pass::Combine, Role::Received) => access == Read,
        (Pass::Norm, Role::Gradient) => access == Read,
        (Pass::Norm, Role::Squares) => access != Read,
        (Pass::Update, Role::Parameter | Role::Gradient) => access != Write,
        (Pass::Update, Role::NextParameter) => access == Write,
        (Pass::Update, Role::Optimizer) => access == Update,
        (Pass::Update, Role::Squares) => access == Read,
        (
            Pass::Forward
            | Pass::Backward
            | Pass::InputGradient
            | Pass::WeightGradient
            | Pass::Combine
            | Pass::Norm
            | Pass::Update,
            _,
        ) => false,
    }
}

/// Whether one call adds all of an array to all of another that is as large.
fn adds_up(routine: &Routine, dtype: Float) -> bool {
    let ([one, other], [call]) = (&routine.arguments[..], &routine.calls[..]) else {
        return false;
    };
    let is_whole = |operand: &Operand| {
        let width = operand.element.size(dtype);
        operand.offset == Bytes(0)
            && operand.elements().and_then(|own| own.checked_mul(width))
                == Some(one.size.0)
    };
    let mut bound: Vec<u32> = call.operands.iter().map(|own| own.argument).collect();
    bound.sort_unstable();
    let is_sum = &*call.kernel == "accumulate" && bound == [0, 1];
    is_sum && one.size == other.size && call.operands.iter().all(is_whole)
}

/// What a pass must bind, and what its calls must make of it unless one of them is `lost`.
pub(super) fn demands(
    schedule: &Schedule,
    (id, routine): (RoutineId, &Routine),
    lost: bool,
    faults: &mut Faults,
) {
    let access = |role| routine.access(role);
    let mut demand = |holds: bool, problem: &str| {
        faults.require(holds, Culprit::Routine(id), || problem.to_owned());
    };
    let trained = schedule.job.elements[schedule.plan.keeper(routine.stage)] > 0;
    match routine.pass {
        Pass::Forward | Pass::InputGradient => {}
        Pass::Backward | Pass::WeightGradient => {
            let gathers = access(Role::Gradient).is_some();
            demand(gathers || !trained, "must write or update the gradient of its stage");
            let mut own = schedule
                .plan
                .tied()
                .filter(|(_, tie)| tie.place_of(routine.stage).is_some());
            let gathers = own.all(|(tie, _)| access(Role::TiedGradient(tie)).is_some());
            demand(
                gathers,
                "must write or update the gradients of the ties of its stage",
            );
        }
        Pass::Combine => {
            let both = [Role::Gradient, Role::Received].map(access);
            demand(
                both.iter().all(Option::is_some),
                "must bind received and own gradient",
            );
            demand(
                lost || adds_up(routine, schedule.job.dtype),
                "must be one call that adds all of what is received to all of the own, and these \
                 are as large as each other",
            );
        }
        Pass::Norm if lost => {}
        Pass::Norm => norm::check(schedule, id, routine, faults),
        Pass::Update => {
            let forms = (access(Role::Parameter), access(Role::NextParameter));
            let stepped =
                [(Some(Access::Update), None), (Some(Access::Read), Some(Access::Write))];
            demand(
                stepped.contains(&forms),
                "must update parameters, or read them and write the next",
            );
            demand(access(Role::Gradient).is_some(), "must read the gradient");
            let stateful = schedule.job.optimizer_width() > 0;
            demand(
                access(Role::Optimizer).is_some() == stateful,
                "must update the optimizer state, if the method has any",
            );
            let normed = access(Role::Squares).is_some();
            demand(
                normed || !norm::is_given(schedule, routine),
                "clips by the norm of a part of the gradient; read that of the whole, which \
                 passes N find and add up",
            );
        }
    }
}
