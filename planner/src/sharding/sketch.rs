//! A region as terms, and back from terms to the ways of its maps.

use super::{
    extract::Cheapest,
    region::{Grid, Kind, Operand, Part, Region, Size},
    term::{Along, Lettered, Term, Terms, along, operation},
};
use crate::timeless::timeless;
use egg::Id;
use roundelay_codegen::Lie;
use roundelay_schedule::{Direction, MapWay};

/// A region as terms.
pub(super) struct Sketch {
    pub(super) terms: Terms,
    /// What others read.
    pub(super) needed: Vec<Id>,
    /// The direction that moves nothing.
    idle: Option<Direction>,
}

impl Sketch {
    pub(super) fn new(region: &Region) -> Self {
        let idle = region.grid.idle;
        let mut sketch = Self { terms: Terms::default(), needed: Vec::new(), idle };
        let given: Vec<Id> = region
            .given
            .iter()
            .enumerate()
            .map(|(number, value)| {
                let own = sketch.terms.add(Term::Value(Lettered(number)));
                sketch.lying(Term::Gather, value.lie, own)
            })
            .collect();
        let mut made: Vec<Id> = Vec::new();
        for (number, part) in region.operations.iter().enumerate() {
            let operands: Vec<Id> = part
                .operands
                .iter()
                .map(|operand| match operand {
                    Operand::Given(value) => given[*value],
                    Operand::Made(value) => made[*value],
                })
                .collect();
            let last = match part.kind {
                Kind::Mix { .. } => part.size.last,
                _ => part.operands.first().map_or(0, |own| region.size(*own).last),
            };
            made.push(sketch.done((number, &part.kind), last, &operands));
        }
        for (number, lie) in &region.needed {
            let id = sketch.lying(Term::Cut, *lie, made[*number]);
            sketch.needed.push(id);
        }
        timeless(|| sketch.terms.rebuild());
        sketch
    }

    /// An operation that every part does all of; `last` is the last extent of the values that it reads.
    fn done(&mut self, (number, kind): (usize, &Kind), last: u32, read: &[Id]) -> Id {
        let own = self.terms.add(Term::Operation(Lettered(number)));
        let mut extent = || self.terms.add(Term::Extent(Lettered(last)));
        let term = match kind {
            Kind::Map { .. } => Term::Map([own, extent(), read[0]]),
            Kind::Each => Term::Each([own, read[0]]),
            Kind::Pair | Kind::Join => Term::Pair([own, read[0], read[1]]),
            Kind::Channels { .. } => Term::Channels([own, extent(), read[0]]),
            Kind::Pool { .. } => Term::Pool([own, extent(), read[0]]),
            Kind::Norm { .. } => Term::Norm([own, extent(), read[0]]),
            Kind::Attend { .. } => {
                Term::Attend([own, extent(), read[0], read[1], read[2]])
            }
            Kind::AttendPacked { .. } => Term::AttendPacked([own, extent(), read[0]]),
            Kind::Scores { .. } => Term::Scores([own, extent(), read[0], read[1]]),
            Kind::Mix { .. } => Term::Mix([own, extent(), read[0], read[1]]),
            Kind::Rotary { .. } => Term::Rotary([own, extent(), read[0]]),
            Kind::Loss => Term::Loss([own, extent(), read[0]]),
            Kind::Whole => Term::Whole([own, read[0], read[1]]),
        };
        self.terms.add(term)
    }

    /// From or to how a value lies.
    fn lying(&mut self, moves: fn([Id; 3]) -> Term, lie: Lie, value: Id) -> Id {
        match lie {
            Lie::Whole | Lie::Otherwise => value,
            Lie::Split { direction, .. } if self.idle == Some(direction) => value,
            Lie::Split { extent, direction } => {
                let along = Along::from(direction).beside(self.idle);
                let along = self.terms.add(Term::Along(along));
                let extent = self.terms.add(Term::Extent(Lettered(extent)));
                self.terms.add(moves([along, extent, value]))
            }
        }
    }
}

/// A map as a term does it: its number, who divides what it reads, and who what it makes. Where nobody
/// does, every part does all of it.
#[derive(Clone, Copy)]
pub(super) struct Mapped {
    pub(super) number: usize,
    pub(super) sides: [Along; 2],
}

/// The map that a term does.
pub(super) fn mapped(terms: &Terms, term: &Term) -> Option<Mapped> {
    let (number, sides) = match *term {
        Term::Map([number, ..]) => (number, [Along::Nobody; 2]),
        Term::Split([from, to, number, _]) => {
            (number, [from, to].map(|side| along(terms, side)))
        }
        _ => return None,
    };
    Some(Mapped { number: operation(terms, number), sides })
}

impl Region {
    pub(super) fn size(&self, operand: Operand) -> Size {
        match operand {
            Operand::Given(number) => self.given[number].size,
            Operand::Made(number) => self.operations[number].size,
        }
    }

    /// The way of each map as terms were taken; that which it went by itself where none was.
    pub(super) fn ways(&self, terms: &Terms, cheapest: &Cheapest) -> Vec<Option<MapWay>> {
        let alone = |part: &Part| match &part.kind {
            Kind::Map { alone, .. } => *alone,
            _ => None,
        };
        let mut ways: Vec<_> = self.operations.iter().map(alone).collect();
        for term in cheapest.terms() {
            if let Some(Mapped { number, sides }) = mapped(terms, term) {
                let scattered = cheapest.scatters(terms, term);
                ways[number] = way(self.grid, ways[number], (sides, scattered));
            }
        }
        ways
    }
}

/// The way of a map on parts, whose sums are scattered or not. In one row what rows divide is whole:
/// there it is the way that the map goes by itself.
pub(super) fn way(
    grid: Grid,
    alone: Option<MapWay>,
    (sides, scattered): ([Along; 2], bool),
) -> Option<MapWay> {
    use Along::*;
    Some(match (sides, scattered) {
        ([Columns, Rows], _) => MapWay::ColumnsToRows,
        ([Rows, Columns], _) => MapWay::RowsToColumns,
        ([Nobody, Columns], _)
            if grid.rows == 1 && alone == Some(MapWay::RowsToColumns) =>
        {
            MapWay::RowsToColumns
        }
        ([Nobody, Columns], _) => MapWay::WholeToColumns,
        ([Columns, Nobody], true) => MapWay::ColumnsToColumns,
        ([Columns, Nobody], false) => MapWay::ColumnsToWhole,
        ([Rows, Nobody], _) => MapWay::RowsToWhole,
        ([Nobody, Both], _) => MapWay::WholeToAll,
        _ => return None,
    })
}
