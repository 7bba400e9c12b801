//! The element types that the CPU computes in.

use half::{bf16, f16};
use roundelay_schedule::{Float, Native};

/// A job in an element type that no machine here computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the CPU computes in f32 and f64, but the schedule trains in {dtype}; {hint}",
    dtype = .0, hint = Self::HINT
)]
pub struct NotNative(pub Float);

impl NotNative {
    /// What can be done all the same, as the message ends with.
    pub const HINT: &'static str = "it can be planned, compiled, checked and simulated, and runs with \
                                    `dtype f32`";
}

/// Whether the CPU computes in an element type.
///
/// # Errors
/// When it does not.
pub fn check_native(dtype: Float) -> Result<Native, NotNative> {
    dtype.native().ok_or(NotNative(dtype))
}

/// The type of a job that was checked before anything was made for it.
pub(crate) fn native(dtype: Float) -> Native {
    check_native(dtype)
        .expect("machines, oracles and data are made for native types alone")
}

/// The type of losses, statistics and optimizer states, and in which numbers are drawn and read
/// before they are rounded to the job's.
pub(crate) fn wide(dtype: Float) -> Native {
    match dtype {
        Float::F64 => Native::F64,
        Float::F32 | Float::Bf16(_) | Float::F16(_) => Native::F32,
    }
}

/// The wide type of a type, as a type that a job may have.
pub(crate) fn wide_type(dtype: Float) -> Float {
    match wide(dtype) {
        Native::F32 => Float::F32,
        Native::F64 => Float::F64,
    }
}

/// Numbers of the wide type, each rounded to the nearest of the job's.
pub(crate) fn rounded(wide: Vec<u8>, dtype: Float) -> Vec<u8> {
    let singles = || {
        let (words, _) = wide.as_chunks::<4>();
        words.iter().map(|word| f32::from_ne_bytes(*word))
    };
    match dtype {
        Float::F32 | Float::F64 => wide,
        Float::Bf16(_) => {
            singles().flat_map(|x| bf16::from_f32(x).to_ne_bytes()).collect()
        }
        Float::F16(_) => singles().flat_map(|x| f16::from_f32(x).to_ne_bytes()).collect(),
    }
}

/// One number of the wide type.
pub(crate) fn number_of(dtype: Float, bytes: &[u8]) -> f64 {
    let wrong = "a number has the size of its type";
    match wide(dtype) {
        Native::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().expect(wrong))),
        Native::F64 => f64::from_ne_bytes(bytes.try_into().expect(wrong)),
    }
}

/// Writes a number in the job's type.
pub(crate) fn put(dtype: Float, value: f64, place: &mut [u8]) {
    let narrow = value as f32;
    match dtype {
        Float::F32 => place.copy_from_slice(&narrow.to_ne_bytes()),
        Float::F64 => place.copy_from_slice(&value.to_ne_bytes()),
        Float::Bf16(_) => place.copy_from_slice(&bf16::from_f32(narrow).to_ne_bytes()),
        Float::F16(_) => place.copy_from_slice(&f16::from_f32(narrow).to_ne_bytes()),
    }
}
