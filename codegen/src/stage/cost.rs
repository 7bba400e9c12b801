//! What every node of a model costs on its own, for the choice of cut points.

use super::{
    Piece, StageError, StageForm, Storage, Variant,
    accumulate::Accumulation,
    call::{self, Step, Term},
    derivative::Derivative,
    flow::Flow,
    fuse::{Made, Rewriting, fuse_nodes},
    graph::Graph,
    halves::first_half,
    hashed::HashedSet,
    interleave::going_on,
    layout::Layout,
    share::handed_on,
};
use crate::rewrite::LoweringChoice;
use roundelay_dsl::{Model, NodeId, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Bytes, Call, Element, Float, Id, Pass, Stage, Tensor};

/// What one node adds to the stage that has it, for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCost {
    /// Its forward calls.
    pub forward: PassCost,
    /// Its backward calls, as the uncut model makes them for its first micro-batch if no other node
    /// uses its parameters.
    pub backward: PassCost,
    /// The backward calls of the first half, where the backward pass is in two.
    pub turn: PassCost,
    /// Elements of the parameters that it is the first to use.
    pub parameters: u64,
    /// Whether its backward calls read parameters.
    pub reads: bool,
    /// What it makes that the backward pass of the uncut model reads.
    pub kept: Bytes,
    /// The layer that it belongs to, where layers repeat.
    pub layer: Option<u32>,
    /// Size of its result: what crosses a cut, and comes back as gradient.
    pub output: Bytes,
}

/// What one node adds to one pass: the calls without what is contained in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassCost {
    /// Every call, without places; none for views and for nodes that the loss does not need.
    pub calls: Vec<Call>,
    /// The call of a neighbouring node, counted there, that the first of these calls does as
    /// well where no cut parts the two.
    pub contained: Vec<Call>,
}

/// The cost of every node, in the model's order, for micro-batches of `examples`, on one device
/// among those that split tensors, where calls become one as `choice` says.
///
/// # Errors
/// A malformed model, a loss without a gradient kernel, nothing that can be split.
pub fn node_costs(
    model: &Model,
    (examples, tensor): (u64, Tensor),
    dtype: Float,
    choice: &dyn LoweringChoice,
) -> Result<Vec<NodeCost>, StageError> {
    let piece = Piece::new(model, (&[], tensor), choice)?;
    piece.admit(examples)?;
    piece.node_costs(examples, dtype, choice)
}

impl Piece<'_> {
    /// Asks the kernel catalogue whether it takes every call of the nodes, for micro-batches of
    /// `examples`.
    ///
    /// # Errors
    /// The first node with a call that it does not take.
    pub fn admit(&self, examples: u64) -> Result<(), StageError> {
        admit(&self.variant.graph(self.model, examples)?)
    }

    /// As [`node_costs`], of the nodes of the model that was cut, for whoever wants them for
    /// several sizes of micro-batches. Calls are those that [`Piece::admit`] takes, or not: who
    /// prices them asks the catalogue as well.
    ///
    /// # Errors
    /// As [`node_costs`], but for calls that the catalogue does not take.
    pub fn node_costs(
        &self,
        examples: u64,
        dtype: Float,
        choice: &dyn LoweringChoice,
    ) -> Result<Vec<NodeCost>, StageError> {
        let graph = self.variant.graph(self.model, examples)?;
        let found = graph_costs(&graph, dtype, self.variant.rewriting(choice))?;
        let Variant::Derived { parted, layers } = &self.variant else { return Ok(found) };
        let mut costs = vec![NodeCost::default(); self.model.nodes.len()];
        for (cost, node) in found.into_iter().zip(&parted.origin) {
            costs[node.index()].take(cost);
        }
        // `Variant::graph` has found them above.
        for (node, layer) in layers.get().into_iter().flatten() {
            costs[node.index()].layer = Some(*layer);
        }
        Ok(costs)
    }
}

impl NodeCost {
    /// Adds the cost of the next operation that belongs to the node.
    fn take(&mut self, next: NodeCost) {
        for (all, more) in [
            (&mut self.forward, next.forward),
            (&mut self.backward, next.backward),
            (&mut self.turn, next.turn),
        ] {
            all.calls.extend(more.calls);
            all.contained.extend(more.contained);
        }
        self.parameters += next.parameters;
        self.reads |= next.reads;
        self.kept += next.kept;
        self.output = next.output;
    }
}

fn graph_costs(
    graph: &Graph<'_>,
    dtype: Float,
    rewriting: Rewriting<'_>,
) -> Result<Vec<NodeCost>, StageError> {
    let flow = Flow::new(graph, (&[], 1))?;
    let form = ([Stage::new(0)], |_| StageForm::default());
    let layout =
        Layout::new(graph, &flow, Storage { dtype, padding: 1 }, form, rewriting);
    let mut costs = vec![NodeCost::default(); graph.model.nodes.len()];
    let mut seen = HashedSet::default();
    for node in graph.computed() {
        let elements = graph.elements(Source::Node(node));
        let cost = &mut costs[node.index()];
        cost.parameters = first_uses(graph, node, &mut seen);
        cost.reads = reads_back(graph, node);
        cost.output = Bytes(elements) * dtype.size();
        cost.layer = graph.layers().get(&node).copied();
    }
    for made in &layout.keep(Stage::new(0)).tensors {
        costs[made.node.index()].kept += made.size;
    }
    let forward = graph.computed().flat_map(|node| {
        let steps = graph.derivative(node).forward.iter();
        steps.map(move |step| (node, step.clone()))
    });
    let pass: fn(&mut NodeCost) -> &mut PassCost = |cost| &mut cost.forward;
    add_pass(&layout, &mut costs, forward.collect(), (Pass::Forward, pass));
    let backward = laid((graph, &flow), &seen, |_, steps| steps);
    let pass: fn(&mut NodeCost) -> &mut PassCost = |cost| &mut cost.backward;
    add_pass(&layout, &mut costs, backward, (Pass::Backward, pass));
    let turn = laid((graph, &flow), &seen, first_half);
    let pass: fn(&mut NodeCost) -> &mut PassCost = |cost| &mut cost.turn;
    add_pass(&layout, &mut costs, turn, (Pass::InputGradient, pass));
    Ok(costs)
}

/// What the uncut model takes of the backward calls of each node, laid down for its first
/// micro-batch; sums in `fixed` have a place of their own.
fn laid(
    (graph, flow): (&Graph<'_>, &Flow),
    fixed: &HashedSet<Source>,
    taken: impl Fn(NodeId, Vec<Step>) -> Vec<Step>,
) -> Vec<(NodeId, Step)> {
    let mut gradients = Accumulation::new(HashedSet::default(), fixed.clone());
    let backward = graph.computed().rev().flat_map(|node| {
        let steps = taken(node, flow.backward(graph, node).to_vec());
        // Another stage may have the other users of its parameters.
        for operand in &graph.model.nodes[node].operands {
            let source = graph.root(*operand);
            if matches!(source, Source::Parameter(_)) {
                gradients.renew(source);
            }
        }
        gradients.lay(node, steps).into_iter().map(move |step| (node, step))
    });
    backward.collect()
}

/// Fuses the calls of a pass of the uncut model, and adds each to the cost of its node.
fn add_pass(
    layout: &Layout<'_>,
    costs: &mut [NodeCost],
    steps: Vec<(NodeId, Step)>,
    (direction, pass): (Pass, fn(&mut NodeCost) -> &mut PassCost),
) {
    let kept = |tensor| layout.home(tensor, (direction, Stage::new(0))).is_some();
    let called = |step| call(step, |term| layout.element(term));
    for made in fuse_nodes(steps, &layout.rewriting, kept) {
        // Which copies of gradients a stage needs depends on where it is cut, so none is sure.
        if handed_on(&made.step).is_some() {
            continue;
        }
        if let Some((node, least)) = moved(&made) {
            pass(&mut costs[node.index()]).calls.push(called(least.clone()));
            continue;
        }
        let mut inner = None;
        for (node, step) in made.contains {
            let inside = called(sure(layout.graph, node, step));
            let cost = pass(&mut costs[node.index()]);
            cost.contained.extend(inner);
            cost.calls.push(inside.clone());
            inner = Some(inside);
        }
        let cost = pass(&mut costs[made.node.index()]);
        cost.contained.extend(inner);
        cost.calls.push(called(sure(layout.graph, made.node, made.step)));
    }
}

/// What a call of a node does wherever the model is cut. Of one that a node has beside another, that is the
/// call which it has elsewhere: it passes no more over memory. Nor does the call that is both, together
/// with the other node's own.
fn sure(graph: &Graph<'_>, node: NodeId, step: Step) -> Step {
    let beside = graph.beside(node).map_or(&[][..], |beside| &beside.backward);
    let mut pairs = beside.iter().zip(&graph.derivative(node).backward);
    match pairs.find(|(known, _)| known.kernel == step.kernel) {
        Some((_, elsewhere)) => Step { attributes: step.attributes, ..elsewhere.clone() },
        None => step,
    }
}

/// Where moves of several nodes went together, the first of them with the least that it does, cut off
/// or not: a sum that is cut into parts is a scattered one, and the others do nothing that is sure. What
/// one call does instead of two may take longer than the second of them alone.
fn moved(made: &Made<NodeId>) -> Option<(NodeId, &Step)> {
    let (node, first) = made.contains.first()?;
    let moves = ["part", "reduce_scatter", "all_reduce"];
    let rank = |step: &&Step| moves.iter().position(|kernel| *kernel == step.kernel);
    rank(&first)?;
    let later = made.contains.iter().map(|(_, step)| step).chain([&made.step]);
    let least = later.min_by_key(|step| rank(step).unwrap_or(moves.len()))?;
    Some((*node, least))
}

/// Asks the kernel catalogue whether it takes every call of the model.
pub(crate) fn admit(graph: &Graph<'_>) -> Result<(), StageError> {
    graph.computed().try_for_each(|node| {
        let Derivative { forward, backward } = graph.derivative(node);
        let beside = graph.beside(node).into_iter().flat_map(|beside| &beside.backward);
        forward.iter().chain(backward).chain(beside).try_for_each(|step| {
            let call = call(step.clone(), |term| term.element);
            Kernel::parse(&call).map(drop).map_err(|problem| {
                let node = graph.model.nodes[node].name.clone();
                StageError::Malformed { node, problem }
            })
        })
    })
}

fn first_uses(graph: &Graph<'_>, node: NodeId, seen: &mut HashedSet<Source>) -> u64 {
    let operands = graph.model.nodes[node].operands.iter();
    let parameters = operands
        .map(|operand| graph.root(*operand))
        .filter(|source| matches!(source, Source::Parameter(_)));
    let fresh = parameters.filter(|source| seen.insert(*source));
    fresh.map(|source| graph.elements(source)).sum()
}

/// Whether the backward calls of a node read parameters.
fn reads_back(graph: &Graph<'_>, node: NodeId) -> bool {
    let mut terms = graph.derivative(node).backward.iter().flat_map(|step| &step.terms);
    terms.any(|term| matches!(term.tensor, call::Tensor::Source(Source::Parameter(_))))
}

/// The call of a step, without places.
fn call(step: Step, element: impl Fn(&Term) -> Element) -> Call {
    going_on(step).unplaced(element)
}
