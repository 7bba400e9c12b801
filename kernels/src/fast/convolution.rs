//! Fast convolution: which way each shape goes, and how its work is cut over threads.

mod columns;
mod depthwise;
mod patches;
mod winograd;

use crate::{
    Real, convolution::Geometry, product::with_scratch, store::Store, team::rows_per_part,
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
    /// Products per tile of results.
    Winograd,
    /// Products with strips of patches.
    Columns,
}

fn method(shape: &Geometry) -> Method {
    match (shape.group_channels(), shape.group_filters()) {
        (1, 1) => Method::Depthwise,
        _ if winograd::fits(shape) => Method::Winograd,
        _ => Method::Columns,
    }
}

/// Elements of memory that every thread needs of its own.
pub(crate) fn scratch(shape: &Geometry, pass: Pass) -> usize {
    match method(shape) {
        Method::Depthwise => depthwise::scratch(shape),
        Method::Winograd => winograd::scratch(shape, pass),
        Method::Columns => columns::scratch(shape),
    }
}

/// Lines that all threads share.
pub(crate) fn packed<R: Real>(shape: &Geometry, pass: Pass) -> usize {
    match method(shape) {
        Method::Depthwise => 0,
        Method::Winograd => winograd::packed::<R>(shape, pass),
        Method::Columns => columns::packed::<R>(shape, pass),
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
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    threads: usize,
) {
    match method(shape) {
        Method::Depthwise => depthwise::forward(shape, [x, weight], y, threads),
        Method::Winograd => winograd::forward(shape, [x, weight], y, threads),
        Method::Columns => columns::forward(shape, [x, weight], y, threads),
    }
}

/// dx from dy and the weights.
pub(crate) fn backward<R: Real>(
    shape: &Geometry,
    inputs: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    threads: usize,
) {
    match method(shape) {
        Method::Depthwise => depthwise::backward(shape, inputs, dx, store, threads),
        Method::Winograd => winograd::backward(shape, inputs, dx, store, threads),
        Method::Columns => columns::backward(shape, inputs, dx, store, threads),
    }
}

/// dweight from x and dy.
pub(crate) fn weights<R: Real>(
    shape: &Geometry,
    inputs: [&[R]; 2],
    dweight: &mut [R],
    store: Store,
    threads: usize,
) {
    match method(shape) {
        Method::Depthwise => depthwise::weights(shape, inputs, dweight, store, threads),
        Method::Winograd => winograd::weights(shape, inputs, dweight, store, threads),
        Method::Columns => columns::weights(shape, inputs, dweight, store, threads),
    }
}
