//! Tensor parallelism: the grid of devices that do one pass together, and the part of a parameter
//! that each of them holds.
//!
//! A grid of R rows and C columns has R · C parts; part r · C + c stands in row r and column c, so
//! columns are neighbours. Parts that differ in one of the two alone are a [`Line`].

use crate::{AxisId, Parameter, Schedule, Splits, spelled::spelled};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How the operations of a stage are split among the devices of one coordinate of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Rows of the grid: they split what the first of two layers makes.
    pub rows: u32,
    /// Columns of the grid: they split what the first of two layers reads, and the values between
    /// such pairs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub columns: u32,
    /// What they do where features are whole.
    #[serde(default, skip_serializing_if = "Sequence::is_whole")]
    pub sequence: Sequence,
    /// What they do with the pixels of images.
    #[serde(default, skip_serializing_if = "Images::is_whole")]
    pub images: Images,
    /// How maps multiply features that columns divide.
    #[serde(default, skip_serializing_if = "Contraction::is_alternate")]
    pub contraction: Contraction,
    /// In how many parts a device takes the examples of a micro-batch: one, or two that take turns,
    /// so that each computes while what the other one made is exchanged (overdecomposition, arXiv
    /// 2305.13525).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub overdecompose: u32,
}

spelled! {
    /// How maps multiply features that columns divide.
    #[derive(Default)]
    pub enum Contraction: "contraction" {
        /// They read what one direction of the grid divides and make what the other one divides, in
        /// turn, and sums meet (Tensor3D, arXiv 2305.13525).
        #[default]
        Alternate = "alternate",
        /// Each device gathers what it reads from the columns and makes its own columns of the
        /// result, in one row: products in two dimensions (SUMMA; arXiv 2110.14883) where states
        /// are sharded among as many devices.
        Gather = "gather",
        /// Each map in a way of its own: plans list them as `maps`.
        Each = "each",
    }
}

spelled! {
    /// What the rows do where features are whole, between two split regions.
    #[derive(Default)]
    pub enum Sequence: "sequence" {
        /// Every row does all tokens.
        #[default]
        Whole = "whole",
        /// Each row does its share of the tokens (sequence parallelism, arXiv 2205.05198).
        Split = "split",
    }
}

spelled! {
    /// What the rows do with images.
    #[derive(Default)]
    pub enum Images: "images" {
        /// They have all pixels; convolutions divide channels, as affine maps do features.
        #[default]
        Whole = "whole",
        /// Each row has an equal part of the height, of all channels, and all weights; windows that
        /// reach over the edge read rows of the neighbours (halos; arXiv 2006.03108).
        Split = "split",
    }
}

/// A direction of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Along the rows: parts of one column.
    Rows,
    /// Along the columns: parts of one row.
    Columns,
    /// All parts, row by row.
    Both,
}

/// Parts that meet, or that divide an extent: this many, each so far behind the one before it. All
/// parts of a grid belong to such a line, and lines of one kind do not overlap.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// How many parts a line has.
    pub parts: u32,
    /// Distance of neighbours on it.
    pub stride: u32,
}

/// An extent that parts divide equally: the part at place k of its line has k · e .. (k + 1) · e,
/// where e is that extent of the part. What lies behind the end of the whole is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Number of the extent that is divided.
    pub extent: u32,
    /// That extent of the whole.
    pub whole: u64,
    /// The parts that divide it among them; all in their order where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
}

/// How the parts of a grid hold a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Division {
    /// Each of them has all of it.
    #[default]
    Whole,
    /// One extent is divided.
    One(Split),
    /// Each direction of the grid divides an extent of its own.
    Two([Split; 2]),
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Tensor {
    /// One device does everything.
    pub const WHOLE: Self = Self::rows(1, Sequence::Whole);

    /// So many rows, in one column.
    pub const fn rows(rows: u32, sequence: Sequence) -> Self {
        Self { sequence, ..Self::grid(rows, 1) }
    }

    /// A grid of this many rows and columns.
    pub const fn grid(rows: u32, columns: u32) -> Self {
        Self {
            rows,
            columns,
            sequence: Sequence::Whole,
            images: Images::Whole,
            contraction: Contraction::Alternate,
            overdecompose: 1,
        }
    }

    /// So many rows that divide the height of images.
    pub const fn pixels(rows: u32) -> Self {
        Self { images: Images::Split, ..Self::grid(rows, 1) }
    }

    /// The same, with the examples of a micro-batch in two halves that take turns.
    pub const fn in_halves(self) -> Self {
        Self { overdecompose: 2, ..self }
    }

    /// Whether one device does everything.
    pub fn is_whole(&self) -> bool {
        *self == Self::WHOLE
    }

    /// As messages say it: `2 tensor rows`, `2 tensor rows and 4 columns`.
    pub fn shown(&self) -> String {
        let rows = match self.rows {
            1 => "1 tensor row".to_owned(),
            rows => format!("{rows} tensor rows"),
        };
        match (self.columns, self.contraction) {
            (1, _) if self.images == Images::Split => {
                format!("{rows} that split images")
            }
            (1, _) => rows,
            (columns, Contraction::Alternate | Contraction::Each) => {
                format!("{rows} and {columns} columns")
            }
            (columns, Contraction::Gather) => format!("{columns} columns that gather"),
        }
    }

    /// Whether maps can multiply as they are to: columns that gather stand in one row, and it
    /// leaves sequences whole, for nobody else divides the tokens; one column leaves no choice.
    pub fn can_contract(&self) -> bool {
        match self.contraction {
            Contraction::Alternate => true,
            Contraction::Each => self.columns > 1,
            Contraction::Gather => {
                self.columns > 1 && self.rows == 1 && self.sequence == Sequence::Whole
            }
        }
    }

    /// The direction of a single part that does not even count whose turn it is: values that it
    /// divides are whole.
    pub fn idle(&self) -> Option<Direction> {
        match (self.columns, self.rows, self.contraction) {
            (1, ..) => Some(Direction::Columns),
            (_, 1, Contraction::Each | Contraction::Gather) => Some(Direction::Rows),
            _ => None,
        }
    }

    /// Whether images can lie as they are to: several rows in one column split them, for channels
    /// that columns divide beside pixels are not built.
    pub fn can_lie(&self) -> bool {
        match self.images {
            Images::Whole => true,
            Images::Split => self.rows > 1 && self.columns == 1,
        }
    }

    /// Devices of the grid.
    pub fn parts(&self) -> u32 {
        self.rows.saturating_mul(self.columns)
    }

    /// The parts that differ in one direction.
    pub fn line(&self, direction: Direction) -> Line {
        let Self { rows, columns, .. } = *self;
        match direction {
            Direction::Rows => Line { parts: rows, stride: columns },
            Direction::Columns => Line { parts: columns, stride: 1 },
            Direction::Both => Line { parts: self.parts(), stride: 1 },
        }
    }

    /// Whether the grid has such lines: along a direction, or of single parts.
    pub fn has(&self, line: Line) -> bool {
        let all = [Direction::Rows, Direction::Columns, Direction::Both];
        let is_single = line.parts == 1 && line.fits(self.parts());
        is_single || all.into_iter().any(|direction| self.line(direction) == line)
    }
}

impl Line {
    /// The line of a part that has everything.
    pub const ALONE: Self = Self { parts: 1, stride: 1 };

    /// The place of a part on its line.
    pub fn place(self, part: u32) -> u32 {
        part / self.stride.max(1) % self.parts.max(1)
    }

    /// The parts of the line that a part belongs to, in order.
    pub fn members(self, part: u32) -> impl ExactSizeIterator<Item = u32> + Clone {
        let first = part - self.place(part) * self.stride;
        (0..self.parts).map(move |place| first + place * self.stride)
    }

    /// Whether a grid of this many parts falls into such lines.
    fn fits(self, parts: u32) -> bool {
        let span = u64::from(self.parts) * u64::from(self.stride);
        span > 0 && u64::from(parts).is_multiple_of(span)
    }
}

impl Division {
    /// What is divided.
    pub fn splits(&self) -> &[Split] {
        match self {
            Division::Whole => &[],
            Division::One(split) => std::slice::from_ref(split),
            Division::Two(splits) => splits,
        }
    }

    /// Whether each part has all of it.
    pub fn is_whole(&self) -> bool {
        *self == Division::Whole
    }
}

impl Default for Tensor {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Contraction {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_alternate(&self) -> bool {
        *self == Contraction::Alternate
    }
}

impl Sequence {
    fn is_whole(&self) -> bool {
        *self == Sequence::Whole
    }
}

impl Images {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_whole(&self) -> bool {
        *self == Images::Whole
    }
}

impl Parameter {
    /// Extents of the whole.
    pub fn whole_shape(&self) -> Vec<u64> {
        let mut shape = self.shape.clone();
        for split in self.split.splits() {
            shape[split.extent as usize] = split.whole;
        }
        shape
    }

    /// Number of elements of the whole.
    pub fn whole_elements(&self) -> u64 {
        self.whole_shape().iter().product()
    }

    /// The own piece of a whole array whose elements are this many bytes wide.
    pub fn part_of(&self, part: u32, whole: &[u8], width: usize) -> Vec<u8> {
        let mut own = vec![0; self.shape.iter().product::<u64>() as usize * width];
        self.each_run(part, width, |to, from| own[to].copy_from_slice(&whole[from]));
        own
    }

    /// Puts the piece of a part where it belongs in a whole array.
    pub fn put_part(&self, part: u32, own: &[u8], whole: &mut [u8], width: usize) {
        self.each_run(part, width, |from, to| whole[to].copy_from_slice(&own[from]));
    }

    /// Bytes that lie one behind the other, in the own piece and in the whole.
    fn each_run(
        &self,
        part: u32,
        width: usize,
        mut visit: impl FnMut(Range<usize>, Range<usize>),
    ) {
        let whole = self.whole_shape();
        let splits = self.split.splits().iter();
        let last = splits.map(|split| split.extent as usize).max().unwrap_or(0);
        // Blocks before the innermost extent that is divided, counted in the own piece and in the
        // whole; what lies behind it is the same in both.
        let mut blocks = vec![(0, 0)];
        for (extent, all) in whole.iter().enumerate().take(last) {
            let here = self.own(extent, part);
            let own = self.shape[extent];
            let inside = |(a, b): (u64, u64)| {
                let first = here.start;
                here.clone().map(move |step| (a * own + step - first, b * all + step))
            };
            blocks = blocks.into_iter().flat_map(inside).collect();
        }
        let extent = |shape: &[u64]| shape.get(last).copied().unwrap_or(1);
        let inner = self.shape.iter().skip(last + 1).product::<u64>() * width as u64;
        let here = if self.shape.is_empty() { 0..1 } else { self.own(last, part) };
        let length = (here.end - here.start) * inner;
        for (own, all) in blocks.into_iter().filter(|_| length > 0) {
            let own = own * extent(&self.shape) * inner;
            let all = (all * extent(&whole) + here.start) * inner;
            let run = |first: u64| first as usize..(first + length) as usize;
            visit(run(own), run(all));
        }
    }

    /// What a part has of an extent of the whole.
    fn own(&self, extent: usize, part: u32) -> Range<u64> {
        let own = self.shape[extent];
        let mut splits = self.split.splits().iter();
        let Some(split) = splits.find(|split| split.extent as usize == extent) else {
            return 0..own;
        };
        let place = split.line.map_or(part, |line| line.place(part));
        let first = (own * u64::from(place)).min(split.whole);
        first..(first + own).min(split.whole)
    }
}

impl Schedule {
    /// The axis along which tensors are split, if there is one.
    pub fn parts_axis(&self) -> Option<AxisId> {
        let mut axes = self.axes.iter();
        axes.find(|(_, axis)| axis.splits == Splits::Tensors).map(|(id, _)| id)
    }

    /// How many coordinates split one tensor among them.
    pub fn tensor_parts(&self) -> u32 {
        self.parts_axis().map_or(1, |axis| self.axes[axis].extent)
    }

    /// Which part of every split tensor a coordinate has.
    pub fn part_at(&self, coordinate: &[u32]) -> u32 {
        self.parts_axis().map_or(0, |axis| coordinate[crate::Id::index(axis)])
    }

    /// The number of a coordinate among those that take micro-batches of their own.
    pub fn batch_of(&self, coordinate: &[u32]) -> u32 {
        let axes = self.axes.values().zip(coordinate);
        let own = axes.filter(|(axis, _)| axis.splits == Splits::Batch);
        own.fold(0, |number, (axis, place)| number * axis.extent + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Belonging, Initial, ParameterKind, Treatment};

    fn parameter(shape: &[u64], split: Division) -> Parameter {
        Parameter {
            belonging: Belonging::Model,
            name: "w".into(),
            stage: crate::Id::new(0),
            offset: 0,
            shape: shape.to_vec(),
            kind: ParameterKind::Plain,
            split,
            initial: Initial::Constant(0.0),
            treatment: Treatment::Decayed,
        }
    }

    /// The pieces of (5, 4, 3) make the whole again.
    fn assert_whole_again(one: &Parameter, parts: u32) {
        let whole: Vec<u8> = (0..120).collect();
        let mut again = vec![0; 120];
        for part in 0..parts {
            let own = one.part_of(part, &whole, 2);
            assert_eq!(own.len() as u64, one.shape.iter().product::<u64>() * 2);
            one.put_part(part, &own, &mut again, 2);
        }
        assert_eq!((one.whole_shape(), again), (vec![5, 4, 3], whole));
    }

    #[test]
    fn parts_make_the_whole_again_along_every_extent_even_where_they_do_not_divide_it() {
        for (extent, shape) in [(0, [2, 4, 3]), (1, [5, 2, 3]), (2, [5, 4, 1])] {
            let whole = [5, 4, 3][extent as usize];
            let split = Split { extent, whole, line: None };
            assert_whole_again(&parameter(&shape, Division::One(split)), 3);
        }
    }

    #[test]
    fn rows_and_columns_divide_an_extent_each_and_others_hold_the_same() {
        let grid = Tensor::grid(3, 2);
        let line = |direction| Some(grid.line(direction));
        let rows = Split { extent: 0, whole: 5, line: line(Direction::Rows) };
        let columns = Split { extent: 2, whole: 3, line: line(Direction::Columns) };
        for splits in [[rows, columns], [columns, rows]] {
            assert_whole_again(&parameter(&[2, 4, 2], Division::Two(splits)), 6);
        }
        let alone = parameter(&[5, 4, 2], Division::One(columns));
        assert_whole_again(&alone, 6);
        let whole: Vec<u8> = (0..60).collect();
        let pieces: Vec<Vec<u8>> =
            (0..6).map(|part| alone.part_of(part, &whole, 1)).collect();
        assert!(pieces[0] == pieces[2] && pieces[1] == pieces[5]);
        assert_eq!(pieces[1][..4], [2, 0, 5, 0]);
    }

    #[test]
    fn lines_of_a_grid_cross_in_one_part() {
        let grid = Tensor::grid(3, 2);
        let of = |direction, part| -> Vec<u32> {
            grid.line(direction).members(part).collect()
        };
        assert_eq!(of(Direction::Rows, 3), [1, 3, 5]);
        assert_eq!(of(Direction::Columns, 3), [2, 3]);
        assert_eq!(of(Direction::Both, 3), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Tensor::rows(3, Sequence::Whole).line(Direction::Rows).stride, 1);
        let [rows, columns] = [Direction::Rows, Direction::Columns].map(|d| grid.line(d));
        assert_eq!((rows.place(3), columns.place(3)), (1, 1));
        assert!(rows.fits(6) && rows.fits(12) && !rows.fits(9) && !columns.fits(3));
    }

    #[test]
    fn what_is_not_split_is_whole_everywhere() {
        let one = parameter(&[3, 2], Division::Whole);
        let whole: Vec<u8> = (0..24).collect();
        assert_eq!(one.part_of(1, &whole, 4), whole);
    }
}
