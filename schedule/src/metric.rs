//! What a micro-batch measures besides its loss.

use crate::{Bytes, Job};
use serde::{Deserialize, Serialize};

/// A number that every micro-batch gives besides its loss. It has no part in training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Name, unlike those of the others.
    pub name: String,
    /// What is said about the numbers of many micro-batches.
    pub reading: Reading,
}

/// What is said about the numbers of many micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// Their mean.
    Mean,
    /// e to the power of their mean: perplexity, from mean negative log-likelihoods.
    Exponential,
}

impl Reading {
    /// The reading of numbers with this mean.
    pub fn of(self, mean: f64) -> f64 {
        match self {
            Reading::Mean => mean,
            Reading::Exponential => mean.exp(),
        }
    }
}

impl Job {
    /// Size of what a micro-batch measures: its loss, then one number for each metric.
    pub fn measured(&self) -> Bytes {
        Bytes((1 + self.metrics.len() as u64) * self.dtype.wide_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_follow_their_formula() {
        assert_eq!(Reading::Mean.of(0.25), 0.25);
        assert_eq!(Reading::Exponential.of(0.0), 1.0);
        assert!((Reading::Exponential.of(256f64.ln()) - 256.0).abs() < 1e-9);
    }
}
