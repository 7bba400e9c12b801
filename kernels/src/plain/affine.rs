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
    y.iter_mut().for_each(|y| *y = y.rectified());
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

/// z = x Wᵀ + bias, y = GELU(z) by a hyperbolic tangent.
pub(crate) fn affine_gelu_tanh<R: Real>(
    map: &Matmul,
    inputs: [&[R]; 3],
    z: &mut [R],
    y: &mut [R],
) {
    affine(map, inputs, z);
    activation::gelu_tanh(z, y);
}

/// dt = dz W times the slope of GELU by a hyperbolic tangent at t.
pub(crate) fn matmul_gelu_tanh_backward<R: Real>(
    map: &Matmul,
    [dz, weight, t]: [&[R]; 3],
    dt: &mut [R],
) {
    matmul(map, dz, weight, dt, Store::Write);
    let dy = dt.to_vec();
    activation::gelu_tanh_backward(t, &dy, dt, Store::Write);
}

/// dweight = dyᵀ x, dbias_j = Σ_i dy_ij.
pub(crate) fn affine_gradients<R: Real>(
    product: &Matmul,
    [dy, x]: [&[R]; 2],
    dweight: &mut [R],
    dbias: &mut [R],
) {
    matmul(product, dy, x, dweight, product.store);
    elementwise::sum_rows(dy, dbias, product.store);
}

/// y = a + (x Wᵀ + bias).
pub(crate) fn affine_add<R: Real>(map: &Matmul, inputs: [&[R]; 3], a: &[R], y: &mut [R]) {
    affine(map, inputs, y);
    y.iter_mut().zip(a).for_each(|(y, a)| *y = *a + *y);
}
