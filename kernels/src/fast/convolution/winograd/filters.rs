//! Filters, transformed into packed matrices, and their gradients back.

use super::transform::{EDGE, Filter, FilterGradient, Square, TAPS, both};
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

/// Lines from one packed matrix to the next: like [`stride`], for whole lines.
///
/// [`stride`]: super::tiles::stride
#[inline(always)]
pub(super) fn packed_stride<R: Real>(depth: usize, columns: usize) -> usize {
    packed_lines::<R>(depth, columns) + 2
}

/// The taps of some filters at some channels: lane f of line (c, tap) is filter f.
type Taps<R> = [Square<R, TAPS>; CHANNELS];

/// Channels whose taps are gathered together, while their lines are in the cache.
const CHANNELS: usize = 16;

vectorize! {
    /// G g Gᵀ: rows `axis` of the positions, `columns` of the matrices, packed.
    pub(super) fn filters<R>(
        shape: &Geometry, turn: Turn, weight: &[R], columns: [Range<usize>; 1],
        axis: Range<usize>, lines: &mut [R::Line],
    ) {
        let [depth, _] = turn.extents(shape);
        let [columns] = columns;
        let matrix = packed_stride::<R>(depth, columns.len());
        let mut taps = [[[R::Line::splat(R::ZERO); TAPS]; TAPS]; CHANNELS];
        let mut transformed = [[R::Line::splat(R::ZERO); EDGE]; EDGE];
        for line in 0..columns.len().div_ceil(R::Line::COUNT) {
            let first = columns.start + line * R::Line::COUNT;
            let lanes = R::Line::COUNT.min(columns.end - first);
            for top in (0..depth).step_by(CHANNELS) {
                let rows = CHANNELS.min(depth - top);
                match turn {
                    Turn::Forward => gather(shape, weight, [first, lanes], [top, rows], &mut taps),
                    Turn::Backward => turned(shape, weight, [first, lanes], [top, rows], &mut taps),
                }
                for (row, taps) in taps[..rows].iter().enumerate() {
                    both::<Filter, R, TAPS, EDGE>(taps, &mut transformed);
                    let place = packed_place::<R>(depth, columns.len(), top + row, line);
                    let rows = &transformed[axis.clone()];
                    for (at, value) in rows.as_flattened().iter().enumerate() {
                        lines[at * matrix + place] = *value;
                    }
                }
            }
        }
    }
}

/// The taps of some channels in some filters.
#[inline(always)]
fn gather<R: Real>(
    shape: &Geometry,
    weight: &[R],
    [first, lanes]: [usize; 2],
    [top, rows]: [usize; 2],
    taps: &mut Taps<R>,
) {
    for lane in 0..lanes {
        let filter = &weight[(first + lane) * shape.depth()..][..shape.depth()];
        for (tap, channels) in filter.chunks_exact(shape.channels).enumerate() {
            for (taps, value) in taps.iter_mut().zip(&channels[top..top + rows]) {
                taps.as_flattened_mut()[tap].set(lane, *value);
            }
        }
    }
}

/// The taps of some channels in some filters, turned by half a turn, with the parts of filters
/// and channels exchanged.
#[inline(always)]
fn turned<R: Real>(
    shape: &Geometry,
    weight: &[R],
    [first, lanes]: [usize; 2],
    [top, rows]: [usize; 2],
    taps: &mut Taps<R>,
) {
    for (row, taps) in taps[..rows].iter_mut().enumerate() {
        let filter = &weight[(top + row) * shape.depth()..][..shape.depth()];
        let channels = filter.chunks_exact(shape.channels).rev();
        for (line, channels) in taps.as_flattened_mut().iter_mut().zip(channels) {
            *line = R::Line::load(&channels[first..first + lanes]);
        }
    }
}

vectorize! {
    /// Gᵀ m G: the gradient of filters from their matrices (filter, channel), one line for
    /// every tap and every few channels.
    pub(super) fn gradients<R>(
        channels: usize, m: &[R], out: &mut [R::Line], matrix: usize,
    ) {
        let wide = channels.div_ceil(R::Line::COUNT);
        let mut sums = [[R::Line::splat(R::ZERO); EDGE]; EDGE];
        let mut taps = [[R::Line::splat(R::ZERO); TAPS]; TAPS];
        for (row, out) in out.chunks_exact_mut(TAPS * TAPS * wide).enumerate() {
            for line in 0..wide {
                let start = line * R::Line::COUNT;
                let lanes = R::Line::COUNT.min(channels - start);
                let m = &m[row * channels + start..];
                for (at, line) in sums.as_flattened_mut().iter_mut().enumerate() {
                    *line = R::Line::load(&m[at * matrix..][..lanes]);
                }
                both::<FilterGradient, R, EDGE, TAPS>(&sums, &mut taps);
                for (tap, value) in taps.as_flattened().iter().enumerate() {
                    out[tap * wide + line] = *value;
                }
            }
        }
    }
}
