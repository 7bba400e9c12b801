//! Plain losses.

use crate::{
    Real,
    loss::{Slopes, class_of},
    store::Store,
};

/// lse_i = ln Σ_k exp(logits_ik); loss = mean of lse_i − logits_i(target).
pub(crate) fn cross_entropy<R: Real>(
    logits: &[R],
    targets: &[i32],
    lse: &mut [R],
    loss: &mut R,
) {
    let columns = logits.len() / targets.len();
    let mut total = R::ZERO;
    for (i, row) in logits.chunks(columns).enumerate() {
        lse[i] = log_sum(row);
        total += lse[i] - row[class_of(targets[i], columns)];
    }
    *loss = total / R::of(targets.len() as f64);
}

/// ln Σ exp(x).
pub(crate) fn log_sum<R: Real>(row: &[R]) -> R {
    let most = row.iter().fold(R::NEGATIVE_INFINITY, |most, x| most.greater(*x));
    most + row.iter().map(|x| (*x - most).exp()).sum::<R>().ln()
}

/// dlogits_ik = (exp(logits_ik − lse_i) − \[k = target\]) / m.
pub(crate) fn cross_entropy_backward<R: Real>(slopes: Slopes<'_, R>, store: Store) {
    let Slopes { logits, targets, lse, dlogits } = slopes;
    let columns = dlogits.len() / targets.len();
    let share = R::ONE / R::of(targets.len() as f64);
    for (i, out) in dlogits.chunks_mut(columns).enumerate() {
        let class = class_of(targets[i], columns);
        for (k, out) in out.iter_mut().enumerate() {
            let probability = (logits.at(i * columns + k, out) - lse[i]).exp();
            let certain = if k == class { R::ONE } else { R::ZERO };
            store.put(out, (probability - certain) * share);
        }
    }
}

/// loss = mean of (a − b)².
pub(crate) fn mse<R: Real>(a: &[R], b: &[R], loss: &mut R) {
    let total: R = a.iter().zip(b).map(|(a, b)| (*a - *b) * (*a - *b)).sum();
    *loss = total / R::of(a.len() as f64);
}

/// da = factor · (a − b), factor = ±2 / count.
pub(crate) fn mse_backward<R: Real>(
    a: &[R],
    b: &[R],
    da: &mut [R],
    factor: R,
    store: Store,
) {
    for ((a, b), da) in a.iter().zip(b).zip(da) {
        store.put(da, factor * (*a - *b));
    }
}
