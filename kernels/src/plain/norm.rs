//! Plain softmax and layer normalisation.

use crate::{Real, store::Store};

/// y_ij = exp(x_ij) / Σ_k exp(x_ik), with the row's maximum taken off.
pub(crate) fn softmax<R: Real>(x: &[R], y: &mut [R], columns: usize) {
    for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
        let most = x.iter().fold(R::NEGATIVE_INFINITY, |most, x| most.greater(*x));
        let total: R = x.iter().map(|x| (*x - most).exp()).sum();
        for (x, y) in x.iter().zip(y) {
            *y = (*x - most).exp() / total;
        }
    }
}

/// dx_ij = y_ij · (dy_ij − Σ_k y_ik dy_ik).
pub(crate) fn softmax_backward<R: Real>(
    y: &[R],
    dy: &[R],
    dx: &mut [R],
    columns: usize,
    store: Store,
) {
    let rows = y.chunks(columns).zip(dy.chunks(columns)).zip(dx.chunks_mut(columns));
    for ((y, dy), dx) in rows {
        let inner: R = y.iter().zip(dy).map(|(y, dy)| *y * *dy).sum();
        for (j, dx) in dx.iter_mut().enumerate() {
            store.put(dx, y[j] * (dy[j] - inner));
        }
    }
}

/// y = (x − mean) · rstd · gain + bias per row, rstd = 1/√(variance + ε).
pub(crate) fn layer_norm<R: Real>(
    [x, gain, bias]: [&[R]; 3],
    y: &mut [R],
    mean: &mut [R],
    rstd: &mut [R],
    epsilon: f64,
) {
    let columns = gain.len();
    let count = R::of(columns as f64);
    for (i, (x, y)) in x.chunks(columns).zip(y.chunks_mut(columns)).enumerate() {
        let center = x.iter().copied().sum::<R>() / count;
        let spread = x.iter().map(|x| (*x - center) * (*x - center)).sum::<R>() / count;
        mean[i] = center;
        rstd[i] = R::ONE / (spread + R::of(epsilon)).sqrt();
        for (j, y) in y.iter_mut().enumerate() {
            *y = (x[j] - mean[i]) * rstd[i] * gain[j] + bias[j];
        }
    }
}

/// dx = rstd · (g − avg(g) − x̂ · avg(g · x̂)) per row, x̂ = (x − mean) · rstd, g = dy · gain
/// (Ba, Kiros, Hinton 2016).
pub(crate) fn layer_norm_backward<R: Real>(
    [x, gain, mean, rstd, dy]: [&[R]; 5],
    dx: &mut [R],
    store: Store,
) {
    let columns = gain.len();
    let count = R::of(columns as f64);
    for (i, dx) in dx.chunks_mut(columns).enumerate() {
        let start = i * columns;
        let normal = |j: usize| (x[start + j] - mean[i]) * rstd[i];
        let scaled = |j: usize| dy[start + j] * gain[j];
        let average = (0..columns).map(scaled).sum::<R>() / count;
        let along = (0..columns).map(|j| scaled(j) * normal(j)).sum::<R>() / count;
        for (j, dx) in dx.iter_mut().enumerate() {
            store.put(dx, rstd[i] * (scaled(j) - average - normal(j) * along));
        }
    }
}

/// dgain_j = Σ_i dy_ij · x̂_ij, dbias_j = Σ_i dy_ij.
pub(crate) fn layer_norm_parameters<R: Real>(
    [x, mean, rstd, dy]: [&[R]; 4],
    dgain: &mut [R],
    dbias: &mut [R],
    store: Store,
) {
    let columns = dgain.len();
    for j in 0..columns {
        let normal = |i: usize| (x[i * columns + j] - mean[i]) * rstd[i];
        let along = |i: usize| dy[i * columns + j];
        store.put(&mut dgain[j], (0..mean.len()).map(|i| along(i) * normal(i)).sum());
        store.put(&mut dbias[j], (0..mean.len()).map(along).sum());
    }
}
