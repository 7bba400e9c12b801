//! Sums in a fixed order that vectorises: sixteen lanes, then a tree over them.

use crate::Real;

const LANES: usize = 16;

/// Σ term(x₀\[i\], x₁\[i\], …) over i, for several terms at once. Inputs have one length.
#[inline(always)]
pub(crate) fn sums<R: Real, const K: usize, const S: usize>(
    inputs: [&[R]; K],
    term: impl Fn([R; K]) -> [R; S],
) -> [R; S] {
    fold(inputs, R::ZERO, term, |sum, term| sum + term)
}

/// The greatest value.
#[inline(always)]
pub(crate) fn greatest<R: Real>(x: &[R]) -> R {
    let [most] = fold([x], R::NEGATIVE_INFINITY, |x| x, Real::greater);
    most
}

/// Σ a·b.
#[inline(always)]
pub(crate) fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    let [sum] = sums([a, b], |[a, b]| [a * b]);
    sum
}

#[inline(always)]
fn fold<R: Real, const K: usize, const S: usize>(
    inputs: [&[R]; K],
    start: R,
    term: impl Fn([R; K]) -> [R; S],
    combine: impl Fn(R, R) -> R,
) -> [R; S] {
    let count = inputs.iter().map(|input| input.len()).min().unwrap_or(0);
    let chunks = inputs.map(|input| input.as_chunks::<LANES>().0);
    let mut lanes = [[start; LANES]; S];
    for c in 0..count / LANES {
        let chunks: [&[R; LANES]; K] = std::array::from_fn(|k| &chunks[k][c]);
        for lane in 0..LANES {
            let terms = term(std::array::from_fn(|k| chunks[k][lane]));
            for (lanes, term) in lanes.iter_mut().zip(terms) {
                lanes[lane] = combine(lanes[lane], term);
            }
        }
    }
    for (lane, i) in (count / LANES * LANES..count).enumerate() {
        let terms = term(inputs.map(|input| input[i]));
        for (lanes, term) in lanes.iter_mut().zip(terms) {
            lanes[lane] = combine(lanes[lane], term);
        }
    }
    lanes.map(|lanes| tree(lanes, &combine))
}

#[inline(always)]
fn tree<R: Real>(mut lanes: [R; LANES], combine: &impl Fn(R, R) -> R) -> R {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_greatest_of_every_length() {
        for count in 0..70usize {
            let x: Vec<f64> = (0..count).map(|i| i as f64 - 20.0).collect();
            let [sum, squares] = sums([&x], |[x]| [x, x * x]);
            assert_eq!(sum, x.iter().sum::<f64>());
            assert_eq!(squares, x.iter().map(|x| x * x).sum::<f64>());
            assert_eq!(dot(&x, &x), squares);
            let most = x.last().copied().unwrap_or(f64::NEG_INFINITY);
            assert_eq!(greatest(&x), most);
        }
    }
}
