//! The terms of what is minimised. ∂loss/∂loss = 1 goes down through sums and factors to losses that
//! make a gradient of their own, so each term has a constant one; nothing else may read a term.

use crate::{Model, NodeId, Operation, Part, Source};
use roundelay_schedule::Id;

/// What keeps losses from being minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongLoss {
    /// This is a term, and no loss.
    Term(Source),
    /// A loss is used inside the model.
    Inside {
        /// The loss.
        loss: NodeId,
        /// Whose operand it is.
        user: NodeId,
    },
}

impl Operation {
    /// Whether it makes a loss, which has a gradient where it is a term.
    fn is_loss(self) -> bool {
        matches!(
            self,
            Operation::CrossEntropy { .. }
                | Operation::LinearCrossEntropy { .. }
                | Operation::MeanSquaredError
                | Operation::Part { part: Part::CrossEntropy { .. }, .. }
        )
    }
}

impl Model {
    /// Per node ∂loss/∂result, where it is a term of what is minimised; `trained` says which nodes
    /// depend on what is trained.
    ///
    /// # Errors
    /// What has no gradient.
    pub fn terms(&self, trained: &[bool]) -> Result<Vec<Option<f64>>, WrongLoss> {
        let mut weights: Vec<Option<f64>> = vec![None; self.nodes.len()];
        for loss in self.minimised() {
            *weights[loss.index()].get_or_insert(0.0) += 1.0;
        }
        for (id, node) in self.nodes.iter().rev() {
            let Some(weight) = weights[id.index()] else { continue };
            let passed = match node.operation {
                Operation::Add | Operation::Reshape => weight,
                Operation::Scale { factor } => weight * factor,
                operation if operation.is_loss() => continue,
                _ => return Err(WrongLoss::Term(Source::Node(id))),
            };
            for operand in &node.operands {
                match operand {
                    Source::Node(term) if trained[term.index()] => {
                        *weights[term.index()].get_or_insert(0.0) += passed;
                    }
                    Source::Parameter(_) => return Err(WrongLoss::Term(*operand)),
                    Source::Node(_) | Source::Input(_) => {}
                }
            }
        }
        self.no_loss_inside(trained, &weights)?;
        Ok(weights)
    }

    /// The losses that are terms with a factor of zero, so that nothing is learned of them.
    pub(crate) fn weightless(&self) -> Vec<NodeId> {
        let weights = self.terms(&self.trained()).unwrap_or_default();
        let is_weightless = |(id, weight): (NodeId, Option<f64>)| {
            (weight == Some(0.0) && self.nodes[id].operation.is_loss()).then_some(id)
        };
        self.nodes.ids().zip(weights).filter_map(is_weightless).collect()
    }

    /// The losses that are minimised: that of the model, and those of heads.
    pub fn minimised(&self) -> impl Iterator<Item = NodeId> {
        self.auxiliary.iter().copied().chain(self.loss)
    }

    /// A term has the gradient that the sum gives it and no other.
    fn no_loss_inside(
        &self,
        trained: &[bool],
        weights: &[Option<f64>],
    ) -> Result<(), WrongLoss> {
        let reached = self.needed(self.minimised(), Operation::passes_gradient);
        let is_inside = |id: NodeId| {
            let index = id.index();
            reached[index] && trained[index] && weights[index].is_none()
        };
        let is_term = |id: NodeId| {
            let operation = self.nodes[id].operation;
            let is_accuracy = matches!(operation, Operation::Accuracy { .. });
            let is_number = operation.is_loss() || is_accuracy;
            trained[id.index()] && (is_number || weights[id.index()].is_some())
        };
        for (user, node) in self.nodes.iter().filter(|(id, _)| is_inside(*id)) {
            let loss = node.operands.iter().find_map(|operand| match operand {
                Source::Node(id) if is_term(*id) => Some(*id),
                Source::Node(_) | Source::Parameter(_) | Source::Input(_) => None,
            });
            if let Some(loss) = loss {
                return Err(WrongLoss::Inside { loss, user });
            }
        }
        Ok(())
    }
}
