//! Plain root mean square normalisation (Zhang and Sennrich, arXiv 1910.07467).

use crate::{Real, store::Store};

/// y = x · rstd · gain per row, rstd = 1/√(avg(x²) + ε).
pub(crate) fn rms_norm<R: Real>(
    x: &[R],
    gain: &[R],
    y: &mut [R],
    rstd: &mut [R],
    epsilon: f64,
) {
    let columns = gain.len();
    let count = R::of(columns as f64);
    for (i, (x, y)) in x.chunks(columns).zip(y.chunks_mut(columns)).enumerate() {
        let square = x.iter().map(|x| *x * *x).sum::<R>() / count;
        rstd[i] = R::ONE / (square + R::of(epsilon)).sqrt();
        for (j, y) in y.iter_mut().enumerate() {
            *y = x[j] * rstd[i] * gain[j];
        }
    }
}

/// dx = rstd · (g − x̂ · avg(g · x̂)) per row, x̂ = x · rstd, g = dy · gain;
/// dgain = Σ over rows of dy · x̂.
pub(crate) fn rms_norm_backward<R: Real>(
    [x, gain, rstd, dy]: [&[R]; 4],
    [dx, dgain]: [&mut [R]; 2],
    [store, sums]: [Store; 2],
) {
    let columns = gain.len();
    let count = R::of(columns as f64);
    let mut slopes = vec![R::ZERO; columns];
    for (i, dx) in dx.chunks_mut(columns).enumerate() {
        let start = i * columns;
        let normal = |j: usize| x[start + j] * rstd[i];
        let scaled = |j: usize| dy[start + j] * gain[j];
        let along = (0..columns).map(|j| scaled(j) * normal(j)).sum::<R>() / count;
        for (j, dx) in dx.iter_mut().enumerate() {
            store.put(dx, rstd[i] * (scaled(j) - normal(j) * along));
            slopes[j] += dy[start + j] * normal(j);
        }
    }
    sums.put_all(dgain, &slopes);
}
