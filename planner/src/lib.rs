//! Searches and ranks plans.
//!
//! [`plan`] enumerates rule × placement × order × states × N × S within a program's constraints,
//! cuts the model exactly, lowers and clocks what its bounds cannot rule out, and ranks it. What
//! is shown was lowered, checked and clocked; what nothing fits is refused with the binding
//! constraint and what would make it fit.
//!
//! This crate must not know: buffer offsets, machines, the schedule file.

mod appraise;
mod automatic;
mod bound;
mod candidate;
mod cost;
mod counts;
mod cuts;
mod decisions;
mod diff;
mod evaluate;
mod explain;
mod family;
mod front;
mod json;
mod load;
mod measured;
mod memory;
mod objective;
mod pins;
mod plan_file;
mod ranking;
mod reason;
mod refusal;
mod repair;
mod rows;
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
mod what_if;

pub use appraise::appraise;
pub use automatic::with_found_lists;
pub use bound::Bound;
pub use candidate::{Candidate, PoolUse};
pub use cost::{Unpriced, price, roofline};
pub use counts::Counts;
pub use cuts::{Chain, Tie, Uncuttable, cut};
pub use decisions::{decisions, differences, summary};
pub use diff::{DiffDocument, Difference, diff, diff_document, diff_table};
pub use explain::{Explanation, explain};
pub use family::{Clash, Family};
pub use front::{Front, front};
pub use json::{Document, document};
pub use measured::Origins;
pub use objective::{FemtoDollars, Goal};
pub use plan_file::{
    PlanMistake, PlanMistakes, check_plan, parse_plan, read_plan, write_plan,
};
pub use ranking::{Options, Ranking, Weaker};
pub use reason::{Reason, Shortage, Shortfall};
pub use refusal::Refusal;
pub use repair::Repair;
pub use space::{Excluded, Sizes, Space};
pub use table::{front_table, remarks, table};
pub use tied::Tied;
pub use what_if::WhatIf;

use roundelay_dsl::Program;

/// Searches and ranks the plans of a program.
///
/// # Errors
/// When nothing fits: the binding constraint, and what would make a plan fit.
pub fn plan(program: &Program, options: &Options) -> Result<Ranking, Refusal> {
    if let Some(missing) = objective::Goal::new(program).missing() {
        return Err(Refusal::of(missing));
    }
    let ranking = ranking::survey(program, options);
    match ranking.plans.is_empty() {
        true => Err(refusal::refuse(program, options, &ranking)),
        false => Ok(ranking),
    }
}
