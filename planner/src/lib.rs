//! Searches and ranks plans.
//!
//! [`plan`] enumerates rule × placement × order × states × N × S within a program's constraints,
//! cuts the model exactly, lowers and clocks what its bounds cannot rule out, and ranks it. What
//! is shown was lowered, checked and clocked; what nothing fits is refused with the binding
//! constraint and what would make it fit.
//!
//! `space` says which plans there are and `costs` what their parts take; `rewrite` and `sharding` decide
//! by equations what time does not; `search` bounds, clocks and ranks; `answer` tells.
//!
//! This crate must not know: buffer offsets, waits, machines, the schedule file.

mod answer;
mod costs;
mod parallel;
mod rewrite;
#[cfg(test)]
mod sample;
mod search;
mod sharding;
mod space;
#[cfg(test)]
mod tests;
mod timeless;

pub use answer::amounts::exact;
pub use answer::appraise::appraise;
pub use answer::approach::{Approach, Leader, Tensors};
pub use answer::breach::{Breach, TooWeak, breaches, weaker};
pub use answer::decisions::{decisions, differences, summary};
pub use answer::diff::{
    CostRow, CostSides, DiffDocument, Difference, diff, diff_document, diff_table,
};
pub use answer::explain::{Explanation, explain};
pub use answer::front::{Front, front_watched};
pub use answer::json::{
    ApproachRow, CallCounts, Document, ExplainPart, FrontPart, PlanRow, PoolRow,
    TensorRow, TriedValues, WeakerRow, WhatIfRow, document,
};
pub use answer::plan_file::{
    PlanMistake, PlanMistakes, doubt, parse_plan, read_plan, unlowered, write_plan,
};
pub use answer::refusal::{Refusal, Searched};
pub use answer::remarks::remarks;
pub use answer::repair::Repair;
pub use answer::table::{front_table, improvement, table};
pub use answer::what_if::{Answer, WhatIf};
pub use answer::workload::{Arithmetic, Workload};
pub use costs::calls::{Unpriced, price, roofline};
pub use costs::measured::Origins;
pub use costs::memory::shortfalls;
pub use rewrite::{Algebra, Stop};
#[doc(hidden)]
pub use search::automatic::with_found_lists;
pub use search::bound::Bound;
pub use search::candidate::{Candidate, PoolUse};
pub use search::objective::{FemtoDollars, Goal};
pub use search::progress::{End, Look, Observer, Wish};
pub use search::ranking::{Compare, Options, Ranking, Weaker};
pub use space::Space;
pub use space::counts::Counts;
pub use space::cuts::{InsideUnits, Messages, Uncuttable};
pub use space::equal::Superior;
pub use space::excluded::{Excluded, Sizes};
pub use space::family::{Clash, Family};
pub use space::outline::Outline;
pub use space::reason::{Reason, Shortage, Shortfall, Unproven};
pub use space::tied::Tied;

use roundelay_dsl::Program;
use search::progress::Progress;

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
    let ranking = search::ranking::survey(program, options, progress);
    progress.end(if ranking.plans.is_empty() { End::Nothing } else { End::Plans });
    match ranking.plans.is_empty() && !ranking.interrupted {
        true => Err(answer::refusal::refuse(program, options, &ranking)),
        false => Ok(ranking),
    }
}
