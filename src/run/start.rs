//! Where a run begins: drawn parameters, a file of weights, or the newest checkpoint.

use super::{Folder, Given, RunError, RunEvent, RunOptions, Start, notes};
use roundelay_runtime::{
    ArraySource, Checkpointing, Checkpoints, Provenance, Resumed, Resumption, Seat,
    State, Weights,
};
use roundelay_schedule::Checked;
use std::path::Path;

/// The state that a run begins with, and who writes its checkpoints.
pub(super) fn begin(
    schedule: &Checked,
    provenance: Provenance,
    options: &RunOptions,
    listener: &mut impl FnMut(RunEvent),
) -> Result<(Resumption, Checkpointing), RunError> {
    let first = options.seat.is_first();
    let every = |folder: &Folder, open: fn(&Path, Provenance) -> _, provenance| {
        let steps = folder.every;
        Ok::<_, RunError>(match first {
            true => {
                let checkpoints = open(&folder.path, provenance)?;
                Checkpointing::Every { steps, checkpoints }
            }
            false => Checkpointing::Elsewhere { steps },
        })
    };
    match &options.start {
        Start::Anew { weights, keep } => {
            let (state, resumed) = match weights {
                None => (State::drawn(&schedule.job), Resumed::FromStart),
                Some(given) => of_weights(schedule, given, &options.seat, listener)?,
            };
            let kept = match keep {
                None => Checkpointing::Never,
                Some(folder) => every(folder, Checkpoints::start, provenance)?,
            };
            Ok((Resumption { state, resumed, ignored: Vec::new() }, kept))
        }
        Start::Resume { folder, weights } => {
            // Nobody else writes a checkpoint once this run has looked for the newest one.
            let kept = every(folder, Checkpoints::open, provenance.clone())?;
            let mut found = Resumption::of(&folder.path, schedule, &provenance)?;
            kept.goes_on_from(found.state.step);
            if let (Resumed::WithoutCheckpoint, Some(given)) = (&found.resumed, weights) {
                (found.state, found.resumed) =
                    of_weights(schedule, given, &options.seat, listener)?;
            }
            Ok((found, kept))
        }
    }
}

/// What a run begins with that starts from a file of weights. The first of several ranks looks for what
/// there is to tell of it.
fn of_weights(
    schedule: &Checked,
    Given { file, fresh }: &Given,
    seat: &Seat,
    listener: &mut impl FnMut(RunEvent),
) -> Result<(State<ArraySource>, Resumed), RunError> {
    let weights = Weights::open(file)?.without(fresh);
    let state = weights.state(&schedule.job)?;
    if seat.is_first() {
        notes::tell_not_finite(file, &weights.not_finite(&schedule.job)?, listener);
        notes::tell_drawn_heads(file, &weights.drawn_heads(&schedule.job), listener);
    }
    Ok((state, Resumed::FromWeights))
}
