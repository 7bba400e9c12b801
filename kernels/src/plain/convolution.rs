//! Plain convolution and its gradients.

use crate::{Real, convolution::Geometry, store::Store};

impl Geometry {
    /// Where image `b` has the pixel that tap (u, v) sees from place (i, j).
    fn pixel(&self, b: usize, [i, j]: [usize; 2], [u, v]: [usize; 2]) -> Option<usize> {
        let window = &self.window;
        let (row, column) = (window.seen(0, i, u)?, window.seen(1, j, v)?);
        Some(b * self.image() + (row * window.input[1] + column) * self.channels)
    }
    /// Where image `b` of the result has the place from which (u, v) sees pixel (i, j).
    fn seer(&self, b: usize, [i, j]: [usize; 2], [u, v]: [usize; 2]) -> Option<usize> {
        let window = &self.window;
        let (row, column) = (window.place(0, i, u)?, window.place(1, j, v)?);
        Some(b * self.result() + (row * window.output[1] + column) * self.filters)
    }
    /// Where filter `n` has the weights of tap (u, v).
    fn weight(&self, n: usize, [u, v]: [usize; 2]) -> usize {
        n * self.depth() + (u * self.window.kernel[1] + v) * self.group_channels()
    }
    fn taps(&self) -> impl Iterator<Item = [usize; 2]> + Clone + use<> {
        let [high, wide] = self.window.kernel;
        (0..high).flat_map(move |u| (0..wide).map(move |v| [u, v]))
    }
}

/// All (b, i, j, k) of an array of these extents, in order.
fn places(
    [batch, height, width, last]: [usize; 4],
) -> impl Iterator<Item = (usize, [usize; 2], usize)> {
    (0..batch * height * width * last).map(move |at| {
        let (pixel, k) = (at / last, at % last);
        let (row, j) = (pixel / width, pixel % width);
        (row / height, [row % height, j], k)
    })
}

/// y_bijn = Σ_uvc x_b(is + u − p)(js + v − p)(g + c) · weight_nuvc, where g is the first channel
/// of filter n's group, s the stride and p the padding.
pub(crate) fn forward<R: Real>(shape: &Geometry, x: &[R], weight: &[R], y: &mut [R]) {
    let depth = shape.group_channels();
    let [height, width] = shape.window.output;
    let all = places([shape.batch, height, width, shape.filters]);
    for (y, (b, place, n)) in y.iter_mut().zip(all) {
        let first = n / shape.group_filters() * depth;
        let seen = |tap| {
            let from = shape.pixel(b, place, tap)? + first;
            Some((from, shape.weight(n, tap)))
        };
        let products = |(from, to): (usize, usize)| {
            (0..depth).map(move |c| x[from + c] * weight[to + c])
        };
        *y = shape.taps().filter_map(seen).flat_map(products).sum();
    }
}

/// dx_bijc = Σ dy_b(i + p − u)/s,(j + p − v)/s,n · weight_nuvc over the taps (u, v) that see
/// pixel (i, j) and the filters n of c's group.
pub(crate) fn backward<R: Real>(
    shape: &Geometry,
    dy: &[R],
    weight: &[R],
    dx: &mut [R],
    store: Store,
) {
    let (depth, filters) = (shape.group_channels(), shape.group_filters());
    let [height, width] = shape.window.input;
    let all = places([shape.batch, height, width, shape.channels]);
    for (dx, (b, pixel, c)) in dx.iter_mut().zip(all) {
        let (group, c) = (c / depth, c % depth);
        let seers =
            shape.taps().filter_map(|tap| Some((shape.seer(b, pixel, tap)?, tap)));
        let products = |(from, tap): (usize, [usize; 2])| {
            let group = group * filters..(group + 1) * filters;
            group.map(move |n| dy[from + n] * weight[shape.weight(n, tap) + c])
        };
        store.put(dx, seers.flat_map(products).sum());
    }
}

/// dweight_nuvc = Σ_bij dy_bijn · x_b(is + u − p)(js + v − p)(g + c).
pub(crate) fn weights<R: Real>(
    shape: &Geometry,
    x: &[R],
    dy: &[R],
    dweight: &mut [R],
    store: Store,
) {
    let depth = shape.group_channels();
    let [high, wide] = shape.window.kernel;
    let [height, width] = shape.window.output;
    let all = places([shape.filters, high, wide, depth]);
    for (dweight, (n, tap, c)) in dweight.iter_mut().zip(all) {
        let first = n / shape.group_filters() * depth;
        let pair = |(place, (b, at, _)): (usize, (usize, [usize; 2], usize))| {
            let from = shape.pixel(b, at, tap)? + first + c;
            Some(dy[place * shape.filters + n] * x[from])
        };
        let outputs = places([shape.batch, height, width, 1]).enumerate();
        store.put(dweight, outputs.filter_map(pair).sum());
    }
}
