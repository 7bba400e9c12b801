//! Plain metrics.

use crate::{
    Real,
    classes::{Classes, Weights},
};

/// The share of rows with logits_i(target) > logits_ik for k < target, ≥ for k > target, or the sum of
/// their shares where some rows do not count. One in which some logit is no number is none of these.
pub(crate) fn accuracy<R: Real>(
    (logits, targets): (&[R], &[i32]),
    classes: &Classes,
    weights: Weights<'_, R>,
) -> R {
    let mut right = 0.0;
    for (i, row) in logits.chunks(classes.each).enumerate() {
        let Some(class) = classes.place(targets[i]) else { continue };
        let (before, rest) = row.split_at(class);
        let own = rest[0];
        let largest = before.iter().all(|x| *x < own) && rest.iter().all(|x| *x <= own);
        right += if largest { weights.term(i, R::ONE) } else { 0.0 };
    }
    weights.mean(right)
}
