//! What finishes an affine map, part by part, while the product is still in cache.

use super::tanh::{gate, slope};
use crate::{
    Real,
    product::{Finished, Target},
    simd::vectorize,
};
use std::ops::Range;

vectorize! {
    /// y += bias.
    pub(crate) fn add_bias<R>(bias: &[R], part: Finished, y: &mut Target<'_, R>) {
        each_row(part, [bias], y, |_, [bias], y| {
            for (y, bias) in y.iter_mut().zip(bias) {
                *y += *bias;
            }
        });
    }
}

vectorize! {
    /// y = max(y + bias, 0).
    pub(crate) fn add_bias_relu<R>(bias: &[R], part: Finished, y: &mut Target<'_, R>) {
        each_row(part, [bias], y, |_, [bias], y| {
            for (y, bias) in y.iter_mut().zip(bias) {
                *y = (*y + *bias).rectified();
            }
        });
    }
}

vectorize! {
    /// z += bias, y = z · Φ(z).
    pub(crate) fn add_bias_gelu<R>(
        bias: &[R], part: Finished, z: &mut Target<'_, R>, y: &mut [R],
    ) {
        each_row(part, [bias], z, |own, [bias], z| {
            for ((z, y), bias) in z.iter_mut().zip(&mut y[own]).zip(bias) {
                *z += *bias;
                let (distribution, _) = z.normal();
                *y = *z * distribution;
            }
        });
    }
}

vectorize! {
    /// z += bias, y = z · σ(2u), which is GELU by a hyperbolic tangent.
    pub(crate) fn add_bias_gelu_tanh<R>(
        bias: &[R], part: Finished, z: &mut Target<'_, R>, y: &mut [R],
    ) {
        each_row(part, [bias], z, |own, [bias], z| {
            for ((z, y), bias) in z.iter_mut().zip(&mut y[own]).zip(bias) {
                *z += *bias;
                let (open, _) = gate(*z);
                *y = *z * open;
            }
        });
    }
}

vectorize! {
    /// dy = dy times the slope of GELU by a hyperbolic tangent at t.
    pub(crate) fn times_gelu_tanh_slope<R>(
        t: &[R], part: Finished, dy: &mut Target<'_, R>,
    ) {
        each_row(part, [], dy, |own, [], dy| {
            for (dy, t) in dy.iter_mut().zip(&t[own]) {
                *dy *= slope(*t);
            }
        });
    }
}

vectorize! {
    /// y = a + (y + bias).
    pub(crate) fn add_bias_and<R>(
        a: &[R], bias: &[R], part: Finished, y: &mut Target<'_, R>,
    ) {
        each_row(part, [bias], y, |own, [bias], y| {
            for ((y, a), bias) in y.iter_mut().zip(&a[own]).zip(bias) {
                *y = *a + (*y + *bias);
            }
        });
    }
}

/// Works on the part's columns of each of its rows: on their places in arrays of whole rows, on these
/// columns of every vector, and on the row itself.
#[inline(always)]
fn each_row<R: Real, const K: usize>(
    part: Finished,
    vectors: [&[R]; K],
    y: &mut Target<'_, R>,
    mut work: impl FnMut(Range<usize>, [&[R]; K], &mut [R]),
) {
    let vectors = vectors.map(|vector| &vector[part.columns.clone()]);
    for row in part.rows {
        let own = row * y.row + part.columns.start..row * y.row + part.columns.end;
        work(own.clone(), vectors, &mut y.data[own]);
    }
}
