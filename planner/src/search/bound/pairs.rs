//! What pairs of passes may hide of the time that passes take one after the other.

use roundelay_schedule::{Nanos, Plan, Target, Thousandths};

/// A bound on a step whose devices take one pass after another, made one for pairs.
///
/// A pair takes F + B − h · min(F, B) ≥ (1 − h/2)(F + B). So in its time both passes have
/// room one after the other, if each takes 1 − h/2 of what it does: a schedule with pairs
/// is one of such shorter passes without pairs. A bound on those is at least 1 − h/2 of
/// the bound on whole ones, since no bound gets longer than its passes and messages do.
pub(super) fn relieved(plan: &Plan, target: &Target, time: Nanos) -> Nanos {
    if !plan.has_pairs() {
        return time;
    }
    let most = target.devices.values().map(|device| device.overlap).max();
    let hidden = most.unwrap_or_default().min(Thousandths::ALL);
    let twice = 2 * u128::from(Thousandths::ALL.0);
    let left = u128::from(time.0) * (twice - u128::from(hidden.0)) / twice;
    Nanos(u64::try_from(left).unwrap_or(time.0))
}
