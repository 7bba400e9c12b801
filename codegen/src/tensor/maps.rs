//! Affine maps on one device: linear maps of features and convolutions of channels, each in its
//! way. A way that is written down is an instruction; where none is, a map follows how its operand
//! lies ([`Local::way`]).

use super::{
    layout::{Along, Layout, crossing},
    local::Local,
    rules::last,
    turns::Turn,
};
use roundelay_dsl::{Extent, NodeId, Operation, Source};
use roundelay_schedule::{Direction, Id, MapWay};

/// An affine map of the whole model.
#[derive(Clone, Copy)]
pub(super) struct Map<'a> {
    pub(super) id: NodeId,
    pub(super) operation: Operation,
    pub(super) operands: &'a [Source],
    pub(super) shape: &'a [Extent],
}

impl Map<'_> {
    /// The extent of its weight that counts what it reads; the first one counts what it makes.
    fn reads(self) -> u32 {
        match self.operation {
            Operation::Conv2d { .. } => 3,
            _ => 1,
        }
    }

    /// How many features or channels it makes.
    pub(super) fn made(self) -> u64 {
        self.shape.last().map_or(1, |extent| extent.size)
    }
}

/// The number of an operation in a plan.
pub(super) fn site(id: NodeId) -> u32 {
    id.number()
}

impl Local<'_> {
    pub(super) fn map(&mut self, map: Map<'_>) -> (Source, Layout) {
        let way = match self.listed {
            None => self.way(map),
            Some(listed) => {
                let way = listed.of(site(map.id));
                match way.and_then(|way| self.fault(map, way)) {
                    Some(fault) => {
                        self.refuse_way(map, fault);
                        None
                    }
                    None => way,
                }
            }
        };
        let Some(way) = way.filter(|way| way.divides(self.tensor)) else {
            return self.replicated(map.operation, map.operands, map.shape);
        };
        self.ways.insert(site(map.id), way);
        self.split(map, way)
    }

    /// Own parts of what is read and made: whoever divides what is read has a summand.
    pub(super) fn split(&mut self, map: Map<'_>, way: MapWay) -> (Source, Layout) {
        let Map { id, operation, operands, shape } = map;
        let (from, to) = (way.from(), way.to().filter(|to| Some(*to) != way.from()));
        let x = along(from, Along::Split(last(&self.shape(operands[0]))));
        let x = to.map_or(x, |to| x.with(to, Along::Varying));
        let weight = along(from, Along::Split(map.reads()));
        let weight = to.map_or(weight, |to| weight.with(to, Along::Split(0)));
        let made = along(to, Along::Split(last(shape)));
        let partial = match from.filter(|from| self.parts(*from) > 1) {
            Some(from) => made.with(from, Along::Partial),
            None => made,
        };
        let mut own = vec![self.want(operands[0], x), self.want(operands[1], weight)];
        if partial == made {
            // Nobody else has a summand, so the map adds its bias itself.
            let beside = along(to, Along::Split(0));
            own.extend(operands[2..].iter().map(|bias| self.want(*bias, beside)));
        }
        let sum = self.add("", operation, own, (shape, partial));
        match partial == made || self.joins(id) {
            true => (sum, partial),
            false => self.met(sum, (partial, id, way), operands.get(2).copied(), shape),
        }
    }

    /// Sums that meet, and a bias that is added once.
    pub(super) fn met(
        &mut self,
        sum: Source,
        (partial, id, way): (Layout, NodeId, MapWay),
        bias: Option<Source>,
        shape: &[Extent],
    ) -> (Source, Layout) {
        let settled = match way.from() {
            from if from == way.to() => Along::Split(last(shape)),
            // Heads are of whole sequences: shares of the tokens would have to meet at once.
            Some(from) if !self.absorb.meets_heads(id) => self.settled(shape, from),
            _ => Along::Whole,
        };
        let layout = partial.map(|along| match along {
            Along::Partial => settled,
            other => other,
        });
        let sum = self.settle(sum, (partial, layout), shape);
        let Some(bias) = bias else { return (sum, layout) };
        let beside = layout.map(|along| match along {
            Along::Split(_) => Along::Split(0),
            other => other.repeated(),
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
        let way = self.ways.of(site(first))?;
        let own = operands.iter().map(|own| self.want(*own, layout)).collect();
        let sum = self.add("", Operation::Add, own, (shape, layout));
        Some(self.met(sum, (layout, first, way), None, shape))
    }

    /// Whether the sums of a convolution are added to those of another one before they meet: the
    /// two are one convolution of both operands side by side.
    fn joins(&self, id: NodeId) -> bool {
        match self.listed {
            None => self.turns.joins(id),
            Some(listed) => self.turns.partner(id).is_some_and(|other| {
                let [one, other] = [id, other].map(|id| listed.of(site(id)));
                one == other && one.is_some_and(|way| way.to().is_some())
            }),
        }
    }

    /// The way that a map goes for how its operand lies, and for who reads it.
    fn way(&mut self, map: Map<'_>) -> Option<MapWay> {
        match map.operation {
            Operation::Conv2d { .. } => self.way_of_channels(map),
            _ => self.way_of_features(map),
        }
    }

    fn way_of_features(&mut self, map: Map<'_>) -> Option<MapWay> {
        let Map { id, operands, .. } = map;
        let read = self.shape(operands[0]);
        let (extent, rows) = (last(&read), self.parts(Direction::Rows));
        let width = read[extent as usize].size;
        let by_rows = self.layout(operands[0]).rows == Along::Split(extent)
            && width.is_multiple_of(rows);
        let way = match self.alternates() {
            true if self.absorb.makes_classes(id) => return Some(MapWay::WholeToAll),
            true if self.gathers() => MapWay::WholeToColumns,
            _ if by_rows => MapWay::RowsToColumns,
            true => MapWay::ColumnsToRows,
            false if self.absorb.takes_columns(id) => MapWay::ColumnsToRows,
            false => {
                if self.absorb.wants_columns(id) {
                    self.counted(("output features", map.made()), map.made());
                }
                return None;
            }
        };
        if self.alternates() {
            let sizes = [("input features", width), ("output features", map.made())];
            for (direction, counted) in [way.from(), way.to()].into_iter().zip(sizes) {
                direction.map(|direction| self.divides(direction, counted));
            }
        }
        Some(way)
    }

    /// Convolutions take turns.
    fn way_of_channels(&mut self, map: Map<'_>) -> Option<MapWay> {
        let x = map.operands[0];
        let read = self.shape(x);
        let by_rows = self.layout(x).divides(last(&read)) == Some(Direction::Rows);
        let from = if by_rows { Direction::Rows } else { Direction::Columns };
        let columns = Some(Direction::Columns);
        let (from, to) = match self.turns.of(map.id) {
            // What is gathered is whole, as what is brought is.
            Turn::First | Turn::On | Turn::Back if self.gathers() => (None, columns),
            Turn::First => (None, columns),
            Turn::On => (Some(from), Some(crossing(from))),
            Turn::Back => (columns, columns),
            Turn::Last => (Some(from), None),
        };
        if to == Some(Direction::Rows) {
            self.counted(("filters", map.made()), map.made());
        }
        let width = read.last().map_or(1, |extent| extent.size);
        let reads = from.is_none_or(|from| self.divides(from, ("channels", width)));
        let makes = to.is_none_or(|to| self.divides(to, ("filters", map.made())));
        match reads && makes {
            true => MapWay::between(from, to, self.tensor),
            false => None,
        }
    }
}

/// Whole but in a direction, where there is one.
pub(super) fn along(direction: Option<Direction>, along: Along) -> Layout {
    direction.map_or(Layout::WHOLE, |direction| Layout::only(direction, along))
}
