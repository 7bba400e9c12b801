//! Vectorised cross-entropy over the rows that count.

use crate::{masked::counted, simd::vectorize, store::Store};

vectorize! {
    /// dlogits = (exp(logits − lse) − one-hot) · share in the rows that count, else zero.
    pub(crate) fn masked_cross_entropy_backward<R>(
        logits: &[R], targets: &[i32], lse: &[R], dlogits: &mut [R], share: R, store: Store,
    ) {
        let columns = logits.len() / targets.len();
        let rows = logits.chunks(columns).zip(dlogits.chunks_mut(columns));
        for ((x, out), (lse, target)) in rows.zip(lse.iter().zip(targets)) {
            let Some(class) = counted(*target, columns) else {
                store.clear(out);
                continue;
            };
            for (x, out) in x.iter().zip(&mut *out) {
                store.put(out, (*x - *lse).quick_exp() * share);
            }
            out[class] -= share;
        }
    }
}
