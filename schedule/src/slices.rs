//! Slices of sequences: how stages are counted where each stands once per slice, who keeps their
//! state, and which plans have them.

use crate::{Id, MicroBatch, Placement, Plan, PlanFault, Rule, Stage, States, Tie};

impl Plan {
    /// The same with each sequence in this many slices.
    #[must_use]
    pub fn with_slices(self, slices: u32) -> Self {
        Self { slices, ..self }.placed()
    }

    /// Stages as lists, routines and actions count them: one for each slice of a stage.
    pub fn pass_stages(&self) -> u32 {
        self.stages.saturating_mul(self.slices)
    }

    /// These stages.
    pub fn each_stage(&self) -> impl DoubleEndedIterator<Item = Stage> + use<> {
        (0..self.pass_stages()).map(Stage::numbered)
    }

    /// The stage, counted without slices, that a stage of lists, routines and actions is a slice of.
    pub fn whole_stage(&self, stage: Stage) -> u32 {
        stage.number() / self.slices.max(1)
    }

    /// Which slice of its stage it is.
    pub fn slice(&self, stage: Stage) -> u32 {
        stage.number() % self.slices.max(1)
    }

    /// The stage that has the state of a stage of lists, routines and actions: the first slice's.
    pub fn keeper(&self, stage: Stage) -> Stage {
        let slices = self.slices.max(1) as usize;
        Stage::new(stage.index() / slices * slices)
    }

    /// Which gradient a backward pass of a stage adds to the sum of a state. Those of a stage are
    /// counted micro-batch by micro-batch, in each from the last slice to the first; those of a tie in
    /// each cell stage by stage.
    pub fn addition(
        &self,
        state: Stage,
        stage: Stage,
        micro_batch: MicroBatch,
    ) -> MicroBatch {
        if let Some(tie) = self.tie(state) {
            let each = self.cell_micro_batches().max(1) as usize;
            let (member, own) = (micro_batch.index() / each, micro_batch.index() % each);
            let before =
                member * tie.sums() as usize + tie.place_of(stage).unwrap_or(0) as usize;
            return MicroBatch::new(before * each + own);
        }
        let slices = self.slices.max(1) as usize;
        let last = slices - 1 - stage.index() % slices;
        MicroBatch::new(micro_batch.index() * slices + last)
    }

    /// Sequences can be cut into these slices.
    ///
    /// # Errors
    /// What keeps them from it.
    pub(crate) fn check_slices(&self) -> Result<(), PlanFault> {
        let Self { slices, order, rule, placement, states, .. } = *self;
        let fault = |message| Err(PlanFault::Slices(message));
        if let Err(misfit) = order.fits_slices(slices) {
            return fault(format!("{slices} slices under order {order}: {misfit}"));
        }
        match slices {
            1 => Ok(()),
            _ if (placement, rule) != (Placement::Pipeline, Rule::Sync) => {
                fault(format!(
                    "slices are for the pipeline of rule sync, not for {placement} {rule}"
                ))
            }
            _ if states != States::Replicated => fault(format!(
                "a sum over slices stays where it is made: set `states replicated`, not {states}"
            )),
            _ => self.tensor.check_slices(slices),
        }
    }

    /// Gradients that a micro-batch adds to the sum of a state.
    pub fn additions_each(&self, state: Stage) -> u32 {
        self.tie(state).map_or(self.slices.max(1), Tie::sums)
    }

    /// Gradients that the sum of a state adds up in one cell.
    pub fn cell_additions(&self, state: Stage) -> u32 {
        self.cell_micro_batches().saturating_mul(self.additions_each(state))
    }
}
