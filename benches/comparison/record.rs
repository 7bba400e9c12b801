//! The file of runs that are done: one JSON line each.

use super::case::Case;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// With a model.
    Trained {
        /// Held-out loss.
        loss: f64,
        /// Held-out metrics, by name.
        metrics: BTreeMap<String, f64>,
    },
    /// A training loss was no number, or above a hundred.
    Diverged {
        /// The step.
        step: u64,
    },
}

/// A run that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    case: Case,
    /// Of program and data; a run of other ones is another run.
    key: u64,
    outcome: Outcome,
    seconds: f64,
}

/// All runs that are done.
pub(crate) struct Records {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Records {
    /// Reads a file; none is no runs.
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { path: path.to_owned(), lines })
    }

    /// Whether a run of this program and data is done.
    pub(crate) fn has(&self, case: &Case, key: u64) -> bool {
        self.lines.iter().any(|line| line.case == *case && line.key == key)
    }

    /// How the newest run of a case ended.
    pub(crate) fn outcome(&self, case: &Case) -> Option<&Outcome> {
        let own = |line: &&Line| line.case == *case;
        self.lines.iter().rev().find(own).map(|line| &line.outcome)
    }

    /// Time of all runs.
    pub(crate) fn minutes(&self) -> f64 {
        self.lines.iter().map(|line| line.seconds).sum::<f64>() / 60.0
    }

    /// Adds a run, in the file too.
    pub(crate) fn add(
        &mut self,
        case: &Case,
        key: u64,
        outcome: Outcome,
        time: Duration,
    ) -> Result<(), Box<dyn Error>> {
        let line = Line { case: *case, key, outcome, seconds: time.as_secs_f64() };
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
        self.lines.push(line);
        Ok(())
    }
}
