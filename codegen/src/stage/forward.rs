//! The forward routine of a stage.

use super::{
    assemble::{assemble, name},
    call::Step,
    derivative::derivative,
    layout::Layout,
};
use roundelay_schedule::{Access, Id, Pass, Role, Routine, Stage};

/// Computes a stage's nodes in topological order; values that cross are made in place.
pub(crate) fn forward(layout: &Layout<'_>, stage: Stage) -> Routine {
    let Layout { graph, flow, .. } = layout;
    let nodes = flow.computed(graph, stage);
    let steps: Vec<Step> =
        nodes.flat_map(|node| derivative(graph, node).forward).collect();
    let access = |role| match role {
        Role::Value(value) if flow.crossing[value.index()].producer == stage => {
            Access::Write
        }
        Role::Activation | Role::Metric | Role::Workspace => Access::Write,
        Role::Parameter
        | Role::NextParameter
        | Role::Gradient
        | Role::Received
        | Role::Optimizer
        | Role::Value(_)
        | Role::ValueGradient(_)
        | Role::Input(_) => Access::Read,
    };
    let pass = (Pass::Forward, stage);
    assemble(layout, name(Pass::Forward, stage), pass, &steps, &[], access)
}
