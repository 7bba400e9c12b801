//! Vectorised pooling: channels are neighbours, so every tap of a window is a row to combine.

use crate::{pool::Pool, simd::vectorize, store::Store};

/// Channels whose greatest taps are kept in registers.
const LANES: usize = 16;

/// The pixels (of one image) that the window at `place` sees, row by row.
#[inline(always)]
fn seen(pool: &Pool, place: usize) -> impl Iterator<Item = usize> + '_ {
    let window = &pool.window;
    let [i, j] = [place / window.output[1], place % window.output[1]];
    let [high, wide] = window.kernel;
    let rows = (0..high).filter_map(move |u| window.seen(0, i, u));
    rows.flat_map(move |row| {
        let columns = (0..wide).filter_map(move |v| window.seen(1, j, v));
        columns.map(move |column| row * window.input[1] + column)
    })
}

vectorize! {
    /// y = max over the window.
    pub(crate) fn max_pool<R>(pool: &Pool, x: &[R], y: &mut [R]) {
        let images = x.chunks(pool.image()).zip(y.chunks_mut(pool.result()));
        for (x, y) in images {
            for (place, y) in y.chunks_mut(pool.channels).enumerate() {
                y.fill(R::NEGATIVE_INFINITY);
                for pixel in seen(pool, place) {
                    let x = &x[pixel * pool.channels..][..pool.channels];
                    for (x, y) in x.iter().zip(&mut *y) {
                        *y = y.greater_or_none(*x);
                    }
                }
            }
        }
    }
}

vectorize! {
    /// dx at the first greatest pixel of a window += dy.
    pub(crate) fn max_pool_backward<R>(
        pool: &Pool, x: &[R], dy: &[R], dx: &mut [R], store: Store,
    ) {
        store.clear(dx);
        let images = x.chunks(pool.image()).zip(dx.chunks_mut(pool.image()));
        for ((x, dx), dy) in images.zip(dy.chunks(pool.result())) {
            for (place, dy) in dy.chunks(pool.channels).enumerate() {
                for (part, dy) in dy.chunks(LANES).enumerate() {
                    let first = part * LANES;
                    let mut most = [R::NEGATIVE_INFINITY; LANES];
                    let mut at = [usize::MAX; LANES];
                    for pixel in seen(pool, place) {
                        let start = pixel * pool.channels + first;
                        let lanes = most.iter_mut().zip(&mut at);
                        for (x, (most, at)) in x[start..][..dy.len()].iter().zip(lanes) {
                            let greater = x.exceeds(*most) || *at == usize::MAX;
                            *at = if greater { start } else { *at };
                            *most = if greater { *x } else { *most };
                        }
                    }
                    for (lane, (dy, at)) in dy.iter().zip(at).enumerate() {
                        dx[at + lane] += *dy;
                    }
                }
            }
        }
    }
}

vectorize! {
    /// y = Σ x / size², over the window.
    pub(crate) fn avg_pool<R>(pool: &Pool, x: &[R], y: &mut [R]) {
        let share = R::ONE / R::of(pool.window.taps() as f64);
        let images = x.chunks(pool.image()).zip(y.chunks_mut(pool.result()));
        for (x, y) in images {
            for (place, y) in y.chunks_mut(pool.channels).enumerate() {
                y.fill(R::ZERO);
                for pixel in seen(pool, place) {
                    let x = &x[pixel * pool.channels..][..pool.channels];
                    for (x, y) in x.iter().zip(&mut *y) {
                        *y += *x;
                    }
                }
                for y in y {
                    *y *= share;
                }
            }
        }
    }
}

vectorize! {
    /// dx of all that a window sees += dy / size².
    pub(crate) fn avg_pool_backward<R>(pool: &Pool, dy: &[R], dx: &mut [R], store: Store) {
        let share = R::ONE / R::of(pool.window.taps() as f64);
        store.clear(dx);
        let images = dy.chunks(pool.result()).zip(dx.chunks_mut(pool.image()));
        for (dy, dx) in images {
            for (place, dy) in dy.chunks(pool.channels).enumerate() {
                for pixel in seen(pool, place) {
                    let dx = &mut dx[pixel * pool.channels..][..pool.channels];
                    for (dy, dx) in dy.iter().zip(dx) {
                        *dx += *dy * share;
                    }
                }
            }
        }
    }
}

vectorize! {
    /// y = the mean over all pixels.
    pub(crate) fn global_pool<R>(x: &[R], y: &mut [R], pixels: usize, channels: usize) {
        let share = R::ONE / R::of(pixels as f64);
        for (x, y) in x.chunks(pixels * channels).zip(y.chunks_mut(channels)) {
            y.fill(R::ZERO);
            for x in x.chunks(channels) {
                for (x, y) in x.iter().zip(&mut *y) {
                    *y += *x;
                }
            }
            for y in y {
                *y *= share;
            }
        }
    }
}

vectorize! {
    /// dx = dy / pixels everywhere.
    pub(crate) fn global_pool_backward<R>(
        dy: &[R], dx: &mut [R], pixels: usize, channels: usize, store: Store,
    ) {
        let share = R::ONE / R::of(pixels as f64);
        for (dy, dx) in dy.chunks(channels).zip(dx.chunks_mut(pixels * channels)) {
            for dx in dx.chunks_mut(channels) {
                for (dy, dx) in dy.iter().zip(dx) {
                    store.put(dx, *dy * share);
                }
            }
        }
    }
}
