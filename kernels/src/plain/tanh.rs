//! Plain activations made of the hyperbolic tangent.

use crate::{
    Real,
    store::Store,
    tanh::{CUBE, SLOPE, bounded},
};

/// y = x (1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³) (arXiv 1606.08415).
pub(crate) fn gelu_tanh<R: Real>(x: &[R], y: &mut [R]) {
    for (x, y) in x.iter().zip(y) {
        *y = R::of(0.5) * *x * (R::ONE + argument(*x).tanh());
    }
}

/// dx = dy ((1 + tanh u) / 2 + x (1 − tanh² u) u' / 2), u' = √(2/π) (1 + 3 · 0.044715 x²).
pub(crate) fn gelu_tanh_backward<R: Real>(x: &[R], dy: &[R], dx: &mut [R], store: Store) {
    for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
        let bent = argument(*x).tanh();
        let near = bounded(*x);
        let inner = R::of(SLOPE) * (R::ONE + R::of(3.0 * CUBE) * near * near);
        let slope = R::ONE + bent + *x * (R::ONE - bent * bent) * inner;
        store.put(dx, *dy * R::of(0.5) * slope);
    }
}

/// y = cap · tanh(x / cap).
pub(crate) fn soft_cap<R: Real>(x: &[R], y: &mut [R], cap: R) {
    for (x, y) in x.iter().zip(y) {
        *y = cap * (*x / cap).tanh();
    }
}

/// dx = dy (1 − (y / cap)²).
pub(crate) fn soft_cap_backward<R: Real>(
    y: &[R],
    dy: &[R],
    dx: &mut [R],
    cap: R,
    store: Store,
) {
    for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
        let share = *y / cap;
        store.put(dx, *dy * (R::ONE - share * share));
    }
}

fn argument<R: Real>(x: R) -> R {
    let x = bounded(x);
    R::of(SLOPE) * (x + R::of(CUBE) * x * x * x)
}
