//! From a program and a plan to a checked schedule.

use roundelay_codegen::{LowerError, lower_with};
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_planner::{Algebra, Unpriced};
use roundelay_schedule::{Checked, Plan, Violations, check};
use thiserror::Error;

/// Why a plan does not become a schedule.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The plan does not fit the program.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A kernel without a price.
    #[error(transparent)]
    Price(#[from] Unpriced),
    /// The schedule breaks a rule: memory too small, or a fault of the compiler.
    #[error("{0}")]
    Check(Violations),
}

/// Lowers a plan, prices its routines, and proves the schedule. Where the plan lists no rewrites,
/// or no ways of maps, they are found.
///
/// # Errors
/// When the plan does not fit the program or its devices' memory.
pub fn compile(program: &Program, plan: &Plan) -> Result<Checked, CompileError> {
    let mut schedule = lower_with(program, plan, &Algebra::default())?;
    roundelay_planner::price(&mut schedule, program)?;
    check(schedule, &Kernels).map_err(CompileError::Check)
}
