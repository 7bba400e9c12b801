//! Lowering, proving and machines at rest, as the tests of whole schedules want them.

use crate::{
    models::even_cuts,
    plans::{self, Kind},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        codegen::lower_with,
        kernels::Kernels,
        planner::Algebra,
        runtime::{Cpu, State},
        schedule::check,
    },
};

/// A plan with cuts that split the nodes evenly.
pub(crate) fn plan(program: &Program, kind: Kind, n: u32, s: u32) -> Plan {
    plans::plan(kind, n, even_cuts(program, s))
}

/// Lowers and proves a plan.
pub(crate) fn compiled(program: &Program, plan: &Plan) -> Checked {
    let schedule = lower_with(program, plan, &Algebra::default())
        .unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"));
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"))
}

/// The state of a machine that has all devices.
pub(crate) fn saved(cpu: &mut Cpu) -> State {
    cpu.save().expect("it is at rest").expect("it is the only rank")
}
