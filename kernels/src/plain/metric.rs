//! Plain metrics.

use crate::{Real, loss::class_of};

/// share = |{i : logits_i(target) > logits_ik for k < target, ≥ for k > target}| / m. A row in
/// which some logit is no number does not count.
pub(crate) fn accuracy<R: Real>(logits: &[R], targets: &[i32], share: &mut R) {
    let columns = logits.len() / targets.len();
    let mut right = 0u64;
    for (row, target) in logits.chunks(columns).zip(targets) {
        let (before, rest) = row.split_at(class_of(*target, columns));
        let own = rest[0];
        let largest = before.iter().all(|x| *x < own) && rest.iter().all(|x| *x <= own);
        right += u64::from(largest);
    }
    *share = R::of(right as f64 / targets.len() as f64);
}
