//! Rule 1 for names: those of parameters and inputs become keys and names of files, those of
//! metrics keys of documents.

use super::{Culprit, faults::Faults, limit};
use crate::Schedule;
use std::collections::BTreeSet;

/// Checks that all names are apart, and that files can have those that files get.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let job = &schedule.job;
    let parameters: Vec<&str> = job.parameters.iter().map(|own| &*own.name).collect();
    let inputs: Vec<&str> = job.inputs.values().map(|own| &*own.name).collect();
    let metrics: Vec<&str> = job.metrics.iter().map(|own| &*own.name).collect();
    let all = [("parameters", &parameters), ("inputs", &inputs), ("metrics", &metrics)];
    for (kind, names) in all {
        let mut known = BTreeSet::new();
        for name in names {
            faults.require(known.insert(name), Culprit::Header("job"), || {
                format!("two {kind} are called `{name}`; give each a name")
            });
        }
    }
    for (kind, names) in [("parameter", parameters), ("input", inputs)] {
        for name in names {
            faults.require(is_plain(name), Culprit::Header("job"), || {
                format!(
                    "{kind} `{}` names arrays in files: write letters, digits, `_`, `-` and `.`, \
                     at most {}, and begin with no `.` or `__`",
                    name.escape_debug(),
                    limit::NAME
                )
            });
        }
    }
}

/// Whether a name is a key of files and the name of one, and is no key that they keep to themselves.
fn is_plain(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=limit::NAME).contains(&name.len())
        && name.chars().all(letters)
        && !name.starts_with('.')
        && !name.starts_with("__")
}
