//! Vectorised activations made of the hyperbolic tangent.

use crate::{
    Real,
    simd::vectorize,
    store::Store,
    tanh::{CUBE, SLOPE, bounded},
};

vectorize! {
    /// y = x · σ(2u), which is x (1 + tanh u) / 2.
    pub(crate) fn gelu_tanh<R>(x: &[R], y: &mut [R]) {
        for (x, y) in x.iter().zip(y) {
            let (open, _) = gate(*x);
            *y = *x * open;
        }
    }
}

vectorize! {
    /// dx = dy · (σ(2u) + x · σ(2u) (1 − σ(2u)) · 2u').
    pub(crate) fn gelu_tanh_backward<R>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
        for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
            store.put(dx, *dy * slope(*x));
        }
    }
}

vectorize! {
    /// y = cap · tanh(x / cap).
    pub(crate) fn soft_cap<R>(x: &[R], y: &mut [R], cap: R) {
        let share = R::ONE / cap;
        for (x, y) in x.iter().zip(y) {
            *y = cap * (*x * share).quick_tanh();
        }
    }
}

vectorize! {
    /// dx = dy · (1 − (y / cap)²).
    pub(crate) fn soft_cap_backward<R>(
        y: &[R], dy: &[R], dx: &mut [R], cap: R, store: Store,
    ) {
        let share = R::ONE / cap;
        for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
            let bent = *y * share;
            store.put(dx, *dy * (-bent).fused(bent, R::ONE));
        }
    }
}

/// σ(2u) and 2u', u = √(2/π) (x + 0.044715 x³).
#[inline(always)]
pub(super) fn gate<R: Real>(x: R) -> (R, R) {
    let x = bounded(x);
    let (twice, square) = (R::of(2.0 * SLOPE), x * x);
    let argument = twice * x * square.fused(R::of(CUBE), R::ONE);
    let slope = twice * square.fused(R::of(3.0 * CUBE), R::ONE);
    (R::ONE / (R::ONE + (-argument).quick_exp()), slope)
}

/// σ(2u) + x · σ(2u) (1 − σ(2u)) · 2u'.
#[inline(always)]
pub(super) fn slope<R: Real>(x: R) -> R {
    let (open, steepness) = gate(x);
    let bend = x * open * (R::ONE - open);
    bend.fused(steepness, open)
}
