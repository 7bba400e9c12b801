//! Tiles of matrix products: how many rows and columns a block sums, and how many stages of what it
//! multiplies are under way. See `tile.h`.

use super::{
    Argument, Number,
    draft::{Shape, extent},
};
use roundelay_schedule::Bytes;

/// The sums of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
    by: By,
}

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Threads,
    TensorCores,
}

/// Sides of a tile on tensor cores.
const WIDE: usize = 128;
const SLIM: usize = 64;
/// Rows and columns of a tile by threads.
const SQUARE: usize = 64;
/// Terms of a sum that one stage has.
const DEPTH: usize = 32;
/// Bytes of a row of a stage, in numbers of 16 bits: `ALONG_DEPTH` of `tile.h`.
const STRIDE: usize = 2 * (DEPTH + 8);
/// From this many terms on four stages hide what memory takes to answer: for fewer, most are never
/// filled, and half the shared memory leaves room for other blocks. Four of the largest take
/// 80 KiB, which every device has.
const DEEP: usize = 8 * DEPTH;

impl Tile {
    /// For sums in this many columns of numbers of a type.
    pub(super) fn of(number: Number, columns: usize) -> Self {
        match number {
            Number::Bf16 | Number::F16 => {
                let columns = if columns <= SLIM { SLIM } else { WIDE };
                Self { rows: WIDE, columns, by: By::TensorCores }
            }
            Number::F32 | Number::F64 => Self::by_threads(),
        }
    }
    pub(super) fn by_threads() -> Self {
        Self { rows: SQUARE, columns: SQUARE, by: By::Threads }
    }
    /// Rows for columns.
    pub(super) fn turned(self) -> Self {
        Self { rows: self.columns, columns: self.rows, ..self }
    }
    /// The function for this tile, of the family called `name`.
    pub(super) fn function(self, name: &str) -> String {
        match (self.by, self.rows.min(self.columns)) {
            (By::TensorCores, SLIM) => format!("{name}_slim"),
            (By::TensorCores | By::Threads, _) => name.to_owned(),
        }
    }
    /// Stages of sums of this many terms.
    fn stages(depth: usize) -> usize {
        if depth < DEEP { 2 } else { 4 }
    }
    /// The same as the functions are told.
    pub(super) fn stages_for(depth: usize) -> Argument {
        Argument::Unsigned(extent(Self::stages(depth)))
    }
    /// Blocks for (rows, columns), this many times, of sums of so many terms.
    pub(super) fn shape(self, [rows, columns, times]: [usize; 3], depth: usize) -> Shape {
        let blocks = [rows.div_ceil(self.rows), columns.div_ceil(self.columns), times];
        let shared = match self.by {
            By::Threads => 0,
            By::TensorCores => Self::stages(depth) * (self.rows + self.columns) * STRIDE,
        };
        let (grid, shared) = (blocks.map(extent), Bytes(shared as u64));
        Shape { grid, block: [256, 1, 1], shared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_as_wide_as_needed_and_stages_as_many() {
        let shape = |number, columns, depth| {
            Tile::of(number, columns).shape([129, columns, 1], depth)
        };
        let slim = shape(Number::Bf16, 64, 255);
        assert_eq!((slim.grid, slim.shared), ([2, 1, 1], Bytes(2 * 192 * 80)));
        let wide = shape(Number::F16, 65, 256);
        assert_eq!((wide.grid, wide.shared), ([2, 1, 1], Bytes(80 << 10)));
        let threads = shape(Number::F32, 65, 256);
        assert_eq!((threads.grid, threads.shared), ([3, 2, 1], Bytes(0)));
        let name = |columns| Tile::of(Number::Bf16, columns).turned().function("f");
        assert_eq!([64, 65].map(name), ["f_slim", "f"]);
    }
}
