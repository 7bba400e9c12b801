//! The costs of one given plan, without a search.

use crate::{
    bound::Bound, candidate::Candidate, cost::Costs, evaluate, load, reason::Reason,
    search::Open,
};
use roundelay_dsl::Program;
use roundelay_schedule::Plan;

/// Lowers, prices, checks and clocks a plan that goes with the program, as
/// [`crate::check_plan`] says.
///
/// # Errors
/// Why it cannot be: mostly that it does not fit the memory, and where.
pub fn appraise(program: &Program, plan: &Plan) -> Result<Candidate, Reason> {
    let costs = Costs::new(program);
    let examples = program.train.batch / plan.all_micro_batches();
    let stages = (&plan.cuts[..], &plan.recompute[..]);
    let loads = load::load(program, stages, (examples, plan.tensor), &costs)
        .map_err(|error| Reason::Refused(error.to_string()))?;
    let bound = Bound::new(plan, &loads, &program.target);
    evaluate::clock(program, &costs, &Open { plan: plan.clone(), bound, number: 0 })
}
