//! Losses over classes: every part has the logits of its own classes, and sums over all of them meet in the
//! loss.

use super::{
    layout::{Along, Layout},
    local::Local,
    maps::Map,
    rules::last,
};
use roundelay_dsl::{Extent, Masked, Operation, Part, Source};
use roundelay_schedule::{Direction, MapWay, Tensor};

/// Whether a loss that makes its own logits makes those of a part of so many classes on each part of a grid:
/// whatever the parts, if there is a class for each.
pub fn divides_classes(classes: u64, tensor: Tensor) -> bool {
    classes >= u64::from(tensor.parts())
}

impl Local<'_> {
    /// Over one part of the classes, or all of them.
    pub(super) fn loss(
        &mut self,
        operation: Operation,
        operands: &[Source],
        masked: Masked,
    ) -> (Source, Layout) {
        let logits = self.shape(operands[0]);
        let split = Along::Split(last(&logits));
        let layout = self.layout(operands[0]);
        let is_divided = match self.alternates() {
            true if self.tensor.idle().is_some() => layout.columns == split,
            true => layout == Layout::both(split),
            false => layout.rows == split,
        };
        if !is_divided {
            return self.replicated(operation, operands, &[]);
        }
        let logits_of_part = self.want(operands[0], layout);
        self.over_classes((logits_of_part, &logits), &operands[1..], masked)
    }

    /// A loss that makes its own logits makes those of its part of the classes, of all rows at once: whoever
    /// made a group of rows after the other would wait for all others in each.
    pub(super) fn classifier(
        &mut self,
        operation: Operation,
        operands: &[Source],
        masked: Masked,
    ) -> (Source, Layout) {
        let classes = self.shape(operands[1])[0];
        if !divides_classes(classes.size, self.tensor) {
            return self.replicated(operation, operands, &[]);
        }
        let mut logits = self.shape(operands[0]);
        if let Some(features) = logits.last_mut() {
            *features = classes;
        }
        let map = Map {
            id: self.at,
            operation: Operation::Linear,
            operands: &operands[..2],
            shape: &logits,
        };
        let (own, _) = self.split(map, MapWay::WholeToAll);
        self.over_classes((own, &logits), &operands[2..], masked)
    }

    /// The loss of the logits of a part of the classes.
    fn over_classes(
        &mut self,
        (own, logits): (Source, &[Extent]),
        beside: &[Source],
        masked: Masked,
    ) -> (Source, Layout) {
        let whole = logits.last().map_or(1, |extent| extent.size);
        let beside = beside.iter().map(|all| self.want(*all, Layout::WHOLE));
        let wanted = [own].into_iter().chain(beside).collect();
        let part = (Part::CrossEntropy { whole, masked }, Direction::Both);
        (self.part("", part, wanted, (&[], Layout::WHOLE)), Layout::WHOLE)
    }
}
