//! One filter per channel: taps outside, lines of channels inside.

use super::{cost, images, with_scratch};
use crate::{
    Real,
    convolution::Geometry,
    line::Lanes,
    simd::vectorize,
    store::Store,
    team::{Cut, for_each_part, rows_per_part},
    window::Window,
};

/// Elements of the weights, tap by tap.
pub(super) fn scratch(shape: &Geometry) -> usize {
    shape.window.taps() * shape.channels
}

/// Taps of the window, with their numbers.
#[inline(always)]
fn taps(window: &Window) -> impl Iterator<Item = (usize, [usize; 2])> + use<> {
    let [high, wide] = window.kernel;
    (0..high).flat_map(move |u| (0..wide).map(move |v| (u * wide + v, [u, v])))
}

/// y, places split over threads.
pub(super) fn forward<R: Real>(
    shape: &Geometry,
    [x, weight]: [&[R]; 2],
    y: &mut [R],
    threads: usize,
) {
    let rows = shape.batch * shape.window.places();
    let cut = Cut::new(threads, rows, cost(shape, rows));
    let share = cut.rows;
    cut.each(y.chunks_mut(share * shape.filters).enumerate(), |(part, y)| {
        with_scratch(scratch(shape), |scratch, _| {
            results(shape, x, weight, y, part * share, scratch);
        });
    });
}

/// dx, images split over threads.
pub(super) fn backward<R: Real>(
    shape: &Geometry,
    [dy, weight]: [&[R]; 2],
    dx: &mut [R],
    store: Store,
    threads: usize,
) {
    let share = images(shape, threads);
    let parts = dx.chunks_mut(share * shape.image());
    let parts = dy.chunks(share * shape.result()).zip(parts);
    for_each_part(parts, |(dy, dx)| {
        with_scratch(scratch(shape), |scratch, _| {
            pixels(shape, dy, weight, dx, store, scratch);
        });
    });
}

/// dweight, channels split over threads.
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
        with_scratch(scratch(shape), |scratch, _| {
            filters(shape, inputs, dweight, part * share, store, scratch);
        });
    });
}

vectorize! {
    /// The result at places from `first` on.
    fn results<R>(
        shape: &Geometry, x: &[R], weight: &[R], y: &mut [R], first: usize,
        scratch: &mut [R],
    ) {
        let (window, channels) = (&shape.window, shape.channels);
        let [places, width] = [window.places(), window.output[1]];
        for (at, weight) in weight.iter().enumerate() {
            scratch[at % window.taps() * channels + at / window.taps()] = *weight;
        }
        for (at, y) in (first..).zip(y.chunks_mut(channels)) {
            let (image, place) = (at / places, at % places);
            let [i, j] = [place / width, place % width];
            for (part, y) in y.chunks_mut(R::Line::COUNT).enumerate() {
                let start = part * R::Line::COUNT;
                let mut sum = R::Line::splat(R::ZERO);
                for (tap, [u, v]) in taps(window) {
                    let seen = (window.seen(0, i, u), window.seen(1, j, v));
                    if let (Some(row), Some(column)) = seen {
                        let pixel = (row * window.input[1] + column) * channels + start;
                        let x = &x[image * shape.image() + pixel..][..y.len()];
                        let weight = &scratch[tap * channels + start..][..y.len()];
                        let products = R::Line::load(x)
                            .zip(R::Line::load(weight), |x, weight| x * weight);
                        sum = sum.zip(products, |sum, product| sum + product);
                    }
                }
                sum.store(y);
            }
        }
    }
}

vectorize! {
    /// The gradient of some images.
    fn pixels<R>(
        shape: &Geometry, dy: &[R], weight: &[R], dx: &mut [R], store: Store,
        scratch: &mut [R],
    ) {
        let (window, channels) = (&shape.window, shape.channels);
        let [pixels, width] = [window.pixels(), window.input[1]];
        for (at, weight) in weight.iter().enumerate() {
            scratch[at % window.taps() * channels + at / window.taps()] = *weight;
        }
        for (at, dx) in dx.chunks_mut(channels).enumerate() {
            let (image, pixel) = (at / pixels, at % pixels);
            let [i, j] = [pixel / width, pixel % width];
            for (part, dx) in dx.chunks_mut(R::Line::COUNT).enumerate() {
                let start = part * R::Line::COUNT;
                let mut sum = R::Line::splat(R::ZERO);
                for (tap, [u, v]) in taps(window) {
                    let from = (window.place(0, i, u), window.place(1, j, v));
                    if let (Some(row), Some(column)) = from {
                        let place = (row * window.output[1] + column) * channels + start;
                        let dy = &dy[image * shape.result() + place..][..dx.len()];
                        let weight = &scratch[tap * channels + start..][..dx.len()];
                        let products = R::Line::load(dy)
                            .zip(R::Line::load(weight), |dy, weight| dy * weight);
                        sum = sum.zip(products, |sum, product| sum + product);
                    }
                }
                if store == Store::Add {
                    sum = sum.zip(R::Line::load(dx), |sum, dx| sum + dx);
                }
                sum.store(dx);
            }
        }
    }
}

vectorize! {
    /// The gradient of the weights of channels from `first` on.
    fn filters<R>(
        shape: &Geometry, inputs: [&[R]; 2], dweight: &mut [R], first: usize,
        store: Store, scratch: &mut [R],
    ) {
        let [x, dy] = inputs;
        let (window, channels) = (&shape.window, shape.channels);
        let [places, width] = [window.places(), window.output[1]];
        let count = dweight.len() / window.taps();
        let sums = &mut scratch[..dweight.len()];
        sums.fill(R::ZERO);
        for (at, dy) in dy.chunks(channels).enumerate() {
            let (image, place) = (at / places, at % places);
            let [i, j] = [place / width, place % width];
            for (tap, [u, v]) in taps(window) {
                let seen = (window.seen(0, i, u), window.seen(1, j, v));
                if let (Some(row), Some(column)) = seen {
                    let pixel = (row * window.input[1] + column) * channels + first;
                    let x = &x[image * shape.image() + pixel..][..count];
                    let dy = &dy[first..][..count];
                    let sums = &mut sums[tap * count..][..count];
                    for ((sum, x), dy) in sums.iter_mut().zip(x).zip(dy) {
                        *sum = x.fused(*dy, *sum);
                    }
                }
            }
        }
        for (at, dweight) in dweight.iter_mut().enumerate() {
            store.put(dweight, sums[at % window.taps() * count + at / window.taps()]);
        }
    }
}
