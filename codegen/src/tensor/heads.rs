//! What operations on heads become on one device: whoever divides features divides heads.

use super::{
    absorb::HEADS,
    layout::{Along, Layout},
    local::Local,
    rules::last,
};
use roundelay_dsl::{Extent, Operation, Source};
use roundelay_schedule::Direction;

impl Local<'_> {
    /// Who divides these operands, and their heads with them; none where everybody does all.
    fn by_heads(
        &mut self,
        operands: &[(Source, u32)],
        heads: [u64; 2],
    ) -> Option<Direction> {
        let divided: Vec<Option<Direction>> = operands
            .iter()
            .map(|(own, extent)| self.layout(*own).divides(*extent))
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

    pub(super) fn attention(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Operation::Attention { heads, key_heads, causal, window, scale, cap } =
            operation
        else {
            unreachable!("the caller matched an attention")
        };
        let parted: Vec<(Source, u32)> =
            operands.iter().map(|own| (*own, last(&self.shape(*own)))).collect();
        let Some(direction) = self.by_heads(&parted, [heads, key_heads]) else {
            return self.replicated(operation, operands, shape);
        };
        let parts = self.parts(direction);
        let (heads, key_heads) = (heads / parts, key_heads / parts);
        let own = Operation::Attention { heads, key_heads, causal, window, scale, cap };
        let operands = self.all_divided(direction, &parted);
        let layout = Layout::only(direction, Along::Split(last(shape)));
        (self.add("", own, operands, (shape, layout)), layout)
    }

    /// Operands of which one direction divides an extent each.
    fn all_divided(
        &mut self,
        direction: Direction,
        operands: &[(Source, u32)],
    ) -> Vec<Source> {
        let layout = |extent| Layout::only(direction, Along::Split(extent));
        operands.iter().map(|(own, extent)| self.want(*own, layout(*extent))).collect()
    }

    /// Own heads of queries and keys: own scores.
    pub(super) fn scores(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Operation::Scores { heads, key_heads, causal, window, scale } = operation
        else {
            unreachable!("the caller matched scores")
        };
        let parted: Vec<(Source, u32)> =
            operands.iter().map(|own| (*own, last(&self.shape(*own)))).collect();
        let Some(direction) = self.by_heads(&parted, [heads, key_heads]) else {
            return self.replicated(operation, operands, shape);
        };
        let parts = self.parts(direction);
        let (heads, key_heads) = (heads / parts, key_heads / parts);
        let own = Operation::Scores { heads, key_heads, causal, window, scale };
        let operands = self.all_divided(direction, &parted);
        let layout = Layout::only(direction, Along::Split(HEADS));
        (self.add("", own, operands, (shape, layout)), layout)
    }

    /// Own weights and own heads of values: own columns.
    pub(super) fn mix(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Operation::Mix { heads, key_heads } = operation else {
            unreachable!("the caller matched a mix")
        };
        let parted = [(operands[0], HEADS), (operands[1], last(shape))];
        let Some(direction) = self.by_heads(&parted, [heads, key_heads]) else {
            return self.replicated(operation, operands, shape);
        };
        let parts = self.parts(direction);
        let (heads, key_heads) = (heads / parts, key_heads / parts);
        let own = self.all_divided(direction, &parted);
        let layout = Layout::only(direction, Along::Split(last(shape)));
        let operation = Operation::Mix { heads, key_heads };
        (self.add("", operation, own, (shape, layout)), layout)
    }

    pub(super) fn rotary(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Operation::Rotary { heads, base, turned } = operation else {
            unreachable!("the caller matched rotary positions")
        };
        let parted = [(operands[0], last(shape))];
        let Some(direction) = self.by_heads(&parted, [heads; 2]) else {
            return self.replicated(operation, operands, shape);
        };
        let heads = heads / self.parts(direction);
        let own = self.all_divided(direction, &parted);
        let layout = Layout::only(direction, Along::Split(last(shape)));
        let operation = Operation::Rotary { heads, base, turned };
        (self.add("", operation, own, (shape, layout)), layout)
    }
}
