//! A backward pass in two halves (arXiv 2401.10241): I makes the gradients of values, W adds to
//! the gradients of parameters, any time later.
//!
//! W has the products that make gradients of matrices and filters, the sums of their biases, and
//! look-ups. All other parameter gradients are small and made by the way: I makes them, keeps
//! them, and W only adds them. So the gradient sum of a stage has one author. What W reads of I
//! is the adjoint: gradients of values that its products take, and those small gradients.
//!
//! What is computed again is so in I, for both; but each cuts out the whole numbers that it reads.
//!
//! Where a gradient hops back to the value of a unit ([`super::hop`]), this is how its head is
//! halved; I and W each take the trunk on their own.
//!
//! But for such trunks, which no whole backward pass takes back, bits are those of the whole
//! backward pass: each half makes the same calls in the same order, and [`made`] says, for both
//! forms, which parameter gradients are whole and rounded before they are added to their sums.

use super::{
    accumulate::{Accumulation, Kept},
    again::Again,
    backward::{Sum, begin},
    call::{Step, Tensor, Term, call},
    flow::Staged,
    hashed::HashedSet,
    hop::Hopping,
    keep::Keep,
};
use crate::tensor::Strand;
use roundelay_dsl::{NodeId, Source};
use roundelay_schedule::Element;
use std::collections::BTreeSet;

/// The two halves, before anything has an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halves {
    /// The calls of I.
    pub(crate) input: Vec<Step>,
    /// The calls of W, node by node; parameters are contributed to.
    pub(crate) weight: Vec<(NodeId, Vec<Step>)>,
    /// What I keeps for W, in the order in which I makes it, with its number of elements.
    pub(crate) adjoint: Vec<(Tensor, u64)>,
    /// The nodes to whose gradients I adds.
    pub(crate) added: BTreeSet<NodeId>,
}

impl Halves {
    /// The halves of a stage's backward pass.
    pub(crate) fn new(at: Staged<'_>, keep: &Keep) -> Self {
        let Staged { graph, flow, stage } = at;
        let mut halves = Self::default();
        let mut sums = begin(flow, stage, Sum::First);
        let [mut again, mut by_weight] = [(); 2].map(|()| Again::new(graph, keep));
        let hop = Hopping::of(at);
        let nodes: Vec<NodeId> = at.computed().rev().collect();
        let is_trunk = |node: &NodeId| hop.is_some_and(|hop| hop.is_trunk(*node));
        let (trunk, head): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_trunk);
        for node in head {
            let Parted { input, weight } =
                part(node, flow.backward(graph, node).to_vec());
            let terms = weight.iter().flat_map(|step| &step.terms);
            let (numbers, reals): (Vec<&Term>, Vec<&Term>) =
                terms.partition(|term| term.element == Element::I32);
            let own = input.iter().flat_map(|step| &step.terms);
            halves.input.extend(again.before_terms(own.chain(reals.iter().copied())));
            halves.keep_again(keep, &reals);
            let mut made = by_weight.before_terms(numbers);
            made.extend(halves.keep(&mut sums, node, &input, weight));
            halves.input.extend(sums.lay(node, input));
            if !made.is_empty() {
                halves.weight.push((node, made));
            }
        }
        if let Some(hop) = hop {
            halves.take_back(at, &mut sums, [&mut again, &mut by_weight], (hop, &trunk));
        }
        let nodes = graph.computed();
        halves.added = nodes.filter(|node| sums.added(Source::Node(*node))).collect();
        halves
    }

    /// The trunk of a unit: I hands on the gradient of its own loss, W trains it by what hopped
    /// back. Each computes again what it reads.
    fn take_back<'a>(
        &mut self,
        Staged { graph, flow, .. }: Staged<'_>,
        sums: &mut Accumulation,
        [input, weight]: [&mut Again<'a>; 2],
        (hop, trunk): (Hopping, &[NodeId]),
    ) {
        if hop.keeps_gradient() {
            let value = Source::Node(hop.value);
            let gradient = Tensor::Gradient(value);
            let from = Term::real(gradient, &graph.shape(value)).flat();
            let kept = Term { tensor: Tensor::Adjoint(hop.value), ..from.clone() };
            self.adjoint.push((kept.tensor, kept.elements()));
            self.input.extend(sums.lay(hop.value, vec![call("copy", [from, kept])]));
        }
        self.weight.push(hop.begun(graph));
        for node in trunk {
            let steps = flow.backward(graph, *node);
            let handed_on = hop.handed_on(steps);
            self.input.extend(input.before(&handed_on));
            self.input.extend(sums.lay(*node, handed_on));
            let trained = hop.trained(graph, steps);
            let mut made = weight.before(&trained);
            made.extend(trained);
            if !made.is_empty() {
                self.weight.push((*node, made));
            }
        }
    }

    /// The tensors that W reads.
    pub(crate) fn read_by_weight(&self) -> HashedSet<Tensor> {
        let steps = self.weight.iter().flat_map(|(_, steps)| steps);
        steps.flat_map(|step| &step.terms).map(|term| term.tensor).collect()
    }

    /// What W reads and forward lost stays in the adjoint when I has made it again.
    fn keep_again(&mut self, keep: &Keep, read: &[&Term]) {
        for term in read {
            let known = self.adjoint.iter().any(|(tensor, _)| *tensor == term.tensor);
            if keep.is_lost(term.tensor) && !known {
                self.adjoint.push((term.tensor, term.elements()));
            }
        }
    }

    /// Puts what a node's W reads into the adjoint: the gradient of the node, whole by now, in
    /// the place where it lies, or copied where it lies in a row that crosses stages.
    fn keep(
        &mut self,
        sums: &mut Accumulation,
        node: NodeId,
        input: &[Step],
        mut weight: Vec<Step>,
    ) -> Vec<Step> {
        let gradient = Tensor::Gradient(Source::Node(node));
        let strand = weight.first().map_or(Strand::All, |step| step.strand);
        let mut terms = weight.iter_mut().flat_map(|step| &mut step.terms);
        if let Some(read) = terms.find(|term| term.tensor == gradient).cloned() {
            let place = match sums.keep(node) {
                Kept::InPlace(place) => place,
                Kept::Copied(place) => {
                    let from = read.clone().flat();
                    let to = Term { tensor: place, ..from.clone() };
                    let copy = call("copy", [from, to]).of(strand);
                    self.input.extend(sums.lay(node, vec![copy]));
                    place
                }
            };
            self.adjoint.push((place, read.elements()));
            for term in weight.iter_mut().flat_map(|step| &mut step.terms) {
                if term.tensor == gradient {
                    term.tensor = place;
                }
            }
        }
        let made = input.iter().flat_map(|step| &step.terms);
        let small = made.filter(|term| matches!(term.tensor, Tensor::Aside(..)));
        self.adjoint.extend(small.map(|term| (term.tensor, term.elements())));
        weight
    }
}

/// A node's backward calls, each in its half.
struct Parted {
    input: Vec<Step>,
    weight: Vec<Step>,
}

/// The backward calls of a node that I makes.
pub(crate) fn first_half(node: NodeId, steps: Vec<Step>) -> Vec<Step> {
    part(node, steps).input
}

fn part(node: NodeId, steps: Vec<Step>) -> Parted {
    let mut parted = Parted { input: Vec::new(), weight: Vec::new() };
    let mut number = 0;
    for one in made(steps) {
        let mut step = match one {
            Made::Own(step) => {
                let Parted { input, weight } = &mut parted;
                if parameters(&step) { weight } else { input }.push(step);
                continue;
            }
            Made::Aside(step) => step,
        };
        for term in step.terms.iter_mut().filter(|term| is_parameter(term)) {
            let kept = Term { tensor: Tensor::Aside(node, number), ..term.clone() };
            number += 1;
            let target = std::mem::replace(term, kept.clone());
            let copy = call("copy", [kept.flat(), target.flat()]);
            parted.weight.push(copy.of(step.strand));
        }
        parted.input.push(step);
    }
    parted
}

/// A backward call, by how it makes the gradients of parameters.
pub(crate) enum Made {
    /// By the way, beside those of values; or small ones, of a node that has nothing else to make.
    Aside(Step),
    /// For their own sake, or none at all.
    Own(Step),
}

impl Made {
    /// The call.
    pub(crate) fn step(&self) -> &Step {
        let (Self::Aside(step) | Self::Own(step)) = self;
        step
    }

    /// The call itself.
    pub(crate) fn into_step(self) -> Step {
        let (Self::Aside(step) | Self::Own(step)) = self;
        step
    }
}

/// The backward calls of one node. A call for parameters alone is not made by the way where one of
/// the node's is a product or a look-up, whose inputs W has at hand.
pub(crate) fn made(steps: Vec<Step>) -> impl Iterator<Item = Made> {
    let heavy = steps.iter().any(is_heavy);
    steps.into_iter().map(move |step| {
        let alone = !step.terms.iter().any(is_value);
        if parameters(&step) && !(heavy && alone) {
            Made::Aside(step)
        } else {
            Made::Own(step)
        }
    })
}

/// Products and look-ups: what W is for.
fn is_heavy(step: &Step) -> bool {
    let kernels =
        ["matmul", "conv2d_weights", "embedding_backward", "embedding_part_backward"];
    kernels.contains(&step.kernel) && parameters(step)
}

fn parameters(step: &Step) -> bool {
    step.terms.iter().any(is_parameter)
}

/// Whether a call adds to the gradient of a parameter there.
pub(crate) fn is_parameter(term: &Term) -> bool {
    matches!(term.tensor, Tensor::Contribution(Source::Parameter(_)))
}

fn is_value(term: &Term) -> bool {
    matches!(term.tensor, Tensor::Contribution(Source::Node(_)))
}
