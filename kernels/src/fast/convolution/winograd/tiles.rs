//! Tiles of images, transformed: the rows of 36 matrices, and back.

use super::transform::{EDGE, Image, POSITIONS, ResultGradient, Results, TILE, both};
use crate::{Real, line::Lanes, simd::vectorize, store::Store};
use std::ops::Range;

/// Images (height, width, channels) cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Height and width of the images that tiles are cut from.
    pub(super) image: [usize; 2],
    /// Height and width of the results, which tiles cover.
    pub(super) result: [usize; 2],
    /// Zeros around the images.
    pub(super) padding: usize,
}

/// One tile: its image, and its first row and column in the result.
#[derive(Clone, Copy)]
struct Tile {
    image: usize,
    first: [usize; 2],
}

impl Tiling {
    /// Tiles of one image.
    pub(super) fn count(&self) -> usize {
        self.result.iter().map(|extent| extent.div_ceil(TILE)).product()
    }
    #[inline(always)]
    fn tile(&self, index: usize) -> Tile {
        let (image, tile) = (index / self.count(), index % self.count());
        let columns = self.result[1].div_ceil(TILE);
        Tile { image, first: [tile / columns * TILE, tile % columns * TILE] }
    }
    /// Rows or columns of what a tile sees that lie on the image.
    #[inline(always)]
    fn seen(&self, axis: usize, first: usize) -> Range<usize> {
        let end = (self.image[axis] + self.padding).saturating_sub(first).min(EDGE);
        self.padding.saturating_sub(first).min(end)..end
    }
    /// Rows or columns of a tile that lie on the result.
    #[inline(always)]
    fn covered(&self, axis: usize, first: usize) -> usize {
        TILE.min(self.result[axis] - first)
    }
}

vectorize! {
    /// Bᵀ d B of `tiles`: element (tile, channel) of matrix p stands at p · `matrix` +
    /// tile · `channels` + channel.
    pub(super) fn images<R>(
        tiling: &Tiling, tiles: Range<usize>, x: &[R], channels: usize, out: &mut [R],
        matrix: usize,
    ) {
        let [height, width] = tiling.image;
        let mut seen = [[R::Line::splat(R::ZERO); EDGE]; EDGE];
        let mut transformed = seen;
        for (row, index) in tiles.enumerate() {
            let Tile { image: number, first } = tiling.tile(index);
            let [rows, columns] = [0, 1].map(|axis| tiling.seen(axis, first[axis]));
            for start in (0..channels).step_by(R::Line::COUNT) {
                let lanes = R::Line::COUNT.min(channels - start);
                let pixel = |i: usize, j: usize| {
                    let (i, j) = (first[0] + i - tiling.padding, first[1] + j - tiling.padding);
                    ((number * height + i) * width + j) * channels + start
                };
                if rows.len() < EDGE || columns.len() < EDGE {
                    seen.as_flattened_mut().fill(R::Line::splat(R::ZERO));
                }
                for i in rows.clone() {
                    for j in columns.clone() {
                        seen[i][j] = load_line::<R>(x, pixel(i, j), lanes);
                    }
                }
                both::<Image, R, EDGE, EDGE>(&seen, &mut transformed);
                let out = &mut out[row * channels + start..];
                for (at, value) in transformed.as_flattened().iter().enumerate() {
                    value.store(&mut out[at * matrix..][..lanes]);
                }
            }
        }
    }
}

vectorize! {
    /// Aᵀ m A of `tiles`: channels from `first` on of the results that they cover.
    pub(super) fn results<R>(
        tiling: &Tiling, tiles: Range<usize>, m: &[R], y: &mut [R], block: [Range<usize>; 1],
        store: Store, extents: [usize; 2],
    ) {
        let [channels, matrix] = extents;
        let [height, width] = tiling.result;
        let [block] = block;
        let mut products = [[R::Line::splat(R::ZERO); EDGE]; EDGE];
        let mut sums = [[R::Line::splat(R::ZERO); TILE]; TILE];
        for (row, index) in tiles.enumerate() {
            let Tile { image, first } = tiling.tile(index);
            let [rows, columns] = [0, 1].map(|axis| tiling.covered(axis, first[axis]));
            for start in (0..block.len()).step_by(R::Line::COUNT) {
                let lanes = R::Line::COUNT.min(block.len() - start);
                let m = &m[row * block.len() + start..];
                for (at, line) in products.as_flattened_mut().iter_mut().enumerate() {
                    *line = load_line::<R>(m, at * matrix, lanes);
                }
                both::<Results, R, EDGE, TILE>(&products, &mut sums);
                for (i, sums) in sums[..rows].iter().enumerate() {
                    for (j, sum) in sums[..columns].iter().enumerate() {
                        let pixel = (image * height + first[0] + i) * width + first[1] + j;
                        let y = &mut y[pixel * channels + block.start + start..][..lanes];
                        match store {
                            Store::Write => sum.store(y),
                            Store::Add => {
                                R::Line::load(y).zip(*sum, |y, sum| y + sum).store(y);
                            }
                        }
                    }
                }
            }
        }
    }
}

vectorize! {
    /// A dy Aᵀ of `tiles`, filters of one block: laid out as by [`images`].
    pub(super) fn result_gradients<R>(
        tiling: &Tiling, tiles: Range<usize>, dy: &[R], block: [Range<usize>; 1],
        channels: usize, out: &mut [R], matrix: usize,
    ) {
        let [height, width] = tiling.result;
        let [block] = block;
        let mut given = [[R::Line::splat(R::ZERO); TILE]; TILE];
        let mut transformed = [[R::Line::splat(R::ZERO); EDGE]; EDGE];
        for (row, index) in tiles.enumerate() {
            let Tile { image, first } = tiling.tile(index);
            let [rows, columns] = [0, 1].map(|axis| tiling.covered(axis, first[axis]));
            for start in (0..block.len()).step_by(R::Line::COUNT) {
                let lanes = R::Line::COUNT.min(block.len() - start);
                if rows < TILE || columns < TILE {
                    given.as_flattened_mut().fill(R::Line::splat(R::ZERO));
                }
                for (i, given) in given[..rows].iter_mut().enumerate() {
                    for (j, line) in given[..columns].iter_mut().enumerate() {
                        let pixel = (image * height + first[0] + i) * width + first[1] + j;
                        let at = pixel * channels + block.start + start;
                        *line = load_line::<R>(dy, at, lanes);
                    }
                }
                both::<ResultGradient, R, TILE, EDGE>(&given, &mut transformed);
                let out = &mut out[row * block.len() + start..];
                for (at, value) in transformed.as_flattened().iter().enumerate() {
                    value.store(&mut out[at * matrix..][..lanes]);
                }
            }
        }
    }
}

/// A line, or the first `lanes` of one, from `at` on. Apart, because the copy of a line is one
/// move only where its length is known.
#[inline(always)]
fn load_line<R: Real>(values: &[R], at: usize, lanes: usize) -> R::Line {
    if lanes == R::Line::COUNT {
        R::Line::load(&values[at..at + R::Line::COUNT])
    } else {
        R::Line::load(&values[at..at + lanes])
    }
}

/// Elements from one matrix of `rows` and `columns` to the next. A transform touches all of them
/// at the same place, which a stride of whole pages would put into the same cache set.
pub(super) fn stride(rows: usize, columns: usize) -> usize {
    rows * columns + 16
}

/// Elements of all matrices of `rows` and `columns`.
pub(super) fn matrices(rows: usize, columns: usize) -> usize {
    POSITIONS * stride(rows, columns)
}
