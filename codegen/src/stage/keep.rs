//! What a stage's forward keeps for its backward pass, and what backward computes again.
//!
//! Without recomputation everything is kept that backward calls read, was made in the stage, and
//! does not cross (a value that crosses has a row that both passes see).
//!
//! `selective` computes results again that are cheap for the bytes they take: those of
//! element-wise operations, norms, softmax, pools, moved rows and look-ups, and stored scores, which
//! are a product over the few elements of a head (Korthikanti et al., arXiv 2205.05198). Kept are
//! results of other products, convolutions and attention, and statistics of norms and attention. A cheap result
//! is computed again only from what is kept anyway, over cheap results, of which at most one
//! joins two values: else a residual stream would be followed back to its start.
//!
//! `full` keeps what goes into each layer (Chen et al., arXiv 1604.06174), and computes again what
//! the backward pass of the layer reads.
//!
//! Either way may hold for the first layers of a stage alone. What these need comes from the layers
//! before them, which do the same, so no chain of what is computed again grows longer by that.

use super::{
    call::Tensor,
    flow::Flow,
    graph::Graph,
    hashed::{HashedMap, HashedSet},
    layout::element,
};
use roundelay_dsl::{Motion, NodeId, Operation, Part, Sliced, Source};
use roundelay_schedule::{Bytes, Float, Recompute, Share, Stage};
use std::collections::{BTreeMap, BTreeSet};

/// What a stage keeps.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// In the order in which forward makes it, with the node that makes it.
    pub(crate) tensors: Vec<(NodeId, Tensor, Bytes)>,
    /// What the stage makes, has no row of its own, and does not keep.
    lost: HashedSet<Tensor>,
}

impl Keep {
    /// What a stage keeps under a decision.
    pub(crate) fn new(
        graph: &Graph<'_>,
        flow: &Flow,
        dtype: Float,
        stage: Stage,
        recompute: Recompute,
    ) -> Self {
        let made = made(graph, flow, dtype, stage);
        let read = read(graph, flow, stage);
        let own = made.iter().map(|(_, tensor, _)| *tensor);
        let all = own.filter(|tensor| read.contains(tensor)).collect();
        let kept = Choice { graph, flow, stage, made: &made, read, all }.kept(recompute);
        let (tensors, lost): (Vec<_>, Vec<_>) =
            made.into_iter().partition(|(_, tensor, _)| kept.contains(tensor));
        let lost = lost.into_iter().map(|(_, tensor, _)| tensor).collect();
        Self { tensors, lost }
    }

    /// Whether backward has to compute a tensor again before it can read it.
    pub(crate) fn is_lost(&self, tensor: Tensor) -> bool {
        self.lost.contains(&tensor)
    }
}

/// What may be kept.
struct Choice<'a> {
    graph: &'a Graph<'a>,
    flow: &'a Flow,
    stage: Stage,
    made: &'a [(NodeId, Tensor, Bytes)],
    /// What backward reads.
    read: HashedSet<Tensor>,
    /// What of it the stage makes, in order.
    all: Vec<Tensor>,
}

impl Choice<'_> {
    /// What a way to compute again keeps.
    fn kept(&self, recompute: Recompute) -> HashedSet<Tensor> {
        let Self { graph, flow, stage, made, ref read, ref all } = *self;
        let all = || all.iter().copied();
        match recompute {
            Recompute::None => ungathered(graph, flow, stage, all().collect(), made),
            Recompute::Selective => {
                let again = cheap(graph, flow, stage, read, &all().collect());
                all().filter(|tensor| !again.contains(tensor)).collect()
            }
            Recompute::Full => Full::new(graph, flow, stage, &all().collect())
                .kept()
                .into_iter()
                .collect(),
            Recompute::SelectiveIn(share) | Recompute::FullIn(share) => {
                self.mixed(share, recompute.ways())
            }
        }
    }

    /// What the first layers of the stage keep one way, and all else another.
    fn mixed(&self, share: Share, ways: [Recompute; 2]) -> HashedSet<Tensor> {
        let layers = self.graph.layers();
        let nodes = self.flow.computed(self.graph, self.stage);
        let own: BTreeSet<u32> =
            nodes.filter_map(|node| layers.get(&node).copied()).collect();
        let some: BTreeSet<u32> = own.iter().copied().take(share.of(own.len())).collect();
        let [last, first] = ways.map(|way| self.kept(way));
        let is_kept = |(node, tensor, _): &&(NodeId, Tensor, Bytes)| {
            let is_first = layers.get(node).is_some_and(|layer| some.contains(layer));
            if is_first { first.contains(tensor) } else { last.contains(tensor) }
        };
        self.made.iter().filter(is_kept).map(|(_, tensor, _)| *tensor).collect()
    }
}

/// Results and auxiliaries that a stage makes and that have no row of their own.
fn made(
    graph: &Graph<'_>,
    flow: &Flow,
    dtype: Float,
    stage: Stage,
) -> Vec<(NodeId, Tensor, Bytes)> {
    let mut seen = HashedSet::default();
    let mut made = Vec::new();
    for node in flow.computed(graph, stage) {
        let crosses = flow.value(node).is_some() || node == graph.loss;
        for term in graph.derivative(node).forward.iter().flat_map(|step| &step.terms) {
            let own = match term.tensor {
                Tensor::Source(source) => source == Source::Node(node) && !crosses,
                Tensor::Auxiliary(..) => true,
                _ => false,
            };
            if own && seen.insert(term.tensor) {
                let width = element(graph, dtype, term.tensor, term.element);
                let size = Bytes(term.elements()) * width.size(dtype);
                made.push((node, term.tensor, size));
            }
        }
    }
    made
}

/// What nodes make that the backward calls of a stage's nodes read.
fn read(graph: &Graph<'_>, flow: &Flow, stage: Stage) -> HashedSet<Tensor> {
    let nodes = flow.computed(graph, stage);
    let steps = nodes.flat_map(|node| flow.backward(graph, node));
    let tensors = steps.flat_map(|step| &step.terms).map(|term| term.tensor);
    let is_made = |tensor: &Tensor| {
        matches!(tensor, Tensor::Source(Source::Node(_)) | Tensor::Auxiliary(..))
    };
    tensors.filter(is_made).collect()
}

/// What is gathered from the parts, halos with it, or joined from slices, is gathered again where
/// backward reads it; kept is the own part, as in Megatron's sequence parallelism (arXiv 2205.05198).
fn ungathered(
    graph: &Graph<'_>,
    flow: &Flow,
    stage: Stage,
    mut kept: HashedSet<Tensor>,
    made: &[(NodeId, Tensor, Bytes)],
) -> HashedSet<Tensor> {
    for node in flow.computed(graph, stage) {
        let result = Tensor::Source(Source::Node(node));
        let own = &graph.model.nodes[node];
        if !is_gather(own.operation) || !kept.remove(&result) {
            continue;
        }
        let parts = own.operands.iter().map(|part| Tensor::Source(graph.root(*part)));
        let here = |part: &Tensor| made.iter().any(|(_, tensor, _)| tensor == part);
        kept.extend(parts.filter(here));
    }
    kept
}

fn is_gather(operation: Operation) -> bool {
    match operation {
        Operation::Part { part: Part::Exchange { value, .. }, .. } => {
            matches!(value, Motion::Gather(_))
        }
        Operation::Part { part: Part::Halo { .. }, .. } => true,
        Operation::Sliced(Sliced::Join) => true,
        _ => false,
    }
}

/// How backward can have a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Had {
    /// It is there.
    Kept,
    /// From what is there, over cheap results.
    Again(Joins),
    /// Not without a product.
    Gone,
}

/// Whether a cheap way joins two values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joins {
    None,
    One,
}

/// The kept results that `selective` computes again.
fn cheap(
    graph: &Graph<'_>,
    flow: &Flow,
    stage: Stage,
    read: &HashedSet<Tensor>,
    kept: &HashedSet<Tensor>,
) -> HashedSet<Tensor> {
    let mut had: HashedMap<NodeId, Had> = HashedMap::default();
    let mut again = HashedSet::default();
    let present = |node| match read.contains(&Tensor::Source(Source::Node(node))) {
        true => Had::Kept,
        false => Had::Gone,
    };
    for node in flow.computed(graph, stage) {
        let result = Tensor::Source(Source::Node(node));
        let values = values(graph, node);
        let of = |value: &NodeId| had.get(value).copied().unwrap_or(present(*value));
        let way = match is_cheap(graph.model.nodes[node].operation) {
            true => way(values.iter().map(of)),
            false => Had::Gone,
        };
        let found = match (way, kept.contains(&result)) {
            (Had::Again(joins), true) => {
                again.insert(result);
                Had::Again(joins)
            }
            (Had::Again(joins), false) => Had::Again(joins),
            (_, true) => Had::Kept,
            (_, false) => present(node),
        };
        had.insert(node, found);
    }
    again
}

/// How a cheap result can be had from values that can be had like this.
fn way(values: impl ExactSizeIterator<Item = Had> + Clone) -> Had {
    let joined = values.clone().any(|value| value == Had::Again(Joins::One));
    let gone = values.clone().any(|value| value == Had::Gone);
    match (gone, values.len() > 1, joined) {
        (true, _, _) | (_, true, true) => Had::Gone,
        (_, true, false) | (_, false, true) => Had::Again(Joins::One),
        (_, false, false) => Had::Again(Joins::None),
    }
}

/// The nodes whose results a node reads, each once.
fn values(graph: &Graph<'_>, node: NodeId) -> Vec<NodeId> {
    let operands = graph.model.nodes[node].operands.iter();
    let roots = operands.map(|operand| graph.root(*operand));
    let node = |source| match source {
        Source::Node(node) => Some(node),
        Source::Parameter(_) | Source::Input(_) => None,
    };
    let mut values: Vec<NodeId> = roots.filter_map(node).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Whether a result takes little arithmetic for its bytes.
fn is_cheap(operation: Operation) -> bool {
    match operation {
        Operation::Linear
        | Operation::Conv2d { .. }
        | Operation::Attention { .. }
        | Operation::Mix { .. }
        | Operation::CrossEntropy { .. }
        | Operation::LinearCrossEntropy { .. }
        | Operation::MeanSquaredError
        | Operation::Accuracy { .. } => false,
        Operation::Part { part, .. } => match part {
            Part::Exchange { value, .. } => match value {
                Motion::Keep | Motion::Gather(_) | Motion::Cut(_) => true,
                Motion::Sum | Motion::Scatter(_) => false,
            },
            Part::Embedding { .. }
            | Part::Dropout { .. }
            | Part::LayerNorm { .. }
            | Part::RmsNorm { .. }
            | Part::Halo { .. }
            | Part::BatchNorm
            | Part::GroupNorm { .. } => true,
            Part::CrossEntropy { .. } => false,
        },
        Operation::Embedding
        | Operation::Sliced(_)
        | Operation::Rotary { .. }
        | Operation::Scores { .. }
        | Operation::Rows { .. }
        | Operation::ClassToken
        | Operation::Select { .. }
        | Operation::LayerNorm { .. }
        | Operation::MaxPool { .. }
        | Operation::AvgPool { .. }
        | Operation::GlobalPool
        | Operation::Upsample { .. }
        | Operation::BatchNorm
        | Operation::GroupNorm { .. }
        | Operation::RmsNorm { .. }
        | Operation::Relu
        | Operation::Gelu
        | Operation::GeluTanh
        | Operation::SoftCap { .. }
        | Operation::Silu
        | Operation::Softmax
        | Operation::Dropout { .. }
        | Operation::Add
        | Operation::Multiply
        | Operation::Scale { .. }
        | Operation::Reshape
        | Operation::Boundary(_) => true,
    }
}

/// What `full` keeps of a stage.
struct Full<'a> {
    graph: &'a Graph<'a>,
    flow: &'a Flow,
    stage: Stage,
    layers: &'a BTreeMap<NodeId, u32>,
    all: &'a BTreeSet<Tensor>,
}

impl<'a> Full<'a> {
    fn new(
        graph: &'a Graph<'a>,
        flow: &'a Flow,
        stage: Stage,
        all: &'a BTreeSet<Tensor>,
    ) -> Self {
        Self { graph, flow, stage, layers: graph.layers(), all }
    }

    /// Of what backward reads, what no layer makes for itself alone; and what goes into layers
    /// and is needed to compute the rest again.
    fn kept(self) -> BTreeSet<Tensor> {
        let outside = self.read_outside();
        let inner = |tensor: &Tensor| match tensor {
            Tensor::Source(Source::Node(node)) => {
                self.layers.contains_key(node) && !outside.contains(node)
            }
            Tensor::Auxiliary(node, _) => self.layers.contains_key(node),
            _ => false,
        };
        let (lost, mut kept): (BTreeSet<Tensor>, BTreeSet<Tensor>) =
            self.all.iter().copied().partition(inner);
        let maker = |tensor: &Tensor| match tensor {
            Tensor::Source(Source::Node(node)) | Tensor::Auxiliary(node, _) => *node,
            _ => unreachable!("nothing else is kept"),
        };
        let mut open: Vec<NodeId> = lost.iter().map(maker).collect();
        let mut seen = BTreeSet::new();
        while let Some(node) = open.pop() {
            if !seen.insert(node) {
                continue;
            }
            for value in values(self.graph, node) {
                let here = self.flow.stage(value) == self.stage;
                let result = Tensor::Source(Source::Node(value));
                if !here || self.flow.value(value).is_some() || kept.contains(&result) {
                    continue;
                }
                match self.layers.get(&value) == self.layers.get(&node) {
                    true => open.push(value),
                    false => drop(kept.insert(result)),
                }
            }
        }
        kept
    }

    /// The nodes of the stage whose results are read outside of their layer.
    fn read_outside(&self) -> BTreeSet<NodeId> {
        let nodes = self.flow.computed(self.graph, self.stage);
        let reads = nodes.flat_map(|user| {
            values(self.graph, user).into_iter().map(move |value| (value, user))
        });
        let crossing =
            reads.filter(|(value, user)| self.layers.get(value) != self.layers.get(user));
        crossing.map(|(value, _)| value).collect()
    }
}
