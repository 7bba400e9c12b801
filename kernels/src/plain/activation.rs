//! Plain activations and their derivatives.

pub(crate) use super::tanh::{gelu_tanh, gelu_tanh_backward};

use crate::{Real, store::Store};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// y = max(x, 0).
pub(crate) fn relu<R: Real>(x: &[R], y: &mut [R]) {
    for (x, y) in x.iter().zip(y) {
        *y = x.rectified();
    }
}

/// dx = dy where y > 0, else 0.
pub(crate) fn relu_backward<R: Real>(y: &[R], dy: &[R], dx: &mut [R], store: Store) {
    for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
        store.put(dx, if *y > R::ZERO { *dy } else { R::ZERO });
    }
}

/// y = x · Φ(x), Φ(x) = (1 + erf(x/√2)) / 2.
pub(crate) fn gelu<R: Real>(x: &[R], y: &mut [R]) {
    for (x, y) in x.iter().zip(y) {
        *y = *x * normal_distribution(*x);
    }
}

/// dx = dy · (Φ(x) + x · φ(x)), φ(x) = exp(−x²/2) / √(2π).
pub(crate) fn gelu_backward<R: Real>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
    for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
        let slope = normal_distribution(*x) + *x * normal_density(*x);
        store.put(dx, *dy * slope);
    }
}

/// y = x · σ(x), σ(x) = 1 / (1 + exp(−x)).
pub(crate) fn silu<R: Real>(x: &[R], y: &mut [R]) {
    for (x, y) in x.iter().zip(y) {
        *y = *x * sigmoid(*x);
    }
}

/// dx = dy · σ(x) (1 + x (1 − σ(x))).
pub(crate) fn silu_backward<R: Real>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
    for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
        let open = sigmoid(*x);
        store.put(dx, *dy * open * (R::ONE + *x * (R::ONE - open)));
    }
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

fn normal_distribution<R: Real>(x: R) -> R {
    R::of(0.5) * (R::ONE + (x * R::of(FRAC_1_SQRT_2)).erf())
}

fn normal_density<R: Real>(x: R) -> R {
    (R::of(-0.5) * x * x).exp() * R::of(1.0 / (2.0 * PI).sqrt())
}
