//! What operations on images become on one device: channels lie last, and are divided as the
//! features of affine maps are.

use super::{
    layout::{Along, Layout, crossing},
    local::Local,
    rules::last,
    turns::Turn,
};
use roundelay_dsl::{Extent, NodeId, Operation, Source};
use roundelay_schedule::Direction;

/// The extent of filters (n, kh, kw, c) that counts the channels that they read.
const READ: u32 = 3;

/// Who divides what a convolution reads, and what it makes.
#[derive(Clone, Copy)]
struct Way {
    from: Option<Direction>,
    to: Option<Direction>,
}

impl Local<'_> {
    pub(super) fn conv2d(
        &mut self,
        id: NodeId,
        (operation, groups): (Operation, u64),
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        if groups > 1 {
            return self.in_groups((operation, groups), operands, shape);
        }
        let turn = self.turns.of(id);
        let way = self.way_of(turn, operands[0]);
        if !self.fits((way, turn), operands[0], shape) {
            return self.replicated(operation, operands, shape);
        }
        let made = along(way.to, Along::Split(last(shape)));
        let partial = match way.from.filter(|from| self.parts(*from) > 1) {
            Some(from) => made.with(from, Along::Partial),
            None => made,
        };
        let x = along(way.from, Along::Split(last(&self.shape(operands[0]))));
        let x = way.to.map_or(x, |to| x.with(to, Along::Varying));
        let weight = along(way.from, Along::Split(READ));
        let weight = way.to.map_or(weight, |to| weight.with(to, Along::Split(0)));
        let mut own = vec![self.want(operands[0], x), self.want(operands[1], weight)];
        if partial == made {
            // Nobody else has a summand, so the convolution adds its bias itself.
            let beside = along(way.to, Along::Split(0));
            own.extend(operands[2..].iter().map(|bias| self.want(*bias, beside)));
        }
        let sum = self.add("", operation, own, (shape, partial));
        if partial == made || self.turns.joins(id) {
            return (sum, partial);
        }
        self.met(sum, (partial, turn), operands.get(2).copied(), shape)
    }

    /// Sums that meet, and a bias that is added once.
    fn met(
        &mut self,
        sum: Source,
        (partial, turn): (Layout, Turn),
        bias: Option<Source>,
        shape: &[Extent],
    ) -> (Source, Layout) {
        let settled = match turn {
            Turn::Back => Along::Split(last(shape)),
            Turn::First | Turn::On | Turn::Last => Along::Whole,
        };
        let layout = partial.map(|along| match along {
            Along::Partial => settled,
            other => other,
        });
        let sum = self.settle(sum, (partial, layout), shape);
        let Some(bias) = bias else { return (sum, layout) };
        let beside = layout.map(|along| match along {
            Along::Split(_) => Along::Split(0),
            other => other,
        });
        let added = vec![sum, self.want(bias, beside)];
        (self.add("bias", Operation::Add, added, (shape, layout)), layout)
    }

    /// The sum of two convolutions whose sums have not met; none where they have.
    pub(super) fn joined(
        &mut self,
        operands: &[Source],
        shape: &[Extent],
    ) -> Option<(Source, Layout)> {
        let layout = self.layout(operands[0]);
        let is_partial =
            layout.rows == Along::Partial || layout.columns == Along::Partial;
        if !is_partial || self.layout(operands[1]) != layout {
            return None;
        }
        let Source::Node(first) = operands[0] else { return None };
        let own = operands.iter().map(|own| self.want(*own, layout)).collect();
        let sum = self.add("", Operation::Add, own, (shape, layout));
        Some(self.met(sum, (layout, self.turns.of(first)), None, shape))
    }

    fn way_of(&self, turn: Turn, x: Source) -> Way {
        let by_rows =
            self.layout(x).divides(last(&self.shape(x))) == Some(Direction::Rows);
        let from = if by_rows { Direction::Rows } else { Direction::Columns };
        match turn {
            // What is gathered is whole, as what is brought is.
            Turn::First | Turn::On | Turn::Back if self.gathers() => {
                Way { from: None, to: Some(Direction::Columns) }
            }
            Turn::First => Way { from: None, to: Some(Direction::Columns) },
            Turn::On => Way { from: Some(from), to: Some(crossing(from)) },
            Turn::Back => Way { from: Some(Direction::Columns), to: None },
            Turn::Last => Way { from: Some(from), to: None },
        }
    }

    /// Whether a way divides its channels equally; several columns take nothing else.
    fn fits(&mut self, (way, turn): (Way, Turn), x: Source, shape: &[Extent]) -> bool {
        let size = |shape: &[Extent]| shape.last().map_or(1, |extent| extent.size);
        let read = size(&self.shape(x));
        if way.to == Some(Direction::Rows) {
            self.counted(("filters", size(shape)), size(shape));
        }
        let from = way.from.is_none_or(|from| self.divides(from, ("channels", read)));
        let to = match turn {
            Turn::Back if way.to.is_none() => way.from,
            Turn::Back | Turn::First | Turn::On | Turn::Last => way.to,
        };
        from && to.is_none_or(|to| self.divides(to, ("filters", size(shape))))
    }

    /// Filters of their own for each group of channels: whoever divides channels divides groups.
    fn in_groups(
        &mut self,
        (operation, groups): (Operation, u64),
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let Some(direction) = self.by_channels(operands[0]) else {
            return self.replicated(operation, operands, shape);
        };
        let parts = self.parts(direction);
        let Operation::Conv2d { stride, padding, .. } = operation else {
            unreachable!("the caller matched a convolution")
        };
        if !self.divides(direction, ("groups", groups)) {
            self.counted(("groups", groups), groups);
            return self.replicated(operation, operands, shape);
        }
        let own = Operation::Conv2d { stride, padding, groups: groups / parts };
        self.on_channels((own, direction), operands, shape)
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
        let direction = self.layout(x).divides(last(&shape))?;
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

/// Whole but in a direction, where there is one.
fn along(direction: Option<Direction>, along: Along) -> Layout {
    direction.map_or(Layout::WHOLE, |direction| Layout::only(direction, along))
}
