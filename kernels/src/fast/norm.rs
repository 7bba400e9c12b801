//! Vectorised softmax and layer normalisation, row by row.

use crate::{
    simd::vectorize,
    store::Store,
    sum::{dot, greatest, sums},
};

vectorize! {
    /// y = softmax of every row.
    pub(crate) fn softmax<R>(x: &[R], y: &mut [R], columns: usize) {
        for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
            let most = greatest(x);
            for (x, y) in x.iter().zip(&mut *y) {
                *y = (*x - most).quick_exp();
            }
            let [total] = sums([&*y], |y| y);
            let share = R::ONE / total;
            for y in y {
                *y *= share;
            }
        }
    }
}

vectorize! {
    /// dx = y · (dy − Σ y · dy).
    pub(crate) fn softmax_backward<R>(
        y: &[R], dy: &[R], dx: &mut [R], columns: usize, store: Store,
    ) {
        let rows = y.chunks(columns).zip(dy.chunks(columns)).zip(dx.chunks_mut(columns));
        for ((y, dy), dx) in rows {
            let inner = dot(y, dy);
            for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
                store.put(dx, *y * (*dy - inner));
            }
        }
    }
}

vectorize! {
    /// y = (x − mean) · rstd · gain + bias.
    pub(crate) fn layer_norm<R>(
        x: &[R], gain: &[R], bias: &[R], y: &mut [R], mean: &mut [R], rstd: &mut [R],
        epsilon: f64,
    ) {
        let columns = gain.len();
        let share = R::ONE / R::of(columns as f64);
        let rows = x.chunks(columns).zip(y.chunks_mut(columns));
        for ((x, y), (mean, rstd)) in rows.zip(mean.iter_mut().zip(rstd)) {
            let [total] = sums([x], |x| x);
            let center = total * share;
            let [spread] = sums([x], |[x]| [(x - center) * (x - center)]);
            let factor = R::ONE / (spread * share + R::of(epsilon)).sqrt();
            (*mean, *rstd) = (center, factor);
            for (((x, y), gain), bias) in x.iter().zip(y).zip(gain).zip(bias) {
                *y = ((*x - center) * factor).fused(*gain, *bias);
            }
        }
    }
}

vectorize! {
    /// dx = rstd · (g − avg(g) − x̂ · avg(g · x̂)), g = dy · gain; the first of two rows of
    /// `parameters` += dy · x̂ of every column, the second += dy.
    pub(crate) fn layer_norm_backward<R>(
        inputs: [&[R]; 5], dx: &mut [R], parameters: &mut [R], store: Store,
    ) {
        let [x, gain, mean, rstd, dy] = inputs;
        let columns = gain.len();
        let share = R::ONE / R::of(columns as f64);
        let (dgain, dbias) = parameters.split_at_mut(columns);
        let rows = x.chunks(columns).zip(dy.chunks(columns)).zip(dx.chunks_mut(columns));
        for (((x, dy), dx), (mean, rstd)) in rows.zip(mean.iter().zip(rstd)) {
            let (center, factor) = (*mean, *rstd);
            let [average, along] = sums([x, dy, gain], |[x, dy, gain]| {
                let scaled = dy * gain;
                [scaled, scaled * ((x - center) * factor)]
            });
            let (average, along) = (average * share, along * share);
            let outputs = dx.iter_mut().zip(dgain.iter_mut().zip(&mut *dbias));
            for (((x, dy), gain), (dx, (dgain, dbias))) in
                x.iter().zip(dy).zip(gain).zip(outputs)
            {
                let normal = (*x - center) * factor;
                let rest = *dy * *gain - average;
                store.put(dx, factor * (-normal).fused(along, rest));
                *dgain = dy.fused(normal, *dgain);
                *dbias += *dy;
            }
        }
    }
}

vectorize! {
    /// dgain = Σ dy · x̂, dbias = Σ dy, in order of rows, for the columns from `first` on.
    pub(crate) fn layer_norm_parameters<R>(
        inputs: [&[R]; 4], columns: usize, first: usize, dgain: &mut [R], dbias: &mut [R],
        store: Store,
    ) {
        let [x, mean, rstd, dy] = inputs;
        store.clear(dgain);
        store.clear(dbias);
        let rows = x.chunks(columns).zip(dy.chunks(columns));
        for ((x, dy), (mean, rstd)) in rows.zip(mean.iter().zip(rstd)) {
            let (center, factor) = (*mean, *rstd);
            let sums = dgain.iter_mut().zip(&mut *dbias);
            for ((x, dy), (dgain, dbias)) in x[first..].iter().zip(&dy[first..]).zip(sums) {
                *dgain = dy.fused((*x - center) * factor, *dgain);
                *dbias += *dy;
            }
        }
    }
}
