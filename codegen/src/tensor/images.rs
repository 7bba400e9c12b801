//! What operations on images become on one device: channels lie last, and are divided as the
//! features of affine maps are.

use super::{
    layout::{Along, Layout},
    local::Local,
    rules::last,
};
use roundelay_dsl::{Extent, Operation, Source};
use roundelay_schedule::Direction;

impl Local<'_> {
    /// Filters of their own for each group of channels: whoever divides channels divides groups.
    /// `of` is the operation in this many groups.
    pub(super) fn in_groups(
        &mut self,
        (of, groups): (impl Fn(u64) -> Operation, u64),
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Some(direction) = self.by_channels(operands[0]) else {
            return self.replicated(of(groups), operands, shape);
        };
        let parts = self.parts(direction);
        if !self.divides(direction, ("groups", groups)) {
            self.counted(("groups", groups), groups);
            return self.replicated(of(groups), operands, shape);
        }
        self.on_channels((of(groups / parts), direction), operands, shape)
    }

    /// An operation that makes every channel from the same one.
    pub(super) fn channelwise(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let own = |parts: u64| match operation {
            Operation::GroupNorm { groups } => groups
                .is_multiple_of(parts)
                .then(|| Operation::GroupNorm { groups: groups / parts }),
            other => Some(other),
        };
        let direction = self.by_channels(operands[0]);
        match direction
            .and_then(|direction| Some((own(self.parts(direction))?, direction)))
        {
            Some(own) => self.on_channels(own, operands, shape),
            // Groups that reach over several parts are normalised by all of them.
            None => self.replicated(operation, operands, shape),
        }
    }

    /// Who divides the channels of an array, all of them and equally.
    fn by_channels(&self, x: Source) -> Option<Direction> {
        let shape = self.shape(x);
        let direction = self.divider(self.layout(x), last(&shape))?;
        let even = shape.last()?.size.is_multiple_of(self.parts(direction));
        (even && direction != Direction::Both).then_some(direction)
    }

    /// An operation on own channels, with the own part of what it has for each of them.
    fn on_channels(
        &mut self,
        (own, direction): (Operation, Direction),
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let part = |extent| Layout::only(direction, Along::Split(extent));
        let channels = last(&self.shape(operands[0]));
        let mut all = vec![self.want(operands[0], part(channels))];
        all.extend(operands[1..].iter().map(|other| self.want(*other, part(0))));
        let layout = part(last(shape));
        (self.add("", own, all, (shape, layout)), layout)
    }
}
