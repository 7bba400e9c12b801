//! Sines and cosines of whole turns and their parts, that compilers vectorise: no branch, no
//! table, no call.

use std::f64::consts::TAU;

/// Cosine and sine of 2π · `turns`, within 1e-15 of the values at the given number, for up to
/// 2^48 turns.
///
/// `turns` = whole + q/4 + r with |r| ≤ 1/8; then Taylor polynomials at 2π r, whose remainders
/// are below 1e-16, and the quadrant q exchanges them and turns their signs.
#[inline(always)]
pub(crate) fn cosine_and_sine(turns: f64) -> (f64, f64) {
    /// Adding it leaves the nearest whole number in the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = turns.mul_add(4.0, ROUND);
    let quadrant = shifted.to_bits();
    let x = (shifted - ROUND).mul_add(-0.25, turns) * TAU;
    let square = x * x;
    let [cosine, sine] = [COSINE, SINE].map(|factors| {
        factors
            .into_iter()
            .fold(0.0, |sum: f64, factor| sum.mul_add(square, 1.0 / factor))
    });
    let sine = sine * x;
    let exchanged = quadrant & 1 == 1;
    let (c, s) = if exchanged { (sine, cosine) } else { (cosine, sine) };
    let c = if quadrant.wrapping_add(1) & 2 == 2 { -c } else { c };
    let s = if quadrant & 2 == 2 { -s } else { s };
    (c, s)
}

/// Signed factorials of even numbers, from 16 down.
const COSINE: [f64; 9] = [
    20_922_789_888_000.0,
    -87_178_291_200.0,
    479_001_600.0,
    -3_628_800.0,
    40_320.0,
    -720.0,
    24.0,
    -2.0,
    1.0,
];

/// Signed factorials of odd numbers, from 17 down.
const SINE: [f64; 9] = [
    355_687_428_096_000.0,
    -1_307_674_368_000.0,
    6_227_020_800.0,
    -39_916_800.0,
    362_880.0,
    -5_040.0,
    120.0,
    -6.0,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_close_all_round() {
        for step in -40_000..40_000 {
            let turns = f64::from(step) / 10_000.0;
            let (cosine, sine) = cosine_and_sine(turns);
            let (exact_sine, exact_cosine) = libm::sincos(turns * TAU);
            let error = (cosine - exact_cosine).abs().max((sine - exact_sine).abs());
            assert!(error < 1e-14, "{turns} turns are off by {error}");
        }
        assert_eq!(cosine_and_sine(0.0), (1.0, 0.0));
        assert_eq!(cosine_and_sine(1e6 + 0.25).1, 1.0);
    }
}
