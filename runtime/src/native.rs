//! The element types that the CPU computes in.

use roundelay_schedule::{Float, Native};

/// A job in an element type that no machine here computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the CPU computes in f32 and f64, but the schedule trains in {0}; it can be planned, \
     compiled, checked and simulated, and runs with `dtype f32`"
)]
pub struct NotNative(pub Float);

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
