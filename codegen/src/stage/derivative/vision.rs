//! Convolution and pooling of images.

use super::{Derivative, Site};
use crate::stage::call::{Step, Term, call};

/// Attributes that all calls of one node share.
fn attributed(step: Step, attributes: &[(&'static str, u64)]) -> Step {
    attributes.iter().fold(step, |step, (name, value)| step.count(name, *value))
}

/// y = x ∗ W + b; dx from dy and W, dW from x and dy, db = Σ places of dy.
pub(super) fn conv2d(
    site: &Site<'_>,
    stride: u64,
    padding: u64,
    groups: u64,
) -> Derivative {
    let [x, weight] = site.operands();
    let (y, dy) = (site.result(), site.gradient());
    let attributes = [("stride", stride), ("padding", padding), ("groups", groups)];
    let with = |step| attributed(step, &attributes);
    let product = with(call("conv2d", [x.clone(), weight.clone(), y.clone()]));
    let bias = site.optional(2).map(|bias| call("add_rows", [bias, y.matrix()]));
    Derivative {
        forward: [product].into_iter().chain(bias).collect(),
        backward: site.each([
            (1, &|dweight| {
                with(call("conv2d_weights", [x.clone(), dy.clone(), dweight]))
            }),
            (2, &|dbias| call("sum_rows", [dy.clone().matrix(), dbias])),
            (0, &|dx| with(call("conv2d_backward", [dy.clone(), weight.clone(), dx]))),
        ]),
    }
}

/// y = max over windows; dx takes dy where x was the first greatest.
pub(super) fn max_pool(
    site: &Site<'_>,
    size: u64,
    stride: u64,
    padding: u64,
) -> Derivative {
    let attributes = [("size", size), ("stride", stride), ("padding", padding)];
    let x = site.operand(0);
    let step = |dx: Term| {
        let terms = [x.clone(), site.gradient(), dx];
        attributed(call("max_pool_backward", terms), &attributes)
    };
    let forward = call("max_pool", [x.clone(), site.result()]);
    Derivative {
        forward: vec![attributed(forward, &attributes)],
        backward: site.each([(0, &step)]),
    }
}

/// y = mean over windows; every pixel of a window takes dy / size².
pub(super) fn avg_pool(
    site: &Site<'_>,
    size: u64,
    stride: u64,
    padding: u64,
) -> Derivative {
    let attributes = [("size", size), ("stride", stride), ("padding", padding)];
    let step = |dx: Term| {
        attributed(call("avg_pool_backward", [site.gradient(), dx]), &attributes)
    };
    let forward = call("avg_pool", [site.operand(0), site.result()]);
    Derivative {
        forward: vec![attributed(forward, &attributes)],
        backward: site.each([(0, &step)]),
    }
}

/// y = mean over height and width; every pixel takes dy / (height · width).
pub(super) fn global_pool(site: &Site<'_>) -> Derivative {
    let step = |dx| call("global_pool_backward", [site.gradient(), dx]);
    Derivative {
        forward: vec![call("global_pool", [site.operand(0), site.result()])],
        backward: site.each([(0, &step)]),
    }
}

/// y = x in factor² places; dx = the sum of these. A mean that is handed back puts x / factor² there,
/// so it is that of factor² · x, and the other way round.
pub(super) fn upsample(site: &Site<'_>, factor: u64) -> Derivative {
    let attributes = [("size", factor), ("stride", factor), ("padding", 0)];
    let with = |step| attributed(step, &attributes);
    let places = (factor * factor) as f64;
    let scaled = |from, to| call("scale", [from, to]).real("factor", places);
    let x = site.operand(0);
    let [large, mean] = [0, 1].map(|number| site.scratch(number, &x.shape));
    let backward = site.contribution(0).map(|dx| {
        let average = with(call("avg_pool", [site.gradient(), mean.clone()]));
        [average, scaled(mean, dx)]
    });
    Derivative {
        forward: vec![
            scaled(x, large.clone()),
            with(call("avg_pool_backward", [large, site.result()])),
        ],
        backward: backward.into_iter().flatten().collect(),
    }
}
