//! What is asked for besides the configuration, and what comes of it.

use roundelay_dsl::Diagnostic;

/// What a configuration does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Positions of a sequence; by default those of the model, at most 2048.
    pub sequence: Option<u64>,
    /// Examples of a training step; by default as many as the cluster has devices.
    pub batch: Option<u32>,
    /// Unknown fields that change nothing.
    pub ignored: Vec<String>,
}

/// A program for a model of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The program's text, in its canonical form.
    pub text: String,
    /// The family: its `model_type`.
    pub family: &'static str,
    /// Trained numbers.
    pub parameters: u64,
    /// What is not as the configuration says, without changing the model.
    pub warnings: Vec<Diagnostic>,
}
