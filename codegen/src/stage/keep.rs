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
//! Whole numbers are never kept: those that a stage makes it cuts out of an input, and each pass cuts
//! them out for itself. So the checker knows in every pass what may be looked up by them.
//!
//! `selective` may hold for a share of what it saves: then those of its results are computed again that
//! take least traffic for the bytes they save, up to the share; of equal ones the smaller, and those that
//! are made first. `full` may hold for the first layers of a stage alone. What these need comes from the layers before
//! them, which do the same, so no chain of what is computed again grows longer by that.

use super::{
    call::Tensor,
    flow::Staged,
    graph::Graph,
    hashed::{HashedMap, HashedSet},
    layout::element,
};
use roundelay_dsl::{Motion, NodeId, Operation, Part, Sliced, Source};
use roundelay_schedule::{Bytes, Element, Float, Recompute, Share};
use std::{cmp::Ordering, collections::BTreeSet};

/// What a stage keeps.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// In the order in which forward makes it.
    pub(crate) tensors: Vec<Made>,
    /// What the stage makes, has no row of its own, and does not keep.
    lost: HashedSet<Tensor>,
}

/// A result or an auxiliary that a stage makes and that has no row of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// The node that makes it.
    pub(crate) node: NodeId,
    pub(crate) tensor: Tensor,
    element: Element,
    pub(crate) size: Bytes,
}

impl Keep {
    /// What a stage keeps under a decision.
    pub(crate) fn new(at: Staged<'_>, dtype: Float, recompute: Recompute) -> Self {
        let made = at.made(dtype);
        let kept = Keeping::new(at, &made).kept(recompute);
        let (tensors, lost): (Vec<_>, Vec<_>) = made.into_iter().partition(|made| {
            kept.contains(&made.tensor) && made.element != Element::I32
        });
        Self { tensors, lost: tensors_of(&lost) }
    }

    /// Whether backward has to compute a tensor again before it can read it.
    pub(crate) fn is_lost(&self, tensor: Tensor) -> bool {
        self.lost.contains(&tensor)
    }
}

fn tensors_of(made: &[Made]) -> HashedSet<Tensor> {
    made.iter().map(|made| made.tensor).collect()
}

/// What a stage may keep.
struct Keeping<'a> {
    at: Staged<'a>,
    made: &'a [Made],
    /// What backward reads of what nodes make, in this stage or before it.
    read: HashedSet<Tensor>,
    /// What of it the stage makes, in order.
    all: Vec<Made>,
}

impl<'a> Keeping<'a> {
    fn new(at: Staged<'a>, made: &'a [Made]) -> Self {
        let read = at.read();
        let all = made.iter().copied().filter(|made| read.contains(&made.tensor));
        Self { at, made, all: all.collect(), read }
    }

    /// What a way to compute again keeps.
    fn kept(&self, recompute: Recompute) -> HashedSet<Tensor> {
        let Self { at, made, all, .. } = self;
        match recompute {
            Recompute::None => at.ungathered(tensors_of(all), made),
            Recompute::SelectiveIn(share) => self.without(&self.cheapest(share)),
            Recompute::Selective => self.without(&self.cheap()),
            Recompute::FullIn(share) => self.mixed(share, recompute.ways()),
            Recompute::Full => Full { at: *at, all }.kept(),
        }
    }

    /// Results that are computed again where that is cheap.
    fn cheap(&self) -> HashedSet<Tensor> {
        self.at.cheap(&self.read, &tensors_of(&self.all))
    }

    fn without(&self, again: &HashedSet<Tensor>) -> HashedSet<Tensor> {
        let all = self.all.iter().map(|made| made.tensor);
        all.filter(|tensor| !again.contains(tensor)).collect()
    }

    /// Of the cheap results those that take least traffic for what they save, until that is a share of
    /// what all save.
    fn cheapest(&self, share: Share) -> HashedSet<Tensor> {
        let (cheap, there) = (self.cheap(), tensors_of(&self.all));
        let made = self.all.iter().filter(|made| cheap.contains(&made.tensor));
        let mut made: Vec<(&Made, Traffic)> =
            made.map(|made| (made, self.at.traffic(made.node, &there))).collect();
        // What is small comes closer to the share.
        made.sort_by(|(one, traffic), (other, others)| {
            traffic.cmp(others).then(one.size.cmp(&other.size))
        });
        let all = made.iter().map(|(made, _)| made.size).sum();
        let wanted = share.of_bytes(all);
        let mut saved = Bytes(0);
        let mut again = HashedSet::default();
        for (made, _) in made {
            if saved < wanted {
                again.insert(made.tensor);
                saved += made.size;
            }
        }
        again
    }

    /// What the first layers of the stage keep one way, and all else another.
    fn mixed(&self, share: Share, ways: [Recompute; 2]) -> HashedSet<Tensor> {
        let layers = self.at.graph.layers();
        let nodes = self.at.computed();
        let numbers: BTreeSet<u32> =
            nodes.filter_map(|node| layers.get(&node).copied()).collect();
        let count = share.of(numbers.len());
        let first: BTreeSet<u32> = numbers.into_iter().take(count).collect();
        let [by_last, by_first] = ways.map(|way| self.kept(way));
        let is_kept = |made: &&Made| {
            let is_first =
                layers.get(&made.node).is_some_and(|layer| first.contains(layer));
            if is_first { &by_first } else { &by_last }.contains(&made.tensor)
        };
        self.made.iter().filter(is_kept).map(|made| made.tensor).collect()
    }
}

impl Staged<'_> {
    /// Results and auxiliaries that the stage makes and that have no row of their own.
    fn made(self, dtype: Float) -> Vec<Made> {
        let Self { graph, flow, .. } = self;
        let mut seen = HashedSet::default();
        let mut made = Vec::new();
        for node in self.computed() {
            let crosses = flow.value(node).is_some() || node == graph.loss;
            let steps = &graph.derivative(node).forward;
            for term in steps.iter().flat_map(|step| &step.terms) {
                let tensor = term.tensor;
                let is_made = match tensor {
                    Tensor::Source(source) => source == Source::Node(node) && !crosses,
                    Tensor::Auxiliary(..) => true,
                    _ => false,
                };
                if is_made && seen.insert(tensor) {
                    let element = element(graph, dtype, tensor, term.element);
                    let size = Bytes(term.elements()) * element.size(dtype);
                    made.push(Made { node, tensor, element, size });
                }
            }
        }
        made
    }

    /// What nodes make that the backward calls of the stage's nodes read.
    fn read(self) -> HashedSet<Tensor> {
        let steps = self.computed().flat_map(|node| self.flow.backward(self.graph, node));
        let tensors = steps.flat_map(|step| &step.terms).map(|term| term.tensor);
        let is_made = |tensor: &Tensor| {
            matches!(tensor, Tensor::Source(Source::Node(_)) | Tensor::Auxiliary(..))
        };
        tensors.filter(is_made).collect()
    }

    /// What is gathered from the parts, halos with it, or joined from slices, is gathered again
    /// where backward reads it; kept is the device's part, as in Megatron's sequence parallelism
    /// (arXiv 2205.05198).
    fn ungathered(self, mut kept: HashedSet<Tensor>, made: &[Made]) -> HashedSet<Tensor> {
        for node in self.computed() {
            let result = Tensor::Source(Source::Node(node));
            let gather = &self.graph.model.nodes[node];
            if !is_gather(gather.operation) || !kept.remove(&result) {
                continue;
            }
            let operands = gather.operands.iter();
            let parts = operands.map(|part| Tensor::Source(self.graph.root(*part)));
            let is_here = |part: &Tensor| made.iter().any(|made| made.tensor == *part);
            kept.extend(parts.filter(is_here));
        }
        kept
    }
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

impl Staged<'_> {
    /// The kept results that `selective` computes again.
    fn cheap(
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
struct Traffic {
    moved: u64,
    made: u64,
}

impl Traffic {
    fn cmp(&self, other: &Self) -> Ordering {
        let by =
            |one: &Self, other: &Self| u128::from(one.moved) * u128::from(other.made);
        by(self, other).cmp(&by(other, self))
    }
}

impl Staged<'_> {
    /// What a cheap result takes, from what is there. Results on the way are read where they are made, but
    /// of several that go into one only one is: the others pass through memory.
    fn traffic(self, node: NodeId, there: &HashedSet<Tensor>) -> Traffic {
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

/// What `full` keeps of a stage.
struct Full<'a> {
    at: Staged<'a>,
    /// What backward reads and the stage makes.
    all: &'a [Made],
}

impl Full<'_> {
    /// Of what backward reads, what no layer makes for itself alone; and what goes into layers
    /// and is needed to compute the rest again.
    fn kept(self) -> HashedSet<Tensor> {
        let Staged { graph, flow, stage } = self.at;
        let layers = graph.layers();
        let outside = self.read_outside();
        let is_inner = |made: &Made| {
            let is_result = matches!(made.tensor, Tensor::Source(_));
            layers.contains_key(&made.node)
                && !(is_result && outside.contains(&made.node))
        };
        let (lost, kept): (Vec<Made>, Vec<Made>) =
            self.all.iter().copied().partition(is_inner);
        let mut kept = tensors_of(&kept);
        let mut open: Vec<NodeId> = lost.iter().map(|made| made.node).collect();
        let mut seen = BTreeSet::new();
        while let Some(node) = open.pop() {
            if !seen.insert(node) {
                continue;
            }
            for value in values(graph, node) {
                let is_here = flow.stage(value) == stage;
                let result = Tensor::Source(Source::Node(value));
                if !is_here || flow.value(value).is_some() || kept.contains(&result) {
                    continue;
                }
                if layers.get(&value) == layers.get(&node) {
                    open.push(value);
                } else {
                    kept.insert(result);
                }
            }
        }
        kept
    }

    /// The nodes of the stage whose results are read outside of their layer.
    fn read_outside(&self) -> BTreeSet<NodeId> {
        let layers = self.at.graph.layers();
        let reads = self.at.computed().flat_map(|user| {
            let values = values(self.at.graph, user);
            values.into_iter().map(move |value| (value, user))
        });
        let crossing =
            reads.filter(|(value, user)| layers.get(value) != layers.get(user));
        crossing.map(|(value, _)| value).collect()
    }
}
