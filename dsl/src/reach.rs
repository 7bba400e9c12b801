//! Which nodes of a model a loss depends on, and which depend on parameters.

use crate::{Model, NodeId, Operation, Source};
use roundelay_schedule::{Hop, Id};

impl Operation {
    /// Whether gradients go on to its operands.
    pub fn passes_gradient(self) -> bool {
        self != Operation::Boundary(Hop::None)
    }
}

impl Model {
    /// Per node whether one of these depends on it through operations that pass, or is it.
    pub fn needed(
        &self,
        ends: impl IntoIterator<Item = NodeId>,
        passes: impl Fn(Operation) -> bool,
    ) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        ends.into_iter().for_each(|end| needed[end.index()] = true);
        for (id, node) in self.nodes.iter().rev() {
            if needed[id.index()] && passes(node.operation) {
                for operand in &node.operands {
                    if let Source::Node(above) = operand {
                        needed[above.index()] = true;
                    }
                }
            }
        }
        needed
    }

    /// Per node whether it depends on a parameter behind the last stop.
    pub fn trained(&self) -> Vec<bool> {
        self.behind(|source| matches!(source, Source::Parameter(_)))
    }

    /// Per node whether it depends on a parameter or an input that is trained behind the last stop.
    pub(crate) fn behind(&self, is_trained: impl Fn(Source) -> bool) -> Vec<bool> {
        let mut behind: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.values() {
            let depends = |operand: &Source| match operand {
                Source::Node(above) => behind[above.index()],
                Source::Parameter(_) | Source::Input(_) => is_trained(*operand),
            };
            let depends = node.operands.iter().any(depends);
            behind.push(node.operation.passes_gradient() && depends);
        }
        behind
    }
}
