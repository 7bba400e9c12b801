//! What a checkpoint says about the run that wrote it.

use crate::Dataset;
use roundelay_schedule::{Job, Method, Schedule};
use std::collections::BTreeMap;

/// The entries on which the bits of a run depend, besides the model.
const DECISIVE: [&str; 6] =
    ["rule", "micro_batches", "batch", "seed", "optimizer", "data"];

/// What tells one run from another, as names and values. The fingerprint of model and cluster is
/// kept for the reader's eyes; a run goes on under another plan or on another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub(super) entries: BTreeMap<String, String>,
}

impl Run {
    /// The run of a schedule on its data.
    pub fn new(schedule: &Schedule, data: &Dataset) -> Self {
        let job = &schedule.job;
        let optimizer = serde_json::to_string(&job.optimizer)
            .expect("an optimizer is numbers under names that are text");
        let entries = [
            ("model", job.model.clone()),
            ("rule", schedule.plan.rule.to_string()),
            ("micro_batches", schedule.plan.micro_batches.to_string()),
            ("batch", job.batch.to_string()),
            ("seed", job.seed.to_string()),
            ("optimizer", optimizer),
            ("states", states(job).join(" ")),
            ("data", format!("{:016x}", data.digest())),
            ("fingerprint", schedule.fingerprint.clone()),
        ];
        Self { entries: entries.map(|(name, value)| (name.to_string(), value)).into() }
    }

    /// The value under a name; empty when there is none.
    pub(super) fn entry(&self, name: &str) -> &str {
        self.entries.get(name).map_or("", String::as_str)
    }

    /// What was otherwise in an earlier run, so that bits cannot go on.
    pub(super) fn differences(&self, earlier: &Run) -> Vec<String> {
        let differs = |name: &&str| self.entry(name) != earlier.entry(name);
        let spell = |name| {
            format!("{name} was {} and is {}", earlier.entry(name), self.entry(name))
        };
        DECISIVE.into_iter().filter(differs).map(spell).collect()
    }
}

/// Names of the arrays of optimizer state, in the order of the kernels' operands.
pub(super) fn states(job: &Job) -> &'static [&'static str] {
    match job.optimizer.method {
        Method::Sgd { momentum: 0.0, .. } => &[],
        Method::Sgd { .. } => &["momentum"],
        Method::Adamw { .. } => &["mean", "square"],
    }
}
