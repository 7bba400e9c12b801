//! From a program and a plan to a checked schedule.

use roundelay_codegen::{LowerError, lower_with};
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_planner::{
    Algebra, Shortfall, TooWeak, Unpriced, Unproven, shortfalls, weaker,
};
use roundelay_schedule::{Checked, Plan, Violations, check};
use thiserror::Error;

/// Why a plan does not become a schedule.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The plan's gradients are of a weaker class than the program allows.
    #[error(transparent)]
    Exactness(#[from] TooWeak),
    /// The plan does not fit the program.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A kernel without a price.
    #[error(transparent)]
    Price(#[from] Unpriced),
    /// Devices have too little memory, or the program allows too little.
    #[error("{}", told(.0))]
    Memory(Vec<Shortfall>),
    /// The schedule is beyond limits.
    #[error("{0}")]
    Check(Violations),
    /// The schedule breaks a rule, which is a fault of the compiler.
    #[error(transparent)]
    Unproven(#[from] Unproven),
}

fn told(shortfalls: &[Shortfall]) -> String {
    let all: Vec<String> = shortfalls.iter().map(Shortfall::to_string).collect();
    all.join("; ")
}

/// Lowers a plan, prices its routines, and proves the schedule. Where the plan lists no rewrites,
/// or no ways of maps, they are found.
///
/// # Errors
/// When the plan does not fit the program, its devices' memory, or what the program allows of memory
/// and of exactness.
pub fn compile(program: &Program, plan: &Plan) -> Result<Checked, CompileError> {
    if let Some(refused) = weaker(plan, program) {
        return Err(refused.into());
    }
    let mut schedule = lower_with(program, plan, &Algebra::default())?;
    let lacking = shortfalls(program, &schedule);
    if !lacking.is_empty() {
        return Err(CompileError::Memory(lacking));
    }
    roundelay_planner::price(&mut schedule, program)?;
    check(schedule, &Kernels).map_err(|found| match Unproven::of(&found) {
        Some(unproven) => unproven.into(),
        None => CompileError::Check(found),
    })
}
