//! Numbers of a file in the element type of a job.

use crate::{
    container::{Container, Place},
    native::wide,
};
use half::{bf16, f16};
use roundelay_schedule::{Float, Native};
use safetensors::Dtype;
use std::io;

/// Whether numbers of a type are real ones that are read.
pub(super) fn is_real(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::BF16 | Dtype::F16)
}

/// Little-endian real numbers of a file as native ones of the wide type of `to`, each the nearest.
pub(super) fn numbers(from: Dtype, bytes: &[u8], to: Float) -> Vec<u8> {
    match wide(to) {
        Native::F64 => reals(from, bytes).flat_map(f64::to_ne_bytes).collect(),
        Native::F32 => {
            reals(from, bytes).flat_map(|x| (x as f32).to_ne_bytes()).collect()
        }
    }
}

/// The place of the first number that is finite in the file, but not in the wide type of `to`. Only files
/// that are wider are looked through.
pub(super) fn out_of_range(
    container: &Container,
    place: &Place,
    to: Float,
) -> io::Result<Option<usize>> {
    if (place.dtype, wide(to)) != (Dtype::F64, Native::F32) {
        return Ok(None);
    }
    let (mut seen, mut found) = (0, None);
    let is_wild = |value: f64| value.is_finite() && !(value as f32).is_finite();
    container.walk(place, |block| {
        let here = || reals(place.dtype, block).position(is_wild);
        found = found.or_else(|| here().map(|place| seen + place));
        seen += block.len() / size_of::<f64>();
    })?;
    Ok(found)
}

/// How many little-endian numbers of a file are NaN or infinite; none of those that are no real
/// ones.
pub(super) fn not_finite(from: Dtype, bytes: &[u8]) -> u64 {
    reals(from, bytes).filter(|value| !value.is_finite()).count() as u64
}

/// Little-endian real numbers of the first type and this much more, as those of the second one.
pub(super) fn shifted([from, to]: [Dtype; 2], bytes: &[u8], more: f64) -> Vec<u8> {
    let numbers = reals(from, bytes).map(|x| x + more);
    match to {
        Dtype::F64 => numbers.flat_map(f64::to_le_bytes).collect(),
        Dtype::BF16 => numbers.flat_map(|x| bf16::from_f64(x).to_le_bytes()).collect(),
        Dtype::F16 => numbers.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
        _ => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
    }
}

/// The numbers; none where the type is no real one.
fn reals(from: Dtype, bytes: &[u8]) -> Box<dyn Iterator<Item = f64> + '_> {
    match from {
        Dtype::F64 => Box::new(values(bytes, f64::from_le_bytes)),
        Dtype::F32 => Box::new(values(bytes, |b| f32::from_le_bytes(b).into())),
        Dtype::BF16 => Box::new(values(bytes, |b| bf16::from_le_bytes(b).to_f64())),
        Dtype::F16 => Box::new(values(bytes, |b| f16::from_le_bytes(b).to_f64())),
        _ => Box::new(std::iter::empty()),
    }
}

fn values<const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> f64,
) -> impl Iterator<Item = f64> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(move |number| value(*number))
}
