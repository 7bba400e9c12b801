//! Plain pooling.

use crate::{Real, pool::Pool, store::Store};

impl Pool {
    /// Image, place and channel of every element of the result, in order.
    fn results(&self) -> impl Iterator<Item = (usize, [usize; 2], usize)> + use<> {
        let (places, channels) = (self.window.places(), self.channels);
        let width = self.window.output[1];
        (0..self.batch * places * channels).map(move |at| {
            let (place, c) = (at / channels, at % channels);
            let (image, place) = (place / places, place % places);
            (image, [place / width, place % width], c)
        })
    }
    /// The elements of x that the window at place (i, j) sees in one channel, row by row.
    fn seen(
        &self,
        image: usize,
        [i, j]: [usize; 2],
        c: usize,
    ) -> impl Iterator<Item = usize> + '_ {
        let window = &self.window;
        let [high, wide] = window.kernel;
        let rows = (0..high).filter_map(move |u| window.seen(0, i, u));
        rows.flat_map(move |row| {
            let columns = (0..wide).filter_map(move |v| window.seen(1, j, v));
            columns.map(move |column| {
                let pixel = row * window.input[1] + column;
                image * self.image() + pixel * self.channels + c
            })
        })
    }
    /// The first greatest element that a window sees.
    fn greatest<R: Real>(
        &self,
        x: &[R],
        (image, place, c): (usize, [usize; 2], usize),
    ) -> usize {
        let later =
            |most: usize, at: usize| if x[at].exceeds(x[most]) { at } else { most };
        let most = self.seen(image, place, c).reduce(later);
        most.expect("padding is at most half of a window")
    }
}

/// y = max over the window.
pub(crate) fn max_pool<R: Real>(pool: &Pool, x: &[R], y: &mut [R]) {
    for (y, place) in y.iter_mut().zip(pool.results()) {
        *y = x[pool.greatest(x, place)];
    }
}

/// dx at the first greatest element of a window += dy.
pub(crate) fn max_pool_backward<R: Real>(
    pool: &Pool,
    x: &[R],
    dy: &[R],
    dx: &mut [R],
    store: Store,
) {
    store.clear(dx);
    for (dy, place) in dy.iter().zip(pool.results()) {
        dx[pool.greatest(x, place)] += *dy;
    }
}

/// y = Σ x / size², over the window.
pub(crate) fn avg_pool<R: Real>(pool: &Pool, x: &[R], y: &mut [R]) {
    let count = R::of(pool.window.taps() as f64);
    for (y, (image, place, c)) in y.iter_mut().zip(pool.results()) {
        *y = pool.seen(image, place, c).map(|at| x[at]).sum::<R>() / count;
    }
}

/// dx of all that a window sees += dy / size².
pub(crate) fn avg_pool_backward<R: Real>(
    pool: &Pool,
    dy: &[R],
    dx: &mut [R],
    store: Store,
) {
    let count = R::of(pool.window.taps() as f64);
    store.clear(dx);
    for (dy, (image, place, c)) in dy.iter().zip(pool.results()) {
        for at in pool.seen(image, place, c) {
            dx[at] += *dy / count;
        }
    }
}

/// y_bc = Σ_p x_bpc / pixels.
pub(crate) fn global_pool<R: Real>(x: &[R], y: &mut [R], pixels: usize, channels: usize) {
    let count = R::of(pixels as f64);
    for (x, y) in x.chunks(pixels * channels).zip(y.chunks_mut(channels)) {
        for (c, y) in y.iter_mut().enumerate() {
            *y = (0..pixels).map(|p| x[p * channels + c]).sum::<R>() / count;
        }
    }
}

/// dx_bpc = dy_bc / pixels.
pub(crate) fn global_pool_backward<R: Real>(
    dy: &[R],
    dx: &mut [R],
    pixels: usize,
    channels: usize,
    store: Store,
) {
    let count = R::of(pixels as f64);
    for (dy, dx) in dy.chunks(channels).zip(dx.chunks_mut(pixels * channels)) {
        for (at, dx) in dx.iter_mut().enumerate() {
            store.put(dx, dy[at % channels] / count);
        }
    }
}
