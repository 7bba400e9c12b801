//! Affine maps: the plain kernels one after another.

use super::{activation, elementwise, matmul::matmul};
use crate::{Real, matmul::Matmul, store::Store};

/// y = x Wᵀ + bias.
pub(crate) fn affine<R: Real>(map: &Matmul, [x, weight, bias]: [&[R]; 3], y: &mut [R]) {
    matmul(map, x, weight, y, Store::Write);
    elementwise::add_rows(bias, y);
}

/// y = max(x Wᵀ + bias, 0).
pub(crate) fn affine_relu<R: Real>(map: &Matmul, inputs: [&[R]; 3], y: &mut [R]) {
    affine(map, inputs, y);
    y.iter_mut().for_each(|y| *y = y.greater(R::ZERO));
}

/// z = x Wᵀ + bias, y = z · Φ(z).
pub(crate) fn affine_gelu<R: Real>(
    map: &Matmul,
    inputs: [&[R]; 3],
    z: &mut [R],
    y: &mut [R],
) {
    affine(map, inputs, z);
    activation::gelu(z, y);
}

/// y = a + (x Wᵀ + bias).
pub(crate) fn affine_add<R: Real>(map: &Matmul, inputs: [&[R]; 3], a: &[R], y: &mut [R]) {
    affine(map, inputs, y);
    y.iter_mut().zip(a).for_each(|(y, a)| *y = *a + *y);
}
