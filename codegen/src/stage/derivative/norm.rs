//! Normalisation over an extent.

use super::{Beside, Derivative, Site};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::{Operation, Source};

/// ε of kernels whose calls say no other.
const USUAL: f64 = 1e-5;

/// The call with its ε.
pub(super) fn with_epsilon(step: Step, epsilon: f64) -> Step {
    if epsilon == USUAL { step } else { step.real("epsilon", epsilon) }
}

/// y = (x − mean) / σ · gain + bias over the last extent.
pub(super) fn layer_norm(site: &Site<'_>, epsilon: f64) -> Derivative {
    let [x, gain, bias] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let rows = x.shape[0];
    let [mean, rstd] = [0, 1].map(|number| site.auxiliary(number, &[rows]));
    let [gain, bias] = [gain, bias].map(Term::flat);
    let [dx, dgain, dbias] =
        [0, 1, 2].map(|operand| site.contribution_or_scratch(operand as usize, operand));
    let kept = [x.clone(), gain.clone(), mean.clone(), rstd.clone()];
    let mut backward = call("layer_norm_backward", kept);
    backward.terms.extend([dy, dx.matrix(), dgain.flat(), dbias.flat()]);
    let forward = call("layer_norm", [x, gain, bias, y, mean, rstd]);
    Derivative { forward: vec![with_epsilon(forward, epsilon)], backward: vec![backward] }
}

/// y = (x − mean) / √(variance + ε) · gain + bias over all extents but the last. What adds up in
/// the gradients of the running statistics is the micro-batch's mean and unbiased variance.
pub(super) fn batch_norm(site: &Site<'_>) -> Derivative {
    let [x, gain, bias, running_mean, running_variance] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let columns = x.shape[1];
    let [mean, variance] = [0, 1].map(|number| site.auxiliary(number, &[columns]));
    let [running_mean, running_variance] =
        [running_mean, running_variance].map(Term::flat);
    let kept = [x.clone(), gain.clone(), mean.clone(), variance.clone()];
    let mut backward = call("batch_norm_backward", kept);
    let [dx, sums @ ..] = [0, 1, 2, 3, 4]
        .map(|operand| site.contribution_or_scratch(operand as usize, operand));
    backward.terms.extend([dy, dx.matrix()].into_iter().chain(sums.map(Term::flat)));
    let forward = [x, gain, bias, running_mean, running_variance, y, mean, variance];
    Derivative { forward: vec![call("batch_norm", forward)], backward: vec![backward] }
}

/// The same y from the statistics of forward, which go over all rows again otherwise.
pub(super) fn batch_norm_again(site: &Site<'_>) -> Step {
    let [x, gain, bias, _, _] = site.operands();
    let (x, y) = (x.matrix(), site.result().matrix());
    let columns = x.shape[1];
    let [mean, variance] = [0, 1].map(|number| site.auxiliary(number, &[columns]));
    call("batch_norm_again", [x, gain, bias, mean, variance, y])
}

/// What a rectifier has right behind a batch norm: y is > 0 where the norm is, which follows from what
/// the norm's own backward call reads, and from its bias.
pub(super) fn rectified(site: &Site<'_>) -> Option<Beside> {
    let Source::Node(node) = site.graph.sum_of(site.source(0)?) else { return None };
    let is_norm = site.graph.model.nodes[node].operation == Operation::BatchNorm;
    let norm = is_norm.then_some(Site { node, ..*site })?;
    let [x, gain, bias, _, _] = norm.operands();
    let x = x.matrix();
    let columns = x.shape[1];
    let [mean, variance] = [0, 1].map(|number| norm.auxiliary(number, &[columns]));
    let kept = [x, gain, bias, mean, variance, site.gradient().rows_of(columns)];
    let step = |dt: Term| {
        let mut step = call("relu_backward_again", kept.clone());
        step.terms.push(dt.rows_of(columns));
        step
    };
    Some(Beside { with: node, backward: site.each([(0, &step)]) })
}

/// y = (x − mean) · rstd · gain + bias per example and group of channels.
pub(super) fn group_norm(site: &Site<'_>, groups: u64) -> Derivative {
    let [x, gain, bias] = site.operands();
    let examples = x.shape.first().copied().unwrap_or(1);
    let cubic = |term: Term| {
        let columns = term.shape.last().copied().unwrap_or(1);
        let positions = term.elements() / examples.saturating_mul(columns).max(1);
        Term { shape: [examples, positions, columns][..].into(), ..term }
    };
    let [x, y, dy] = [x, site.result(), site.gradient()].map(cubic);
    let [mean, rstd] = [0, 1].map(|number| site.auxiliary(number, &[examples, groups]));
    let grouped = |step: Step| step.count("groups", groups);
    let [dx, dgain, dbias] =
        [0, 1, 2].map(|operand| site.contribution_or_scratch(operand as usize, operand));
    let kept = [x.clone(), gain.clone(), mean.clone(), rstd.clone()];
    let mut backward = call("group_norm_backward", kept);
    backward.terms.extend([dy, cubic(dx), dgain.flat(), dbias.flat()]);
    Derivative {
        forward: vec![grouped(call("group_norm", [x, gain, bias, y, mean, rstd]))],
        backward: vec![grouped(backward)],
    }
}

/// y = x · rstd · gain over the last extent.
pub(super) fn rms_norm(site: &Site<'_>, epsilon: f64) -> Derivative {
    let [x, gain] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let rstd = site.auxiliary(0, &[x.shape[0]]);
    let [dx, dgain] =
        [0, 1].map(|operand| site.contribution_or_scratch(operand as usize, operand));
    let terms = [x.clone(), gain.clone(), rstd.clone(), dy, dx.matrix(), dgain.flat()];
    Derivative {
        forward: vec![with_epsilon(call("rms_norm", [x, gain, y, rstd]), epsilon)],
        backward: vec![call("rms_norm_backward", terms)],
    }
}

/// y = softmax(x) over the last extent; dx = y (dy − Σ y dy).
pub(super) fn softmax(site: &Site<'_>) -> Derivative {
    let (x, y, dy) =
        (site.operand(0).matrix(), site.result().matrix(), site.gradient().matrix());
    let step = |dx: Term| call("softmax_backward", [y.clone(), dy.clone(), dx.matrix()]);
    Derivative {
        forward: vec![call("softmax", [x, y.clone()])],
        backward: site.each([(0, &step)]),
    }
}
