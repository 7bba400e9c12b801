//! The costs of one given plan, without a search.

use crate::{
    bound::{Bound, Network, lists_of},
    candidate::Candidate,
    core::Core,
    cost::Costs,
    evaluate,
    plan_file::check_plan,
    reason::Reason,
    stages::{Cell, KnownStages, backward_form},
};
use roundelay_codegen::{Lowerer, StageForm};
use roundelay_dsl::Program;
use roundelay_schedule::{Id, Plan, Recompute, Stage};
use std::collections::BTreeMap;

/// Lowers, prices, checks and clocks a plan.
///
/// # Errors
/// Why it cannot be: it does not go with the program, or it does not fit the memory, and where.
pub fn appraise(program: &Program, plan: &Plan) -> Result<Candidate, Reason> {
    if let Some((decision, message)) = check_plan(plan, program).into_iter().next() {
        return Err(Reason::Refused(format!("{decision}: {message}")));
    }
    let trained = program.under(plan.rule);
    let program = &*trained.map_err(|mistake| Reason::Refused(mistake.message))?;
    let costs = Costs::new(program);
    let form = |(stage, recompute): (usize, &Recompute)| {
        let backward = backward_form(plan.order, &plan.lists, Stage::new(stage));
        StageForm { backward, recompute: *recompute }
    };
    let cell = Cell {
        examples: program.train.batch / plan.all_micro_batches(),
        tensor: plan.tensor,
        cuts: &plan.cuts,
        forms: plan.recompute.iter().enumerate().map(form).collect(),
    };
    let core = Core::whole(program);
    let loads =
        KnownStages::new(program, &costs, core, &BTreeMap::new()).load_of(cell)?;
    let network = &mut Network::new(&program.target);
    let bound = Bound::of_stages(plan, &loads, network);
    let bound = match plan.slices {
        1 => match lists_of(plan) {
            Some(lists) => bound.following(plan, &loads, &lists, network),
            None => bound,
        },
        _ => bound.of_slices(program),
    };
    let lowerer = Lowerer::new(program, &costs.algebra);
    evaluate::clock(program, (&costs, &lowerer), (plan.clone(), bound, 0))
}
