//! The backward routines of a stage, whole and in halves, and the routine that joins two gradient
//! sums.

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
use roundelay_schedule::{
    Access, Argument, Call, Constants, Id, Nanos, Operand, Pass, Role, Routine, Stage,
};

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
            Role::Gradient => match sum {
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
        let sums = [Role::Gradient];
        let always: &[Role] = match pass {
            Pass::InputGradient => &[],
            _ => &sums,
        };
        assemble(layout, name(pass, stage) + plus, (pass, stage), &steps, always, access)
    }
}

/// Gradient sums as a stage's backward finds them: with what later stages added.
pub(crate) fn begin(flow: &Flow, stage: Stage, sum: Sum) -> Accumulation {
    let keeper = flow.keeper(stage);
    let parameters = flow.parameters.iter().filter(|(_, user)| *user == keeper);
    let parameters: Vec<Source> =
        parameters.map(|(id, _)| Source::Parameter(*id)).collect();
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
    let (parameters, keeper) = (layout.flow.parameters.iter(), layout.flow.keeper(stage));
    let written = parameters
        .filter(|(id, user)| *user == keeper && gradients.added(Source::Parameter(*id)))
        .map(|(id, _)| layout.range(*id));
    let end = layout.flat(stage);
    let mut from = 0;
    let mut gaps = Vec::new();
    for (first, next) in written.chain([(end, end)]) {
        if from < first {
            gaps.push((from, first));
        }
        from = next;
    }
    let zero =
        |(from, to)| call("zero", [Term::real(Tensor::Gradients(from), &[to - from])]);
    gaps.into_iter().map(zero).collect()
}

/// own += received, over the whole flat gradient.
pub(crate) fn combine(layout: &Layout<'_>, stage: Stage) -> Routine {
    let roles = [(Role::Gradient, Access::Update), (Role::Received, Access::Read)];
    let size = layout.size(Role::Gradient, stage);
    let arguments = roles.map(|(role, access)| Argument { role, access, size });
    let operand = |argument| Operand {
        argument,
        offset: roundelay_schedule::Bytes(0),
        element: layout.dtype.gradient(),
        shape: [layout.flat(stage)][..].into(),
    };
    let add = Call {
        kernel: "accumulate".into(),
        attributes: Constants::default(),
        operands: vec![operand(1), operand(0)],
    };
    Routine {
        name: name(Pass::Combine, stage),
        pass: Pass::Combine,
        stage,
        arguments: arguments.into(),
        calls: vec![add].into(),
        predicted: Nanos(0),
    }
}
