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

    /// An operation that is made head by head: own heads of each operand, divided along the extent
    /// beside it, give a result that is divided along one; `own` is the operation on so many heads.
    fn head_by_head(
        &mut self,
        (operation, shape): (Operation, &[Extent]),
        (operands, heads): (&[(Source, u32)], [u64; 2]),
        divided: u32,
        own: impl Fn([u64; 2]) -> Operation,
    ) -> (Source, Layout) {
        let Some(direction) = self.by_heads(operands, heads) else {
            self.counted_heads(heads);
            let whole: Vec<Source> = operands.iter().map(|(own, _)| *own).collect();
            return self.replicated(operation, &whole, shape);
        };
        let parts = self.parts(direction);
        let part = |extent| Layout::only(direction, Along::Split(extent));
        let operands =
            operands.iter().map(|(own, extent)| self.want(*own, part(*extent))).collect();
        let own = own(heads.map(|heads| heads / parts));
        let layout = part(divided);
        (self.add("", own, operands, (shape, layout)), layout)
    }

    /// Each operand with its last extent.
    fn by_last(&self, operands: &[Source]) -> Vec<(Source, u32)> {
        operands.iter().map(|own| (*own, last(&self.shape(*own)))).collect()
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
        let own = |[heads, key_heads]: [u64; 2]| Operation::Attention {
            heads,
            key_heads,
            causal,
            window,
            scale,
            cap,
        };
        let operands = self.by_last(operands);
        let given = (&operands[..], [heads, key_heads]);
        self.head_by_head((operation, shape), given, last(shape), own)
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
        let own = |[heads, key_heads]: [u64; 2]| Operation::Scores {
            heads,
            key_heads,
            causal,
            window,
            scale,
        };
        let operands = self.by_last(operands);
        let given = (&operands[..], [heads, key_heads]);
        self.head_by_head((operation, shape), given, HEADS, own)
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
        let own = |[heads, key_heads]: [u64; 2]| Operation::Mix { heads, key_heads };
        let operands = [(operands[0], HEADS), (operands[1], last(shape))];
        let given = (&operands[..], [heads, key_heads]);
        self.head_by_head((operation, shape), given, last(shape), own)
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
        let own = |[heads, _]: [u64; 2]| Operation::Rotary { heads, base, turned };
        let given = (&[(operands[0], last(shape))][..], [heads; 2]);
        self.head_by_head((operation, shape), given, last(shape), own)
    }
}
