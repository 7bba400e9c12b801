//! Plain losses.

use crate::{
    Real,
    classes::{Classes, Weights},
    loss::Slopes,
    store::Store,
};

/// lse_i = ln Σ_k exp(logits_ik); the mean of lse_i − logits_i(target) or, where some rows do not count,
/// Σ share_i (lse_i − logits_i(target)) over those that do.
pub(crate) fn cross_entropy<R: Real>(
    (logits, targets): (&[R], &[i32]),
    lse: &mut [R],
    classes: &Classes,
    weights: Weights<'_, R>,
) -> R {
    let mut total = 0.0;
    for (i, row) in logits.chunks(classes.each).enumerate() {
        lse[i] = log_sum(row);
        if let Some(class) = classes.place(targets[i]) {
            total += weights.term(i, lse[i] - row[class]);
        }
    }
    weights.mean(total)
}

/// ln Σ exp(x).
pub(crate) fn log_sum<R: Real>(row: &[R]) -> R {
    let most = row.iter().fold(R::NEGATIVE_INFINITY, |most, x| most.greater(*x));
    most + row.iter().map(|x| (*x - most).exp()).sum::<R>().ln()
}

/// dlogits_ik = (exp(logits_ik − lse_i) − \[k = target\]) · share_i in the rows that count.
pub(crate) fn cross_entropy_backward<R: Real>(
    slopes: Slopes<'_, R>,
    classes: &Classes,
    store: Store,
) {
    let Slopes { logits, targets, weights, lse, dlogits } = slopes;
    for (i, out) in dlogits.chunks_mut(classes.each).enumerate() {
        let target = classes.place(targets[i]);
        let counts = classes.counts(targets[i]);
        let share = if counts { weights.share(i) } else { R::ZERO };
        for (k, out) in out.iter_mut().enumerate() {
            let inside = k < classes.own.len();
            let logit = logits.at(i * classes.each + k, out);
            let value = match inside {
                true => (logit - lse[i]).exp(),
                false => R::ZERO,
            };
            let certain = if target == Some(k) { R::ONE } else { R::ZERO };
            store.put(out, (value - certain) * share);
        }
    }
}

/// loss = mean of (a − b)², summed in f64.
pub(crate) fn mse<R: Real>(a: &[R], b: &[R], loss: &mut R) {
    let squares = a.iter().zip(b).map(|(a, b)| ((*a - *b) * (*a - *b)).widen());
    *loss = R::of(squares.sum::<f64>() / a.len() as f64);
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
