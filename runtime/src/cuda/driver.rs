//! The CUDA driver as far as a machine needs it: owned handles whose calls return results.
//!
//! An [`Address`] is a number: what a device does with a wrong one is an error of the device, not
//! of this program, so nothing that takes one is unsafe. Host memory that a device reads or
//! writes later is [`Pinned`], which outlives the streams of its machine.
#![expect(unsafe_code, reason = "the one place that calls the driver")]

mod device;
mod graph;
mod library;
mod memory;
mod module;
mod nccl;
mod stream;
mod tables;

pub(super) use device::Device;
pub use device::DeviceFacts;
pub(super) use graph::Graph;
pub(super) use library::Libraries;
pub use library::NoCuda;
#[cfg(test)]
pub(super) use library::convolutions_version;
pub(super) use memory::{Address, DeviceMemory, Pinned};
pub(super) use module::{Function, Module, Parameters};
pub(super) use nccl::{Communicator, IDENTITY, Nccl, NcclError, Readiness, Reduction};
pub(super) use stream::{Event, Rectangle, State, Stream};
pub(super) use tables::{cublaslt, cudnn, nvrtc};

use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;

/// A call that the driver refused, or that came upon an earlier failure of the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
pub struct DriverError {
    /// Name of the call.
    pub call: &'static str,
    /// What the driver says, name and sentence.
    pub reason: String,
    /// Its number.
    pub code: u32,
}

impl DriverError {
    /// Whether there was too little memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }
}

/// Turns what a call returned into a result.
fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(DriverError { call, reason: describe(result), code: result as u32 }),
    }
}

fn describe(result: CUresult) -> String {
    type Describe =
        unsafe fn(CUresult, *mut *const std::ffi::c_char) -> sys::cudaError_enum;
    let text = |describe: Describe| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a constant string, or none.
        unsafe {
            let known = describe(result, &raw mut text) == CUresult::CUDA_SUCCESS;
            (known && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("{result:?}"));
    match text(sys::cuGetErrorString) {
        Some(sentence) if sentence != name => format!("{name} ({sentence})"),
        Some(_) | None => name,
    }
}

/// Calls a function of the driver.
macro_rules! driver {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::cuda::driver::check(
            stringify!($name),
            cudarc::driver::sys::$name($($argument),*),
        )
    };
}
use driver;
