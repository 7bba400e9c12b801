//! Fast convolution: which way each shape goes, and how its work is cut over threads.

mod columns;
mod depthwise;
mod patches;

use crate::{
    Real,
    convolution::Geometry,
    product::Buffers,
    store::Store,
    team::{for_each_part, rows_per_part},
};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// y.
    Forward,
    /// The gradient of x.
    Backward,
    /// The gradient of the weights.
    Weights,
}

/// How it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// One filter per channel: a loop over taps, all channels at once.
    Depthwise,
    /// Products with strips of patches.
    Columns,
}

fn method(shape: &Geometry) -> Method {
    match (shape.group_channels(), shape.group_filters()) {
        (1, 1) => Method::Depthwise,
        _ => Method::Columns,
    }
}

/// Elements of memory that every thread needs of its own.
pub(crate) fn scratch(shape: &Geometry, pass: Pass) -> usize {
    match method(shape) {
        Method::Depthwise => depthwise::scratch(shape),
        Method::Columns => columns::scratch(shape, pass),
    }
}

/// Images per part.
fn images(shape: &Geometry, threads: usize) -> usize {
    rows_per_part(threads, shape.batch, cost(shape, shape.batch))
}

/// Operations for each of `count` equal pieces.
fn cost(shape: &Geometry, count: usize) -> usize {
    let places = shape.batch.saturating_mul(shape.window.places());
    let all = places.saturating_mul(2 * shape.filters).saturating_mul(shape.depth());
    all / count
}

/// y = x ∗ weight.
pub(crate) fn forward<R: Real>(
    shape: &Geometry,
    x: &[R],
    weight: &[R],
    y: &mut [R],
    threads: usize,
) {
    let length = scratch(shape, Pass::Forward);
    let count = shape.batch * shape.window.places();
    let share = rows_per_part(threads, count, cost(shape, count));
    let parts = y.chunks_mut(share * shape.filters).enumerate();
    for_each_part(parts, |(part, y)| {
        let first = part * share;
        with_scratch(length, |scratch, buffers| match method(shape) {
            Method::Depthwise => {
                depthwise::forward(shape, x, weight, y, first, scratch);
            }
            Method::Columns => {
                columns::forward(shape, first, [x, weight], y, scratch, buffers);
            }
        });
    });
}

/// dx from dy and the weights.
pub(crate) fn backward<R: Real>(
    shape: &Geometry,
    [dy, weight]: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    threads: usize,
) {
    let length = scratch(shape, Pass::Backward);
    let images = images(shape, threads);
    let parts = dx.chunks_mut(images * shape.image());
    let parts = dy.chunks(images * shape.result()).zip(parts);
    for_each_part(parts, |(dy, dx)| {
        with_scratch(length, |scratch, buffers| match method(shape) {
            Method::Depthwise => {
                depthwise::backward(shape, dy, weight, dx, store, scratch);
            }
            Method::Columns => {
                columns::backward(shape, [dy, weight], dx, store, scratch, buffers);
            }
        });
    });
}

/// dweight from x and dy.
pub(crate) fn weights<R: Real>(
    shape: &Geometry,
    [x, dy]: [&[R]; 2],
    dweight: &mut [R],
    store: Store,
    threads: usize,
) {
    let length = scratch(shape, Pass::Weights);
    let share = rows_per_part(threads, shape.filters, cost(shape, shape.filters));
    let parts = dweight.chunks_mut(share * shape.depth()).enumerate();
    for_each_part(parts, |(part, dweight)| {
        let first = part * share;
        with_scratch(length, |scratch, buffers| match method(shape) {
            Method::Depthwise => {
                depthwise::weights(shape, [x, dy], dweight, first, store, scratch);
            }
            Method::Columns => {
                columns::weights(shape, first, [x, dy], dweight, store, scratch, buffers);
            }
        });
    });
}

/// Lends this thread's scratch memory beside its packing buffers.
fn with_scratch<R: Real>(length: usize, work: impl FnOnce(&mut [R], &mut Buffers<R>)) {
    R::with_buffers(|buffers| {
        buffers.reserve(length);
        let mut own = std::mem::take(&mut buffers.scratch);
        work(&mut own[..length], buffers);
        buffers.scratch = own;
    });
}
