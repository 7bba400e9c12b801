//! Vectorised losses, row by row.

use crate::{
    simd::vectorize,
    store::Store,
    sum::{greatest, sums},
};

/// Elements that are summed as they are, before a sum loses what it grows by.
const TOGETHER: usize = 4096;

vectorize! {
    /// lse of every row.
    pub(crate) fn log_sums<R>(logits: &[R], lse: &mut [R]) {
        let columns = logits.len() / lse.len();
        for (row, lse) in logits.chunks(columns).zip(lse) {
            let most = greatest(row);
            let [total] = sums([row], |[x]| [(x - most).quick_exp()]);
            *lse = most + total.ln();
        }
    }
}

vectorize! {
    /// out = exp(x − lse) · share.
    pub(crate) fn softmax_share<R>(x: &[R], out: &mut [R], lse: R, share: R, store: Store) {
        for (x, out) in x.iter().zip(out) {
            store.put(out, (*x - lse).quick_exp() * share);
        }
    }
}

vectorize! {
    /// Σ (a − b)², in blocks that are added up in f64.
    pub(crate) fn square_distance<R>(a: &[R], b: &[R]) -> f64 {
        let mut total = 0.0;
        for (a, b) in a.chunks(TOGETHER).zip(b.chunks(TOGETHER)) {
            let [sum] = sums([a, b], |[a, b]| [(a - b) * (a - b)]);
            total += sum.widen();
        }
        total
    }
}

vectorize! {
    /// da = factor · (a − b).
    pub(crate) fn mse_backward<R>(
        a: &[R], b: &[R], da: &mut [R], factor: R, store: Store,
    ) {
        for ((a, b), da) in a.iter().zip(b).zip(da) {
            store.put(da, factor * (*a - *b));
        }
    }
}
