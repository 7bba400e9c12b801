//! Winograd's F(4 × 4, 3 × 3) with the points 0, ±1, ±2 and ∞ (arXiv 1509.09308): with
//! transforms of images B, filters G and results A, each along both axes,
//! y = Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A. The gradients are the same product transposed:
//! dg = Gᵀ ((Bᵀ d B) ⊙ (A dy Aᵀ)) G.

use crate::{Real, line::Lanes};

/// Rows and columns of a tile of results.
pub(super) const TILE: usize = 4;
/// Rows and columns of the image that a tile sees, and of what is multiplied.
pub(super) const EDGE: usize = 6;
/// Numbers that are multiplied for a tile.
pub(super) const POSITIONS: usize = EDGE * EDGE;
/// Rows and columns of a filter.
pub(super) const TAPS: usize = 3;

#[inline(always)]
fn sum<R: Real>(a: R::Line, b: R::Line) -> R::Line {
    a.zip(b, |a, b| a + b)
}
#[inline(always)]
fn difference<R: Real>(a: R::Line, b: R::Line) -> R::Line {
    a.zip(b, |a, b| a - b)
}
#[inline(always)]
fn scaled<R: Real>(factor: f64, a: R::Line) -> R::Line {
    let factor = R::of(factor);
    a.zip(a, |a, _| a * factor)
}
/// a + factor · b.
#[inline(always)]
fn plus<R: Real>(a: R::Line, factor: f64, b: R::Line) -> R::Line {
    a.fused(R::of(factor), &b)
}

/// Bᵀ d.
#[inline(always)]
pub(super) fn image<R: Real>(d: [R::Line; EDGE]) -> [R::Line; EDGE] {
    let (even, odd) = (plus::<R>(d[4], -4.0, d[2]), plus::<R>(d[3], -4.0, d[1]));
    let (near, far) = (difference::<R>(d[4], d[2]), difference::<R>(d[3], d[1]));
    [
        plus::<R>(plus::<R>(d[4], -5.0, d[2]), 4.0, d[0]),
        sum::<R>(even, odd),
        difference::<R>(even, odd),
        plus::<R>(near, 2.0, far),
        plus::<R>(near, -2.0, far),
        plus::<R>(plus::<R>(d[5], -5.0, d[3]), 4.0, d[1]),
    ]
}

/// G g.
#[inline(always)]
pub(super) fn filter<R: Real>(g: [R::Line; TAPS]) -> [R::Line; EDGE] {
    let near = scaled::<R>(-1.0 / 6.0, sum::<R>(g[0], g[2]));
    let far = scaled::<R>(1.0 / 24.0, plus::<R>(g[0], 4.0, g[2]));
    [
        scaled::<R>(0.25, g[0]),
        plus::<R>(near, -1.0 / 6.0, g[1]),
        plus::<R>(near, 1.0 / 6.0, g[1]),
        plus::<R>(far, 1.0 / 12.0, g[1]),
        plus::<R>(far, -1.0 / 12.0, g[1]),
        g[2],
    ]
}

/// Aᵀ m.
#[inline(always)]
pub(super) fn result<R: Real>(m: [R::Line; EDGE]) -> [R::Line; TILE] {
    let (near, far) = (sum::<R>(m[1], m[2]), sum::<R>(m[3], m[4]));
    let (low, high) = (difference::<R>(m[1], m[2]), difference::<R>(m[3], m[4]));
    [
        sum::<R>(sum::<R>(m[0], near), far),
        plus::<R>(low, 2.0, high),
        plus::<R>(near, 4.0, far),
        plus::<R>(sum::<R>(low, m[5]), 8.0, high),
    ]
}

/// A dy.
#[inline(always)]
pub(super) fn result_gradient<R: Real>(dy: [R::Line; TILE]) -> [R::Line; EDGE] {
    let (even, odd) = (sum::<R>(dy[0], dy[2]), sum::<R>(dy[1], dy[3]));
    let low = plus::<R>(dy[0], 4.0, dy[2]);
    let high = plus::<R>(dy[1], 4.0, dy[3]);
    [
        dy[0],
        sum::<R>(even, odd),
        difference::<R>(even, odd),
        plus::<R>(low, 2.0, high),
        plus::<R>(low, -2.0, high),
        dy[3],
    ]
}

/// Gᵀ m.
#[inline(always)]
pub(super) fn filter_gradient<R: Real>(m: [R::Line; EDGE]) -> [R::Line; TAPS] {
    let (near, far) = (sum::<R>(m[1], m[2]), sum::<R>(m[3], m[4]));
    let low = scaled::<R>(1.0 / 6.0, difference::<R>(m[2], m[1]));
    let first = plus::<R>(scaled::<R>(0.25, m[0]), -1.0 / 6.0, near);
    [
        plus::<R>(first, 1.0 / 24.0, far),
        plus::<R>(low, 1.0 / 12.0, difference::<R>(m[3], m[4])),
        plus::<R>(m[5], 1.0 / 6.0, difference::<R>(far, near)),
    ]
}

/// A transform along both axes, from what `get` reads at (row, column) to what `put` takes.
#[inline(always)]
pub(super) fn both<R: Real, const I: usize, const O: usize>(
    transform: impl Fn([R::Line; I]) -> [R::Line; O],
    get: impl Fn(usize, usize) -> R::Line,
    mut put: impl FnMut(usize, usize, R::Line),
) {
    let mut half = [[R::Line::splat(R::ZERO); I]; O];
    for j in 0..I {
        let column = transform(std::array::from_fn(|i| get(i, j)));
        for (row, value) in half.iter_mut().zip(column) {
            row[j] = value;
        }
    }
    for (i, row) in half.into_iter().enumerate() {
        for (j, value) in transform(row).into_iter().enumerate() {
            put(i, j, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = <f64 as Real>::Line;

    fn lines<const N: usize>(seed: f64) -> [Line; N] {
        std::array::from_fn(|i| Line::splat((seed + i as f64 * 1.7).sin()))
    }
    fn dot<const N: usize>(a: [Line; N], b: [Line; N]) -> f64 {
        a.iter().zip(&b).map(|(a, b)| a.0[0] * b.0[0]).sum()
    }

    #[test]
    fn products_of_transforms_are_correlations() {
        let (d, g): ([Line; EDGE], [Line; TAPS]) = (lines(1.0), lines(2.0));
        let (image, filter) = (image::<f64>(d), filter::<f64>(g));
        let product = std::array::from_fn(|i| image[i].zip(filter[i], |a, b| a * b));
        for (i, y) in result::<f64>(product).into_iter().enumerate() {
            let expected: f64 = (0..TAPS).map(|u| d[i + u].0[0] * g[u].0[0]).sum();
            assert!((y.0[0] - expected).abs() < 1e-13);
        }
    }

    #[test]
    fn gradients_are_transposes() {
        let (m, g, dy) = (lines(3.0), lines(4.0), lines(5.0));
        let [forward, back] =
            [dot(filter::<f64>(g), m), dot(g, filter_gradient::<f64>(m))];
        assert!((forward - back).abs() < 1e-13);
        let [forward, back] =
            [dot(result::<f64>(m), dy), dot(m, result_gradient::<f64>(dy))];
        assert!((forward - back).abs() < 1e-13);
    }
}
