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
    for name in parameters {
        let is_key = is_plain(name, limit::KEY) && !name.starts_with("__");
        faults.require(is_key, Culprit::Header("job"), || {
            format!("parameter {}, and begin with no `__`", told(name, limit::KEY))
        });
    }
    for (_, crate::Input { name, .. }) in job.data_inputs() {
        let is_file = is_plain(name, limit::FILE_NAME);
        faults.require(is_file, Culprit::Header("job"), || {
            format!("input {}", told(name, limit::FILE_NAME))
        });
    }
}

fn told(name: &str, most: usize) -> String {
    format!(
        "`{}` names arrays in files: write letters, digits, `_`, `-` and `.`, at most {most}, the \
         first one no `.`",
        name.escape_debug()
    )
}

/// Whether a name can be a key of files, or the name of one.
fn is_plain(name: &str, most: usize) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=most).contains(&name.len())
        && name.chars().all(letters)
        && !name.starts_with('.')
}
