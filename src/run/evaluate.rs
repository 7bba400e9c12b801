//! Held-out data against what was learned, without a schedule's machine.

use super::{RunError, RunEvent, start::weights};
use roundelay_runtime::{
    Cpu, Dataset, Evaluator, HeldOut, Latest, MachineError, Measures, Provenance,
    check_native,
};
use roundelay_schedule::Checked;
use std::path::{Path, PathBuf};

/// Where parameters lie that were trained.
#[derive(Clone, Debug)]
pub enum Learned {
    /// A folder of checkpoints, of which the newest counts.
    Checkpoint(PathBuf),
    /// A safetensors file under global parameter names.
    Weights(PathBuf),
}

/// Held-out loss and metrics of what was learned, and the number of updates that a checkpoint
/// has seen; weights do not say. The listener hears of weights that are no numbers.
///
/// # Errors
/// Unusable data, no checkpoint or weights, or those of another model; too little memory.
pub fn evaluate(
    schedule: &Checked,
    learned: &Learned,
    data: Option<&Path>,
    mut listener: impl FnMut(RunEvent),
) -> Result<(u64, Measures), RunError> {
    check_native(schedule.job.dtype)?;
    Cpu::room_to_evaluate(schedule).map_err(MachineError::from)?;
    let data = Dataset::open(&schedule.job, data)?;
    let state = match learned {
        Learned::Checkpoint(folder) => {
            let found = Latest::of(folder)?.checkpoint;
            let found = found.ok_or_else(|| RunError::NoCheckpoint(folder.to_owned()))?;
            found.resume(schedule, &Provenance::new(schedule, &data))?.0
        }
        Learned::Weights(file) => weights(schedule, file, &mut listener)?,
    };
    let mut held_out = data.held_out(HeldOut::EXAMPLES)?;
    let micro_batches = held_out.micro_batches();
    let mut evaluator = Evaluator::of_model(schedule)?;
    Ok((state.step, evaluator.measure(&state, &mut held_out, micro_batches)?))
}
