//! Normalisation over an extent.

use super::{Derivative, Site};
use crate::stage::call::{Term, call};

/// y = (x − mean) / σ · gain + bias over the last extent.
pub(super) fn layer_norm(site: &Site<'_>) -> Derivative {
    let [x, gain, bias] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let rows = x.shape[0];
    let [mean, rstd] = [0, 1].map(|number| site.auxiliary(number, &[rows]));
    let [gain, bias] = [gain, bias].map(Term::flat);
    let statistics = [mean.clone(), rstd.clone()];
    let mut backward = site.each([(0, &|dx| {
        let [mean, rstd] = statistics.clone();
        let terms = [x.clone(), gain.clone(), mean, rstd, dy.clone(), dx.matrix()];
        call("layer_norm_backward", terms)
    })]);
    if site.wanted(1) || site.wanted(2) {
        let dgain = site.contribution_or_scratch(1, 0).flat();
        let dbias = site.contribution_or_scratch(2, 1).flat();
        let [mean, rstd] = statistics.clone();
        let terms = [x.clone(), mean, rstd, dy.clone(), dgain, dbias];
        backward.push(call("layer_norm_parameters", terms));
    }
    Derivative {
        forward: vec![call("layer_norm", [x, gain, bias, y, mean, rstd])],
        backward,
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
