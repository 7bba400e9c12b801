//! A region as terms, and back from terms to the ways of its maps.

use super::{
    extract::Cheapest,
    fits::{leaf, of_one_row, operation},
    region::{Grid, Kind, Operand, Region},
};
use crate::{
    rewrite::{Term, Terms},
    timeless::timeless,
};
use egg::Id;
use roundelay_codegen::Lie;
use roundelay_schedule::{Direction, MapWay};

/// A region as terms.
pub(super) struct Sketch {
    pub(super) terms: Terms,
    /// What others read.
    pub(super) needed: Vec<Id>,
    /// The direction that moves nothing.
    idle: Option<&'static str>,
}

/// The name of a direction.
pub(super) fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Rows => "r",
        Direction::Columns => "c",
        Direction::Both => "rc",
    }
}

impl Sketch {
    pub(super) fn new(region: &Region) -> Self {
        let idle = region.grid.idle();
        let mut sketch = Self { terms: Terms::default(), needed: Vec::new(), idle };
        let given: Vec<Id> = region
            .given
            .iter()
            .enumerate()
            .map(|(number, value)| {
                let own = sketch.add(&format!("v{number}"), &[]);
                sketch.lying("gather", value.lie, own)
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
            let operator = operator(&part.kind);
            let mut children = vec![sketch.add(&format!("o{number}"), &[])];
            if is_of_extent(&part.kind) {
                let last = match part.kind {
                    Kind::Mix { .. } => part.size.last,
                    _ => part.operands.first().map_or(0, |own| region.size(*own).last),
                };
                children.push(sketch.add(&format!("e{last}"), &[]));
            }
            children.extend(operands);
            let id = sketch.add(operator, &children);
            made.push(id);
        }
        for (number, lie) in &region.needed {
            let id = sketch.lying("cut", *lie, made[*number]);
            sketch.needed.push(id);
        }
        timeless(|| sketch.terms.rebuild());
        sketch
    }

    fn add(&mut self, operator: &str, children: &[Id]) -> Id {
        self.terms.add(Term::new(operator, children.to_vec()))
    }

    /// From or to how a value lies.
    fn lying(&mut self, operator: &str, lie: Lie, value: Id) -> Id {
        match lie {
            Lie::Whole | Lie::Otherwise => value,
            Lie::Split { direction, .. } if self.idle == Some(name(direction)) => value,
            Lie::Split { extent, direction } => {
                let direction = self.add(of_one_row(name(direction), self.idle), &[]);
                let extent = self.add(&format!("e{extent}"), &[]);
                self.add(operator, &[direction, extent, value])
            }
        }
    }
}

fn operator(kind: &Kind) -> &'static str {
    match kind {
        Kind::Map { .. } => "map",
        Kind::Each => "each",
        Kind::Pair | Kind::Join => "pair",
        Kind::Channels { .. } => "channels",
        Kind::Pool { .. } => "pool",
        Kind::Norm { .. } => "norm",
        Kind::Attend { .. } => "attend",
        Kind::AttendPacked { .. } => "attend_packed",
        Kind::Scores { .. } => "scores",
        Kind::Mix { .. } => "mix",
        Kind::Rotary { .. } => "rotary",
        Kind::Loss => "loss",
        Kind::Whole => "whole",
    }
}

/// Whether a term says which extent is the last of what it reads.
fn is_of_extent(kind: &Kind) -> bool {
    !matches!(kind, Kind::Each | Kind::Pair | Kind::Join | Kind::Whole)
}

impl Region {
    pub(super) fn size(&self, operand: Operand) -> super::region::Size {
        match operand {
            Operand::Given(number) => self.given[number].size,
            Operand::Made(number) => self.operations[number].size,
        }
    }

    /// The way of each map as terms were taken; that which it went by itself where none was.
    pub(super) fn ways(&self, terms: &Terms, cheapest: &Cheapest) -> Vec<Option<MapWay>> {
        let alone = |part: &super::region::Part| match &part.kind {
            Kind::Map { alone, .. } => *alone,
            _ => None,
        };
        let mut ways: Vec<_> = self.operations.iter().map(alone).collect();
        for term in cheapest.terms() {
            let named = |place: usize| leaf(terms, term.children[place]);
            match term.op {
                "map" => {
                    if let Some(number) = operation(named(0)) {
                        ways[number] = None;
                    }
                }
                "split" => {
                    if let Some(number) = operation(named(2)) {
                        let sides = [named(0), named(1)];
                        let scattered = cheapest.scatters(terms, term);
                        ways[number] = way(self.grid, ways[number], (sides, scattered));
                    }
                }
                _ => {}
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
    (sides, scattered): ([&str; 2], bool),
) -> Option<MapWay> {
    Some(match (sides, scattered) {
        (["c", "r"], _) => MapWay::ColumnsToRows,
        (["r", "c"], _) => MapWay::RowsToColumns,
        (["w", "c"], _) if grid.rows == 1 && alone == Some(MapWay::RowsToColumns) => {
            MapWay::RowsToColumns
        }
        (["w", "c"], _) => MapWay::WholeToColumns,
        (["c", "w"], true) => MapWay::ColumnsToColumns,
        (["c", "w"], false) => MapWay::ColumnsToWhole,
        (["r", "w"], _) => MapWay::RowsToWhole,
        (["w", "rc"], _) => MapWay::WholeToAll,
        _ => return None,
    })
}
