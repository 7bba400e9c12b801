//! What a schedule says of its training besides the actions.

use crate::{Piece, StageError, Stages, Storage, rewrite::Everywhere};
use roundelay_dsl::Program;
use roundelay_schedule::{Job, Metric, Tensor};

/// The job of a program whose stages have this code.
pub(super) fn job(program: &Program, code: &Stages) -> Job {
    let train = &program.train;
    Job {
        model: program.model.name.clone(),
        data: train.data.clone(),
        batch: train.batch,
        seed: train.seed,
        steps: train.steps,
        dtype: train.dtype,
        optimizer: train.optimizer.clone(),
        evaluate: train.evaluate,
        inputs: code.inputs.clone(),
        metrics: program.model.metrics.iter().map(metric).collect(),
        parameters: code.parameters.clone(),
        elements: code.elements.clone(),
    }
}

fn metric(metric: &roundelay_dsl::ModelMetric) -> Metric {
    Metric { name: metric.name.clone(), reading: metric.reading }
}

/// The job of a program before any plan: the whole batch at once, on a model in one piece. Under a local
/// rule it lacks the heads of units.
///
/// # Errors
/// A malformed model.
pub fn whole_job(program: &Program) -> Result<Job, StageError> {
    let train = &program.train;
    let piece = Piece::new(&program.model, (&[], Tensor::WHOLE), &Everywhere)?;
    let storage = Storage { dtype: train.dtype, padding: 1 };
    let whole = piece.samples(u64::from(train.batch), storage, &[], &Everywhere)?;
    Ok(job(program, &whole.frame))
}
