//! What each operation becomes on one device: one rule per kind of operation.

use super::{
    absorb::{HEADS, is_elementwise},
    layout::Layout,
    local::Local,
};
use roundelay_dsl::{Extent, Masked, Node, NodeId, Operation, Part, Source};

/// A table is split by rows when a part has at least so many: splitting costs a sum of results.
const LEAST_ROWS: u64 = 128;

impl Local<'_> {
    /// Adds what becomes of an operation; the result and its layout.
    pub(super) fn operation(&mut self, id: NodeId) -> (Source, Layout) {
        let Node { operation, operands, shape, .. } = &self.whole.nodes[id];
        let (operation, operands, shape) =
            (*operation, operands.as_slice(), shape.as_slice());
        match operation {
            Operation::Embedding => self.embedding(operands, shape),
            Operation::Linear => self.linear(id, operands, shape),
            Operation::Attention { .. } => self.attention(operation, operands, shape),
            Operation::Scores { .. } => self.scores(operation, operands, shape),
            Operation::Mix { .. } => self.mix(operation, operands, shape),
            Operation::Rotary { .. } => self.rotary(operation, operands, shape),
            Operation::Reshape => self.reshape(id, operands, shape),
            Operation::LayerNorm { .. }
            | Operation::RmsNorm { .. }
            | Operation::Softmax => self.norm(operation, operands, shape),
            Operation::Boundary(_) => self.boundary(operation, operands[0], shape),
            Operation::Add | Operation::Multiply => self.pair(operation, operands, shape),
            Operation::CrossEntropy => self.loss(operation, operands, Masked::No),
            Operation::MaskedCrossEntropy => self.loss(operation, operands, Masked::Yes),
            _ if is_elementwise(operation) => {
                self.elementwise(id, operation, operands, shape)
            }
            _ => self.replicated(operation, operands, shape),
        }
    }

    /// Everybody does all of it.
    fn replicated(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let whole = operands.iter().map(|own| self.want(*own, Layout::Whole)).collect();
        (self.add("", operation, whole, (shape, Layout::Whole)), Layout::Whole)
    }

    /// Own rows of a large table, summed over the parts.
    fn embedding(&mut self, operands: &[Source], shape: &[Extent]) -> (Source, Layout) {
        let rows = self.shape(operands[1])[0].size;
        if rows < LEAST_ROWS * self.rows() {
            return self.replicated(Operation::Embedding, operands, shape);
        }
        let table = self.want(operands[1], Layout::Split(0));
        let tokens = self.want(operands[0], Layout::Whole);
        let part = Part::Embedding { whole: rows };
        let sum = self.part("", part, vec![tokens, table], (shape, Layout::Partial));
        self.settle(sum, shape)
    }

    /// A sum of everybody's share, where it is used next.
    fn settle(&mut self, sum: Source, shape: &[Extent]) -> (Source, Layout) {
        let layout = self.settled(shape);
        (self.exchange(sum, Layout::Partial, layout, shape), layout)
    }

    fn linear(
        &mut self,
        id: NodeId,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let x = operands[0];
        let last = last(&self.shape(x));
        let even = self.shape(x)[last as usize].size.is_multiple_of(self.rows());
        if self.layout(x) == Layout::Split(last) && even {
            return self.by_rows(operands, shape, last);
        }
        if !self.absorb.takes_columns(id) {
            return self.replicated(Operation::Linear, operands, shape);
        }
        let mut own = vec![self.want(x, Layout::Varying)];
        let others = operands[1..].iter();
        own.extend(others.map(|other| self.want(*other, Layout::Split(0))));
        let layout = Layout::Split(self::last(shape));
        (self.add("", Operation::Linear, own, (shape, layout)), layout)
    }

    /// x in columns, the weight in the same: everybody has a summand. The bias is added once.
    fn by_rows(
        &mut self,
        operands: &[Source],
        shape: &[Extent],
        last: u32,
    ) -> (Source, Layout) {
        let x = self.want(operands[0], Layout::Split(last));
        let weight = self.want(operands[1], Layout::Split(1));
        let made = (shape, Layout::Partial);
        let sum = self.add("", Operation::Linear, vec![x, weight], made);
        let (sum, layout) = self.settle(sum, shape);
        match operands.get(2) {
            None => (sum, layout),
            Some(bias) => {
                let bias = self.want(*bias, repeated(layout));
                let added = vec![sum, bias];
                (self.add("bias", Operation::Add, added, (shape, layout)), layout)
            }
        }
    }

    fn attention(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let split = Layout::Split(last(shape));
        let parted = operands.iter().all(|operand| self.layout(*operand) == split);
        let rows = self.rows();
        match operation {
            Operation::Attention { heads, key_heads, causal, window, scale, cap }
                if parted
                    && heads.is_multiple_of(rows)
                    && key_heads.is_multiple_of(rows) =>
            {
                let (heads, key_heads) = (heads / rows, key_heads / rows);
                let own =
                    Operation::Attention { heads, key_heads, causal, window, scale, cap };
                let operands =
                    operands.iter().map(|one| self.want(*one, split)).collect();
                (self.add("", own, operands, (shape, split)), split)
            }
            _ => self.replicated(operation, operands, shape),
        }
    }

    /// Own heads of queries and keys: own scores.
    fn scores(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let rows = self.rows();
        let from = Layout::Split(last(&self.shape(operands[0])));
        let parted = operands.iter().all(|operand| self.layout(*operand) == from);
        match operation {
            Operation::Scores { heads, key_heads, causal, window, scale }
                if parted
                    && heads.is_multiple_of(rows)
                    && key_heads.is_multiple_of(rows) =>
            {
                let (heads, key_heads) = (heads / rows, key_heads / rows);
                let own = Operation::Scores { heads, key_heads, causal, window, scale };
                let operands = operands.iter().map(|one| self.want(*one, from)).collect();
                let layout = Layout::Split(HEADS);
                (self.add("", own, operands, (shape, layout)), layout)
            }
            _ => self.replicated(operation, operands, shape),
        }
    }

    /// Own weights and own heads of values: own columns.
    fn mix(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let rows = self.rows();
        let layout = Layout::Split(last(shape));
        let parted = self.layout(operands[0]) == Layout::Split(HEADS)
            && self.layout(operands[1]) == layout;
        match operation {
            Operation::Mix { heads, key_heads }
                if parted
                    && heads.is_multiple_of(rows)
                    && key_heads.is_multiple_of(rows) =>
            {
                let (heads, key_heads) = (heads / rows, key_heads / rows);
                let own = Operation::Mix { heads, key_heads };
                let weights = self.want(operands[0], Layout::Split(HEADS));
                let value = self.want(operands[1], layout);
                (self.add("", own, vec![weights, value], (shape, layout)), layout)
            }
            _ => self.replicated(operation, operands, shape),
        }
    }

    fn rotary(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let split = Layout::Split(last(shape));
        match operation {
            Operation::Rotary { heads, base, turned }
                if self.layout(operands[0]) == split
                    && heads.is_multiple_of(self.rows()) =>
            {
                let heads = heads / self.rows();
                let x = self.want(operands[0], split);
                let own = Operation::Rotary { heads, base, turned };
                (self.add("", own, vec![x], (shape, split)), split)
            }
            _ => self.replicated(operation, operands, shape),
        }
    }

    fn reshape(
        &mut self,
        id: NodeId,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = match (operands[0], self.layout(operands[0])) {
            (Source::Node(from), Layout::Split(extent)) => {
                self.absorb.reshaped(from, id, extent).map(|to| (extent, to))
            }
            _ => None,
        };
        let Some((from, to)) = layout else {
            return self.replicated(Operation::Reshape, operands, shape);
        };
        let x = self.want(operands[0], Layout::Split(from));
        let layout = Layout::Split(to);
        (self.add("", Operation::Reshape, vec![x], (shape, layout)), layout)
    }

    /// Over the last extent, which must be whole.
    fn norm(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = match self.by_tokens(operands[0]) {
            Layout::Split(extent) if extent == last(shape) => self.settled(shape),
            layout => layout,
        };
        let mut own = vec![self.want(operands[0], layout)];
        let others = operands[1..].iter();
        own.extend(others.map(|other| self.want(*other, repeated(layout))));
        (self.add("", operation, own, (shape, layout)), layout)
    }

    fn elementwise(
        &mut self,
        id: NodeId,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = match (operation, self.by_tokens(operands[0])) {
            // Masks are those of places in the whole tensor, which only equal parts say.
            (Operation::Dropout { .. }, Layout::Split(extent))
                if !shape[extent as usize].size.is_multiple_of(self.rows()) =>
            {
                self.settled(shape)
            }
            (_, layout) => layout,
        };
        let x = self.want(operands[0], layout);
        let made = (shape, layout);
        let result = match operation {
            Operation::Dropout { rate } => {
                let operator = roundelay_schedule::Id::index(id) as u64;
                let share = layout.share();
                self.part("", Part::Dropout { rate, operator, share }, vec![x], made)
            }
            _ => self.add("", operation, vec![x], made),
        };
        (result, layout)
    }

    /// A value as it lies: an exchange would stand in front of the boundary, where its stage
    /// begins.
    fn boundary(
        &mut self,
        operation: Operation,
        operand: Source,
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = self.layout(operand);
        let x = self.want(operand, layout);
        (self.add("", operation, vec![x], (shape, layout)), layout)
    }

    /// a and b, where b has the shape of a or of its trailing extents.
    fn pair(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let [a, b] = [operands[0], operands[1]];
        let missing = shape.len() - self.shape(b).len();
        let layout = match (missing, self.by_tokens(a)) {
            (0, Layout::Whole) => self.by_tokens(b),
            // A share of the tokens has no whole rows of a table of positions.
            (1, Layout::Tokens) if shape.len() > 2 => Layout::Whole,
            (_, layout) => layout,
        };
        let for_b = match (missing, layout) {
            (0, layout) => layout,
            (missing, Layout::Split(extent)) => {
                match extent.checked_sub(u32::try_from(missing).unwrap_or(u32::MAX)) {
                    Some(extent) => Layout::Split(extent),
                    None => Layout::Varying,
                }
            }
            (_, layout) => repeated(layout),
        };
        let own = vec![self.want(a, layout), self.want(b, for_b)];
        (self.add("", operation, own, (shape, layout)), layout)
    }

    /// Over the own classes, or all of them.
    fn loss(
        &mut self,
        operation: Operation,
        operands: &[Source],
        masked: Masked,
    ) -> (Source, Layout) {
        let logits = self.shape(operands[0]);
        let split = Layout::Split(last(&logits));
        if self.layout(operands[0]) != split {
            return self.replicated(operation, operands, &[]);
        }
        let whole = logits.last().map_or(1, |extent| extent.size);
        let own =
            vec![self.want(operands[0], split), self.want(operands[1], Layout::Whole)];
        let part = Part::CrossEntropy { whole, masked };
        (self.part("", part, own, (&[], Layout::Whole)), Layout::Whole)
    }
}

/// The layout of what everybody uses alike beside a value: where that is in parts, everybody has
/// its share of the gradient.
fn repeated(beside: Layout) -> Layout {
    match beside {
        Layout::Whole => Layout::Whole,
        Layout::Varying | Layout::Split(_) | Layout::Tokens | Layout::Partial => {
            Layout::Varying
        }
    }
}

fn last(shape: &[Extent]) -> u32 {
    u32::try_from(shape.len().saturating_sub(1)).expect("shapes have few extents")
}
