//! Losses, whose gradient is a constant weight times their own, and what is measured like them.

use super::{Derivative, Site};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::{Chunks, Masked};
use roundelay_schedule::Element;

/// y = mean of −log softmax(logits)[target], or the sum of these times shares over the rows that count.
pub(super) fn cross_entropy(site: &Site<'_>, masked: Masked) -> Derivative {
    let [forward, backward] = match masked {
        Masked::No => ["cross_entropy", "cross_entropy_backward"],
        Masked::Yes => ["masked_cross_entropy", "masked_cross_entropy_backward"],
    };
    let [logits, targets] = site.operands();
    let lse = site.auxiliary(0, &[targets.elements()]);
    let known = |kernel| {
        let step = call(kernel, [logits.clone(), targets.clone().flat()]);
        step.and(site.optional(2)).and([lse.clone()])
    };
    let forward = known(forward).and([site.result().flat()]);
    let backward = weighted(site, 0, known(backward));
    Derivative { forward: vec![forward], backward }
}

/// What tensor cores load at once, in elements of 16 bits, and a line of a cache.
const LOADED: u64 = 8;
const LINE: u64 = 64;

/// Most lines' worth of classes to which a part of a line is much.
const FEW_LINES: u64 = 64;

/// Elements between rows of logits, so that all rows begin where tensor cores load; where it costs
/// little, where lines of a cache do. Wider types are no less aligned.
fn room_of(classes: u64) -> u64 {
    let whole = if classes <= FEW_LINES * LINE { LOADED } else { LINE };
    classes.checked_next_multiple_of(whole).unwrap_or(classes)
}

/// y = mean of −log softmax(x Wᵀ)[target]. Forward makes the gradients while it has the logits, for a
/// loss whose weight is one; backward hands them on.
pub(super) fn linear_cross_entropy(
    site: &Site<'_>,
    chunks: Chunks,
    masked: Masked,
) -> Derivative {
    let [x, weight, targets] = site.operands();
    let (x, targets) = (x.matrix(), targets.flat());
    let (rows, classes) = (targets.elements(), weight.shape[0]);
    let logits = site.scratch(0, &[chunks.rows(rows), room_of(classes)]);
    let lse = Term { element: Element::Wide, ..site.scratch(1, &[rows]) };
    let loss = site.result().flat();
    let forward = call("linear_cross_entropy", [x.clone(), weight.clone(), targets]);
    let forward = forward.and(site.optional(3)).and([logits, lse, loss]);
    let mut forward = masking(forward, masked);
    if !site.graph.differentiates(site.node) {
        return Derivative { forward: vec![forward], backward: vec![] };
    }
    let (dx, dweight) = (site.kept(0, &x.shape), site.auxiliary(1, &weight.shape));
    forward.terms.extend([dx.clone(), dweight.clone()]);
    let factor = site.graph.weight(site.node).unwrap_or(0.0);
    let hand_on =
        |made: &Term, to: Term| call("scale", [made.clone(), to]).real("factor", factor);
    let backward = site
        .each([(0, &|to| hand_on(&dx, to.matrix())), (1, &|to| hand_on(&dweight, to))]);
    Derivative { forward: vec![forward.flag("gradients")], backward }
}

/// y = mean of (a − b)²; da = 2 (a − b) / n, db = −da.
pub(super) fn mean_squared_error(site: &Site<'_>) -> Derivative {
    let [a, b] = site.operands();
    let loss = site.result().flat();
    let towards = |operand, sign| {
        let step = call("mse_backward", [a.clone(), b.clone()]);
        weighted(site, operand, step.integer("sign", sign))
    };
    let backward = [towards(0, 1), towards(1, -1)].concat();
    Derivative { forward: vec![call("mse", [a, b, loss])], backward }
}

/// y = share of rows whose largest logit is the target; it has no gradient.
pub(super) fn accuracy(site: &Site<'_>, masked: Masked) -> Derivative {
    let [logits, targets] = site.operands();
    let forward = call("accuracy", [logits, targets.flat()]);
    let forward = forward.and(site.optional(2)).and([site.result().flat()]);
    Derivative { forward: vec![masking(forward, masked)], backward: vec![] }
}

/// A call in which some rows may not count.
pub(super) fn masking(step: Step, masked: Masked) -> Step {
    match masked {
        Masked::No => step,
        Masked::Yes => step.flag("masked"),
    }
}

/// The gradient of a term of the loss, times its constant weight in the loss. `step` lacks
/// only its last operand, the contribution.
pub(super) fn weighted(site: &Site<'_>, operand: usize, mut step: Step) -> Vec<Step> {
    let Some(contribution) = site.contribution(operand) else { return vec![] };
    match site.graph.weight(site.node) {
        Some(1.0) => {
            step.terms.push(contribution);
            vec![step]
        }
        weight => {
            let plain = site.scratch(0, &contribution.shape);
            step.terms.push(plain.clone());
            let scaled = call("scale", [plain, contribution]);
            vec![step, scaled.real("factor", weight.unwrap_or(0.0))]
        }
    }
}
