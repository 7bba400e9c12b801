//! Convolution with 3 × 3 filters and stride 1 by 36 products per tile of 4 × 4 results, where
//! the definition takes 144.
//!
//! Each result is a function of its own tile, and sums run in order of channels (forward and
//! backward) or of tiles (weights), so nothing depends on how the work is cut.

mod filters;
mod tiles;
mod transform;
mod weights;

use super::{Pass, with_scratch};
use crate::{
    Real,
    convolution::Geometry,
    line::Lanes,
    product::{Buffers, Panels, Target, View, lend_lines, multiply},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use filters::{Turn, filters, packed_stride};
use std::ops::Range;
use tiles::{Tiling, images, matrices, results, stride};
use transform::{EDGE, POSITIONS, TAPS, TILE};
pub(super) use weights::weights;

/// Tiles that are transformed and multiplied together: a multiple of the rows of every tile of
/// a product.
const STRIP: usize = 48;
/// Elements of one matrix of filters that is made at once: 36 of them stay in the last cache
/// level.
const BLOCK: usize = 1 << 16;

/// Whether this way is open, and shorter.
pub(super) fn fits(shape: &Geometry) -> bool {
    let window = &shape.window;
    let whole = (window.kernel, window.stride, shape.groups) == ([TAPS; 2], 1, 1);
    let wide = shape.channels.min(shape.filters) >= 16;
    let products = |extents: [usize; 2]| {
        let tiles = extents.map(|extent| extent.div_ceil(TILE));
        let few = 2 * tiles[0] * tiles[1] * POSITIONS;
        few <= extents[0] * extents[1] * TAPS * TAPS
    };
    let short = products(window.output) && products(window.input);
    whole && wide && short && window.padding < TAPS
}

/// Columns of one block of matrices with this many rows: whole lines.
fn columns_of_block<R: Real>(rows: usize, columns: usize) -> usize {
    (BLOCK / rows).next_multiple_of(R::Line::COUNT).min(columns)
}

/// The same for every element type.
fn most_columns(rows: usize, columns: usize) -> usize {
    (BLOCK / rows).next_multiple_of(16).min(columns)
}

impl Turn {
    fn tiling(self, shape: &Geometry) -> Tiling {
        let window = &shape.window;
        let (image, result, padding) = match self {
            Turn::Forward => (window.input, window.output, window.padding),
            Turn::Backward => (window.output, window.input, TAPS - 1 - window.padding),
        };
        Tiling { image, result, padding }
    }
    fn scratch(self, shape: &Geometry) -> usize {
        let [depth, columns] = self.extents(shape);
        matrices(STRIP, depth) + matrices(STRIP, most_columns(depth, columns))
    }
    fn packed<R: Real>(self, shape: &Geometry) -> usize {
        let [depth, columns] = self.extents(shape);
        POSITIONS * packed_stride::<R>(depth, columns_of_block::<R>(depth, columns))
    }
}

/// Elements of memory that every thread needs of its own.
pub(super) fn scratch(shape: &Geometry, pass: Pass) -> usize {
    match pass {
        Pass::Forward => Turn::Forward.scratch(shape),
        Pass::Backward => Turn::Backward.scratch(shape),
        Pass::Weights => weights::scratch(shape),
    }
}

/// Lines that all threads share.
pub(super) fn packed<R: Real>(shape: &Geometry, pass: Pass) -> usize {
    match pass {
        Pass::Forward => Turn::Forward.packed::<R>(shape),
        Pass::Backward => Turn::Backward.packed::<R>(shape),
        Pass::Weights => weights::packed::<R>(shape),
    }
}

/// y = x ∗ weight.
pub(super) fn forward<R: Real>(
    shape: &Geometry,
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    threads: usize,
) {
    convolve(shape, Turn::Forward, [x, weight], y, Store::Write, threads);
}

/// dx = dy ∗ turned weight.
pub(super) fn backward<R: Real>(
    shape: &Geometry,
    [dy, weight]: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    threads: usize,
) {
    convolve(shape, Turn::Backward, [dy, weight], dx, store, threads);
}

fn convolve<R: Real>(
    shape: &Geometry,
    turn: Turn,
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    store: Store,
    threads: usize,
) {
    let [depth, columns] = turn.extents(shape);
    let tiling = turn.tiling(shape);
    let images = super::images(shape, threads);
    let [image, result] = [(tiling.image, depth), (tiling.result, columns)]
        .map(|([height, width], channels)| images * height * width * channels);
    let step = columns_of_block::<R>(depth, columns);
    lend_lines::<R, _>(turn.packed::<R>(shape), |lines| {
        for first in (0..columns).step_by(step) {
            let block = first..(first + step).min(columns);
            transform_filters(shape, turn, weight, block.clone(), lines, threads);
            let lines = &*lines;
            let parts = x.chunks(image).zip(y.chunks_mut(result));
            for_each_part(parts, |(x, y)| {
                let part = Part { turn, block: block.clone(), lines, store };
                with_scratch(turn.scratch(shape), |scratch, buffers| {
                    part.convolve(shape, x, y, scratch, buffers);
                });
            });
        }
    });
}

/// All matrices of one block of columns, rows of positions split over threads.
fn transform_filters<R: Real>(
    shape: &Geometry,
    turn: Turn,
    weight: &[R],
    block: Range<usize>,
    lines: &mut [R::Line],
    threads: usize,
) {
    let [depth, _] = turn.extents(shape);
    let matrix = packed_stride::<R>(depth, block.len());
    let cost = 20 * depth * block.len();
    let share = rows_per_part(threads, EDGE, cost);
    let lines = &mut lines[..POSITIONS * matrix];
    let parts = lines.chunks_mut(share * EDGE * matrix).enumerate();
    for_each_part(parts, |(part, lines)| {
        let axis = part * share..((part + 1) * share).min(EDGE);
        filters(shape, turn, weight, [block.clone()], axis, lines);
    });
}

/// What one thread convolves with.
struct Part<'a, R: Real> {
    turn: Turn,
    block: Range<usize>,
    lines: &'a [R::Line],
    store: Store,
}

impl<R: Real> Part<'_, R> {
    /// Some images, strip by strip.
    fn convolve(
        &self,
        shape: &Geometry,
        x: &[R],
        y: &mut [R],
        scratch: &mut [R],
        buffers: &mut Buffers<R>,
    ) {
        let [depth, channels] = self.turn.extents(shape);
        let (tiling, columns) = (self.turn.tiling(shape), self.block.len());
        let matrix = packed_stride::<R>(depth, columns);
        let count = x.len() / (tiling.image[0] * tiling.image[1] * depth);
        let (seen, products) = scratch.split_at_mut(matrices(STRIP, depth));
        for tiles in strips(0..count * tiling.count()) {
            let rows = tiles.len();
            images(&tiling, tiles.clone(), x, depth, seen, stride(STRIP, depth));
            for position in 0..POSITIONS {
                let a = View {
                    data: &seen[position * stride(STRIP, depth)..],
                    row: depth,
                    column: 1,
                };
                let b = Panels::new(&self.lines[position * matrix..], depth, columns);
                let data = &mut products[position * stride(STRIP, columns)..];
                let out = &mut Target { data, row: columns };
                multiply(rows, a, b.factor(), out, Store::Write, buffers);
            }
            let block = [self.block.clone()];
            let extents = [channels, stride(STRIP, columns)];
            results(&tiling, tiles, products, y, block, self.store, extents);
        }
    }
}

fn strips(tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = tiles.end;
    tiles.step_by(STRIP).map(move |first| first..(first + STRIP).min(end))
}
