//! What hops back between units of a local rule ([`Hop`]), where each unit is one stage.
//!
//! Let h be the value of a unit, a the gradient of its own loss with respect to h, and b that of the
//! next unit's. The trunk of the unit, all up to h, hands a on: that is I, which waits for no other
//! unit. Its weights are trained by a + b, or by b alone: that is W, which takes the whole trunk
//! back once more, but hands nothing on. So b is felt one unit back and no further; plain
//! differentiation of the summed losses would hand on a + b.

use super::{
    StageError,
    call::{Step, Tensor, Term, call},
    flow::Staged,
    graph::Graph,
};
use roundelay_dsl::{NodeId, Operation, Source};
use roundelay_schedule::{Hop, Id};

/// What trains the weights of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trained {
    /// a + b.
    ByBoth,
    /// b alone.
    ByNext,
}

/// A unit to whose value a gradient hops back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hopping {
    /// The node that makes h, and has a sum for its gradient.
    pub(crate) value: NodeId,
    /// The boundary behind it, in whose sum b stands.
    boundary: NodeId,
    trained: Trained,
    /// Whether an earlier unit waits for what the trunk hands on.
    hands_on: bool,
}

impl Hopping {
    /// What hops back to a stage; nothing to the last one.
    pub(crate) fn of(at: Staged<'_>) -> Option<Self> {
        let Staged { graph, flow, stage } = at;
        let mut crossing = flow.crossing.iter().filter(|row| row.producer == stage);
        let row = crossing.find(|row| row.returns.is_some() && row.sum != row.node)?;
        let boundary = &graph.model.nodes[row.sum];
        let above = graph.sum_of(*boundary.operands.first()?);
        let (Operation::Boundary(hop), Source::Node(value)) = (boundary.operation, above)
        else {
            return None;
        };
        let trained = match hop {
            Hop::None => return None,
            Hop::Added => Trained::ByBoth,
            Hop::Alone => Trained::ByNext,
        };
        let hands_on = flow.crossing.iter().any(|row| row.returns == Some(stage));
        Some(Self { value, boundary: row.sum, trained, hands_on })
    }

    /// Whether a node of the unit is of its trunk; the others are of its head.
    pub(crate) fn is_trunk(&self, node: NodeId) -> bool {
        node <= self.value
    }

    /// The calls of I for a node of the trunk, of its backward calls: gradients of values.
    pub(crate) fn handed_on(&self, steps: &[Step]) -> Vec<Step> {
        let parameter = |source| matches!(source, Source::Parameter(_));
        if self.hands_on { without(steps, parameter) } else { Vec::new() }
    }

    /// The calls of W for a node of the trunk: all but what goes back over a boundary.
    pub(crate) fn trained(&self, graph: &Graph<'_>, steps: &[Step]) -> Vec<Step> {
        without(steps, |source| graph.is_boundary(source))
    }

    /// The node in whose name W begins with the gradient of h, and the calls that make it.
    pub(crate) fn begun(&self, graph: &Graph<'_>) -> (NodeId, Vec<Step>) {
        let h = Source::Node(self.value);
        let term = |tensor| Term::real(tensor, &graph.shape(h)).flat();
        let add = |from| call("copy", [term(from), term(Tensor::Contribution(h))]);
        let b = add(Tensor::Gradient(Source::Node(self.boundary)));
        let steps = match self.trained {
            Trained::ByNext => vec![b],
            Trained::ByBoth => vec![add(Tensor::Adjoint(self.value)), b],
        };
        (self.boundary, steps)
    }

    /// Whether W reads a, so that I has to keep it.
    pub(crate) fn keeps_gradient(&self) -> bool {
        self.trained == Trained::ByBoth
    }
}

/// The backward calls of a node without contributions to some sums: a call that makes nothing else
/// is left out, any other makes them in arrays that no call reads.
fn without(steps: &[Step], dropped: impl Fn(Source) -> bool) -> Vec<Step> {
    let is_contribution = |term: &Term| matches!(term.tensor, Tensor::Contribution(_));
    let is_dropped = |term: &Term| match term.tensor {
        Tensor::Contribution(source) => dropped(source),
        _ => false,
    };
    let taken = steps.iter().flat_map(|step| &step.terms).filter_map(|term| {
        if let Tensor::Unwanted(_, number) = term.tensor {
            Some(number + 1)
        } else {
            None
        }
    });
    let mut free = taken.max().unwrap_or(0);
    let mut left = Vec::new();
    for step in steps {
        let mut made = step.terms.iter().filter(|term| is_contribution(term)).peekable();
        if made.peek().is_some() && made.all(is_dropped) {
            continue;
        }
        let mut step = step.clone();
        for term in step.terms.iter_mut().filter(|term| is_dropped(term)) {
            let node = step.node.expect("backward calls are those of a node");
            term.tensor = Tensor::Unwanted(node, free);
            free += 1;
        }
        left.push(step);
    }
    left
}

/// Where gradients hop back, a stage is one unit: it begins with the boundary in front of it, and
/// has no other.
pub(crate) fn admit(at: Staged<'_>) -> Result<(), StageError> {
    let Staged { graph, flow, stage } = at;
    let nodes = flow.nodes(stage);
    let start = NodeId::new(nodes.start);
    let name = |node: NodeId| graph.model.nodes[node].name.clone();
    let mut inside = nodes.skip(1).map(NodeId::new);
    if let Some(node) = inside.find(|node| graph.is_boundary(Source::Node(*node))) {
        return Err(StageError::Units { stage: stage.index(), boundary: name(node) });
    }
    if stage.index() > 0 && !graph.is_boundary(Source::Node(start)) {
        return Err(StageError::Parted { stage: stage.index(), node: name(start) });
    }
    Ok(())
}
