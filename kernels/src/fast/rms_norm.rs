//! Vectorised root mean square normalisation, row by row.

use crate::{simd::vectorize, store::Store, sum::sums};

vectorize! {
    /// y = x · rstd · gain.
    pub(crate) fn rms_norm<R>(
        x: &[R], gain: &[R], y: &mut [R], rstd: &mut [R], epsilon: f64,
    ) {
        let columns = gain.len();
        let share = R::ONE / R::of(columns as f64);
        let rows = x.chunks(columns).zip(y.chunks_mut(columns));
        for ((x, y), rstd) in rows.zip(rstd) {
            let [square] = sums([x], |[x]| [x * x]);
            *rstd = R::ONE / (square * share + R::of(epsilon)).sqrt();
            let factor = *rstd;
            for ((x, y), gain) in x.iter().zip(y).zip(gain) {
                *y = *x * factor * *gain;
            }
        }
    }
}

vectorize! {
    /// dx = rstd · (g − x̂ · avg(g · x̂)), g = dy · gain; dgain += dy · x̂ of every column.
    pub(crate) fn rms_norm_backward<R>(
        inputs: [&[R]; 4], dx: &mut [R], dgain: &mut [R], store: Store,
    ) {
        let [x, gain, rstd, dy] = inputs;
        let columns = gain.len();
        let share = R::ONE / R::of(columns as f64);
        let rows = x.chunks(columns).zip(dy.chunks(columns)).zip(dx.chunks_mut(columns));
        for (((x, dy), dx), rstd) in rows.zip(rstd) {
            let factor = *rstd;
            let [along] = sums([x, dy, gain], |[x, dy, gain]| [dy * gain * x]);
            let bend = along * share * factor * factor;
            let values = x.iter().zip(dy).zip(gain);
            for (((x, dy), gain), (dx, dgain)) in values.zip(dx.iter_mut().zip(&mut *dgain)) {
                store.put(dx, factor * (-*x).fused(bend, *dy * *gain));
                *dgain = dy.fused(*x * factor, *dgain);
            }
        }
    }
}
