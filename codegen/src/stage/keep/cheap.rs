//! What `selective` computes again: results that are cheap for the bytes they take.
//!
//! These are results of element-wise operations, norms, softmax, pools, moved rows and look-ups, and
//! stored scores, which are a product over the few elements of a head (Korthikanti et al., arXiv
//! 2205.05198). Kept are results of other products, convolutions and attention, and statistics of norms
//! and attention. A cheap result is computed again only from what is kept anyway, over cheap results, of
//! which at most one joins two values: else a residual stream would be followed back to its start.

use super::super::{
    call::Tensor,
    flow::Staged,
    graph::Graph,
    hashed::{HashedMap, HashedSet},
};
use roundelay_dsl::{Motion, NodeId, Operation, Part, Source};
use std::{cmp::Ordering, collections::BTreeSet};

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

impl Staged<'_> {
    /// The kept results that `selective` computes again.
    pub(super) fn cheap(
        self,
        read: &HashedSet<Tensor>,
        kept: &HashedSet<Tensor>,
    ) -> HashedSet<Tensor> {
        let mut had: HashedMap<NodeId, Had> = HashedMap::default();
        let mut again = HashedSet::default();
        let present = |node| {
            let is_read = read.contains(&Tensor::Source(Source::Node(node)));
            if is_read { Had::Kept } else { Had::Gone }
        };
        for node in self.computed() {
            let result = Tensor::Source(Source::Node(node));
            let values = values(self.graph, node);
            let of = |value: &NodeId| had.get(value).copied().unwrap_or(present(*value));
            let is_cheap = is_cheap(self.graph.model.nodes[node].operation);
            let way = if is_cheap { way(values.iter().map(of)) } else { Had::Gone };
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
}

/// Elements that pass between memory and chip where a result is computed again, and those of the result;
/// the less of the first for each of the second, the less it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    moved: u64,
    made: u64,
}

impl Traffic {
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let by =
            |one: &Self, other: &Self| u128::from(one.moved) * u128::from(other.made);
        by(self, other).cmp(&by(other, self))
    }
}

impl Staged<'_> {
    /// What a cheap result takes, from what is there. Results on the way are read where they are made, but
    /// of several that go into one only one is: the others pass through memory.
    pub(super) fn traffic(self, node: NodeId, there: &HashedSet<Tensor>) -> Traffic {
        let Self { graph, flow, stage } = self;
        let elements = |node| graph.elements(Source::Node(node));
        let made = elements(node);
        let mut moved = made;
        let is_between = |value: &NodeId| {
            let is_here = flow.stage(*value) == stage && flow.value(*value).is_none();
            is_here && !there.contains(&Tensor::Source(Source::Node(*value)))
        };
        let (mut open, mut seen) = (vec![node], BTreeSet::new());
        while let Some(user) = open.pop() {
            let fresh =
                values(graph, user).into_iter().filter(|value| seen.insert(*value));
            let (between, read): (Vec<_>, Vec<_>) = fresh.partition(is_between);
            let passed = between.iter().skip(1).flat_map(|value| [*value; 2]);
            let through = passed.chain(read).map(elements);
            moved = through.fold(moved, u64::saturating_add);
            open.extend(between);
        }
        Traffic { moved, made }
    }
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
pub(super) fn values(graph: &Graph<'_>, node: NodeId) -> Vec<NodeId> {
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
        | Operation::Rotary(_)
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
