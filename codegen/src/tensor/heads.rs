//! What operations on heads become on one device: whoever divides features divides heads.

use super::{
    absorb::HEADS,
    layout::{Along, Layout},
    local::Local,
    rules::last,
};
use roundelay_dsl::{Extent, Operation, Source};
use roundelay_schedule::Direction;

/// An operation on heads, with as many of queries and of keys; where keys have none of their own,
/// twice the same, or what stays together.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) operation: Operation,
    pub(super) count: [u64; 2],
}

impl Heads {
    /// The operation on one of this many equal parts of the heads.
    fn own(mut self, parts: u64) -> Operation {
        match &mut self.operation {
            Operation::Attention { heads, key_heads, .. }
            | Operation::Scores { heads, key_heads, .. }
            | Operation::Mix { heads, key_heads } => {
                *heads /= parts;
                *key_heads /= parts;
            }
            Operation::Rotary { heads, .. } => *heads /= parts,
            other => unreachable!("{other:?} has no heads"),
        }
        self.operation
    }
}

impl Local<'_> {
    /// Who divides these operands, and their heads with them; none where everybody does all.
    fn by_heads(
        &mut self,
        operands: &[(Source, u32)],
        heads: [u64; 2],
    ) -> Option<Direction> {
        let divided: Vec<Option<Direction>> = operands
            .iter()
            .map(|(own, extent)| self.divider(self.layout(*own), *extent))
            .collect();
        let direction = match self.alternates() {
            true => divided[0].filter(|own| *own != Direction::Both),
            false => divided[0].filter(|_| divided.iter().all(|own| *own == divided[0])),
        };
        let direction = match direction {
            None if self.alternates() => Direction::Rows,
            found => found?,
        };
        let [heads, key_heads] = heads;
        let even = self.divides(direction, ("heads", heads))
            && self.divides(direction, ("key heads", key_heads));
        even.then_some(direction)
    }

    /// An operation that is made head by head: own heads of each operand, divided along the extent
    /// beside it, give a result that is divided along one.
    fn head_by_head(
        &mut self,
        heads: Heads,
        operands: &[(Source, u32)],
        (shape, divided): (&[Extent], u32),
    ) -> (Source, Layout) {
        let Some(direction) = self.by_heads(operands, heads.count) else {
            self.counted_heads(heads.count);
            let whole: Vec<Source> = operands.iter().map(|(own, _)| *own).collect();
            return self.replicated(heads.operation, &whole, shape);
        };
        let parts = self.parts(direction);
        let part = |extent| Layout::only(direction, Along::Split(extent));
        let operands =
            operands.iter().map(|(own, extent)| self.want(*own, part(*extent))).collect();
        let layout = part(divided);
        (self.add("", heads.own(parts), operands, (shape, layout)), layout)
    }

    /// Each operand with its last extent.
    fn by_last(&self, operands: &[Source]) -> Vec<(Source, u32)> {
        operands.iter().map(|own| (*own, last(&self.shape(*own)))).collect()
    }

    /// Own heads of all operands: own columns.
    pub(super) fn by_columns(
        &mut self,
        heads: Heads,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = self.by_last(operands);
        self.head_by_head(heads, &operands, (shape, last(shape)))
    }

    /// Own heads of queries and keys: own scores.
    pub(super) fn scores(
        &mut self,
        heads: Heads,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = self.by_last(operands);
        self.head_by_head(heads, &operands, (shape, HEADS))
    }

    /// Own weights and own heads of values: own columns.
    pub(super) fn mix(
        &mut self,
        heads: Heads,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let operands = [(operands[0], HEADS), (operands[1], last(shape))];
        self.head_by_head(heads, &operands, (shape, last(shape)))
    }
}
