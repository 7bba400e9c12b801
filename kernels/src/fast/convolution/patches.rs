//! Patches of images as rows of a matrix, and back.

use crate::{Real, convolution::Geometry};
use std::ops::Range;

/// One row of a window on an image: where its taps stand in the patch, and what they see.
struct Run {
    /// Taps of the row that lie on the image.
    taps: Range<usize>,
    /// The element of x that the first of them sees.
    from: usize,
}

/// The rows of the window at `place` (of all images), in order; `None` is all padding.
#[inline(always)]
fn runs(shape: &Geometry, place: usize) -> impl Iterator<Item = Option<Run>> + '_ {
    let window = &shape.window;
    let (image, place) = (place / window.places(), place % window.places());
    let [i, j] = [place / window.output[1], place % window.output[1]];
    let left = j * window.stride;
    let first = window.padding.saturating_sub(left).min(window.kernel[1]);
    let end = (window.input[1] + window.padding).saturating_sub(left);
    let taps = first..end.min(window.kernel[1]).max(first);
    (0..window.kernel[0]).map(move |u| {
        let row = window.seen(0, i, u).filter(|_| !taps.is_empty())?;
        let pixel = row * window.input[1] + left + first - window.padding;
        let from = image * shape.image() + pixel * shape.channels;
        Some(Run { taps: taps.clone(), from })
    })
}

/// Copies the patches of `places` in one group to rows of `out`, (row, column, channel).
#[inline(always)]
pub(super) fn gather<R: Real>(
    shape: &Geometry,
    group: usize,
    places: Range<usize>,
    x: &[R],
    out: &mut [R],
) {
    let depth = shape.group_channels();
    let wide = shape.window.kernel[1] * depth;
    for (place, patch) in places.zip(out.chunks_exact_mut(shape.depth())) {
        for (run, row) in runs(shape, place).zip(patch.chunks_exact_mut(wide)) {
            let Some(Run { taps, from }) = run else {
                row.fill(R::ZERO);
                continue;
            };
            let (start, end) = (taps.start * depth, taps.end * depth);
            row[..start].fill(R::ZERO);
            row[end..].fill(R::ZERO);
            let row = &mut row[start..end];
            if shape.groups == 1 {
                row.copy_from_slice(&x[from..][..end - start]);
                continue;
            }
            for (tap, row) in row.chunks_exact_mut(depth).enumerate() {
                let from = from + tap * shape.channels + group * depth;
                row.copy_from_slice(&x[from..][..depth]);
            }
        }
    }
}

/// Adds rows of `columns` to the pixels that the patches of `places` see, in order.
#[inline(always)]
pub(super) fn scatter<R: Real>(
    shape: &Geometry,
    group: usize,
    places: Range<usize>,
    columns: &[R],
    dx: &mut [R],
) {
    let depth = shape.group_channels();
    let wide = shape.window.kernel[1] * depth;
    for (place, patch) in places.zip(columns.chunks_exact(shape.depth())) {
        for (run, row) in runs(shape, place).zip(patch.chunks_exact(wide)) {
            let Some(Run { taps, from }) = run else { continue };
            let row = &row[taps.start * depth..taps.end * depth];
            if shape.groups == 1 {
                add(row, &mut dx[from..]);
                continue;
            }
            for (tap, row) in row.chunks_exact(depth).enumerate() {
                add(row, &mut dx[from + tap * shape.channels + group * depth..]);
            }
        }
    }
}

#[inline(always)]
fn add<R: Real>(row: &[R], out: &mut [R]) {
    for (value, out) in row.iter().zip(out) {
        *out += *value;
    }
}
