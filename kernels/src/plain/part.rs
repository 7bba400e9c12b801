//! Plain parts of tensors, and losses over parts of the classes.

use crate::{
    Real,
    classes::{Classes, Weights},
    store::Store,
};
use std::ops::Range;

/// Columns `own` of x, in rows of `columns`.
pub(crate) fn part<R: Real>(
    x: &[R],
    out: &mut [R],
    (whole, columns): (usize, usize),
    own: Range<usize>,
    store: Store,
) {
    for (x, out) in x.chunks(whole).zip(out.chunks_mut(columns)) {
        let values = x[own.clone()].iter().copied().chain(std::iter::repeat(R::ZERO));
        out.iter_mut().zip(values).for_each(|(out, value)| store.put(out, value));
    }
}

/// sums_0i = ln Σ exp(logits_ik) over the own classes k, sums_1i = the target's logit if it is
/// one of them.
pub(crate) fn cross_entropy_part<R: Real>(
    logits: &[R],
    targets: &[i32],
    sums: &mut [R],
    classes: &Classes,
) {
    let (lse, picked) = sums.split_at_mut(targets.len());
    for (i, row) in logits.chunks(classes.each).enumerate() {
        let row = &row[..classes.own.len()];
        let most = row.iter().fold(R::NEGATIVE_INFINITY, |most, x| most.greater(*x));
        let total = row.iter().map(|x| (*x - most).exp()).sum::<R>();
        lse[i] = if row.is_empty() { R::NEGATIVE_INFINITY } else { most + total.ln() };
        picked[i] = classes.place(targets[i]).map_or(R::ZERO, |class| row[class]);
    }
}

/// lse_i = ln Σ_p exp(sums_p0i); loss = mean of lse_i − Σ_p sums_p1i or, where some rows do not count,
/// Σ share_i (lse_i − Σ_p sums_p1i) over those that do.
pub(crate) fn cross_entropy_join<R: Real>(
    (sums, targets): (&[R], &[i32]),
    lse: &mut [R],
    classes: &Classes,
    weights: Weights<'_, R>,
) -> R {
    let rows = targets.len();
    let mut total = 0.0;
    for (i, lse) in lse.iter_mut().enumerate() {
        let part =
            |kind: usize| sums.iter().skip(kind * rows + i).step_by(2 * rows).copied();
        let most = part(0).fold(R::NEGATIVE_INFINITY, R::greater);
        *lse = most + part(0).map(|one| (one - most).exp()).sum::<R>().ln();
        if classes.counts(targets[i]) {
            total += weights.term(i, *lse - part(1).sum::<R>());
        }
    }
    weights.mean(total)
}
