//! How a model lies on a grid, for whoever chooses the ways of its maps.

use super::{
    layout::{Along, Layout},
    local::Local,
    maps::{Map, site},
};
use roundelay_dsl::{Model, Node, NodeId, Operation, Source};
use roundelay_schedule::{Direction, MapWay, MapWays, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A model on a grid, where each map follows how its operand lies.
#[derive(Clone, Debug)]
pub struct Divided<'a> {
    /// The whole model.
    pub model: &'a Model,
    /// The grid.
    pub tensor: Tensor,
    /// The ways that its maps go.
    pub ways: &'a MapWays,
    /// Whether lowering refuses something by name where maps go by themselves.
    pub is_refused: bool,
    /// How the result of each operation lies.
    pub lies: Vec<Lie>,
    /// The ways that each map could go.
    pub fitting: BTreeMap<u32, Vec<MapWay>>,
    /// The sums of two convolutions that are added up before they meet, where both go one way that
    /// divides what they make.
    pub joins: BTreeSet<u32>,
}

/// How the features of a value lie. Where tokens are shared out, that is not told; where a direction
/// has a single part, it still says whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// Every part has all of it.
    Whole,
    /// One extent is divided in a direction.
    Split {
        /// The number of the extent.
        extent: u32,
        /// Who divides it.
        direction: Direction,
    },
    /// Otherwise: as sums that have not met, or with two extents divided.
    Otherwise,
}

impl From<Layout> for Lie {
    fn from(layout: Layout) -> Self {
        let split = |extent, direction| Lie::Split { extent, direction };
        let is_all =
            |along| matches!(along, Along::Whole | Along::Varying | Along::Tokens);
        match (layout.rows, layout.columns) {
            (rows, columns) if is_all(rows) && is_all(columns) => Lie::Whole,
            (Along::Split(extent), columns) if is_all(columns) => {
                split(extent, Direction::Rows)
            }
            (rows, Along::Split(extent)) if is_all(rows) => {
                split(extent, Direction::Columns)
            }
            (Along::Split(one), Along::Split(other)) if one == other => {
                split(one, Direction::Both)
            }
            _ => Lie::Otherwise,
        }
    }
}

impl Local<'_> {
    /// How the whole model lies on the grid.
    pub(super) fn divided(&self) -> Divided<'_> {
        let lies = self.layouts().map(Lie::from);
        Divided {
            model: self.whole,
            tensor: self.tensor,
            ways: &self.ways,
            lies: lies.collect(),
            fitting: self.fitting(),
            joins: self.joins_of_two(),
            is_refused: self.refused.is_some(),
        }
    }

    fn joins_of_two(&self) -> BTreeSet<u32> {
        let joins = |node: &Node| match node.operands[..] {
            [Source::Node(one), Source::Node(other)] => {
                node.operation == Operation::Add && self.turns.partner(one) == Some(other)
            }
            _ => false,
        };
        let all = self.whole.nodes.iter().filter(|(_, node)| joins(node));
        all.map(|(id, _)| site(id)).collect()
    }

    fn fitting(&self) -> BTreeMap<u32, Vec<MapWay>> {
        let fitting = |(id, node): (NodeId, &Node)| {
            let Node { operation, operands, shape, .. } = node;
            let is_map = matches!(
                operation,
                Operation::Linear | Operation::Conv2d { groups: 1, .. }
            );
            let map = Map { id, operation: *operation, operands, shape };
            let ways = MapWay::ALL.iter().copied();
            let ways = ways.filter(|way| self.fault(map, *way).is_none());
            is_map.then(|| (site(id), ways.collect()))
        };
        self.whole.nodes.iter().filter_map(fitting).collect()
    }
}
