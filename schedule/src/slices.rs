//! Slices of sequences: how stages are counted where each stands once per slice, who keeps their
//! state, and which plans have them.

use crate::{Id, MicroBatch, Placement, Plan, PlanFault, Rule, Stage, States};

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

    /// Which gradient of a cell a backward pass adds to the sum of its stage: gradients are counted
    /// micro-batch by micro-batch, in each from the last slice to the first.
    pub fn addition(&self, stage: Stage, micro_batch: MicroBatch) -> MicroBatch {
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

    /// Gradients that the sum of a stage adds up in one cell.
    pub fn cell_additions(&self) -> u32 {
        self.cell_micro_batches().saturating_mul(self.slices.max(1))
    }
}
