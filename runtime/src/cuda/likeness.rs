//! How near numbers of a device are to what they should be.

use half::{bf16, f16};
use roundelay_kernels::{cuda::Number, samples};
use roundelay_schedule::{Float, GradientSums};

/// Numbers as device memory holds them; bytes behind the last whole one are left out.
pub(super) fn numbers(bytes: &[u8], number: Number) -> Vec<f64> {
    fn each<const SIZE: usize>(
        bytes: &[u8],
        read: impl Fn([u8; SIZE]) -> f64,
    ) -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|word| read(*word)).collect()
    }
    match number {
        Number::F32 => each(bytes, |word| f32::from_ne_bytes(word).into()),
        Number::F64 => each(bytes, f64::from_ne_bytes),
        Number::Bf16 => each(bytes, |word| bf16::from_ne_bytes(word).to_f64()),
        Number::F16 => each(bytes, |word| f16::from_ne_bytes(word).to_f64()),
    }
}

/// A job's type whose numbers are held like that.
pub(super) fn job_type(number: Number) -> Float {
    match number {
        Number::F32 => Float::F32,
        Number::F64 => Float::F64,
        Number::Bf16 => Float::Bf16(GradientSums::Same),
        Number::F16 => Float::F16(GradientSums::Same),
    }
}

/// The largest error that is allowed, as [`worst`] counts it.
pub(super) fn tolerance(number: Number) -> f64 {
    samples::tolerance(job_type(number))
}

/// The largest error, over the largest expected number where that is above one, and where it is.
pub(super) fn worst(found: &[f64], expected: &[f64]) -> (f64, usize) {
    let sizes = expected.iter().map(|value| value.abs());
    let scale = sizes.filter(|size| size.is_finite()).fold(1.0f64, f64::max);
    let error = |(found, expected): (&f64, &f64)| match found == expected {
        true => 0.0,
        false if (found - expected).is_finite() => (found - expected).abs() / scale,
        false => f64::INFINITY,
    };
    let errors = found.iter().zip(expected).map(error).enumerate();
    errors.fold(
        (0.0, 0),
        |(most, at), (place, error)| {
            if error > most { (error, place) } else { (most, at) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_number_is_found_with_its_place() {
        assert_eq!(worst(&[1.0, 2.5, 4.0], &[1.0, 2.0, 4.0]), (0.125, 1));
        assert_eq!(worst(&[f64::NAN], &[1.0]), (f64::INFINITY, 0));
        assert_eq!(worst(&[f64::INFINITY], &[f64::INFINITY]), (0.0, 0));
    }
}
