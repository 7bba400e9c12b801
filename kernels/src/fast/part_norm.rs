//! Vectorised normalisation of rows that several devices have the columns of, row by row.

use crate::{part_norm::Norm, simd::vectorize, store::Store, sum::sums};

vectorize! {
    /// totals_i = Σ_j x_ij.
    pub(crate) fn totals<R>(x: &[R], totals: &mut [R], columns: usize) {
        for (x, total) in x.chunks(columns).zip(totals) {
            [*total] = sums([x], |x| x);
        }
    }
}

vectorize! {
    /// squares_i = Σ_j (x_ij − totals_i / whole)².
    pub(crate) fn squares<R>(
        x: &[R], totals: Option<&[R]>, squares: &mut [R], extents: (usize, usize),
    ) {
        let (columns, whole) = extents;
        let share = R::ONE / R::of(whole as f64);
        for (i, (x, square)) in x.chunks(columns).zip(squares).enumerate() {
            let mean = totals.map_or(R::ZERO, |totals| totals[i] * share);
            [*square] = sums([x], |[x]| [(x - mean) * (x - mean)]);
        }
    }
}

vectorize! {
    /// y = (x − mean) · rstd · gain + bias.
    pub(crate) fn normalise<R>(x: &[R], norm: Norm<'_, R>, y: &mut [R]) {
        let columns = norm.gain.len();
        let rows = x.chunks(columns).zip(y.chunks_mut(columns));
        for (i, (x, y)) in rows.enumerate() {
            let center = norm.mean.map_or(R::ZERO, |mean| mean[i]);
            let factor = norm.rstd[i];
            let values = x.iter().zip(y).zip(norm.gain);
            match norm.bias {
                Some(bias) => {
                    for (((x, y), gain), bias) in values.zip(bias) {
                        *y = ((*x - center) * factor).fused(*gain, *bias);
                    }
                }
                None => {
                    for ((x, y), gain) in values {
                        *y = (*x - center) * factor * *gain;
                    }
                }
            }
        }
    }
}

vectorize! {
    /// along_i = Σ_j g_ij · x̂_ij, and average_i = Σ_j g_ij where there is room, g = dy · gain.
    pub(crate) fn slopes<R>(
        inputs: [&[R]; 2], norm: Norm<'_, R>, along: &mut [R], average: &mut [R],
    ) {
        let [x, dy] = inputs;
        let columns = norm.gain.len();
        for (i, (x, dy)) in x.chunks(columns).zip(dy.chunks(columns)).enumerate() {
            let center = norm.mean.map_or(R::ZERO, |mean| mean[i]);
            let factor = norm.rstd[i];
            let [own, all] = sums([x, dy, norm.gain], |[x, dy, gain]| {
                let scaled = dy * gain;
                [scaled * ((x - center) * factor), scaled]
            });
            along[i] = own;
            if let Some(average) = average.get_mut(i) {
                *average = all;
            }
        }
    }
}

vectorize! {
    /// dx = rstd · (g − average / whole − x̂ · along / whole); without averages they are zero.
    pub(crate) fn backward<R>(
        inputs: [&[R]; 2], norm: Norm<'_, R>, slopes: [&[R]; 2],
        output: (&mut [R], usize, Store),
    ) {
        let ([x, dy], [along, average], (dx, whole, store)) = (inputs, slopes, output);
        let columns = norm.gain.len();
        let share = R::ONE / R::of(whole as f64);
        let rows = x.chunks(columns).zip(dy.chunks(columns)).zip(dx.chunks_mut(columns));
        for (i, ((x, dy), dx)) in rows.enumerate() {
            let center = norm.mean.map_or(R::ZERO, |mean| mean[i]);
            let (factor, along) = (norm.rstd[i], along[i] * share);
            let average = average.get(i).map_or(R::ZERO, |average| *average * share);
            for (((x, dy), gain), dx) in x.iter().zip(dy).zip(norm.gain).zip(dx) {
                let normal = (*x - center) * factor;
                let rest = *dy * *gain - average;
                store.put(dx, factor * (-normal).fused(along, rest));
            }
        }
    }
}

vectorize! {
    /// dgain = Σ dy · x · rstd, in order of rows, for the columns from `place.1` on of `place.0`.
    pub(crate) fn gain<R>(
        inputs: [&[R]; 3], place: (usize, usize), dgain: &mut [R], store: Store,
    ) {
        let ([x, rstd, dy], (columns, first)) = (inputs, place);
        store.clear(dgain);
        let rows = x.chunks(columns).zip(dy.chunks(columns));
        for ((x, dy), rstd) in rows.zip(rstd) {
            let values = x[first..].iter().zip(&dy[first..]);
            for ((x, dy), dgain) in values.zip(dgain.iter_mut()) {
                *dgain = dy.fused(*x * *rstd, *dgain);
            }
        }
    }
}
