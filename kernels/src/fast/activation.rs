//! Vectorised activations.

pub(crate) use super::tanh::{gelu_tanh, gelu_tanh_backward};

use crate::{Real, simd::vectorize, store::Store};

vectorize! {
    /// y = max(x, 0).
    pub(crate) fn relu<R>(x: &[R], y: &mut [R]) {
        for (x, y) in x.iter().zip(y) {
            *y = x.rectified();
        }
    }
}

vectorize! {
    /// dx = dy where y > 0, else 0.
    pub(crate) fn relu_backward<R>(y: &[R], dy: &[R], dx: &mut [R], store: Store) {
        for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
            store.put(dx, if *y > R::ZERO { *dy } else { R::ZERO });
        }
    }
}

vectorize! {
    /// y = x · Φ(x).
    pub(crate) fn gelu<R>(x: &[R], y: &mut [R]) {
        for (x, y) in x.iter().zip(y) {
            let (distribution, _) = x.normal();
            *y = *x * distribution;
        }
    }
}

vectorize! {
    /// dx = dy · (Φ(x) + x · φ(x)).
    pub(crate) fn gelu_backward<R>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
        for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
            let (distribution, density) = x.normal();
            store.put(dx, *dy * x.fused(density, distribution));
        }
    }
}

vectorize! {
    /// y = x · σ(x).
    pub(crate) fn silu<R>(x: &[R], y: &mut [R]) {
        for (x, y) in x.iter().zip(y) {
            *y = *x * sigmoid(*x);
        }
    }
}

vectorize! {
    /// dx = dy · σ(x) (1 + x (1 − σ(x))).
    pub(crate) fn silu_backward<R>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
        for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
            let open = sigmoid(*x);
            let slope = x.fused(R::ONE - open, R::ONE);
            store.put(dx, *dy * open * slope);
        }
    }
}

/// σ(x) = 1 / (1 + exp(−x)).
#[inline(always)]
fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).quick_exp())
}
