//! Held-out data against what was learned, without a schedule's machine.

use super::{
    DataFrom, On, RunError, RunEvent,
    machine::{demanded_gpu, some_gpu, turn_to_cpu},
    notes,
};
use roundelay_runtime::{
    Coverage, Cpu, CudaOptions, Evaluated, Evaluator, HeldOut, Latest, MachineError,
    Measures, OnGpu, Provenance, Weights, check_native, unless_lost,
};
use roundelay_schedule::Checked;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Where parameters lie that were trained.
#[derive(Clone, Debug)]
pub enum Learned {
    /// A folder of checkpoints, of which the newest counts.
    Checkpoint(PathBuf),
    /// A safetensors file under global parameter names.
    Weights(PathBuf),
}

/// How to look at held-out data.
#[derive(Clone, Debug)]
pub struct EvaluateOptions {
    /// The kind of device that computes. It does so call by call, so whether periods are graphs does
    /// not matter.
    pub on: On,
    /// Where the examples are read.
    pub data: DataFrom,
    /// About how many examples: whole batches are taken.
    pub examples: u64,
    /// When a GPU does not end a pass for so long, it is given up. Passes on CPU threads have no limit.
    pub deadline: Duration,
}

impl Default for EvaluateOptions {
    /// On a CPU, over as many examples as training looks at.
    fn default() -> Self {
        Self {
            on: On::default(),
            data: DataFrom::default(),
            examples: HeldOut::EXAMPLES,
            deadline: CudaOptions::default().deadline,
        }
    }
}

/// What held-out data says of what was learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Updates that a checkpoint has seen; weights do not say, and are taken for new.
    pub step: u64,
    /// Loss and metrics.
    pub measures: Measures,
    /// Over how much of the held-out data.
    pub coverage: Coverage,
}

/// Held-out loss and metrics of what was learned, which one process computes. The listener hears of
/// checkpoints that are passed over, of weights that are no numbers, and why a GPU is not used.
///
/// # Errors
/// Unusable data, no checkpoint or weights, or those of another model; too little memory; a GPU that
/// is missing or fails.
pub fn evaluate(
    schedule: &Checked,
    learned: &Learned,
    options: &EvaluateOptions,
    mut listener: impl FnMut(RunEvent),
) -> Result<Assessment, RunError> {
    let EvaluateOptions { on, data, examples, deadline } = options;
    let mut evaluator = evaluator(schedule, (*on, *deadline), &mut listener)?;
    let data = data.open(&schedule.job)?;
    let state = match learned {
        Learned::Checkpoint(folder) => {
            demand_folder(folder)?;
            let Latest { checkpoint, ignored } = Latest::of_another_run(folder)?;
            notes::tell_passed_over(&ignored, &mut listener);
            let found =
                checkpoint.ok_or_else(|| RunError::NoCheckpoint(folder.to_owned()))?;
            found.resume(schedule, &Provenance::new(schedule, &data))?.0
        }
        Learned::Weights(file) => {
            // Heads are no part of the model as it is used, so nobody misses those that are drawn.
            let weights = Weights::open(file)?;
            let state = weights.state(&schedule.job)?;
            let wild = weights.not_finite(&schedule.job)?;
            notes::tell_not_finite(file, &wild, &mut listener);
            state
        }
    };
    let mut held_out = data.held_out(*examples)?;
    let (micro_batches, coverage) = (held_out.micro_batches(), held_out.coverage());
    let measure = || evaluator.measure(&state, &mut held_out, micro_batches);
    let measures = unless_lost(measure)??;
    Ok(Assessment { step: state.step, measures, coverage })
}

/// Whoever names a folder that is not there is told that, not that it has no checkpoint.
pub(super) fn demand_folder(folder: &Path) -> Result<(), RunError> {
    match folder.exists() {
        true => Ok(()),
        false => Err(RunError::NoFolder(folder.to_owned())),
    }
}

fn evaluator(
    schedule: &Checked,
    (on, deadline): (On, Duration),
    listener: &mut impl FnMut(RunEvent),
) -> Result<Evaluator, RunError> {
    match on {
        On::Cpu => on_host(schedule),
        On::Cuda(_) => {
            demanded_gpu(schedule.job.dtype)?;
            on_gpu(schedule, deadline)
        }
        On::Best(_) => {
            let found = some_gpu().map_err(RunError::from);
            found.and_then(|()| on_gpu(schedule, deadline)).or_else(|refusal| {
                let note = |note| listener(RunEvent::Note(note));
                turn_to_cpu(schedule.job.dtype, &refusal, note)?;
                on_host(schedule)
            })
        }
    }
}

fn on_gpu(schedule: &Checked, deadline: Duration) -> Result<Evaluator, RunError> {
    let CudaOptions { ordinal, .. } = CudaOptions::default();
    let gpu = OnGpu { ordinal, deadline };
    Ok(Evaluator::on_gpu(schedule, Evaluated::Used, gpu)?)
}

fn on_host(schedule: &Checked) -> Result<Evaluator, RunError> {
    check_native(schedule.job.dtype)?;
    Cpu::room_to_evaluate(schedule).map_err(MachineError::from)?;
    Ok(Evaluator::on_host(schedule, Evaluated::Used)?)
}
