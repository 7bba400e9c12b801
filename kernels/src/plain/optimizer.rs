//! Plain optimizers, element by element, in the order of PyTorch's operations.

use crate::{
    Real,
    optimizer::{AdamwStep, AverageStep, SgdStep},
};

/// ‖gradient‖² of the mean gradient; sums in f64.
pub(crate) fn squares<R: Real>(gradient: &[R], share: f64) -> f64 {
    let squares = gradient.iter().map(|g| (g.widen() * share) * (g.widen() * share));
    squares.sum()
}

/// One element of a running average: p = (1 − momentum) p + momentum · mean.
#[inline(always)]
pub(crate) fn average<R: Real>(step: &AverageStep<R>, sum: R, parameter: &mut R) {
    *parameter = step.keep * *parameter + step.momentum * (sum * step.share);
}

/// Running averages one after another.
pub(crate) fn average_all<R: Real>(step: &AverageStep<R>, sums: &[R], next: &mut [R]) {
    for (sum, next) in sums.iter().zip(next) {
        average(step, *sum, next);
    }
}

/// One element of SGD: g += decay · p; b = β b + g; p −= rate · (g + β b, b or g).
#[inline(always)]
pub(crate) fn sgd<R: Real>(
    step: &SgdStep<R>,
    gradient: R,
    parameter: &mut R,
    momentum: Option<&mut R>,
    decay: R,
) {
    let gradient = gradient * step.scale + decay * *parameter;
    let direction = match momentum {
        None => gradient,
        Some(momentum) => {
            *momentum = step.momentum * *momentum + gradient;
            match step.nesterov {
                true => gradient + step.momentum * *momentum,
                false => *momentum,
            }
        }
    };
    *parameter -= step.rate * direction;
}

/// SGD element by element.
pub(crate) fn sgd_all<R: Real>(
    step: &SgdStep<R>,
    gradient: &[R],
    next: &mut [R],
    mut momentum: Option<&mut [R]>,
    decay: R,
) {
    for (i, (gradient, next)) in gradient.iter().zip(next).enumerate() {
        let momentum = momentum.as_mut().map(|momentum| &mut momentum[i]);
        sgd(step, *gradient, next, momentum, decay);
    }
}

/// One element of AdamW (Loshchilov and Hutter 2019): p *= 1 − rate · decay;
/// m += (1 − β₁)(g − m); s = β₂ s + (1 − β₂) g²; p −= rate/c₁ · m / (√s/√c₂ + ε), where
/// c = 1 − β^(t + 1).
#[inline(always)]
pub(crate) fn adamw<R: Real>(
    step: &AdamwStep<R>,
    gradient: R,
    parameter: &mut R,
    [mean, square]: [&mut R; 2],
    shrink: R,
) {
    let gradient = gradient * step.scale;
    *parameter *= shrink;
    *mean += step.mean_share * (gradient - *mean);
    *square = step.beta2 * *square + step.square_share * (gradient * gradient);
    let denominator = square.sqrt() / step.root_correction + step.epsilon;
    *parameter -= step.rate * (*mean / denominator);
}

/// AdamW element by element.
pub(crate) fn adamw_all<R: Real>(
    step: &AdamwStep<R>,
    gradient: &[R],
    next: &mut [R],
    [mean, square]: [&mut [R]; 2],
    shrink: R,
) {
    for (i, (gradient, next)) in gradient.iter().zip(next).enumerate() {
        adamw(step, *gradient, next, [&mut mean[i], &mut square[i]], shrink);
    }
}
