//! The costs of one given plan, without a search.

use crate::{
    bound::Bound, candidate::Candidate, cost::Costs, evaluate, load,
    plan_file::check_plan, reason::Reason, search::Open,
};
use roundelay_dsl::Program;
use roundelay_schedule::Plan;

/// Lowers, prices, checks and clocks a plan.
///
/// # Errors
/// Why it cannot be: it does not go with the program, or it does not fit the memory, and where.
pub fn appraise(program: &Program, plan: &Plan) -> Result<Candidate, Reason> {
    if let Some((decision, message)) = check_plan(plan, program).into_iter().next() {
        return Err(Reason::Refused(format!("{decision}: {message}")));
    }
    let costs = Costs::new(program);
    let examples = program.train.batch / plan.all_micro_batches();
    let stages = (&plan.cuts[..], &plan.recompute[..]);
    let loads = load::load(program, stages, examples, &costs)
        .map_err(|error| Reason::Refused(error.to_string()))?;
    let bound = Bound::new(plan, &loads, &program.target);
    evaluate::clock(program, &costs, &Open { plan: plan.clone(), bound, number: 0 })
}
