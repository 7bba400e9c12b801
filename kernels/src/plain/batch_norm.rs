//! Plain batch normalisation, channel by channel (Ioffe and Szegedy, arXiv 1502.03167).

use crate::{Real, norm::EPSILON, operand::Current, store::Store};

/// The channels' values, one row after another.
fn channel<R: Real>(
    x: &[R],
    j: usize,
    columns: usize,
) -> impl Iterator<Item = R> + Clone {
    x.iter().skip(j).step_by(columns).copied()
}

/// mean = Σ x / m, variance = Σ (x − mean)² / m.
pub(crate) fn moments<R: Real>(x: &[R], mean: &mut [R], variance: &mut [R]) {
    let columns = mean.len();
    let count = R::of((x.len() / columns) as f64);
    for j in 0..columns {
        let values = channel(x, j, columns);
        let center = values.clone().sum::<R>() / count;
        let squares = values.map(|x| (x - center) * (x - center));
        (mean[j], variance[j]) = (center, squares.sum::<R>() / count);
    }
}

/// (x − mean) / √(variance + ε) · gain + bias.
pub(crate) fn normal<R: Real>(x: R, [gain, bias, mean, variance]: [R; 4]) -> R {
    let rstd = R::ONE / (variance + R::of(EPSILON)).sqrt();
    (x - mean) * rstd * gain + bias
}

/// y = the normal of x.
pub(crate) fn normalise<R: Real>(x: &[R], channels: [&[R]; 4], y: &mut [R]) {
    for (i, y) in y.iter_mut().enumerate() {
        *y = normal(x[i], channels.map(|own| own[i % own.len()]));
    }
}

/// dt = dy where the normal of x > 0.
pub(crate) fn open_again<R: Real>(
    [x, dy]: [&[R]; 2],
    channels: [&[R]; 4],
    dt: &mut [R],
    store: Store,
) {
    for (i, dt) in dt.iter_mut().enumerate() {
        let normal = normal(x[i], channels.map(|own| own[i % own.len()]));
        store.put(dt, if normal > R::ZERO { dy[i] } else { R::ZERO });
    }
}

/// dbias = Σ dy, dgain = Σ dy · x̂, dx = gain · rstd · (dy − dbias / m − x̂ · dgain / m), where
/// x̂ = (x − mean) · rstd; dy may depend on x.
pub(crate) fn backward<R: Real>(
    (x, [gain, mean, variance]): (Current<'_, R>, [&[R]; 3]),
    dy: impl Fn(usize, R) -> R,
    [dx, dgain, dbias]: [&mut [R]; 3],
    [store, sums]: [Store; 2],
) {
    let columns = gain.len();
    let rows = dx.len() / columns;
    let count = R::of(rows as f64);
    for j in 0..columns {
        let rstd = R::ONE / (variance[j] + R::of(EPSILON)).sqrt();
        let at = |i: usize| i * columns + j;
        let x = |i: usize, dx: &[R]| x.at(at(i), &dx[at(i)]);
        let normal = |i, dx: &[R]| (x(i, dx) - mean[j]) * rstd;
        let dy = |i, dx: &[R]| dy(at(i), x(i, dx));
        let total = (0..rows).map(|i| dy(i, dx)).sum::<R>();
        let along = (0..rows).map(|i| dy(i, dx) * normal(i, dx)).sum::<R>();
        sums.put(&mut dgain[j], along);
        sums.put(&mut dbias[j], total);
        for i in 0..rows {
            let rest = dy(i, dx) - total / count - normal(i, dx) * (along / count);
            store.put(&mut dx[at(i)], gain[j] * rstd * rest);
        }
    }
}
