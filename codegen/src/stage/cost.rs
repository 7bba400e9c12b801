//! What every node of a model costs on its own, for whoever chooses cut points.

use super::{
    StageError,
    accumulate::Accumulation,
    call::{Step, Tensor, Term},
    derivative::{Derivative, derivative},
    flow::Flow,
    fuse::fuse_nodes,
    graph::Graph,
    layout::kept,
};
use roundelay_dsl::{Model, NodeId, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Bytes, Call, Float, Id, Operand, Stage};
use std::collections::BTreeSet;

/// What one node adds to the stage that has it, for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCost {
    /// Every forward call, without places; none for views and for nodes that the loss does not
    /// need.
    pub forward: Vec<Call>,
    /// The call of an earlier node, counted there, that the first of these calls does as well
    /// where no cut parts the two: what the node adds is the difference.
    pub contained: Vec<Call>,
    /// Every backward call, as the uncut model makes them for its first micro-batch.
    pub backward: Vec<Call>,
    /// Elements of the parameters that it is the first to use.
    pub parameters: u64,
    /// What it makes that the backward pass of the uncut model reads.
    pub kept: Bytes,
    /// Size of its result: what crosses a cut, and comes back as gradient.
    pub output: Bytes,
}

/// The cost of every node, in the model's order, for micro-batches of `examples`.
///
/// # Errors
/// A malformed model, a loss without a gradient kernel.
pub fn node_costs(
    model: &Model,
    examples: u64,
    dtype: Float,
) -> Result<Vec<NodeCost>, StageError> {
    let graph = Graph::new(model, examples)?;
    let flow = Flow::new(&graph, &[])?;
    let mut costs = vec![NodeCost::default(); model.nodes.len()];
    let mut seen = BTreeSet::new();
    for node in graph.computed() {
        let elements = graph.elements(Source::Node(node));
        costs[node.index()] = NodeCost {
            forward: vec![],
            contained: vec![],
            backward: vec![],
            parameters: first_uses(&graph, node, &mut seen),
            kept: Bytes(0),
            output: Bytes(elements) * dtype.size(),
        };
    }
    let mut gradients = Accumulation::new(BTreeSet::new(), seen);
    for node in graph.computed().rev() {
        let steps = gradients.lay(node, derivative(&graph, node).backward);
        costs[node.index()].backward = calls(&graph, node, &steps)?;
    }
    let kept = kept(&graph, &flow, dtype, Stage::new(0));
    for (node, _, size) in &kept {
        costs[node.index()].kept += *size;
    }
    let kept: BTreeSet<Tensor> = kept.into_iter().map(|(_, tensor, _)| tensor).collect();
    let forward = graph.computed().flat_map(|node| {
        let steps = derivative(&graph, node).forward;
        steps.into_iter().map(move |step| (node, step))
    });
    for made in fuse_nodes(forward.collect(), |tensor| kept.contains(&tensor)) {
        let cost = |node, step| calls(&graph, node, &[step]);
        if let Some((node, step)) = made.contains {
            let inner = cost(node, step)?;
            costs[node.index()].forward.extend(inner.iter().cloned());
            costs[made.node.index()].contained.extend(inner);
        }
        costs[made.node.index()].forward.extend(cost(made.node, made.step)?);
    }
    Ok(costs)
}

/// Asks the kernel catalogue whether it takes every call of the model.
pub(crate) fn admit(graph: &Graph<'_>) -> Result<(), StageError> {
    graph.computed().try_for_each(|node| {
        let Derivative { forward, backward } = derivative(graph, node);
        calls(graph, node, &forward)?;
        calls(graph, node, &backward).map(drop)
    })
}

fn first_uses(graph: &Graph<'_>, node: NodeId, seen: &mut BTreeSet<Source>) -> u64 {
    let operands = graph.model.nodes[node].operands.iter();
    let parameters = operands
        .map(|operand| graph.root(*operand))
        .filter(|source| matches!(source, Source::Parameter(_)));
    let fresh = parameters.filter(|source| seen.insert(*source));
    fresh.map(|source| graph.elements(source)).sum()
}

/// The calls of some steps of a node, if the catalogue takes them.
fn calls(
    graph: &Graph<'_>,
    node: NodeId,
    steps: &[Step],
) -> Result<Vec<Call>, StageError> {
    let nowhere = |term: &Term| Operand {
        argument: 0,
        offset: Bytes(0),
        element: term.element,
        shape: term.shape.clone(),
    };
    let one = |step: &Step| {
        let call = step.placed(nowhere);
        match Kernel::parse(&call) {
            Ok(_) => Ok(call),
            Err(problem) => {
                let node = graph.model.nodes[node].name.clone();
                Err(StageError::Malformed { node, problem })
            }
        }
    };
    steps.iter().map(one).collect()
}
