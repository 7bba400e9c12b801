//! The backward routines of a stage, whole and in halves.

use super::{
    accumulate::Accumulation,
    again::Again,
    assemble::{assemble, name},
    call::{Step, Tensor, Term, call},
    flow::Flow,
    fuse::fuse,
    halves::Halves,
    hashed::HashedSet,
    interleave::interleave,
    layout::Layout,
    share::share,
};
use roundelay_dsl::{NodeId, Source};
use roundelay_schedule::{Access, Id, Pass, Role, Routine, Stage};

/// Which micro-batch of a gradient sum a backward pass serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// The first: writes the gradient.
    First,
    /// A later one: adds to it.
    Next,
}

/// Adds to the gradient of a stage's parameters and of the values that cross into it. Nodes are
/// visited in reverse topological order; what later stages added to a value's gradient stands
/// before, so the order of additions does not depend on the cuts.
pub(crate) fn backward(layout: &Layout<'_>, stage: Stage, sum: Sum) -> Routine {
    let Layout { graph, flow, .. } = layout;
    let mut gradients = begin(flow, stage, sum);
    let mut again = Again::new(graph, layout.keep(stage));
    let mut steps: Vec<Step> = Vec::new();
    for node in flow.computed(graph, stage).rev() {
        let backward = flow.backward(graph, node);
        steps.extend(again.before(backward));
        steps.extend(gradients.lay(node, backward.to_vec()));
    }
    if sum == Sum::First {
        steps.splice(0..0, zeros(layout, stage, &gradients));
    }
    Half { layout, stage, pass: Pass::Backward, sum }
        .routine(steps, |node| gradients.added(Source::Node(node)))
}

/// I: makes the gradients of the values that cross into a stage, and what W reads.
pub(crate) fn input_gradient(
    layout: &Layout<'_>,
    stage: Stage,
    halves: &Halves,
) -> Routine {
    let half = Half { layout, stage, pass: Pass::InputGradient, sum: Sum::First };
    half.routine(halves.input.clone(), |node| halves.added.contains(&node))
}

/// W: adds to the gradient of a stage's parameters.
pub(crate) fn weight_gradient(
    layout: &Layout<'_>,
    stage: Stage,
    halves: &Halves,
    sum: Sum,
) -> Routine {
    let mut gradients = begin(layout.flow, stage, sum);
    let nodes = halves.weight.iter();
    let laid = nodes.flat_map(|(node, steps)| gradients.lay(*node, steps.clone()));
    let mut steps: Vec<Step> = laid.collect();
    if sum == Sum::First {
        steps.splice(0..0, zeros(layout, stage, &gradients));
    }
    Half { layout, stage, pass: Pass::WeightGradient, sum }.routine(steps, |_| false)
}

/// A routine that makes gradients.
struct Half<'a> {
    layout: &'a Layout<'a>,
    stage: Stage,
    pass: Pass,
    sum: Sum,
}

impl Half<'_> {
    /// The routine of these calls; `added` says to which values' gradients they add.
    fn routine(self, steps: Vec<Step>, added: impl Fn(NodeId) -> bool) -> Routine {
        let Self { layout, stage, pass, sum } = self;
        let kept = |tensor| layout.home(tensor, (pass, stage)).is_some();
        let steps = interleave(fuse(steps, &layout.rewriting, kept));
        let steps = share(layout, steps, kept);
        let access = |role| match role {
            Role::Gradient | Role::TiedGradient(_) => match sum {
                Sum::First => Access::Write,
                Sum::Next => Access::Update,
            },
            Role::ValueGradient(value) => {
                let crossing = &layout.flow.crossing[value.index()];
                match (crossing.producer == stage, crossing.returns == Some(stage)) {
                    (true, _) if !added(crossing.sum) => Access::Read,
                    (false, true) => Access::Write,
                    (true, _) | (false, false) => Access::Update,
                }
            }
            Role::Adjoint if pass == Pass::InputGradient => Access::Write,
            Role::Workspace => Access::Write,
            Role::Parameter
            | Role::NextParameter
            | Role::Tied(_)
            | Role::Received
            | Role::Optimizer
            | Role::Squares
            | Role::Activation
            | Role::Retained
            | Role::Adjoint
            | Role::Value(_)
            | Role::Input(_)
            | Role::Metric => Access::Read,
        };
        let plus = match sum {
            Sum::First => "",
            Sum::Next => "+",
        };
        let sums = |state| layout.flow.roles(state)[1];
        let always: Vec<Role> = match pass {
            Pass::InputGradient => Vec::new(),
            _ => layout.flow.states(stage).map(sums).collect(),
        };
        assemble(layout, name(pass, stage) + plus, (pass, stage), &steps, &always, access)
    }
}

/// Gradient sums as a stage's backward finds them: with what later stages added.
pub(crate) fn begin(flow: &Flow, stage: Stage, sum: Sum) -> Accumulation {
    let parameters: Vec<Source> = flow
        .states(stage)
        .flat_map(|state| flow.parameters_of(state))
        .map(Source::Parameter)
        .collect();
    let crossing = flow.crossing.iter();
    let later = crossing.clone().filter(|row| row.returns > Some(stage));
    let mut written: HashedSet<Source> = later.map(|row| Source::Node(row.sum)).collect();
    if sum == Sum::Next {
        written.extend(parameters.iter().copied());
    }
    let returning = crossing.filter(|row| row.returns.is_some());
    let fixed = returning.map(|row| Source::Node(row.sum)).chain(parameters);
    Accumulation::new(written, fixed.collect())
}

/// Writes zeros where no call writes the gradient: gaps, the tail, parameters without
/// contribution. Optimizers and norms see the whole flat array.
fn zeros(layout: &Layout<'_>, stage: Stage, gradients: &Accumulation) -> Vec<Step> {
    let flow = layout.flow;
    let zero = |(state, from, to)| {
        call("zero", [Term::real(Tensor::Gradients(state, from), &[to - from])])
    };
    flow.states(stage)
        .flat_map(|state| gaps(layout, state, gradients))
        .map(zero)
        .collect()
}

/// Where no call writes the gradient of a state.
fn gaps(
    layout: &Layout<'_>,
    state: Stage,
    gradients: &Accumulation,
) -> Vec<(Stage, u64, u64)> {
    let parameters = layout.flow.parameters_of(state);
    let written = parameters
        .filter(|id| gradients.added(Source::Parameter(*id)))
        .map(|id| layout.range(id));
    let end = layout.elements[state];
    let mut from = 0;
    let mut gaps = Vec::new();
    for (first, next) in written.chain([(end, end)]) {
        if from < first {
            gaps.push((state, from, first));
        }
        from = next;
    }
    gaps
}
