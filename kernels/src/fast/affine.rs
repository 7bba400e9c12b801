//! What finishes an affine map, part by part, while the product is still in cache.

use super::tanh::{gate, slope};
use crate::{
    product::{Finished, Target},
    simd::vectorize,
};

vectorize! {
    /// y += bias.
    pub(crate) fn add_bias<R>(bias: &[R], part: Finished, y: &mut Target<'_, R>) {
        let bias = &bias[part.columns.clone()];
        for row in part.rows {
            let y = &mut y.data[row * y.row..][part.columns.clone()];
            for (y, bias) in y.iter_mut().zip(bias) {
                *y += *bias;
            }
        }
    }
}

vectorize! {
    /// y = max(y + bias, 0).
    pub(crate) fn add_bias_relu<R>(bias: &[R], part: Finished, y: &mut Target<'_, R>) {
        let bias = &bias[part.columns.clone()];
        for row in part.rows {
            let y = &mut y.data[row * y.row..][part.columns.clone()];
            for (y, bias) in y.iter_mut().zip(bias) {
                *y = (*y + *bias).rectified();
            }
        }
    }
}

vectorize! {
    /// z += bias, y = z · Φ(z).
    pub(crate) fn add_bias_gelu<R>(
        bias: &[R], part: Finished, z: &mut Target<'_, R>, y: &mut [R],
    ) {
        let bias = &bias[part.columns.clone()];
        for row in part.rows {
            let y = &mut y[row * z.row..][part.columns.clone()];
            let z = &mut z.data[row * z.row..][part.columns.clone()];
            for ((z, y), bias) in z.iter_mut().zip(y).zip(bias) {
                *z += *bias;
                let (distribution, _) = z.normal();
                *y = *z * distribution;
            }
        }
    }
}

vectorize! {
    /// z += bias, y = z · σ(2u), which is GELU by a hyperbolic tangent.
    pub(crate) fn add_bias_gelu_tanh<R>(
        bias: &[R], part: Finished, z: &mut Target<'_, R>, y: &mut [R],
    ) {
        let bias = &bias[part.columns.clone()];
        for row in part.rows {
            let y = &mut y[row * z.row..][part.columns.clone()];
            let z = &mut z.data[row * z.row..][part.columns.clone()];
            for ((z, y), bias) in z.iter_mut().zip(y).zip(bias) {
                *z += *bias;
                let (open, _) = gate(*z);
                *y = *z * open;
            }
        }
    }
}

vectorize! {
    /// dy = dy times the slope of GELU by a hyperbolic tangent at t.
    pub(crate) fn times_gelu_tanh_slope<R>(
        t: &[R], part: Finished, dy: &mut Target<'_, R>,
    ) {
        for row in part.rows {
            let t = &t[row * dy.row..][part.columns.clone()];
            let dy = &mut dy.data[row * dy.row..][part.columns.clone()];
            for (dy, t) in dy.iter_mut().zip(t) {
                *dy *= slope(*t);
            }
        }
    }
}

vectorize! {
    /// y = a + (y + bias).
    pub(crate) fn add_bias_and<R>(
        a: &[R], bias: &[R], part: Finished, y: &mut Target<'_, R>,
    ) {
        let bias = &bias[part.columns.clone()];
        for row in part.rows {
            let a = &a[row * y.row..][part.columns.clone()];
            let y = &mut y.data[row * y.row..][part.columns.clone()];
            for ((y, a), bias) in y.iter_mut().zip(a).zip(bias) {
                *y = *a + (*y + *bias);
            }
        }
    }
}
