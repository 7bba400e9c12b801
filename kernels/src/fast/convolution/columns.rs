//! Convolution as products with strips of patches that stay in the cache.

use super::{Pass, patches};
use crate::{
    Real,
    convolution::Geometry,
    product::{Buffers, Extents, Target, View, multiply},
    simd::vectorize,
    store::Store,
};
use std::ops::Range;

/// Elements of one strip of patches.
const STRIP: usize = 1 << 16;

/// Rows of one strip: a multiple of the rows of every tile.
fn strip(shape: &Geometry) -> usize {
    let rows = (STRIP / shape.depth()).clamp(48, 960) / 24 * 24;
    rows.min(shape.batch * shape.window.places())
}

/// Whether pixels are patches as they stand.
fn in_place(shape: &Geometry) -> bool {
    let window = &shape.window;
    (window.kernel, window.stride, window.padding) == ([1, 1], 1, 0)
}

/// Elements of one strip of patches, where they are needed.
pub(super) fn scratch(shape: &Geometry, _: Pass) -> usize {
    if in_place(shape) { 0 } else { strip(shape) * shape.depth() }
}

fn strips(rows: usize, strip: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(strip).map(move |first| first..(first + strip).min(rows))
}

vectorize! {
    /// Patches as rows of `out`.
    fn gather<R>(
        shape: &Geometry, group: usize, places: Range<usize>, x: &[R], out: &mut [R],
    ) {
        patches::gather(shape, group, places, x, out);
    }
}

vectorize! {
    /// Rows of `columns` added to what their patches see.
    fn scatter<R>(
        shape: &Geometry, group: usize, places: Range<usize>, columns: &[R], dx: &mut [R],
    ) {
        patches::scatter(shape, group, places, columns, dx);
    }
}

/// The patches of `places` in one group as a matrix (place, tap · channel).
fn patches<'a, R: Real>(
    shape: &Geometry,
    group: usize,
    places: Range<usize>,
    x: &'a [R],
    scratch: &'a mut [R],
) -> View<'a, R> {
    if in_place(shape) {
        let pixels = View { data: x, row: shape.channels, column: 1 };
        return pixels.from(places.start, group * shape.group_channels());
    }
    gather(shape, group, places, x, scratch);
    View { data: scratch, row: shape.depth(), column: 1 }
}

/// The result at places from `first` on: patches · weightᵀ.
pub(super) fn forward<R: Real>(
    shape: &Geometry,
    first: usize,
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    scratch: &mut [R],
    buffers: &mut Buffers<R>,
) {
    let (columns, depth) = (shape.group_filters(), shape.depth());
    for group in 0..shape.groups {
        let weight = View { data: weight, row: depth, column: 1 };
        let weight = weight.from(group * columns, 0).transposed();
        for rows in strips(y.len() / shape.filters, strip(shape)) {
            let extents = Extents { rows: rows.len(), columns, depth };
            let places = first + rows.start..first + rows.end;
            let patches = patches(shape, group, places, x, scratch);
            let start = rows.start * shape.filters + group * columns;
            let out = &mut Target { data: &mut y[start..], row: shape.filters };
            multiply(extents, patches, weight, out, Store::Write, buffers);
        }
    }
}

/// The gradient of some images: dy · weight, scattered to the pixels.
pub(super) fn backward<R: Real>(
    shape: &Geometry,
    [dy, weight]: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    scratch: &mut [R],
    buffers: &mut Buffers<R>,
) {
    let (filters, depth) = (shape.group_filters(), shape.depth());
    let in_place = in_place(shape);
    if !in_place {
        store.clear(dx);
    }
    for group in 0..shape.groups {
        let weight = View { data: weight, row: depth, column: 1 };
        let weight = weight.from(group * filters, 0);
        for rows in strips(dy.len() / shape.filters, strip(shape)) {
            let extents = Extents { rows: rows.len(), columns: depth, depth: filters };
            let dy = View { data: dy, row: shape.filters, column: 1 };
            let dy = dy.from(rows.start, group * filters);
            if in_place {
                let start = rows.start * shape.channels + group * depth;
                let out = &mut Target { data: &mut dx[start..], row: shape.channels };
                multiply(extents, dy, weight, out, store, buffers);
                continue;
            }
            let out = &mut Target { data: &mut *scratch, row: depth };
            multiply(extents, dy, weight, out, Store::Write, buffers);
            scatter(shape, group, rows, scratch, dx);
        }
    }
}

/// The gradient of the weights of filters from `first` on: dyᵀ · patches, strip by strip.
pub(super) fn weights<R: Real>(
    shape: &Geometry,
    first: usize,
    [x, dy]: [&[R]; 2],
    dweight: &mut [R],
    store: Store,
    scratch: &mut [R],
    buffers: &mut Buffers<R>,
) {
    let (filters, columns) = (shape.group_filters(), shape.depth());
    let end = first + dweight.len() / columns;
    for group in first / filters..end.div_ceil(filters) {
        let rows = first.max(group * filters)..end.min((group + 1) * filters);
        let part = &mut dweight[(rows.start - first) * columns..];
        for (at, places) in strips(dy.len() / shape.filters, strip(shape)).enumerate() {
            let extents = Extents { rows: rows.len(), columns, depth: places.len() };
            let dy = View { data: dy, row: shape.filters, column: 1 };
            let dy = dy.from(places.start, rows.start).transposed();
            let patches = patches(shape, group, places, x, scratch);
            let out = &mut Target { data: &mut *part, row: columns };
            let store = if at == 0 { store } else { Store::Add };
            multiply(extents, dy, patches, out, store, buffers);
        }
    }
}
