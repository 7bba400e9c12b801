//! Attention per head, whole or with stored scores, and positions.

use super::{Derivative, Site};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::{
    Cap, Heads, Projections, Scale, Sight, Still, Stretch, Turning, Window,
};
use roundelay_schedule::Attribute;

/// Which scores there are, and what becomes of them before the softmax.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub(super) sight: Sight,
    pub(super) scale: Scale,
    pub(super) cap: Cap,
}

/// y = softmax(scale · q kᵀ) v, perhaps with capped scores; backward recomputes the weights from the log-sum-exp.
pub(super) fn attention(
    site: &Site<'_>,
    heads: Heads,
    projections: Projections,
    Scores { sight, scale, cap }: Scores,
) -> Derivative {
    let result = site.result();
    let extent =
        |from_last| result.shape.iter().rev().nth(from_last).copied().unwrap_or(1);
    let (width, length) = (extent(0), extent(1));
    let examples = result.elements() / width.saturating_mul(length).max(1);
    let lse = site.auxiliary(0, &[examples, heads.all, length]);
    let attributed = |step: Step| {
        let step = seeing(counted(step, heads), sight);
        let step = match projections {
            Projections::Apart => step,
            Projections::Packed => step.flag("packed"),
        };
        let step = match scale {
            Scale::Depth => step,
            Scale::Factor(factor) => step.real("scale", factor),
        };
        match cap {
            Cap::Open => step,
            Cap::At(cap) => step.real("cap", cap),
        }
    };
    let count = site.count();
    let read = (0..count).map(|operand| site.operand(operand));
    let inputs: Vec<Term> = read.chain([result, lse]).collect();
    let mut forward = call("attention", []);
    let mut backward = call("attention_backward", []);
    forward.terms.clone_from(&inputs);
    backward.terms = inputs;
    let results =
        (0..count).map(|operand| site.contribution_or_scratch(operand, operand as u32));
    backward.terms.push(site.gradient());
    backward.terms.extend(results);
    let any = (0..count).any(|operand| site.wanted(operand));
    Derivative {
        forward: vec![attributed(forward)],
        backward: any.then(|| attributed(backward)).into_iter().collect(),
    }
}

/// y = scale · q kᵀ, −∞ where a key is not seen; dq = scale · dy k, dk = scale · dyᵀ q. Softmax
/// has no slope where its result is zero, so nothing is left out of the latter.
pub(super) fn scores(
    site: &Site<'_>,
    heads: Heads,
    sight: Sight,
    scale: Scale,
) -> Derivative {
    let [query, key] = site.operands();
    let width = query.shape.last().copied().unwrap_or(1);
    let scale = match scale {
        Scale::Depth => 1.0 / ((width / heads.all.max(1)) as f64).sqrt(),
        Scale::Factor(factor) => factor,
    };
    let of = |step: Step| counted(step, heads).real("scale", scale);
    let forward = call("scores", [query.clone(), key.clone(), site.result()]);
    let dquery = |dq| of(call("mix", [site.gradient(), key.clone(), dq]));
    let dkey = |dk| of(call("mix_backward", [site.gradient(), query.clone(), dk]));
    Derivative {
        forward: vec![seeing(of(forward), sight)],
        backward: site.each([(0, &dquery), (1, &dkey)]),
    }
}

/// y = w v; dw = dy vᵀ, dv = wᵀ dy.
pub(super) fn mix(site: &Site<'_>, heads: Heads) -> Derivative {
    let [weights, value] = site.operands();
    let of = |step: Step| counted(step, heads);
    let forward = call("mix", [weights.clone(), value.clone(), site.result()]);
    let dweights = |dw| of(call("scores", [site.gradient(), value.clone(), dw]));
    let dvalue = |dv| of(call("mix_backward", [weights.clone(), site.gradient(), dv]));
    Derivative {
        forward: vec![of(forward)],
        backward: site.each([(0, &dweights), (1, &dvalue)]),
    }
}

/// With its numbers of heads.
fn counted(step: Step, Heads { all, keys }: Heads) -> Step {
    step.count("heads", all).count("key_heads", keys)
}

/// With what queries see.
fn seeing(step: Step, Sight { causal, window }: Sight) -> Step {
    let step = step.with("causal", Attribute::Flag(causal));
    match window {
        Window::Open => step,
        Window::Nearest(count) => step.count("window", count),
    }
}

/// y = pairs of x turned by their positions; dx = pairs of dy turned back.
pub(super) fn rotary(site: &Site<'_>, turning: Turning) -> Derivative {
    rotary_from(site, turning, 0)
}

/// The same, of positions from `first` on.
pub(super) fn rotary_from(
    site: &Site<'_>,
    Turning { heads, base, turned, still, stretch }: Turning,
    first: u64,
) -> Derivative {
    let width = site.shape().last().copied().unwrap_or(1);
    let attributed = |step: Step| {
        let step = step.count("heads", heads).real("base", base);
        let step = stretched(step, stretch);
        let step = match still {
            Still::None => step,
            Still::LastOf(count) => step.count("still", count),
        };
        let step = match first {
            0 => step,
            first => step.count("first", first),
        };
        if turned.saturating_mul(heads) == width {
            step
        } else {
            step.count("turned", turned)
        }
    };
    let back = |dx| attributed(call("rotary", [site.gradient(), dx])).flag("inverse");
    let forward = attributed(call("rotary", [site.operand(0), site.result()]));
    Derivative { forward: vec![forward], backward: site.each([(0, &back)]) }
}

/// With what makes angles smaller.
fn stretched(step: Step, stretch: Stretch) -> Step {
    match stretch {
        Stretch::None => step,
        Stretch::Even { factor } => step.real("factor", factor),
        Stretch::Long { factor, original, low, high } => {
            let step = step.real("factor", factor).count("original", original);
            step.real("low", low).real("high", high)
        }
    }
}
