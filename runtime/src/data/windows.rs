//! Windows of a corpus: which one an example takes, and the token pairs it holds.

use super::{Corpus, DataError, Example, inputs::Pair};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{InputId, Job};
use std::sync::Arc;

/// Labels the stream of window positions.
const POSITION: u64 = u64::from_le_bytes(*b"position");

/// Examples of `sequence` + 1 tokens.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    corpus: Arc<Corpus>,
    pair: Pair,
    seed: u64,
}

impl Windows {
    /// Windows for the token inputs of a job.
    pub(super) fn new(
        corpus: Corpus,
        job: &Job,
        data: &'static str,
    ) -> Result<Self, DataError> {
        let pair = Pair::required(job, data)?;
        corpus.check(pair.bound(), pair.tightest(job))?;
        let training = corpus.training();
        let windows = Self { corpus: Arc::new(corpus), pair, seed: job.seed };
        windows.demand("training", training.end - training.start)?;
        Ok(windows)
    }

    fn demand(&self, part: &'static str, found: u64) -> Result<(), DataError> {
        let needed = self.window();
        if found >= needed {
            return Ok(());
        }
        let pattern = self.corpus.pattern.clone();
        Err(DataError::TooShort { part, pattern, found, needed })
    }

    fn window(&self) -> u64 {
        self.pair.sequence.saturating_add(1)
    }

    /// The tokens behind the windows.
    pub(super) fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// All tokens are below.
    pub(super) fn bound(&self) -> u64 {
        self.pair.bound()
    }

    /// Number of windows in the held-out part that do not overlap.
    pub(super) fn held_out(&self) -> Result<u64, DataError> {
        let part = self.corpus.held_out();
        let found = part.end - part.start;
        self.demand("held-out", found).map(|()| found / self.window())
    }

    /// First token of an example's window. Training windows begin anywhere in the training part,
    /// all places equally likely; held-out windows stand side by side.
    fn start(&self, example: Example) -> u64 {
        match example {
            Example::Training { step, index } => {
                let training = self.corpus.training();
                let places = training.end - training.start - self.pair.sequence;
                Stream::new(self.seed, &[POSITION, step]).below(index, places)
            }
            Example::HeldOut { index } => {
                self.corpus.held_out().start + index * self.window()
            }
        }
    }

    /// Writes one example's row of an input.
    pub(super) fn fill(&self, input: InputId, example: Example, row: &mut [u8]) {
        self.corpus.fill(self.start(example) + self.pair.shift(input), row);
    }
}
