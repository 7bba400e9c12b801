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

/// A linear map along one axis.
pub(super) trait Transform<const I: usize, const O: usize> {
    /// The map of one lane.
    fn apply<R: Real>(input: [R; I]) -> [R; O];
}

/// a + factor · b.
#[inline(always)]
fn plus<R: Real>(a: R, factor: f64, b: R) -> R {
    R::of(factor).fused(b, a)
}

/// Bᵀ d.
pub(super) struct Image;

impl Transform<EDGE, EDGE> for Image {
    #[inline(always)]
    fn apply<R: Real>(d: [R; EDGE]) -> [R; EDGE] {
        let (even, odd) = (plus(d[4], -4.0, d[2]), plus(d[3], -4.0, d[1]));
        let (near, far) = (d[4] - d[2], d[3] - d[1]);
        [
            plus(plus(d[4], -5.0, d[2]), 4.0, d[0]),
            even + odd,
            even - odd,
            plus(near, 2.0, far),
            plus(near, -2.0, far),
            plus(plus(d[5], -5.0, d[3]), 4.0, d[1]),
        ]
    }
}

/// G g.
pub(super) struct Filter;

impl Transform<TAPS, EDGE> for Filter {
    #[inline(always)]
    fn apply<R: Real>(g: [R; TAPS]) -> [R; EDGE] {
        let near = R::of(-1.0 / 6.0) * (g[0] + g[2]);
        let far = R::of(1.0 / 24.0) * plus(g[0], 4.0, g[2]);
        [
            R::of(0.25) * g[0],
            plus(near, -1.0 / 6.0, g[1]),
            plus(near, 1.0 / 6.0, g[1]),
            plus(far, 1.0 / 12.0, g[1]),
            plus(far, -1.0 / 12.0, g[1]),
            g[2],
        ]
    }
}

/// Aᵀ m.
pub(super) struct Results;

impl Transform<EDGE, TILE> for Results {
    #[inline(always)]
    fn apply<R: Real>(m: [R; EDGE]) -> [R; TILE] {
        let (near, far) = (m[1] + m[2], m[3] + m[4]);
        let (low, high) = (m[1] - m[2], m[3] - m[4]);
        [
            m[0] + near + far,
            plus(low, 2.0, high),
            plus(near, 4.0, far),
            plus(low + m[5], 8.0, high),
        ]
    }
}

/// A dy.
pub(super) struct ResultGradient;

impl Transform<TILE, EDGE> for ResultGradient {
    #[inline(always)]
    fn apply<R: Real>(dy: [R; TILE]) -> [R; EDGE] {
        let (even, odd) = (dy[0] + dy[2], dy[1] + dy[3]);
        let (low, high) = (plus(dy[0], 4.0, dy[2]), plus(dy[1], 4.0, dy[3]));
        [
            dy[0],
            even + odd,
            even - odd,
            plus(low, 2.0, high),
            plus(low, -2.0, high),
            dy[3],
        ]
    }
}

/// Gᵀ m.
pub(super) struct FilterGradient;

impl Transform<EDGE, TAPS> for FilterGradient {
    #[inline(always)]
    fn apply<R: Real>(m: [R; EDGE]) -> [R; TAPS] {
        let (near, far) = (m[1] + m[2], m[3] + m[4]);
        let low = R::of(1.0 / 6.0) * (m[2] - m[1]);
        let first = plus(R::of(0.25) * m[0], -1.0 / 6.0, near);
        [
            plus(first, 1.0 / 24.0, far),
            plus(low, 1.0 / 12.0, m[3] - m[4]),
            plus(m[5], 1.0 / 6.0, far - near),
        ]
    }
}

/// Lines of one tile, by row and column.
pub(super) type Square<R, const N: usize> = [[<R as Real>::Line; N]; N];

/// A transform along both axes. Lanes are the innermost loop, which the compiler vectorises as
/// it stands; maps of whole lines it takes apart.
#[inline(always)]
pub(super) fn both<T: Transform<I, O>, R: Real, const I: usize, const O: usize>(
    input: &Square<R, I>,
    output: &mut Square<R, O>,
) {
    let mut half = [[R::Line::splat(R::ZERO); I]; O];
    for j in 0..I {
        for lane in 0..R::Line::COUNT {
            let column = T::apply(std::array::from_fn(|i| input[i][j].get(lane)));
            for (row, value) in half.iter_mut().zip(column) {
                row[j].set(lane, value);
            }
        }
    }
    for (half, output) in half.iter().zip(output) {
        for lane in 0..R::Line::COUNT {
            let row = T::apply(std::array::from_fn(|j| half[j].get(lane)));
            for (line, value) in output.iter_mut().zip(row) {
                line.set(lane, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<const N: usize>(seed: f64) -> [f64; N] {
        std::array::from_fn(|i| (seed + i as f64 * 1.7).sin())
    }
    fn dot<const N: usize>(a: [f64; N], b: [f64; N]) -> f64 {
        a.iter().zip(&b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn products_of_transforms_are_correlations() {
        let (d, g): ([f64; EDGE], [f64; TAPS]) = (numbers(1.0), numbers(2.0));
        let (image, filter) = (Image::apply(d), Filter::apply(g));
        let product = std::array::from_fn(|i| image[i] * filter[i]);
        for (i, y) in Results::apply(product).into_iter().enumerate() {
            let expected: f64 = (0..TAPS).map(|u| d[i + u] * g[u]).sum();
            assert!((y - expected).abs() < 1e-13);
        }
    }

    #[test]
    fn gradients_are_transposes() {
        let (m, g, dy) = (numbers(3.0), numbers(4.0), numbers(5.0));
        let [forward, back] =
            [dot(Filter::apply(g), m), dot(g, FilterGradient::apply(m))];
        assert!((forward - back).abs() < 1e-13);
        let [forward, back] =
            [dot(Results::apply(m), dy), dot(m, ResultGradient::apply(dy))];
        assert!((forward - back).abs() < 1e-13);
    }
}
