//! Parameters that begin as they are drawn although there are weights: a head for other classes, say.

use super::WeightsMistake;
use crate::state::is_named_as_head;
use roundelay_schedule::{Job, nearest_hint};
use std::collections::BTreeSet;

/// Names of parameters, and of modules with all that is in them.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh(Vec<String>);

impl Fresh {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// Those that do not name a head of a unit, which a model has not before its plan.
    pub(super) fn of_model(names: &[String], job: &Job) -> Self {
        let is_known = |name| job.parameters.iter().any(|own| is_in(&own.name, name));
        let is_head = |name: &str| is_named_as_head(&format!("{name}.head."));
        let of_model = names.iter().filter(|name| is_known(name) || !is_head(name));
        Self(of_model.cloned().collect())
    }

    /// Whether a parameter is one of these, or lies in one.
    pub(super) fn has(&self, parameter: &str) -> bool {
        self.0.iter().any(|name| is_in(parameter, name))
    }

    /// Names that mean no parameter.
    pub(super) fn strangers(&self, parameters: &BTreeSet<&str>) -> Vec<WeightsMistake> {
        let modules = parameters.iter().flat_map(|parameter| modules(parameter));
        let modules: BTreeSet<&str> = modules.collect();
        let stranger = |name: &&String| !modules.contains(name.as_str());
        let mistake = |name: &String| {
            let hint = nearest_hint(name, modules.iter().copied());
            WeightsMistake::NothingFresh { name: name.clone(), hint }
        };
        self.0.iter().filter(stranger).map(mistake).collect()
    }
}

/// Whether a parameter has this name, or lies in the module that has it.
fn is_in(parameter: &str, name: &str) -> bool {
    let rest = parameter.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The names of a parameter and of all that it lies in.
fn modules(parameter: &str) -> impl Iterator<Item = &str> {
    let ends = parameter.match_indices('.').map(|(end, _)| end);
    ends.chain([parameter.len()]).map(|end| &parameter[..end])
}
