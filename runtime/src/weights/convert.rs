//! Numbers of a file in the element type of a job.

use crate::native::wide;
use half::{bf16, f16};
use roundelay_schedule::{Float, Native};
use safetensors::Dtype;

/// Little-endian numbers of a file as native ones of the wide type of `to`, each the nearest. None
/// when the file's type is no real one; else the place of the first number that is finite in the
/// file, but not in `to`.
pub(super) fn numbers(
    from: Dtype,
    bytes: &[u8],
    to: Float,
) -> Option<Result<Vec<u8>, usize>> {
    Some(rounded(reals(from, bytes)?, to))
}

/// How many little-endian numbers of a file are NaN or infinite; none of those that are no real
/// ones.
pub(super) fn not_finite(from: Dtype, bytes: &[u8]) -> u64 {
    let wild = |values: Reals<'_>| values.filter(|value| !value.is_finite()).count();
    reals(from, bytes).map_or(0, wild) as u64
}

type Reals<'a> = Box<dyn Iterator<Item = f64> + 'a>;

/// The numbers, when the type is a real one.
fn reals(from: Dtype, bytes: &[u8]) -> Option<Reals<'_>> {
    Some(match from {
        Dtype::F64 => Box::new(values(bytes, f64::from_le_bytes)),
        Dtype::F32 => Box::new(values(bytes, |b| f32::from_le_bytes(b).into())),
        Dtype::BF16 => Box::new(values(bytes, |b| bf16::from_le_bytes(b).to_f64())),
        Dtype::F16 => Box::new(values(bytes, |b| f16::from_le_bytes(b).to_f64())),
        _ => return None,
    })
}

fn values<const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> f64,
) -> impl Iterator<Item = f64> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(move |number| value(*number))
}

/// Every value to the nearest number of a wide type.
fn rounded(values: impl Iterator<Item = f64>, to: Float) -> Result<Vec<u8>, usize> {
    let mut all = Vec::new();
    for (place, value) in values.enumerate() {
        let narrow = value as f32;
        match wide(to) {
            Native::F64 => all.extend(value.to_ne_bytes()),
            Native::F32 if value.is_finite() && !narrow.is_finite() => return Err(place),
            Native::F32 => all.extend(narrow.to_ne_bytes()),
        }
    }
    Ok(all)
}
