//! Vectorised optimizers: the plain element functions over whole ranges.

use crate::{
    Real,
    optimizer::{AdamwStep, AverageStep, SgdStep},
    plain::optimizer as plain,
    simd::vectorize,
};

const LANES: usize = 16;

vectorize! {
    /// ‖gradient · share‖²; sums in f64, in sixteen lanes.
    pub(crate) fn squares<R>(gradient: &[R], share: f64) -> f64 {
        let mut lanes = [0.0f64; LANES];
        for chunk in gradient.chunks(LANES) {
            for (lane, gradient) in lanes.iter_mut().zip(chunk) {
                let mean = gradient.widen() * share;
                *lane += mean * mean;
            }
        }
        lanes.iter().sum::<f64>()
    }
}

vectorize! {
    /// Running averages.
    pub(crate) fn average<R>(step: &AverageStep<R>, sums: &[R], next: &mut [R]) {
        for (sum, next) in sums.iter().zip(next) {
            plain::average(step, *sum, next);
        }
    }
}

/// SGD, with momentum or without.
pub(crate) fn sgd<R: Real>(
    step: &SgdStep<R>,
    gradient: &[R],
    next: &mut [R],
    momentum: Option<&mut [R]>,
    decay: R,
) {
    match momentum {
        None => sgd_without_momentum(step, gradient, next, decay),
        Some(momentum) => sgd_with_momentum(step, gradient, next, momentum, decay),
    }
}

vectorize! {
    fn sgd_without_momentum<R>(
        step: &SgdStep<R>, gradient: &[R], next: &mut [R], decay: R,
    ) {
        for (gradient, next) in gradient.iter().zip(next) {
            plain::sgd(step, *gradient, next, None, decay);
        }
    }
}

vectorize! {
    fn sgd_with_momentum<R>(
        step: &SgdStep<R>, gradient: &[R], next: &mut [R], momentum: &mut [R], decay: R,
    ) {
        for ((gradient, next), momentum) in gradient.iter().zip(next).zip(momentum) {
            plain::sgd(step, *gradient, next, Some(momentum), decay);
        }
    }
}

/// AdamW.
pub(crate) fn adamw<R: Real>(
    step: &AdamwStep<R>,
    gradient: &[R],
    next: &mut [R],
    [mean, square]: [&mut [R]; 2],
    shrink: R,
) {
    adamw_apart(step, gradient, next, mean, square, shrink);
}

vectorize! {
    // Each array is an argument of its own, so that the compiler knows them apart.
    fn adamw_apart<R>(
        step: &AdamwStep<R>, gradient: &[R], next: &mut [R], mean: &mut [R],
        square: &mut [R], shrink: R,
    ) {
        let states = mean.iter_mut().zip(square);
        for ((gradient, next), (mean, square)) in gradient.iter().zip(next).zip(states) {
            plain::adamw(step, *gradient, next, [mean, square], shrink);
        }
    }
}
