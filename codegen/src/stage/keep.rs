//! What a stage's forward keeps for its backward pass, and what backward computes again.
//!
//! Without recomputation everything is kept that backward calls read, was made in the stage, and
//! does not cross (a value that crosses has a row that both passes see).
//!
//! `selective` computes results again that are cheap for the bytes they take ([`cheap`]).
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

mod cheap;

use self::cheap::{Traffic, values};
use super::{call::Tensor, flow::Staged, hashed::HashedSet, layout::element};
use roundelay_dsl::{Motion, NodeId, Operation, Part, Sliced, Source};
use roundelay_schedule::{Bytes, Element, Float, Recompute, Share};
use std::collections::BTreeSet;

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
