//! The costs of one given plan, without a search.

use crate::{
    bound::{Bound, Network, lists_of},
    candidate::Candidate,
    core::Core,
    cost::{Costs, Kinds},
    evaluate,
    family::Family,
    plan_file::check_plan,
    reason::Reason,
    spread::Spread,
    stages::{Cell, KnownStages, backward_form},
};
use roundelay_codegen::{Lowerer, StageForm};
use roundelay_dsl::Program;
use roundelay_schedule::{DeviceId, Id, Plan, Recompute, Stage};
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
    // By the plan's own list: somebody may have put its devices in another order.
    let (spread, first) = (Spread::of(plan), plan.first_device() as usize);
    let device = |place: DeviceId| plan.devices[place.index() - first];
    let kinds = (0..plan.stages)
        .map(|stage| costs.kinds_of(spread.stage(stage, &plan.lists).map(device)));
    let kinds: Vec<Kinds> = match Family::from(plan).has_workers_apart() {
        true => Vec::new(),
        false => kinds.collect(),
    };
    let cell = Cell {
        examples: program.train.batch / plan.all_micro_batches(),
        tensor: plan.tensor,
        cuts: &plan.cuts,
        forms: plan.recompute.iter().enumerate().map(form).collect(),
        kinds: &kinds,
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
