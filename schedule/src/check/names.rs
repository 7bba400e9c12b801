//! Rule 1 for names: those of parameters and inputs become keys and names of files, those of
//! metrics and devices keys of documents. All are printed.

use super::{Culprit, faults::Faults, limit};
use crate::Schedule;
use std::collections::BTreeSet;

/// Checks that all names are apart, that they can be printed, and that files can have those that
/// files get.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let Schedule { job, target, .. } = schedule;
    let (own, machine) = (Culprit::Header("job"), Culprit::Header("target"));
    let parameters: Vec<&str> = job.parameters.iter().map(|own| &*own.name).collect();
    let inputs = job.inputs.values().map(|own| &*own.name).collect();
    let metrics = job.metrics.iter().map(|own| &*own.name).collect();
    let devices = target.devices.values().map(|own| &*own.name).collect();
    let all: [(Culprit, &str, Vec<&str>); 4] = [
        (own, "parameters", parameters.clone()),
        (own, "inputs", inputs),
        (own, "metrics", metrics),
        (machine, "devices", devices),
    ];
    for (culprit, kind, names) in all {
        let mut known = BTreeSet::new();
        for name in names {
            faults.require(known.insert(name), culprit, || {
                let name = name.escape_debug();
                format!("two {kind} are called `{name}`; give each a name")
            });
            printable(culprit, name, faults);
        }
    }
    printable(own, &job.model, faults);
    printable(machine, &target.name, faults);
    // One link may join devices at several levels, and one memory be shared in several places.
    target.links.values().for_each(|link| printable(machine, &link.name, faults));
    target.pools.values().for_each(|pool| printable(machine, &pool.name, faults));
    for (id, routine) in schedule.routines.iter() {
        printable(Culprit::Routine(id), &routine.name, faults);
    }
    for (id, axis) in schedule.axes.iter() {
        printable(Culprit::Axis(id), &axis.name, faults);
    }
    for name in parameters {
        let is_key = is_plain(name, limit::KEY) && !name.starts_with("__");
        faults.limit(is_key, Culprit::Header("job"), || {
            format!("parameter {}, and begin with no `__`", told(name, limit::KEY))
        });
    }
    for (_, crate::Input { name, .. }) in job.data_inputs() {
        let is_file = is_plain(name, limit::FILE_NAME);
        faults.limit(is_file, Culprit::Header("job"), || {
            format!("input {}", told(name, limit::FILE_NAME))
        });
    }
}

/// Terminals obey what they cannot show.
fn printable(culprit: Culprit, name: &str, faults: &mut Faults) {
    let shown = !name.chars().any(char::is_control) && name.len() <= limit::KEY;
    faults.limit(shown, culprit, || {
        let start: String = name.chars().take(40).collect();
        format!(
            "the name `{}` cannot be shown: write at most {} bytes, and nothing that controls \
             terminals",
            start.escape_debug(),
            limit::KEY
        )
    });
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
