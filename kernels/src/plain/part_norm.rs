//! Plain normalisation of rows that several devices have the columns of.

use crate::{Real, part_norm::Norm, store::Store};

/// totals_i = Σ_j x_ij.
pub(crate) fn totals<R: Real>(x: &[R], totals: &mut [R], columns: usize) {
    for (x, total) in x.chunks(columns).zip(totals) {
        *total = x.iter().copied().sum();
    }
}

/// squares_i = Σ_j (x_ij − totals_i / whole)².
pub(crate) fn squares<R: Real>(
    x: &[R],
    totals: Option<&[R]>,
    squares: &mut [R],
    (columns, whole): (usize, usize),
) {
    for (i, (x, square)) in x.chunks(columns).zip(squares).enumerate() {
        let mean = totals.map_or(R::ZERO, |totals| totals[i] / R::of(whole as f64));
        *square = x.iter().map(|x| (*x - mean) * (*x - mean)).sum();
    }
}

/// y = (x − mean) · rstd · gain + bias.
pub(crate) fn normalise<R: Real>(x: &[R], norm: Norm<'_, R>, y: &mut [R]) {
    let columns = norm.gain.len();
    for (i, (x, y)) in x.chunks(columns).zip(y.chunks_mut(columns)).enumerate() {
        for (j, y) in y.iter_mut().enumerate() {
            let bias = norm.bias.map_or(R::ZERO, |bias| bias[j]);
            *y = normal(&norm, x, (i, j)) * norm.gain[j] + bias;
        }
    }
}

/// x̂ = (x − mean) · rstd.
fn normal<R: Real>(norm: &Norm<'_, R>, x: &[R], (i, j): (usize, usize)) -> R {
    let mean = norm.mean.map_or(R::ZERO, |mean| mean[i]);
    (x[j] - mean) * norm.rstd[i]
}

/// slopes_0i = Σ_j g_ij · x̂_ij, slopes_1i = Σ_j g_ij where there are means, g = dy · gain.
pub(crate) fn slopes<R: Real>([x, dy]: [&[R]; 2], norm: Norm<'_, R>, slopes: &mut [R]) {
    let (columns, rows) = (norm.gain.len(), norm.rstd.len());
    for (i, (x, dy)) in x.chunks(columns).zip(dy.chunks(columns)).enumerate() {
        let scaled = |j: usize| dy[j] * norm.gain[j];
        let along = |j: usize| scaled(j) * normal(&norm, x, (i, j));
        slopes[i] = (0..columns).map(along).sum();
        if norm.mean.is_some() {
            slopes[rows + i] = (0..columns).map(scaled).sum();
        }
    }
}

/// dx = rstd · (g − slopes_1 / whole − x̂ · slopes_0 / whole).
pub(crate) fn backward<R: Real>(
    [x, dy]: [&[R]; 2],
    norm: Norm<'_, R>,
    slopes: &[R],
    (dx, whole, store): (&mut [R], usize, Store),
) {
    let (columns, rows) = (norm.gain.len(), norm.rstd.len());
    let count = R::of(whole as f64);
    let rows_of_both = x.chunks(columns).zip(dy.chunks(columns));
    for (i, ((x, dy), dx)) in rows_of_both.zip(dx.chunks_mut(columns)).enumerate() {
        let along = slopes[i] / count;
        let average = norm.mean.map_or(R::ZERO, |_| slopes[rows + i] / count);
        for (j, dx) in dx.iter_mut().enumerate() {
            let rest = dy[j] * norm.gain[j] - average;
            store.put(dx, norm.rstd[i] * (rest - normal(&norm, x, (i, j)) * along));
        }
    }
}

/// dgain_j = Σ_i dy_ij · x_ij · rstd_i.
pub(crate) fn gain<R: Real>([x, rstd, dy]: [&[R]; 3], dgain: &mut [R], store: Store) {
    let columns = dgain.len();
    for (j, dgain) in dgain.iter_mut().enumerate() {
        let along = |i: usize| dy[i * columns + j] * (x[i * columns + j] * rstd[i]);
        store.put(dgain, (0..rstd.len()).map(along).sum());
    }
}
