//! What each operation becomes on one device: one rule per kind of operation.

use super::{
    absorb::is_elementwise,
    heads::HeadByHead,
    layout::{Along, Layout, Place},
    local::Local,
    maps::Map,
    shown,
    turns::is_channelwise,
};
use crate::stage::StageError;
use roundelay_dsl::{Extent, Node, NodeId, Operation, Part, PartShare, Source};
use roundelay_schedule::Direction;

/// A table is split by rows when a part has at least this many: splitting costs a sum of results.
const LEAST_ROWS: u64 = 128;

impl Local<'_> {
    /// Adds what becomes of an operation; the result and its layout.
    pub(super) fn operation(&mut self, id: NodeId) -> (Source, Layout) {
        let Node { operation, operands, shape, .. } = &self.whole.nodes[id];
        let (operation, operands, shape) =
            (*operation, operands.as_slice(), shape.as_slice());
        if let Some(made) = self.on_pixels(operation, operands, shape) {
            return made;
        }
        match operation {
            Operation::Embedding => self.embedding(operands, shape),
            Operation::Linear | Operation::Conv2d { groups: 1, .. } => {
                self.map(Map { id, operation, operands, shape })
            }
            Operation::Attention { heads, .. } => {
                self.by_columns(HeadByHead::attending(operation, heads), operands, shape)
            }
            Operation::Scores { heads, .. } => {
                self.scores(HeadByHead::attending(operation, heads), operands, shape)
            }
            Operation::Mix { heads } => {
                self.mix(HeadByHead::attending(operation, heads), operands, shape)
            }
            Operation::Rotary(turning) => {
                self.by_columns(HeadByHead::turning(turning), operands, shape)
            }
            Operation::Reshape => self.reshape(id, operands, shape),
            Operation::LayerNorm { .. }
            | Operation::RmsNorm { .. }
            | Operation::Softmax => self.norm(operation, operands, shape),
            Operation::Boundary(_) => self.boundary(operation, operands[0], shape),
            Operation::Add | Operation::Multiply => self.pair(operation, operands, shape),
            Operation::CrossEntropy { masked } => self.loss(operation, operands, masked),
            Operation::LinearCrossEntropy { masked, .. } => {
                self.classifier(operation, operands, masked)
            }
            Operation::Conv2d { stride, padding, groups } => {
                let of = |groups: u64| Operation::Conv2d { stride, padding, groups };
                self.in_groups((of, groups), operands, shape)
            }
            Operation::Rows { .. } if self.alternates() => {
                self.table_columns(operation, operands, shape)
            }
            _ if is_elementwise(operation) => {
                self.elementwise(id, operation, operands, shape)
            }
            _ if is_channelwise(operation) => {
                self.channelwise(operation, operands, shape)
            }
            _ => {
                if let (true, Some(name)) = (self.alternates(), unsplit(operation)) {
                    let node = self.name();
                    self.refuse(StageError::NoColumns { node, operation: name });
                }
                self.replicated(operation, operands, shape)
            }
        }
    }

    /// Every part does all of it.
    pub(super) fn replicated(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let whole = operands.iter().map(|one| self.want(*one, Layout::WHOLE)).collect();
        (self.add("", operation, whole, (shape, Layout::WHOLE)), Layout::WHOLE)
    }

    /// Keeps the first thing that cannot be split.
    pub(super) fn refuse(&mut self, error: StageError) {
        self.refused.get_or_insert(error);
    }

    pub(super) fn name(&self) -> String {
        self.whole.nodes[self.at].name.clone()
    }

    /// Whether the parts of a direction divide what is counted; several columns take nothing else.
    pub(super) fn divides(
        &mut self,
        direction: Direction,
        (what, size): (&'static str, u64),
    ) -> bool {
        let parts = self.parts(direction);
        let even = size.is_multiple_of(parts);
        if !even && self.alternates() {
            let (node, most) = (self.name(), parts.clamp(LEAST_SHOWN, MOST_SHOWN));
            let direction = shown(direction);
            let error =
                StageError::Indivisible { node, what, size, parts, direction, most };
            self.refuse(error);
        }
        even
    }

    /// One part of the rows of a large table, summed over the parts; of a small one a part of the columns,
    /// where there are columns.
    fn embedding(&mut self, operands: &[Source], shape: &[Extent]) -> (Source, Layout) {
        let rows = self.shape(operands[1])[0].size;
        let is_large = rows >= LEAST_ROWS * self.parts(Direction::Both);
        match (is_large, self.alternates()) {
            (true, _) => {
                let table = self.want(operands[1], Layout::both(Along::Split(0)));
                let tokens = self.want(operands[0], Layout::WHOLE);
                let part = (Part::Embedding { whole: rows }, Direction::Both);
                let made = Layout::both(Along::Partial);
                let sum = self.part("", part, vec![tokens, table], (shape, made));
                let layout = self.between(shape);
                (self.settle(sum, (made, layout), shape), layout)
            }
            (false, true) => self.table_columns(Operation::Embedding, operands, shape),
            (false, false) => self.replicated(Operation::Embedding, operands, shape),
        }
    }

    /// One part of the columns of rows that are found in a table, the last operand.
    fn table_columns(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = Layout { rows: Along::Whole, ..self.between(shape) };
        let (table, others) = operands.split_last().expect("there is a table");
        let mut wanted: Vec<Source> =
            others.iter().map(|other| self.want(*other, Layout::WHOLE)).collect();
        let of_table = last(&self.shape(*table));
        let columns = Layout::only(Direction::Columns, Along::Split(of_table));
        wanted.push(self.want(*table, columns));
        (self.add("", operation, wanted, (shape, layout)), layout)
    }

    /// The layout between two split regions: no row has a part of the features, columns do.
    fn between(&mut self, shape: &[Extent]) -> Layout {
        let rows = self.settled(shape, Direction::Rows);
        let width = shape.last().map_or(1, |extent| extent.size);
        let divides =
            self.alternates() && self.divides(Direction::Columns, ("features", width));
        let columns = if divides { Along::Split(last(shape)) } else { Along::Whole };
        Layout { rows, columns }
    }

    fn reshape(
        &mut self,
        id: NodeId,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Some([from, to]) = self.reshaped(id, operands[0]) else {
            return self.replicated(Operation::Reshape, operands, shape);
        };
        let x = self.want(operands[0], from);
        (self.add("", Operation::Reshape, vec![x], (shape, to)), to)
    }

    /// The layouts of a divided array before and behind a reshape that keeps its parts.
    fn reshaped(&self, id: NodeId, x: Source) -> Option<[Layout; 2]> {
        let Source::Node(from) = x else { return None };
        let layout = self.layout(x);
        let (direction, along) = match (layout.rows, layout.columns) {
            (rows, Along::Whole) => (Direction::Rows, rows),
            (Along::Whole, columns) => (Direction::Columns, columns),
            _ => return None,
        };
        let Along::Split(extent) = along else { return None };
        let parts = self.parts(direction);
        let to = self.absorb.reshaped((from, id), extent, parts)?;
        Some([extent, to].map(|extent| Layout::only(direction, Along::Split(extent))))
    }

    /// Over the last extent: whole, or of several columns by the sums of all of them.
    fn norm(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let last = last(shape);
        let layout = self.by_tokens(operands[0]);
        let layout = match self.divider(layout, last) {
            Some(direction @ (Direction::Rows | Direction::Columns))
                if self.alternates() =>
            {
                if let Some(part) = part_of_norm(operation, shape) {
                    let part = (part, direction);
                    return self.norm_part(part, layout, operation, operands, shape);
                }
                Layout::WHOLE
            }
            Some(_) => self.by_rows(shape),
            None => layout,
        };
        let mut wanted = vec![self.want(operands[0], layout)];
        let beside = layout.map(Along::repeated);
        wanted.extend(operands[1..].iter().map(|other| self.want(*other, beside)));
        (self.add("", operation, wanted, (shape, layout)), layout)
    }

    /// One part of the features of a norm, whose sums meet in the direction that divides them.
    fn norm_part(
        &mut self,
        (part, direction): (Part, Direction),
        layout: Layout,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let mut wanted = vec![self.want(operands[0], layout)];
        let beside = layout.map(Along::repeated).with(direction, Along::Split(0));
        wanted.extend(operands[1..].iter().map(|other| self.want(*other, beside)));
        let made = (shape, layout);
        let result = match self.parts(direction) {
            1 => self.add("", operation, wanted, made),
            _ => self.part("", (part, direction), wanted, made),
        };
        (result, layout)
    }

    fn elementwise(
        &mut self,
        id: NodeId,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let layout = self.by_tokens(operands[0]);
        let Operation::Dropout { rate } = operation else {
            let x = self.want(operands[0], layout);
            return (self.add("", operation, vec![x], (shape, layout)), layout);
        };
        // Masks are those of places in the whole tensor, which only equal parts say.
        let even = |Place { share, direction, .. }: Place| match share {
            PartShare::Extent(extent) => {
                shape[extent as usize].size.is_multiple_of(self.parts(direction))
            }
            PartShare::Whole | PartShare::Tokens => true,
        };
        let place = |layout| self.canonical(layout).place();
        let layout = match place(layout).is_some_and(even) {
            true => layout,
            false => self.by_rows(shape),
        };
        let Place { share, direction, tokens } =
            place(layout).expect("rows alone divide no more than the tokens");
        let x = self.want(operands[0], layout);
        let operator = roundelay_schedule::Id::index(id) as u64;
        let tokens = tokens.map(|direction| self.tensor.line(direction));
        let part = Part::Dropout { rate, operator, share, tokens, half: 0 };
        let result = self.part("", (part, direction), vec![x], (shape, layout));
        (result, layout)
    }

    /// Whole features, and each row's share of the tokens where that is wanted.
    fn by_rows(&self, shape: &[Extent]) -> Layout {
        Layout::only(Direction::Rows, self.settled(shape, Direction::Rows))
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
        if operation == Operation::Add
            && let Some(joined) = self.joined(operands, shape)
        {
            return joined;
        }
        let [a, b] = [operands[0], operands[1]];
        let missing = shape.len() - self.shape(b).len();
        let met = |along| match along {
            Along::Partial => Along::Whole,
            other => other,
        };
        let mut layout = self.by_tokens(a).map(met);
        if missing == 0 && self.is_whole(layout) {
            let other = self.by_tokens(b).map(met);
            if layout == Layout::WHOLE || !self.is_whole(other) {
                layout = other;
            }
        }
        // A share of the tokens has no whole rows of a table of positions.
        if missing == 1 && shape.len() > 2 {
            layout = layout.map(|along| match along {
                Along::Tokens => Along::Whole,
                other => other,
            });
        }
        let for_b = layout.map(|along| match (missing, along) {
            (0, along) => along,
            (missing, Along::Split(extent)) => {
                match extent.checked_sub(u32::try_from(missing).unwrap_or(u32::MAX)) {
                    Some(extent) => Along::Split(extent),
                    None => Along::Varying,
                }
            }
            (_, along) => along.repeated(),
        });
        let wanted = vec![self.want(a, layout), self.want(b, for_b)];
        (self.add("", operation, wanted, (shape, layout)), layout)
    }
}

/// Numbers of parts that messages look at, at least and at most: no exchange has more parts.
const LEAST_SHOWN: u64 = 16;
const MOST_SHOWN: u64 = 4096;

/// A norm over one part of the features.
fn part_of_norm(operation: Operation, shape: &[Extent]) -> Option<Part> {
    let whole = shape.last().map_or(1, |extent| extent.size);
    match operation {
        Operation::LayerNorm { epsilon } => Some(Part::LayerNorm { epsilon, whole }),
        Operation::RmsNorm { epsilon } => Some(Part::RmsNorm { epsilon, whole }),
        _ => None,
    }
}

/// What several columns do not split, in words; none for an operation that all may do alike.
fn unsplit(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::ClassToken => Some("a class token"),
        Operation::Select { .. } => Some("the choice of a position"),
        _ => None,
    }
}

pub(super) fn last(shape: &[Extent]) -> u32 {
    u32::try_from(shape.len().saturating_sub(1)).expect("shapes have few extents")
}
