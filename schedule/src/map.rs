//! How each affine map of a model is split on a grid, as plain data: ways by name, and the
//! operations of the model that go each way. How a way is made of parts is up to the compiler.

use crate::{Contraction, Direction, Sites, Tensor, spelled::spelled};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

spelled! {
    /// How an affine map, linear or a convolution, is split: who divides the features or channels
    /// that it reads, and who divides those that it makes. A map without a way is done whole by
    /// every part.
    pub enum MapWay: "way of a map" {
        /// Columns divide what it reads, rows what it makes; sums of the columns meet.
        ColumnsToRows = "columns_to_rows",
        /// Rows divide what it reads, columns what it makes; sums of the rows meet.
        RowsToColumns = "rows_to_columns",
        /// It reads all, gathered where columns divide it, and columns divide what it makes.
        WholeToColumns = "whole_to_columns",
        /// Columns divide what it reads, and its sums are scattered among them.
        ColumnsToColumns = "columns_to_columns",
        /// Columns divide what it reads, and its sums meet in each of them.
        ColumnsToWhole = "columns_to_whole",
        /// Rows divide what it reads, and its sums meet in each of them.
        RowsToWhole = "rows_to_whole",
        /// It reads all, and every part of the grid makes its own part.
        WholeToAll = "whole_to_all",
    }
}

/// The ways of the affine maps of a plan; no map goes two ways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<MapWay, Sites>", into = "BTreeMap<MapWay, Sites>")]
pub struct MapWays(BTreeMap<u32, MapWay>);

impl MapWay {
    /// Who divides what it reads.
    pub fn from(self) -> Option<Direction> {
        match self {
            MapWay::RowsToColumns | MapWay::RowsToWhole => Some(Direction::Rows),
            MapWay::ColumnsToRows | MapWay::ColumnsToColumns | MapWay::ColumnsToWhole => {
                Some(Direction::Columns)
            }
            MapWay::WholeToColumns | MapWay::WholeToAll => None,
        }
    }

    /// Who divides what it makes.
    pub fn to(self) -> Option<Direction> {
        match self {
            MapWay::ColumnsToRows => Some(Direction::Rows),
            MapWay::RowsToColumns | MapWay::WholeToColumns | MapWay::ColumnsToColumns => {
                Some(Direction::Columns)
            }
            MapWay::ColumnsToWhole | MapWay::RowsToWhole => None,
            MapWay::WholeToAll => Some(Direction::Both),
        }
    }

    /// Whether several parts divide something of it on a grid.
    pub fn divides(self, tensor: Tensor) -> bool {
        let several = |direction| tensor.line(direction).parts > 1;
        self.from().is_some_and(several) || self.to().is_some_and(several)
    }

    /// The way that divides what is read and made among these on a grid; none where single parts
    /// do. On a grid with a single row or column several would be the same: the first of them.
    pub fn between(
        from: Option<Direction>,
        to: Option<Direction>,
        tensor: Tensor,
    ) -> Option<Self> {
        let fits = |way: &&Self| (way.from(), way.to()) == (from, to);
        Self::ALL.iter().find(fits).copied().filter(|way| way.divides(tensor))
    }

    /// Whether linear maps go this way under a contraction.
    pub fn suits(self, contraction: Contraction) -> bool {
        match (contraction, self) {
            (Contraction::Each, _) | (_, MapWay::WholeToAll) => true,
            (Contraction::Alternate, way) => {
                matches!(way, MapWay::ColumnsToRows | MapWay::RowsToColumns)
            }
            (Contraction::Gather, way) => way == MapWay::WholeToColumns,
        }
    }
}

impl MapWays {
    /// Sends a map a way; the way that it went before.
    pub fn insert(&mut self, site: u32, way: MapWay) -> Option<MapWay> {
        self.0.insert(site, way)
    }

    /// Sends a map a way; by none every part does all of it.
    pub fn send(&mut self, site: u32, way: Option<MapWay>) {
        match way {
            Some(way) => drop(self.0.insert(site, way)),
            None => drop(self.0.remove(&site)),
        }
    }

    /// The way of a map; none where every part does all of it.
    pub fn of(&self, site: u32) -> Option<MapWay> {
        self.0.get(&site).copied()
    }

    /// Whether no map is split.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each map with its way, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, MapWay)> {
        self.0.iter().map(|(site, way)| (*site, *way))
    }

    /// The ways that are gone, each with its maps.
    pub fn by_way(&self) -> BTreeMap<MapWay, Sites> {
        let mut ways = BTreeMap::<MapWay, Sites>::new();
        for (site, way) in self.iter() {
            ways.entry(way).or_default().insert(site);
        }
        ways
    }
}

impl From<MapWays> for BTreeMap<MapWay, Sites> {
    fn from(ways: MapWays) -> Self {
        ways.by_way()
    }
}

impl TryFrom<BTreeMap<MapWay, Sites>> for MapWays {
    type Error = String;

    fn try_from(ways: BTreeMap<MapWay, Sites>) -> Result<Self, String> {
        let mut maps = Self::default();
        for (way, sites) in ways {
            for site in sites.iter() {
                if let Some(other) = maps.insert(site, way) {
                    return Err(format!(
                        "o{site} goes two ways, {other} and {way}: delete one"
                    ));
                }
            }
        }
        Ok(maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_goes_one_way() {
        let sites = |text: &str| text.parse::<Sites>().expect("it reads well");
        let two: BTreeMap<MapWay, Sites> =
            [(MapWay::ColumnsToRows, sites("o3 o9")), (MapWay::WholeToAll, sites("o4"))]
                .into();
        let maps = MapWays::try_from(two.clone()).expect("each goes one way");
        assert_eq!(maps.of(9), Some(MapWay::ColumnsToRows));
        assert_eq!((maps.of(4), maps.of(5)), (Some(MapWay::WholeToAll), None));
        assert_eq!(BTreeMap::from(maps), two);
        let twice =
            [(MapWay::ColumnsToRows, sites("o3")), (MapWay::WholeToAll, sites("o3 o4"))];
        let found = MapWays::try_from(BTreeMap::from(twice)).unwrap_err();
        assert_eq!(
            found,
            "o3 goes two ways, columns_to_rows and whole_to_all: delete one"
        );
    }

    /// The name of a way says who divides what, and no two ways are one.
    #[test]
    fn ways_are_what_their_names_say() {
        let word = |direction: Option<Direction>| match direction {
            None => "whole",
            Some(Direction::Rows) => "rows",
            Some(Direction::Columns) => "columns",
            Some(Direction::Both) => "all",
        };
        for way in MapWay::ALL {
            let said = format!("{}_to_{}", word(way.from()), word(way.to()));
            assert_eq!(way.to_string(), said);
            let grid = Tensor::grid(2, 2);
            assert_eq!(MapWay::between(way.from(), way.to(), grid), Some(*way));
        }
        let (rows, columns) = (Tensor::grid(2, 1), Tensor::grid(1, 2));
        assert!(!MapWay::WholeToColumns.divides(rows));
        assert!(!MapWay::RowsToWhole.divides(columns));
        assert!(MapWay::RowsToColumns.divides(rows) && MapWay::WholeToAll.divides(rows));
    }
}
