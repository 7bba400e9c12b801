//! What operations on heads become on one device: the direction that divides features divides heads.

use super::{
    absorb::HEADS,
    layout::{Along, Layout},
    local::Local,
    rules::last,
};
use roundelay_dsl::{Extent, Heads, Operation, Source, Turning};
use roundelay_schedule::Direction;

/// An operation on heads.
#[derive(Clone, Copy)]
pub(super) struct HeadByHead {
    operation: Operation,
    heads: Heads,
}

impl HeadByHead {
    /// Attention, its scores, or its mix of values.
    pub(super) fn attending(operation: Operation, heads: Heads) -> Self {
        Self { operation, heads }
    }

    /// Rotary positions: heads that stay together are divided as those that share a key.
    pub(super) fn turning(turning: Turning) -> Self {
        let heads = Heads { all: turning.heads, keys: turning.groups() };
        Self { operation: Operation::Rotary(turning), heads }
    }

    /// The operation on one of this many equal parts of the heads.
    fn part(mut self, parts: u64) -> Operation {
        match &mut self.operation {
            Operation::Attention { heads, .. }
            | Operation::Scores { heads, .. }
            | Operation::Mix { heads } => *heads = heads.part(parts),
            Operation::Rotary(turning) => turning.heads /= parts,
            other => unreachable!("{other:?} has no heads"),
        }
        self.operation
    }
}

impl Local<'_> {
    /// The direction that divides these operands, and their heads with them; none where every part does
    /// all of them.
    fn by_heads(
        &mut self,
        operands: &[(Source, u32)],
        heads: Heads,
    ) -> Option<Direction> {
        let divided: Vec<Option<Direction>> = operands
            .iter()
            .map(|(operand, extent)| self.divider(self.layout(*operand), *extent))
            .collect();
        let direction = if self.alternates() {
            divided[0].filter(|direction| *direction != Direction::Both)
        } else {
            divided[0].filter(|_| divided.iter().all(|other| *other == divided[0]))
        };
        let direction = match direction {
            None if self.alternates() => Direction::Rows,
            found => found?,
        };
        let even = self.divides(direction, ("heads", heads.all))
            && self.divides(direction, ("key heads", heads.keys));
        even.then_some(direction)
    }

    /// An operation that is made head by head: a part of the heads of each operand, divided along the
    /// extent beside it, gives a result that is divided along one.
    fn head_by_head(
        &mut self,
        made: HeadByHead,
        operands: &[(Source, u32)],
        (shape, divided): (&[Extent], u32),
    ) -> (Source, Layout) {
        let Some(direction) = self.by_heads(operands, made.heads) else {
            self.counted_heads(made.heads);
            let whole: Vec<Source> =
                operands.iter().map(|(operand, _)| *operand).collect();
            return self.replicated(made.operation, &whole, shape);
        };
        let parts = self.parts(direction);
        let part = |extent| Layout::only(direction, Along::Split(extent));
        let operands = operands.iter();
        let wanted = operands.map(|(operand, extent)| self.want(*operand, part(*extent)));
        let wanted = wanted.collect();
        let layout = part(divided);
        (self.add("", made.part(parts), wanted, (shape, layout)), layout)
    }

    /// Each operand with its last extent.
    fn by_last(&self, operands: &[Source]) -> Vec<(Source, u32)> {
        let operands = operands.iter().copied();
        operands.map(|operand| (operand, last(&self.shape(operand)))).collect()
    }

    /// One part of the heads of all operands: one part of the columns.
    pub(super) fn by_columns(
        &mut self,
        made: HeadByHead,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = self.by_last(operands);
        self.head_by_head(made, &operands, (shape, last(shape)))
    }

    /// One part of the heads of queries and keys: one part of the scores.
    pub(super) fn scores(
        &mut self,
        made: HeadByHead,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = self.by_last(operands);
        self.head_by_head(made, &operands, (shape, HEADS))
    }

    /// One part of the weights and of the heads of values: one part of the columns.
    pub(super) fn mix(
        &mut self,
        made: HeadByHead,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = [(operands[0], HEADS), (operands[1], last(shape))];
        self.head_by_head(made, &operands, (shape, last(shape)))
    }
}
