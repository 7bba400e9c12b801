//! Plain normalisation of images whose pixels are divided: sums element by element, in the order of
//! memory.

use crate::{Real, group_norm::Groups, norm::EPSILON, store::Store};

/// The statistic and the column of every element, in the order of memory.
fn places(extents: Groups) -> impl Iterator<Item = (usize, usize)> {
    let Groups { examples, positions, columns, width } = extents;
    let groups = extents.groups();
    (0..examples).flat_map(move |example| {
        let row = move |_| {
            let first = example * groups;
            let group = move |group: usize| {
                let own = group * width..(group + 1) * width;
                own.map(move |column| (first + group, column))
            };
            (0..columns / width).flat_map(group)
        };
        (0..positions).flat_map(row)
    })
}

/// Elements of one statistic.
fn count(extents: Groups) -> usize {
    extents.positions * extents.width
}

fn rstd<R: Real>(variance: R) -> R {
    R::ONE / (variance + R::of(EPSILON)).sqrt()
}

/// moments_0 = Σ x / count, moments_1 = Σ (x − moments_0)².
pub(crate) fn moments<R: Real>(extents: Groups, x: &[R], moments: &mut [R]) {
    let (mean, squares) = moments.split_at_mut(extents.statistics());
    mean.fill(R::ZERO);
    squares.fill(R::ZERO);
    for ((at, _), x) in places(extents).zip(x) {
        mean[at] += *x;
    }
    let count = R::of(count(extents) as f64);
    mean.iter_mut().for_each(|mean| *mean = *mean / count);
    for ((at, _), x) in places(extents).zip(x) {
        squares[at] += (*x - mean[at]) * (*x - mean[at]);
    }
}

/// mean = the mean of the parts' means, variance = Σ (squares + count (mean_p − mean)²) / all, from
/// the moments of parts one after another, each of `count` elements.
pub(crate) fn join<R: Real>(
    moments: &[R],
    count: usize,
    mean: &mut [R],
    variance: &mut [R],
) {
    let both = 2 * mean.len();
    let (parts, own) = ((moments.len() / both) as f64, R::of(count as f64));
    for at in 0..mean.len() {
        let means = moments.iter().skip(at).step_by(both).copied();
        let squares = moments.iter().skip(mean.len() + at).step_by(both);
        let center = means.clone().sum::<R>() / R::of(parts);
        let around = means.map(|mean| own * (mean - center) * (mean - center));
        let all = squares.copied().zip(around).map(|(own, more)| own + more);
        (mean[at], variance[at]) = (center, all.sum::<R>() / (own * R::of(parts)));
    }
}

/// y = (x − mean) · rstd · gain + bias.
pub(crate) fn normalise<R: Real>(
    extents: Groups,
    [x, gain, bias, mean, variance]: [&[R]; 5],
    y: &mut [R],
) {
    for (((at, column), x), y) in places(extents).zip(x).zip(y) {
        let normal = (*x - mean[at]) * rstd(variance[at]);
        *y = normal * gain[column] + bias[column];
    }
}

/// slopes_0 = Σ g · x̂, slopes_1 = Σ g, g = dy · gain.
pub(crate) fn slopes<R: Real>(
    extents: Groups,
    [x, gain, mean, variance, dy]: [&[R]; 5],
    slopes: &mut [R],
) {
    slopes.fill(R::ZERO);
    let (along, total) = slopes.split_at_mut(extents.statistics());
    for (((at, column), x), dy) in places(extents).zip(x).zip(dy) {
        let scaled = *dy * gain[column];
        along[at] += scaled * (*x - mean[at]) * rstd(variance[at]);
        total[at] += scaled;
    }
}

/// dx = rstd · (g − Σ g / all − x̂ · Σ (g · x̂) / all), the sums over the `all` elements of all parts.
pub(crate) fn backward<R: Real>(
    extents: Groups,
    [x, gain, mean, variance, dy, slopes]: [&[R]; 6],
    (dx, all, store): (&mut [R], usize, Store),
) {
    let (along, total) = slopes.split_at(extents.statistics());
    let all = R::of(all as f64);
    for ((((at, column), x), dy), dx) in places(extents).zip(x).zip(dy).zip(dx) {
        let rstd = rstd(variance[at]);
        let normal = (*x - mean[at]) * rstd;
        let rest = *dy * gain[column] - total[at] / all - normal * (along[at] / all);
        store.put(dx, rstd * rest);
    }
}

/// dgain = Σ dy · x̂, dbias = Σ dy.
pub(crate) fn parameters<R: Real>(
    extents: Groups,
    [x, mean, variance, dy]: [&[R]; 4],
    [dgain, dbias]: [&mut [R]; 2],
    store: Store,
) {
    store.clear(dgain);
    store.clear(dbias);
    for (((at, column), x), dy) in places(extents).zip(x).zip(dy) {
        dgain[column] += *dy * (*x - mean[at]) * rstd(variance[at]);
        dbias[column] += *dy;
    }
}
