//! What a run says while it goes on, and what it leaves.

use roundelay_runtime::{
    CheckpointError, Dataset, ImageFacts, Measures, Progress, Report, Resumed, Touched,
    TrainObserver,
};
use roundelay_schedule::{DeviceId, Kind};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

/// What happens during a run, in order; told on the first rank. Others tell one thing: that they do not
/// reach the first one, where that takes long.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// Something is done otherwise than it might have been, with the reason.
    Note(String),
    /// Something in the folder of checkpoints is passed over, or stays though nobody needs it, with the reason.
    PassedOver(String),
    /// The data is read and the state is there.
    Begin {
        /// The tokens, where data are some; on the first of several ranks alone, which tells them.
        tokens: Option<TokenFacts>,
        /// The images, where data are some; on the first rank alone too.
        images: Option<ImageFacts>,
        /// How the run relates to an earlier one.
        resumed: Resumed,
        /// The first training step that the run takes.
        first: u64,
        /// One past the last.
        end: u64,
    },
    /// A training step is done.
    Step {
        /// Which, counted from zero.
        step: u64,
        /// Mean loss of its micro-batches.
        loss: f64,
        /// Examples per second since the run began.
        samples_per_s: f64,
        /// Time since the run began.
        elapsed: Duration,
    },
    /// Held-out data was looked at.
    Evaluate {
        /// How many updates were done before.
        step: u64,
        /// Mean loss on the held-out examples.
        loss: f64,
        /// Held-out metrics, by name.
        metrics: BTreeMap<String, f64>,
    },
}

/// What is known of tokens before anything is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenFacts {
    /// Tokens of the training part.
    pub training: u64,
    /// Tokens of the held-out part.
    pub held_out: u64,
    /// Held-out bigram entropy in nats per token, for small vocabularies.
    pub bigram_entropy: Option<f64>,
}

impl TokenFacts {
    pub(super) fn of(data: &Dataset) -> Option<Self> {
        let (training, held_out) = data.tokens()?;
        Some(Self { training, held_out, bigram_entropy: data.bigram_entropy() })
    }
}

/// What a run did and what it used; on other ranks than the first, their part of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Losses, times and counts.
    pub report: Report,
    /// Bytes that were really used, by device and kind of memory: arenas start poisoned, and
    /// are scanned at the end.
    pub touched: BTreeMap<(DeviceId, Kind), Touched>,
}

/// Turns what the training loop says into events.
pub(super) struct Listening<'a, F> {
    listener: &'a mut F,
    /// Whether a loss was no number.
    lost: bool,
    /// What was told to stay in the folder of checkpoints, which each checkpoint tries to remove again.
    staying: BTreeSet<PathBuf>,
}

impl<'a, F> Listening<'a, F> {
    pub(super) fn new(listener: &'a mut F) -> Self {
        Self { listener, lost: false, staying: BTreeSet::new() }
    }
}

impl<F: FnMut(RunEvent)> TrainObserver for Listening<'_, F> {
    fn step(&mut self, progress: &Progress) {
        let Progress { step, loss, samples_per_s, elapsed } = *progress;
        (self.listener)(RunEvent::Step { step, loss, samples_per_s, elapsed });
        // Steps are told to people as so many done.
        if !loss.is_finite() && !std::mem::replace(&mut self.lost, true) {
            let text = format!(
                "the loss of step {} is {loss}, and later ones may be none either: try a smaller \
                 learning rate or `clip`, and look at weights and data",
                step + 1
            );
            (self.listener)(RunEvent::Note(text));
        }
    }
    fn evaluated(&mut self, step: u64, measures: &Measures) {
        let Measures { loss, metrics } = measures.clone();
        (self.listener)(RunEvent::Evaluate { step, loss, metrics });
    }
    fn stays(&mut self, why: &CheckpointError) {
        if self.staying.insert(why.path().to_path_buf()) {
            (self.listener)(RunEvent::PassedOver(why.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Progress says `step 4 of 6` when step 3, counted from zero, is done.
    #[test]
    fn a_loss_that_is_no_number_is_told_once_of_the_step_that_progress_shows() {
        let mut notes = Vec::new();
        let mut listener = |event| {
            if let RunEvent::Note(text) = event {
                notes.push(text);
            }
        };
        let mut listening = Listening::new(&mut listener);
        for (step, loss) in [(2, 1.0), (3, f64::NAN), (4, f64::NAN)] {
            let elapsed = Duration::ZERO;
            listening.step(&Progress { step, loss, samples_per_s: 1.0, elapsed });
        }
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("the loss of step 4 is NaN"), "{note}");
    }

    #[test]
    fn what_stays_in_the_folder_of_checkpoints_is_told_once() {
        let mut told = Vec::new();
        let mut listener = |event| {
            if let RunEvent::PassedOver(text) = event {
                told.push(text);
            }
        };
        let mut listening = Listening::new(&mut listener);
        for path in ["old", "older", "old"] {
            let source = io::ErrorKind::PermissionDenied.into();
            listening.stays(&CheckpointError::Stays { path: path.into(), source });
        }
        let [old, older] = &told[..] else { panic!("{told:?}") };
        assert!(old.starts_with("cannot remove `old`: permission denied; "), "{old}");
        assert!(older.contains("`older`"), "{older}");
    }
}
