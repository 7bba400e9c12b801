//! What one of several devices does where tensors are split among them. Every change of layout
//! declares its own adjoint, so a backward pass is derived like any other.

use super::{
    Derivative, Site,
    elementwise::Mask,
    loss::{masking, weighted},
    part_norm, pixels,
};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::{Masked, Motion, Part, PartShare};
use roundelay_schedule::{Element, Line};

/// The calls of one part of a line.
pub(super) fn part(site: &Site<'_>, part: Part, line: Line) -> Derivative {
    match part {
        Part::Exchange { value, gradient } => exchange(site, (value, gradient), line),
        Part::Embedding { whole } => embedding(site, whole),
        Part::CrossEntropy { whole, masked } => cross_entropy(site, whole, masked, line),
        Part::LayerNorm { epsilon, whole } => {
            part_norm::layer_norm(site, epsilon, (whole, line))
        }
        Part::RmsNorm { epsilon, whole } => {
            part_norm::rms_norm(site, epsilon, (whole, line))
        }
        Part::Halo { before, step, side, padding } => {
            pixels::halo(site, (before, step, side), padding, line)
        }
        Part::BatchNorm => pixels::batch_norm(site, line),
        Part::GroupNorm { groups } => pixels::group_norm(site, groups, line),
        Part::Dropout { rate, operator, share, tokens, half } => {
            dropout(site, Mask { rate, operator }, (share, half), (line, tokens))
        }
    }
}

/// A call that says which parts it is about.
pub(super) fn along(step: Step, line: Line) -> Step {
    let step = step.count("parts", line.parts);
    match line.stride {
        1 => step,
        stride => step.count("stride", stride),
    }
}

/// A call on a share of the rows, which parts on a line of their own have.
fn of_tokens(step: Step, line: Line) -> Step {
    let step = step.count("row_parts", line.parts);
    match line.stride {
        1 => step,
        stride => step.count("row_stride", stride),
    }
}

/// y = x in another layout; dx = dy in that of x.
fn exchange(
    site: &Site<'_>,
    (value, gradient): (Motion, Motion),
    line: Line,
) -> Derivative {
    let back = |dx| moved(gradient, site.gradient(), dx, line);
    let forward = match value {
        Motion::Keep => vec![],
        _ => vec![moved(value, site.operand(0), site.result(), line)],
    };
    Derivative { forward, backward: site.each([(0, &back)]) }
}

/// One array made from another one.
pub(crate) fn moved(motion: Motion, from: Term, to: Term, line: Line) -> Step {
    let (kernel, share) = match motion {
        Motion::Keep => return call("copy", [from, to]),
        Motion::Sum => ("all_reduce", PartShare::Tokens),
        Motion::Gather(share) => ("all_gather", share),
        Motion::Scatter(share) => ("reduce_scatter", share),
        Motion::Cut(share) => ("part", share),
    };
    let inner = inner(&from, share);
    let step = call(kernel, [from, to].map(|term| divided(term, share)));
    let step = along(step, line);
    match inner {
        1 => step,
        inner => step.count("inner", inner),
    }
}

/// Elements behind one step of the extent that is divided: they stay together.
fn inner(term: &Term, share: PartShare) -> u64 {
    match share {
        PartShare::Extent(extent) => {
            term.shape.iter().skip(extent as usize + 1).product()
        }
        PartShare::Whole | PartShare::Tokens => 1,
    }
}

/// An array as a matrix of which a part has some columns.
fn divided(term: Term, share: PartShare) -> Term {
    match share {
        PartShare::Extent(extent) => {
            let columns = term.shape.iter().skip(extent as usize).product();
            term.rows_of(columns)
        }
        PartShare::Whole | PartShare::Tokens => {
            let all = term.elements();
            term.rows_of(all)
        }
    }
}

/// y = own rows of the table, zero for tokens of others; dtable\[token\] += dy.
fn embedding(site: &Site<'_>, whole: u64) -> Derivative {
    let [tokens, table] = site.operands();
    let width = table.shape.last().copied().unwrap_or(1);
    let tokens = tokens.flat();
    let [y, dy] = [site.result(), site.gradient()].map(|term| term.rows_of(width));
    let of = |step: Step| step.count("whole", whole);
    let back = |dtable| {
        of(call("embedding_part_backward", [tokens.clone(), dy.clone(), dtable]))
    };
    Derivative {
        forward: vec![of(call("embedding_part", [tokens.clone(), table, y]))],
        backward: site.each([(1, &back)]),
    }
}

/// The sums of the own classes meet those of the others, then everybody has the loss.
fn cross_entropy(site: &Site<'_>, whole: u64, masked: Masked, line: Line) -> Derivative {
    let [logits, targets] = site.operands();
    let (targets, rows) = (targets.clone().flat(), targets.elements());
    let lse = site.auxiliary(0, &[rows]);
    let wide = |number, shape: &[u64]| Term {
        element: Element::Wide,
        ..site.scratch(number, shape)
    };
    let own = wide(0, &[1, 2 * rows]);
    let all = wide(1, &[1, 2 * rows * u64::from(line.parts)]);
    let of = |step: Step| masking(step.count("whole", whole), masked);
    let shares = site.optional(2);
    let first =
        call("cross_entropy_part", [logits.clone(), targets.clone(), own.clone()]);
    let meet = along(call("all_gather", [own, all.clone()]), line);
    let loss = site.result().flat();
    let last = call("cross_entropy_join", [all, targets.clone()]);
    let last = last.and(shares.clone()).and([lse.clone(), loss]);
    let back = call("cross_entropy_part_backward", [logits, targets]);
    let back = of(back.and(shares).and([lse]));
    Derivative {
        forward: vec![of(first), meet, of(last)],
        backward: weighted(site, 0, back),
    }
}

/// y = mask x / (1 - rate), with the mask of the whole tensor.
fn dropout(
    site: &Site<'_>,
    mask: Mask,
    (share, half): (PartShare, u32),
    (line, tokens): (Line, Option<Line>),
) -> Derivative {
    let columns = match share {
        PartShare::Whole => None,
        PartShare::Tokens => Some(site.result().elements()),
        PartShare::Extent(extent) => {
            Some(site.shape().iter().skip(extent as usize).product())
        }
    };
    let masked = |step: Step| {
        let step = mask.of(step);
        let Some(columns) = columns else { return step };
        let step = along(step, line).count("columns", columns);
        let step = tokens.into_iter().fold(step, of_tokens);
        let shares = tokens.map_or(1, |line| u64::from(line.parts));
        let rows = site.result().elements() / columns.max(1) * shares;
        match half {
            0 => step,
            half => step.count("before", rows * u64::from(half)),
        }
    };
    let back = |dx| masked(call("dropout_backward", [site.gradient(), dx]));
    Derivative {
        forward: vec![masked(call("dropout", [site.operand(0), site.result()]))],
        backward: site.each([(0, &back)]),
    }
}
