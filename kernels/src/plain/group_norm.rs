//! Plain group normalisation (Wu and He, arXiv 1803.08494).

use crate::{Real, group_norm::Groups, norm::EPSILON, store::Store};

/// The places of one group's values: all positions of an example, the columns of the group.
fn places(
    extents: Groups,
    example: usize,
    group: usize,
) -> impl Iterator<Item = usize> + Clone {
    let Groups { positions, columns, width, .. } = extents;
    let rows = example * positions..(example + 1) * positions;
    let own = group * width..(group + 1) * width;
    rows.flat_map(move |row| own.clone().map(move |column| row * columns + column))
}

/// Every example and group, in the order of its statistics.
fn each(extents: Groups) -> impl Iterator<Item = (usize, usize)> {
    let groups = extents.columns / extents.width;
    (0..extents.examples).flat_map(move |e| (0..groups).map(move |group| (e, group)))
}

/// y = (x − mean) · rstd · gain + bias, rstd = 1/√(variance + ε) per example and group.
pub(crate) fn group_norm<R: Real>(
    extents: Groups,
    [x, gain, bias]: [&[R]; 3],
    [y, mean, rstd]: [&mut [R]; 3],
) {
    let count = R::of((extents.positions * extents.width) as f64);
    for (at, (example, group)) in each(extents).enumerate() {
        let places = places(extents, example, group);
        let center = places.clone().map(|i| x[i]).sum::<R>() / count;
        let squares = places.clone().map(|i| (x[i] - center) * (x[i] - center));
        mean[at] = center;
        rstd[at] = R::ONE / (squares.sum::<R>() / count + R::of(EPSILON)).sqrt();
        for i in places {
            let j = i % extents.columns;
            y[i] = (x[i] - center) * rstd[at] * gain[j] + bias[j];
        }
    }
}

/// dx = rstd · (g − avg(g) − x̂ · avg(g · x̂)) per example and group, g = dy · gain;
/// dgain = Σ dy · x̂ and dbias = Σ dy over examples and positions.
pub(crate) fn group_norm_backward<R: Real>(
    extents: Groups,
    [x, gain, mean, rstd, dy]: [&[R]; 5],
    [dx, dgain, dbias]: [&mut [R]; 3],
    [store, sums]: [Store; 2],
) {
    let Groups { columns, .. } = extents;
    let count = R::of((extents.positions * extents.width) as f64);
    let [mut slopes, mut totals] = [(); 2].map(|()| vec![R::ZERO; columns]);
    for (at, (example, group)) in each(extents).enumerate() {
        let places = places(extents, example, group);
        let normal = |i: usize| (x[i] - mean[at]) * rstd[at];
        let scaled = |i: usize| dy[i] * gain[i % columns];
        let average = places.clone().map(scaled).sum::<R>() / count;
        let along = places.clone().map(|i| scaled(i) * normal(i)).sum::<R>() / count;
        for i in places {
            store.put(&mut dx[i], rstd[at] * (scaled(i) - average - normal(i) * along));
            slopes[i % columns] += dy[i] * normal(i);
            totals[i % columns] += dy[i];
        }
    }
    sums.put_all(dgain, &slopes);
    sums.put_all(dbias, &totals);
}
