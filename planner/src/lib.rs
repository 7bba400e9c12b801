//! Searches and ranks plans.
//!
//! [`plan`] enumerates rule × placement × order × states × N × S within a program's constraints,
//! cuts the model exactly, lowers and clocks what its bounds cannot rule out, and ranks it. What
//! is shown was lowered, checked and clocked; what nothing fits is refused with the binding
//! constraint and what would make it fit.
//!
//! This crate must not know: buffer offsets, machines, the schedule file.

mod automatic;
mod bound;
mod candidate;
mod cost;
mod counts;
mod cuts;
mod decisions;
mod evaluate;
mod explain;
mod family;
mod json;
mod load;
mod measured;
mod memory;
mod plan_file;
mod ranking;
mod reason;
mod refusal;
#[cfg(test)]
mod sample;
mod search;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod tied;
mod traffic;
mod values;

pub use automatic::with_found_lists;
pub use bound::Bound;
pub use candidate::{Candidate, PoolUse};
pub use cost::{Unpriced, price, roofline};
pub use counts::Counts;
pub use cuts::{Chain, Tie, Uncuttable, cut};
pub use decisions::{decisions, differences, summary};
pub use explain::explain;
pub use family::{Clash, Family};
pub use json::{Document, document};
pub use measured::Origins;
pub use plan_file::{PlanMistake, PlanMistakes, check_plan, read_plan, write_plan};
pub use ranking::{Options, Ranking, Weaker};
pub use reason::{Reason, Shortage, Shortfall};
pub use refusal::Refusal;
pub use space::{Excluded, Sizes, Space};
pub use table::{remarks, table};
pub use tied::Tied;

use roundelay_dsl::Program;

/// Searches and ranks the plans of a program.
///
/// # Errors
/// When nothing fits: the binding constraint, and what would make a plan fit.
pub fn plan(program: &Program, options: &Options) -> Result<Ranking, Refusal> {
    let ranking = ranking::survey(program, options);
    match ranking.plans.is_empty() {
        true => Err(refusal::refuse(program, options, &ranking)),
        false => Ok(ranking),
    }
}
