//! A look at what no plan has a say in, before there is one: the search for it may take long, and what is
//! missing is known at once.

use super::{
    EvaluateOptions, Given, Learned, RunError, RunOptions, Start,
    evaluate::demand_folder,
    evaluating,
    machine::{computes_here, trains},
    output,
};
use roundelay_codegen::whole_job;
use roundelay_dsl::Program;
use roundelay_runtime::{Checkpoints, Weights};
use std::path::Path;

impl RunOptions {
    /// Looks at what a run of a program needs, whatever its plan: devices that were demanded, where it begins
    /// and what it writes; then opens its data, which these options have from then on. Of several ranks none
    /// looks ahead: what goes wrong on one of them all have to hear, and they meet with a schedule.
    ///
    /// # Errors
    /// No GPU where one was demanded; unusable data; weights that are missing or do not fit; folders and files
    /// that cannot be written.
    pub fn look_ahead(&mut self, program: &Program) -> Result<(), RunError> {
        // No plan fits a malformed model, as the search says.
        let (1, Ok(job)) = (self.seat.size, whole_job(program)) else { return Ok(()) };
        trains(self.on, job.dtype)?;
        computes_here(self.on, job.dtype)?;
        output(&job, self)?;
        let fit = |given: &Given| Weights::look(&given.file, &given.fresh, &job);
        match &self.start {
            Start::Anew { weights, keep } => {
                weights.iter().try_for_each(fit)?;
                keep.iter().try_for_each(|own| Checkpoints::try_start(&own.path))?;
            }
            Start::Resume { folder, weights } => {
                Checkpoints::try_open(&folder.path)?;
                if !Checkpoints::are_in(&folder.path)? {
                    weights.iter().try_for_each(fit)?;
                }
            }
        }
        // Last, because all of it is read.
        let data = self.data.keep_open(&job)?;
        evaluating(job.evaluate, &data).map(drop)
    }
}

impl EvaluateOptions {
    /// Looks at what it takes to evaluate what a program has learned, whatever the plan: a device that was
    /// demanded, checkpoints or weights; then opens its data, which these options have from then on.
    ///
    /// # Errors
    /// No GPU where one was demanded; unusable data; no checkpoint; weights that are missing or do not fit.
    pub fn look_ahead(
        &mut self,
        program: &Program,
        learned: &Learned,
    ) -> Result<(), RunError> {
        // No plan fits a malformed model, as the search says.
        let Ok(job) = whole_job(program) else { return Ok(()) };
        computes_here(self.on, job.dtype)?;
        match learned {
            Learned::Checkpoint(folder) => demand_checkpoints(folder)?,
            Learned::Weights(file) => Weights::look(file, &[], &job)?,
        }
        let data = self.data.keep_open(&job)?;
        data.held_out(self.examples)?;
        Ok(())
    }
}

/// Refuses a folder in which there is nothing to go on from.
fn demand_checkpoints(folder: &Path) -> Result<(), RunError> {
    demand_folder(folder)?;
    match Checkpoints::are_in(folder)? {
        true => Ok(()),
        false => Err(RunError::NoCheckpoint(folder.to_owned())),
    }
}
