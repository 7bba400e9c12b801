//! The forward routine of a stage.

use super::{
    assemble::{assemble, name},
    call::{Step, Tensor, Term, call},
    fuse::fuse,
    interleave::interleave,
    layout::Layout,
};
use roundelay_dsl::{NodeId, Source};
use roundelay_schedule::{Access, Id, Pass, Role, Routine, Stage};

/// Computes a stage's nodes in topological order; values that cross are made in place. Metrics
/// come last, so that one number may be the loss, a term of it, and several metrics.
pub(crate) fn forward(layout: &Layout<'_>, stage: Stage) -> Routine {
    let Layout { graph, flow, .. } = layout;
    let nodes = flow.computed(graph, stage);
    let made = nodes.flat_map(|node| &graph.derivative(node).forward).cloned();
    let measured = (0..).zip(&graph.metrics);
    let measured = measured.filter(|(_, node)| stage == flow.measures(graph, **node));
    let steps: Vec<Step> =
        made.chain(measured.map(|(number, node)| measure(number, *node))).collect();
    let pass = (Pass::Forward, stage);
    let kept = |tensor| layout.home(tensor, pass).is_some();
    let steps = interleave(fuse(steps, &layout.rewriting, kept));
    let access = |role| match role {
        Role::Value(value) if flow.crossing[value.index()].producer == stage => {
            Access::Write
        }
        Role::Activation | Role::Retained | Role::Metric | Role::Workspace => {
            Access::Write
        }
        Role::Parameter
        | Role::NextParameter
        | Role::Tied(_)
        | Role::Gradient
        | Role::TiedGradient(_)
        | Role::Received
        | Role::Optimizer
        | Role::Squares
        | Role::Adjoint
        | Role::Value(_)
        | Role::ValueGradient(_)
        | Role::Input(_) => Access::Read,
    };
    assemble(layout, name(Pass::Forward, stage), pass, &steps, &[], access)
}

/// A metric's number goes to its place behind the loss.
fn measure(number: u32, node: NodeId) -> Step {
    let made = Term::real(Tensor::Source(Source::Node(node)), &[1]);
    call("copy", [made, Term::real(Tensor::Metric(number), &[1])])
}
