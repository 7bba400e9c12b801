//! Searches and ranks plans.
//!
//! [`plan`] enumerates rule × placement × order × states × N × S within a program's constraints,
//! cuts the model exactly, lowers and clocks what its bounds cannot rule out, and ranks it. What
//! is shown was lowered, checked and clocked; what nothing fits is refused with the binding
//! constraint and what would make it fit.
//!
//! This crate must not know: buffer offsets, waits, machines, the schedule file.

mod alike;
mod appraise;
mod approach;
mod automatic;
mod bill;
mod blame;
mod bound;
mod breach;
mod candidate;
mod clerk;
mod core;
mod cost;
mod counts;
mod cuts;
mod cutting;
mod decisions;
mod diff;
mod endless;
mod equal;
mod evaluate;
mod excluded;
mod explain;
mod family;
mod front;
mod grid;
mod idle;
mod json;
mod laws;
mod load;
mod local;
mod measured;
mod memory;
mod moves;
mod nodes;
mod objective;
mod outline;
mod parallel;
mod part_links;
mod pattern;
mod pieces;
mod pins;
mod plan_file;
mod progress;
mod ranking;
mod reason;
mod refusal;
mod remarks;
mod repair;
mod rewrite;
mod row_by_row;
#[cfg(test)]
mod sample;
mod search;
mod sharding;
mod sharpen;
mod space;
mod spread;
mod stages;
mod table;
#[cfg(test)]
mod tests;
mod tied;
mod timeless;
mod unaligned;
mod values;
mod waiting;
mod what_if;
mod windows;

pub use appraise::appraise;
pub use approach::{Approach, Leader, Tensors};
pub use automatic::with_found_lists;
pub use bound::Bound;
pub use breach::{Breach, TooWeak, breaches, weaker};
pub use candidate::{Candidate, PoolUse, overlap};
pub use cost::{Unpriced, price, roofline};
pub use counts::Counts;
pub use cuts::{Chain, Messages, Tie, Uncuttable, cut};
pub use decisions::{decisions, differences, summary};
pub use diff::{DiffDocument, Difference, diff, diff_document, diff_table};
pub use endless::Endless;
pub use equal::Superior;
pub use excluded::{Excluded, Sizes};
pub use explain::{Explanation, explain};
pub use family::{Clash, Family};
pub use front::{Front, front, front_watched};
pub use json::{Document, document};
pub use measured::Origins;
pub use memory::shortfalls;
pub use objective::{FemtoDollars, Goal};
pub use outline::Outline;
pub use pins::exact;
pub use plan_file::{
    PlanMistake, PlanMistakes, check_plan, doubt, parse_plan, read_plan, unlowered,
    write_plan,
};
pub use progress::{End, Look, Observer};
pub use ranking::{Compare, Options, Ranking, Weaker};
pub use reason::{Reason, Shortage, Shortfall};
pub use refusal::{Refusal, Searched};
pub use remarks::remarks;
pub use repair::Repair;
pub use rewrite::{Algebra, Stop};
pub use space::Space;
pub use table::{front_table, improvement, table};
pub use tied::Tied;
pub use what_if::{Answer, WhatIf};

use progress::Progress;
use roundelay_dsl::Program;

/// Why a search has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// Nothing fits.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The search was stopped before it had one.
    #[error("interrupted before a plan was found")]
    Interrupted,
}

/// Searches and ranks the plans of a program.
///
/// # Errors
/// When nothing fits: the binding constraint, and what would make a plan fit.
pub fn plan(program: &Program, options: &Options) -> Result<Ranking, Refusal> {
    searched(program, options, &mut Progress::default())
}

/// Searches like [`plan`] while somebody watches, who may end it: then the ranking is of what was
/// found so far.
///
/// # Errors
/// When nothing fits, or nothing was found before the end.
pub fn plan_watched(
    program: &Program,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Ranking, NoPlan> {
    let ranking = searched(program, options, &mut Progress::told_to(observer))?;
    match ranking.plans.is_empty() {
        true => Err(NoPlan::Interrupted),
        false => Ok(ranking),
    }
}

/// What a search finds; without plans only where somebody ended it.
fn searched(
    program: &Program,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Ranking, Refusal> {
    if let Some(lacking) = program.lacking().into_iter().next() {
        return Err(Refusal::lacking(&lacking));
    }
    let ranking = ranking::survey(program, options, progress);
    progress.end(if ranking.plans.is_empty() { End::Nothing } else { End::Plans });
    match ranking.plans.is_empty() && !ranking.interrupted {
        true => Err(refusal::refuse(program, options, &ranking)),
        false => Ok(ranking),
    }
}
