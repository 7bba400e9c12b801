//! What a backward pass computes again before it reads it: the forward calls that make it, once
//! per pass, over the same operands, so with the same bits. Dropout draws its mask from the same
//! seed; a norm's running statistics are no business of forward calls. Where the statistics of a norm of
//! columns are still there, the norm is made from them, in the same bits.

use super::{
    call::{Step, Tensor, Term},
    derivative::again,
    graph::Graph,
    hashed::HashedSet,
    keep::Keep,
};
use roundelay_dsl::{NodeId, Source};
use std::collections::BTreeSet;

/// The forward calls that are made again while a backward pass is laid down.
pub(crate) struct Again<'a> {
    graph: &'a Graph<'a>,
    keep: &'a Keep,
    done: HashedSet<NodeId>,
}

impl<'a> Again<'a> {
    /// Nothing is made again yet.
    pub(crate) fn new(graph: &'a Graph<'a>, keep: &'a Keep) -> Self {
        Self { graph, keep, done: HashedSet::default() }
    }

    /// The forward calls, in their order, that make what these calls read and is not there.
    pub(crate) fn before<'s>(
        &mut self,
        steps: impl IntoIterator<Item = &'s Step>,
    ) -> Vec<Step> {
        self.before_terms(steps.into_iter().flat_map(|step| &step.terms))
    }

    /// The same for some terms of calls.
    pub(crate) fn before_terms<'s>(
        &mut self,
        read: impl IntoIterator<Item = &'s Term>,
    ) -> Vec<Step> {
        let read = read.into_iter();
        let mut open: Vec<NodeId> =
            read.filter_map(|term| self.maker(term.tensor)).collect();
        let mut nodes = BTreeSet::new();
        while let Some(node) = open.pop() {
            if self.done.insert(node) {
                nodes.insert(node);
                let forward = &self.graph.derivative(node).forward;
                let read = forward.iter().flat_map(|step| &step.terms);
                open.extend(read.filter_map(|term| self.maker(term.tensor)));
            }
        }
        nodes.into_iter().flat_map(|node| self.forward(node)).collect()
    }

    /// The node that makes a tensor that is not there.
    fn maker(&self, tensor: Tensor) -> Option<NodeId> {
        match tensor {
            Tensor::Source(Source::Node(node)) | Tensor::Auxiliary(node, _) => {
                self.keep.is_lost(tensor).then_some(node)
            }
            _ => None,
        }
    }

    /// The call that makes a node's result from what is still there of it, if there is one.
    fn by_what_is_kept(&self, node: NodeId) -> Option<Step> {
        let step = again(self.graph, node)?;
        let mut terms = step.terms.iter();
        let is_lost = terms.any(|term| match term.tensor {
            Tensor::Auxiliary(..) => self.keep.is_lost(term.tensor),
            _ => false,
        });
        (!is_lost).then_some(step)
    }

    /// The forward calls of a node. What they make and is still there goes to scratch.
    fn forward(&self, node: NodeId) -> Vec<Step> {
        if let Some(step) = self.by_what_is_kept(node) {
            return vec![step];
        }
        let mut steps = self.graph.derivative(node).forward.clone();
        let mut there = vec![Tensor::Source(Source::Node(node))];
        for term in steps.iter_mut().flat_map(|step| &mut step.terms) {
            let own = match term.tensor {
                Tensor::Source(source) => source == Source::Node(node),
                Tensor::Auxiliary(..) | Tensor::Scratch(..) | Tensor::Unwanted(..) => {
                    true
                }
                _ => false,
            };
            if own && !self.keep.is_lost(term.tensor) {
                let known = there.iter().position(|tensor| *tensor == term.tensor);
                let number = known.unwrap_or_else(|| {
                    there.push(term.tensor);
                    there.len() - 1
                });
                let number = u32::try_from(number).expect("a node makes few tensors");
                term.tensor = Tensor::Again(node, number);
            }
        }
        steps
    }
}
