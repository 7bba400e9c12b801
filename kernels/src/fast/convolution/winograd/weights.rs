//! The gradient of filters: sums over tiles where images and results are transformed.

use super::{
    super::with_scratch,
    BLOCK, STRIP,
    filters::{Turn, gradients},
    strips,
    tiles::{images, matrices, result_gradients, stride},
    transform::{POSITIONS, TAPS},
};
use crate::{
    Real,
    convolution::Geometry,
    line::Lanes,
    product::{Buffers, Target, View, lend_lines, multiply},
    store::Store,
    team::Cut,
};
use std::ops::Range;

/// Sums over tiles that are made apart, so that threads share no work.
const SUMS: usize = 4;
/// Fewest tiles of such a sum.
const FEWEST: usize = 64;

/// How the work is cut, which follows from the shape alone: into sums over ranges of tiles, or
/// into blocks of filters.
#[derive(Clone, Copy)]
struct Units {
    sums: usize,
    filters: usize,
}

/// What one unit computes: some filters, from some tiles.
struct Unit<'a> {
    shape: &'a Geometry,
    filters: Range<usize>,
    tiles: Range<usize>,
}

fn units(shape: &Geometry) -> Units {
    let filters = (BLOCK / shape.channels).max(16).min(shape.filters);
    match filters == shape.filters {
        true => Units { sums: SUMS.min(tiles(shape) / FEWEST).max(1), filters },
        false => Units { sums: 1, filters },
    }
}

fn tiles(shape: &Geometry) -> usize {
    shape.batch * Turn::Forward.tiling(shape).count()
}

/// Lines of one filter.
fn lines_of_filter<R: Real>(shape: &Geometry) -> usize {
    TAPS * TAPS * shape.channels.div_ceil(R::Line::COUNT)
}

/// Elements of memory that every thread needs of its own.
pub(super) fn scratch(shape: &Geometry) -> usize {
    let Units { filters, .. } = units(shape);
    let seen = matrices(STRIP, shape.channels) + matrices(STRIP, filters);
    seen + matrices(filters, shape.channels)
}

/// Lines that all threads share.
pub(super) fn packed<R: Real>(shape: &Geometry) -> usize {
    units(shape).sums * shape.filters * lines_of_filter::<R>(shape)
}

/// dweight = Gᵀ (Σ over tiles) G.
pub(in super::super) fn weights<R: Real>(
    shape: &Geometry,
    [x, dy]: [&[R]; 2],
    dweight: &mut [R],
    store: Store,
    threads: usize,
) {
    let Units { sums, filters } = units(shape);
    let blocks = shape.filters.div_ceil(filters);
    let count = sums * blocks;
    let cut = Cut::new(threads, count, super::super::cost(shape, count) / 4);
    let share = cut.rows;
    let unit = |index: usize| {
        let (sum, first) = (index / blocks, index % blocks * filters);
        let filters = first..(first + filters).min(shape.filters);
        // Every sum has tiles, for there are at least as many as sums.
        let tiles = sum * tiles(shape) / sums..(sum + 1) * tiles(shape) / sums;
        Unit { shape, filters, tiles }
    };
    lend_lines::<R, _>(packed::<R>(shape), |lines| {
        let length = filters * lines_of_filter::<R>(shape);
        let parts = lines.chunks_mut(share * length).enumerate();
        cut.each(parts, |(part, lines)| {
            with_scratch(scratch(shape), |scratch, buffers| {
                for (index, lines) in (part * share..).zip(lines.chunks_mut(length)) {
                    unit(index).compute(x, dy, lines, scratch, buffers);
                }
            });
        });
        add(shape, lines, dweight, store, threads);
    });
}

impl Unit<'_> {
    fn compute<R: Real>(
        &self,
        x: &[R],
        dy: &[R],
        lines: &mut [R::Line],
        scratch: &mut [R],
        buffers: &mut Buffers<R>,
    ) {
        let Self { shape, filters, tiles } = self;
        let (tiling, channels) = (Turn::Forward.tiling(shape), shape.channels);
        let rows = filters.len();
        let (seen, rest) = scratch.split_at_mut(matrices(STRIP, channels));
        let (given, sums) = rest.split_at_mut(matrices(STRIP, rows));
        let mut store = Store::Write;
        for tiles in strips(tiles.clone()) {
            let depth = tiles.len();
            images(&tiling, tiles.clone(), x, channels, seen, stride(STRIP, channels));
            let block = [filters.clone()];
            let matrix = stride(STRIP, rows);
            result_gradients(&tiling, tiles, dy, block, shape.filters, given, matrix);
            for position in 0..POSITIONS {
                let a = View { data: &given[position * matrix..], row: 1, column: rows };
                let seen = &seen[position * stride(STRIP, channels)..];
                let b = View { data: seen, row: channels, column: 1 };
                let data = &mut sums[position * stride(rows, channels)..];
                let out = &mut Target { data, row: channels };
                multiply(rows, a, b.factor(depth, channels), out, store, buffers);
            }
            store = Store::Add;
        }
        gradients(channels, sums, lines, stride(rows, channels));
    }
}

/// Adds the sums in order.
fn add<R: Real>(
    shape: &Geometry,
    lines: &[R::Line],
    dweight: &mut [R],
    store: Store,
    threads: usize,
) {
    let length = lines_of_filter::<R>(shape);
    let wide = shape.channels.div_ceil(R::Line::COUNT);
    let cut = Cut::new(threads, shape.filters, 4 * shape.depth());
    let share = cut.rows;
    let parts = dweight.chunks_mut(share * shape.depth()).enumerate();
    cut.each(parts, |(part, dweight)| {
        for (row, taps) in dweight.chunks_mut(shape.channels).enumerate() {
            let first = part * share * length + row * wide;
            for (line, values) in taps.chunks_mut(R::Line::COUNT).enumerate() {
                let sums = lines.chunks_exact(shape.filters * length);
                let mut all = sums.map(|lines| lines[first + line]);
                let mut total = all.next().unwrap_or(R::Line::splat(R::ZERO));
                for sum in all {
                    total = total.zip(sum, |total, sum| total + sum);
                }
                if store == Store::Add {
                    total = total.zip(R::Line::load(values), |total, old| old + total);
                }
                total.store(values);
            }
        }
    });
}
