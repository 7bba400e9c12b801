//! Plain cross-entropy over the rows that count.

use crate::{
    Real,
    loss::Slopes,
    masked::{counted, share},
    plain::loss::log_sum,
    store::Store,
};

/// lse_i = ln Σ_k exp(logits_ik); loss = mean of lse_i − logits_i(target) over the rows that count.
pub(crate) fn masked_cross_entropy<R: Real>(
    logits: &[R],
    targets: &[i32],
    lse: &mut [R],
    loss: &mut R,
) {
    let columns = logits.len() / targets.len();
    let mut total = R::ZERO;
    for (i, row) in logits.chunks(columns).enumerate() {
        lse[i] = log_sum(row);
        if let Some(class) = counted(targets[i], columns) {
            total += lse[i] - row[class];
        }
    }
    *loss = total * share(targets, columns);
}

/// dlogits_ik = (exp(logits_ik − lse_i) − \[k = target\]) / count where row i counts, else 0.
pub(crate) fn masked_cross_entropy_backward<R: Real>(
    slopes: Slopes<'_, R>,
    store: Store,
) {
    let Slopes { logits, targets, lse, dlogits } = slopes;
    let columns = dlogits.len() / targets.len();
    let share: R = share(targets, columns);
    for (i, out) in dlogits.chunks_mut(columns).enumerate() {
        let class = counted(targets[i], columns);
        for (k, out) in out.iter_mut().enumerate() {
            let probability = (logits.at(i * columns + k, out) - lse[i]).exp();
            let certain = if class == Some(k) { R::ONE } else { R::ZERO };
            let slope = (probability - certain) * share;
            store.put(out, if class.is_some() { slope } else { R::ZERO });
        }
    }
}
