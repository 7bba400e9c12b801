//! Convolution as products with strips of patches that stay in the cache.

use super::{Pass, cost, images, patches, with_scratch};
use crate::{
    Real,
    convolution::Geometry,
    product::{
        Buffers, Panels, Portion, Target, View, lend_lines, multiply, pack, packed_lines,
    },
    simd::vectorize,
    store::Store,
    team::{Cut, for_each_part, rows_per_part},
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
pub(super) fn scratch(shape: &Geometry) -> usize {
    if in_place(shape) { 0 } else { strip(shape) * shape.depth() }
}

/// Rows and columns of the weights of one group, as a pass multiplies with them.
fn extents(shape: &Geometry, pass: Pass) -> [usize; 2] {
    match pass {
        Pass::Forward => [shape.depth(), shape.group_filters()],
        Pass::Backward => [shape.group_filters(), shape.depth()],
        Pass::Weights => [0, 0],
    }
}

/// Lines of the weights, packed group by group.
pub(super) fn packed<R: Real>(shape: &Geometry, pass: Pass) -> usize {
    let [rows, columns] = extents(shape, pass);
    shape.groups * packed_lines::<R>(rows, columns)
}

/// Packs the weights of every group, of which `view` gives one.
fn pack_groups<'a, R: Real>(
    shape: &Geometry,
    pass: Pass,
    view: impl Fn(usize) -> View<'a, R>,
    lines: &mut [R::Line],
    threads: usize,
) {
    let [rows, columns] = extents(shape, pass);
    let groups = lines.chunks_exact_mut(packed_lines::<R>(rows, columns));
    for (group, lines) in groups.enumerate() {
        pack(view(group), Portion::whole::<R>(rows, columns), threads, lines);
    }
}

/// The packed weights of one group.
fn panels<'a, R: Real>(
    shape: &Geometry,
    pass: Pass,
    group: usize,
    lines: &'a [R::Line],
) -> Panels<'a, R> {
    let [rows, columns] = extents(shape, pass);
    let count = packed_lines::<R>(rows, columns);
    Panels::new(&lines[group * count..][..count], rows, columns)
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

/// y = patches · weightᵀ.
pub(super) fn forward<R: Real>(
    shape: &Geometry,
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    threads: usize,
) {
    let (columns, depth) = (shape.group_filters(), shape.depth());
    let rows = shape.batch * shape.window.places();
    let cut = Cut::new(threads, rows, cost(shape, rows));
    let share = cut.rows;
    lend_lines::<R, _>(packed::<R>(shape, Pass::Forward), |lines| {
        let weight = View { data: weight, row: depth, column: 1 };
        let view = |group| weight.from(group * columns, 0).transposed();
        pack_groups(shape, Pass::Forward, view, lines, threads);
        let lines = &*lines;
        cut.each(y.chunks_mut(share * shape.filters).enumerate(), |(part, y)| {
            with_scratch(scratch(shape), |scratch, buffers| {
                results(shape, part * share, x, lines, y, scratch, buffers);
            });
        });
    });
}

/// The result at places from `first` on.
fn results<R: Real>(
    shape: &Geometry,
    first: usize,
    x: &[R],
    lines: &[R::Line],
    y: &mut [R],
    scratch: &mut [R],
    buffers: &mut Buffers<R>,
) {
    for group in 0..shape.groups {
        let weight = panels::<R>(shape, Pass::Forward, group, lines).factor();
        for rows in strips(y.len() / shape.filters, strip(shape)) {
            let places = first + rows.start..first + rows.end;
            let patches = patches(shape, group, places, x, scratch);
            let start = rows.start * shape.filters + group * shape.group_filters();
            let out = &mut Target { data: &mut y[start..], row: shape.filters };
            multiply(rows.len(), patches, weight, out, Store::Write, buffers);
        }
    }
}

/// dx = dy · weight, scattered to the pixels.
pub(super) fn backward<R: Real>(
    shape: &Geometry,
    [dy, weight]: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    threads: usize,
) {
    let (filters, depth) = (shape.group_filters(), shape.depth());
    let share = images(shape, threads);
    lend_lines::<R, _>(packed::<R>(shape, Pass::Backward), |lines| {
        let weight = View { data: weight, row: depth, column: 1 };
        let view = |group| weight.from(group * filters, 0);
        pack_groups(shape, Pass::Backward, view, lines, threads);
        let lines = &*lines;
        let parts = dx.chunks_mut(share * shape.image());
        let parts = dy.chunks(share * shape.result()).zip(parts);
        for_each_part(parts, |(dy, dx)| {
            with_scratch(scratch(shape), |scratch, buffers| {
                pixels(shape, dy, lines, dx, store, scratch, buffers);
            });
        });
    });
}

/// The gradient of some images.
fn pixels<R: Real>(
    shape: &Geometry,
    dy: &[R],
    lines: &[R::Line],
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
        let weight = panels::<R>(shape, Pass::Backward, group, lines).factor();
        for rows in strips(dy.len() / shape.filters, strip(shape)) {
            let dy = View { data: dy, row: shape.filters, column: 1 };
            let dy = dy.from(rows.start, group * filters);
            if in_place {
                let start = rows.start * shape.channels + group * depth;
                let out = &mut Target { data: &mut dx[start..], row: shape.channels };
                multiply(rows.len(), dy, weight, out, store, buffers);
                continue;
            }
            let out = &mut Target { data: &mut *scratch, row: depth };
            multiply(rows.len(), dy, weight, out, Store::Write, buffers);
            scatter(shape, group, rows, scratch, dx);
        }
    }
}

/// dweight = dyᵀ · patches, strip by strip; filters are split over threads.
pub(super) fn weights<R: Real>(
    shape: &Geometry,
    inputs: [&[R]; 2],
    dweight: &mut [R],
    store: Store,
    threads: usize,
) {
    let share = rows_per_part(threads, shape.filters, cost(shape, shape.filters));
    let parts = dweight.chunks_mut(share * shape.depth()).enumerate();
    for_each_part(parts, |(part, dweight)| {
        with_scratch(scratch(shape), |scratch, buffers| {
            filters(shape, part * share, inputs, dweight, store, scratch, buffers);
        });
    });
}

/// The gradient of filters from `first` on.
fn filters<R: Real>(
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
            let depth = places.len();
            let dy = View { data: dy, row: shape.filters, column: 1 };
            let dy = dy.from(places.start, rows.start).transposed();
            let patches = patches(shape, group, places, x, scratch);
            let out = &mut Target { data: &mut *part, row: columns };
            let store = if at == 0 { store } else { Store::Add };
            multiply(rows.len(), dy, patches.factor(depth, columns), out, store, buffers);
        }
    }
}
