//! The costs of one given plan, without a search.

use crate::{
    bound::{Bound, Network, lists_of},
    candidate::Candidate,
    cost::Costs,
    evaluate, load,
    plan_file::check_plan,
    reason::Reason,
};
use roundelay_codegen::{BackwardForm, StageForm};
use roundelay_dsl::Program;
use roundelay_schedule::{Id, Order, Pass, Plan, Stage, listed_in};

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
    let stages = (&plan.cuts[..], |stage| form(plan, stage));
    let each: Vec<usize> = (0..plan.stages as usize).collect();
    let loads = load::load(program, stages, &each, (examples, plan.tensor), &costs)
        .map_err(|error| Reason::Refused(error.to_string()))?;
    let network = &mut Network::new(&program.target);
    let bound = Bound::of_stages(plan, &loads, network);
    let bound = match lists_of(plan) {
        Some(lists) => bound.following(plan, &loads, &lists, network),
        None => bound,
    };
    evaluate::clock(program, &costs, (plan.clone(), bound, 0))
}

/// How the routines of a stage are made.
fn form(plan: &Plan, stage: Stage) -> StageForm {
    let mut listed = plan.lists.iter().flat_map(|list| listed_in(list));
    let split = match plan.order {
        Order::Listed => {
            listed.any(|one| one.stage == stage && one.pass == Pass::InputGradient)
        }
        order => order.splits_backward(),
    };
    let backward = if split { BackwardForm::Split } else { BackwardForm::Whole };
    StageForm { backward, recompute: plan.recompute[stage.index()] }
}
