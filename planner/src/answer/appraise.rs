//! The costs of given plans, without a search.

use crate::{
    answer::plan_file::check_plan,
    costs::{
        calls::{Costs, Kinds},
        core::Core,
        stages::{Cell, KnownStages, backward_form},
    },
    search::{
        bound::{Bound, Network, lists_of},
        candidate::Candidate,
        evaluate::Evaluator,
    },
    space::{family::Family, reason::Reason, spread::Spread},
};
use roundelay_codegen::StageForm;
use roundelay_dsl::Program;
use roundelay_schedule::{DeviceId, Id, Plan, Recompute, Stage};
use std::collections::BTreeMap;

/// Lowers, prices, checks and clocks a plan.
///
/// # Errors
/// Why it cannot be: it does not go with the program, or it does not fit the memory, and where.
pub fn appraise(program: &Program, plan: &Plan) -> Result<Candidate, Reason> {
    if let Some((decision, message)) = check_plan(plan, program).into_iter().next() {
        return Err(Reason::refused(format!("{decision}: {message}")));
    }
    let trained = program.under(plan.rule);
    let program = &*trained.map_err(|mistake| Reason::Refused(mistake.message))?;
    let costs = Costs::new(program);
    let mut appraiser = Appraiser::new(program, &costs);
    let bound = appraiser.bound(plan)?;
    appraiser.clock(plan, (bound, 0))
}

/// Knows the costs of any plans of the model that a program trains.
pub(crate) struct Appraiser<'a> {
    evaluator: Evaluator<'a>,
    stages: KnownStages<'a>,
    network: Network<'a>,
}

impl<'a> Appraiser<'a> {
    /// Nothing is known yet of a program with these costs.
    pub(crate) fn new(program: &'a Program, costs: &'a Costs) -> Self {
        let core = Core::whole(program);
        Self {
            evaluator: Evaluator::new(program, costs),
            stages: KnownStages::new(program, costs, core, &BTreeMap::new()),
            network: Network::new(&program.target),
        }
    }

    /// The bound of a plan, as sharp as a search has it.
    ///
    /// # Errors
    /// When the model cannot be cut or differentiated like this.
    pub(crate) fn bound(&mut self, plan: &Plan) -> Result<Bound, Reason> {
        let form = |(stage, recompute): (usize, &Recompute)| {
            let backward = backward_form(plan.order, &plan.lists, Stage::new(stage));
            StageForm { backward, recompute: *recompute }
        };
        let kinds = self.kinds(plan);
        let cell = Cell {
            examples: self.evaluator.program.train.batch / plan.all_micro_batches(),
            tensor: plan.tensor,
            cuts: &plan.cuts,
            forms: plan.recompute.iter().enumerate().map(form).collect(),
            kinds: &kinds,
        };
        let loads = self.stages.load_of(cell)?;
        let network = &mut self.network;
        let bound = Bound::of_stages(plan, &loads, network);
        Ok(match plan.slices {
            1 => match lists_of(plan) {
                Some(lists) => bound.following(plan, &loads, &lists, network),
                None => bound,
            },
            _ => bound.of_slices(self.evaluator.program),
        })
    }

    /// The kinds of devices of each stage, by the plan's own list: somebody may have put its devices in
    /// another order.
    fn kinds(&self, plan: &Plan) -> Vec<Kinds> {
        if Family::from(plan).has_workers_apart() {
            return Vec::new();
        }
        let (spread, first) = (Spread::of(plan), plan.first_device() as usize);
        let device = |place: DeviceId| plan.devices[place.index() - first];
        let devices = |stage| spread.stage(stage, &plan.lists).map(device);
        (0..plan.stages)
            .map(|stage| self.evaluator.costs.kinds_of(devices(stage)))
            .collect()
    }

    /// Lowers, prices, checks and clocks a plan; its bound and its place in the order of a search stand
    /// beside.
    ///
    /// # Errors
    /// Why it is no plan after all.
    pub(crate) fn clock(
        &self,
        plan: &Plan,
        bound: (Bound, usize),
    ) -> Result<Candidate, Reason> {
        self.evaluator.evaluate(plan, bound)
    }
}
