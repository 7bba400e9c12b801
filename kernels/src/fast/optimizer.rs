//! Vectorised optimizers: the plain element functions over whole ranges.

use crate::{
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

vectorize! {
    /// SGD without momentum.
    pub(crate) fn sgd<R>(step: &SgdStep<R>, gradient: &[R], next: &mut [R], decay: R) {
        for (gradient, next) in gradient.iter().zip(next) {
            plain::sgd(step, *gradient, next, None, decay);
        }
    }
}

vectorize! {
    /// SGD with momentum.
    pub(crate) fn sgd_with_momentum<R>(
        step: &SgdStep<R>, gradient: &[R], next: &mut [R], momentum: &mut [R], decay: R,
    ) {
        for ((gradient, next), momentum) in gradient.iter().zip(next).zip(momentum) {
            plain::sgd(step, *gradient, next, Some(momentum), decay);
        }
    }
}

vectorize! {
    /// AdamW.
    pub(crate) fn adamw<R>(
        step: &AdamwStep<R>, gradient: &[R], next: &mut [R], mean: &mut [R],
        square: &mut [R], shrink: R,
    ) {
        let states = mean.iter_mut().zip(square);
        for ((gradient, next), (mean, square)) in gradient.iter().zip(next).zip(states) {
            plain::adamw(step, *gradient, next, [mean, square], shrink);
        }
    }
}
