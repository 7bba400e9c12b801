//! Attention per head.

use super::{Derivative, Site};
use crate::stage::call::{Step, call};
use roundelay_schedule::Attribute;

/// y = softmax(q kᵀ / √(n / heads)) v; backward recomputes the weights from the log-sum-exp.
pub(super) fn attention(site: &Site<'_>, heads: u64, causal: bool) -> Derivative {
    let [query, key, value] = site.operands();
    let extent =
        |from_last| query.shape.iter().rev().nth(from_last).copied().unwrap_or(1);
    let (width, length) = (extent(0), extent(1));
    let examples = query.elements() / width.saturating_mul(length).max(1);
    let lse = site.auxiliary(0, &[examples, heads, length]);
    let attributed = |step: Step| {
        let heads = i64::try_from(heads).unwrap_or(i64::MAX);
        step.integer("heads", heads).with("causal", Attribute::Flag(causal))
    };
    let inputs = [query.clone(), key, value, site.result(), lse];
    let mut forward = call("attention", inputs.clone());
    forward.terms.push(site.scratch(0, &[length, length]));
    let mut backward = call("attention_backward", inputs);
    let results =
        (0..3).map(|operand| site.contribution_or_scratch(operand as usize, operand));
    backward.terms.push(site.gradient());
    backward.terms.extend(results);
    backward.terms.push(site.scratch(3, &[2, length, length]));
    let any = (0..3).any(|operand| site.wanted(operand));
    Derivative {
        forward: vec![attributed(forward)],
        backward: any.then(|| attributed(backward)).into_iter().collect(),
    }
}
