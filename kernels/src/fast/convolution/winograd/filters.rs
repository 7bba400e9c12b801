//! Filters, transformed into packed matrices, and their gradients back.

use super::transform::{EDGE, TAPS, both, filter, filter_gradient};
use crate::{
    Real,
    convolution::Geometry,
    line::Lanes,
    product::{packed_lines, packed_place},
    simd::vectorize,
};
use std::ops::Range;

/// Which way filters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// As they stand: from channels to filters.
    Forward,
    /// Turned by half a turn, from filters to channels: the gradient of the images.
    Backward,
}

impl Turn {
    /// Rows and columns of the transformed matrices.
    pub(super) fn extents(self, shape: &Geometry) -> [usize; 2] {
        match self {
            Turn::Forward => [shape.channels, shape.filters],
            Turn::Backward => [shape.filters, shape.channels],
        }
    }
}

vectorize! {
    /// G g Gᵀ: rows `axis` of the positions, `columns` of the matrices, packed.
    pub(super) fn filters<R>(
        shape: &Geometry, turn: Turn, weight: &[R], columns: [Range<usize>; 1],
        axis: Range<usize>, lines: &mut [R::Line],
    ) {
        let [depth, _] = turn.extents(shape);
        let [columns] = columns;
        let matrix = packed_lines::<R>(depth, columns.len());
        let count = columns.len().div_ceil(R::Line::COUNT);
        for line in 0..count {
            let first = columns.start + line * R::Line::COUNT;
            let lanes = R::Line::COUNT.min(columns.end - first);
            for row in 0..depth {
                let taps = match turn {
                    Turn::Forward => gathered(shape, weight, first, row, lanes),
                    Turn::Backward => turned(shape, weight, first, row, lanes),
                };
                let place = packed_place::<R>(depth, columns.len(), row, line);
                both::<R, TAPS, EDGE>(filter::<R>, |u, v| taps[u][v], |i, j, value| {
                    if axis.contains(&i) {
                        lines[((i - axis.start) * EDGE + j) * matrix + place] = value;
                    }
                });
            }
        }
    }
}

/// The taps of one channel in some filters.
#[inline(always)]
fn gathered<R: Real>(
    shape: &Geometry,
    weight: &[R],
    first: usize,
    channel: usize,
    lanes: usize,
) -> [[R::Line; TAPS]; TAPS] {
    let mut taps = [[R::Line::splat(R::ZERO); TAPS]; TAPS];
    for lane in 0..lanes {
        let weight = &weight[(first + lane) * shape.depth() + channel..];
        for (tap, line) in taps.as_flattened_mut().iter_mut().enumerate() {
            line.set(lane, weight[tap * shape.channels]);
        }
    }
    taps
}

/// The taps of some channels in one filter, turned by half a turn.
#[inline(always)]
fn turned<R: Real>(
    shape: &Geometry,
    weight: &[R],
    first: usize,
    filter: usize,
    lanes: usize,
) -> [[R::Line; TAPS]; TAPS] {
    let weight = &weight[filter * shape.depth() + first..];
    std::array::from_fn(|u| {
        std::array::from_fn(|v| {
            let tap = TAPS * TAPS - 1 - (u * TAPS + v);
            R::Line::load(&weight[tap * shape.channels..][..lanes])
        })
    })
}

vectorize! {
    /// Gᵀ m G: the gradient of filters from their matrices (filter, channel), one line for
    /// every tap and every few channels.
    pub(super) fn gradients<R>(
        channels: usize, m: &[R], out: &mut [R::Line], matrix: usize,
    ) {
        let wide = channels.div_ceil(R::Line::COUNT);
        for (row, out) in out.chunks_exact_mut(TAPS * TAPS * wide).enumerate() {
            for line in 0..wide {
                let start = line * R::Line::COUNT;
                let lanes = R::Line::COUNT.min(channels - start);
                let m = &m[row * channels + start..];
                let get = |i: usize, j: usize| {
                    R::Line::load(&m[(i * EDGE + j) * matrix..][..lanes])
                };
                both::<R, EDGE, TAPS>(filter_gradient::<R>, get, |u, v, value| {
                    out[(u * TAPS + v) * wide + line] = value;
                });
            }
        }
    }
}
