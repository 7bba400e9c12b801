//! Elementary functions in f32 that compilers vectorise: no branch, no table, no call.

/// e^x within 3e-7 of its value for x ≥ −87.3; 0 below, ∞ from 88.37 on.
///
/// x = n · ln 2 + r with |r| ≤ ln 2 / 2; the polynomial for e^r is that of Cephes `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it leaves the nearest whole number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let mut sum = 1.987_569_1e-4f32;
    for coefficient in
        [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0]
    {
        sum = sum.mul_add(r, coefficient);
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let value = sum * power;
    let value = if x < -87.3 { 0.0 } else { value };
    if x > 88.37 { f32::INFINITY } else { value }
}

/// tanh x within 3e-7 of its value: near zero the polynomial of Cephes `tanhf`, elsewhere
/// 1 − 2 / (e^2|x| + 1) with the sign of x.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut sum = -5.704_988_7e-3_f32;
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        sum = sum.mul_add(square, coefficient);
    }
    let near = (sum * square).mul_add(x, x);
    let size = x.abs();
    let far = (1.0 - 2.0 / (exp(2.0 * size) + 1.0)).copysign(x);
    if size < 0.625 { near } else { far }
}

/// Φ(x) and φ(x), distribution and density of the standard normal, within 1e-6 of their
/// values, also in the tails.
///
/// With z = |x|/√2, Φ(−|x|) = exp(−z²) · erfcx(z)/2, where erfcx(z)/2 = t · P(t) with
/// t = 1/(1 + z/2); P interpolates at Chebyshev nodes for z ≤ 10. The rounding error of x²
/// is put back after the exponential. Beyond ±14 both have reached their limits in f32.
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    const FACTORS: [f32; 8] = [
        0.143_884_15,
        -0.246_931_82,
        0.142_848_86,
        -0.015_920_88,
        0.102_426_83,
        0.121_286_446,
        0.141_222_52,
        0.141_041_34,
    ];
    const ROOT: f32 = 0.398_942_3;
    let x = x.clamp(-14.0, 14.0);
    let square = x * x;
    let lost = x.mul_add(x, -square);
    let power = exp(-0.5 * square);
    let power = power.mul_add(-0.5 * lost, power);
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / z.mul_add(0.5, 1.0);
    let mut sum = -0.029_857_46f32;
    for factor in FACTORS {
        sum = sum.mul_add(t, factor);
    }
    let tail = power * t * sum;
    (if x < 0.0 { tail } else { 1.0 - tail }, power * ROOT)
}

/// Φ(x) and φ(x) in f64, as exact as `libm`.
pub(crate) fn wide_normal(x: f64) -> (f64, f64) {
    let distribution = 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    let density = libm::exp(-0.5 * x * x) * (1.0 / (2.0 * std::f64::consts::PI).sqrt());
    (distribution, density)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_1_SQRT_2, PI};

    fn relative(found: f32, expected: f64) -> f64 {
        ((f64::from(found) - expected) / expected).abs()
    }

    #[test]
    fn exponential_is_close_everywhere() {
        for step in 0..400_000 {
            let x = -87.3 + step as f32 * (175.6 / 400_000.0);
            let error = relative(exp(x), libm::exp(f64::from(x)));
            assert!(error < 3e-7, "exp({x}) is off by {error}");
        }
    }

    #[test]
    fn exponential_keeps_its_limits() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tangent_is_close_everywhere() {
        for step in 0..400_000 {
            let x = -20.0 + (step as f32 + 0.5) * (40.0 / 400_000.0);
            let error = relative(tanh(x), libm::tanh(f64::from(x)));
            assert!(error < 3e-7, "tanh({x}) is off by {error}");
        }
        for step in 1..100_000 {
            let x = step as f32 * 1e-7;
            let error = relative(tanh(-x), libm::tanh(f64::from(-x)));
            assert!(error < 3e-7, "tanh(-{x}) is off by {error}");
        }
        assert_eq!([0.0, -0.0].map(tanh), [0.0, -0.0]);
        assert_eq!([f32::INFINITY, f32::NEG_INFINITY].map(tanh), [1.0, -1.0]);
        assert_eq!([f32::MAX, f32::MIN].map(tanh), [1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn normal_is_close_also_in_the_tails() {
        for step in 0..200_000 {
            let x = -12.0 + step as f32 * (24.0 / 200_000.0);
            let wide = f64::from(x);
            let (distribution, density) = normal(x);
            let exact = 0.5 * libm::erfc(-wide * FRAC_1_SQRT_2);
            let error = relative(distribution, exact);
            assert!(error < 1e-6, "Φ({x}) is off by {error}");
            let exact = (-0.5 * wide * wide).exp() / (2.0 * PI).sqrt();
            let error = relative(density, exact);
            assert!(error < 1e-6, "φ({x}) is off by {error}");
        }
        assert_eq!(normal(f32::NEG_INFINITY), (0.0, 0.0));
        assert_eq!(normal(-1e30), (0.0, 0.0));
        assert_eq!(normal(f32::MAX), (1.0, 0.0));
        assert!(normal(f32::NAN).0.is_nan());
    }
}
