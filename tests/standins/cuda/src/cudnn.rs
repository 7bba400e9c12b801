//! `libcudnn`: what starts it and says what it is.

use crate::{numbers::Number, world::world};
use std::ffi::{c_char, c_int};

/// Results that are used.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const BAD_PARAM: c_int = 2000;
pub(crate) const NOT_SUPPORTED: c_int = 3000;
pub(crate) const EXECUTION_FAILED: c_int = 5000;

/// A started library.
pub(crate) struct Handle {
    pub(crate) stream: u64,
}

/// By the library's number of it.
pub(crate) fn number(kind: c_int) -> Option<Number> {
    match kind {
        0 => Some(Number::F32),
        1 => Some(Number::F64),
        2 => Some(Number::F16),
        9 => Some(Number::Bf16),
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    world().settings.cudnn
}

/// Only version 9 has it.
#[unsafe(no_mangle)]
extern "C" fn cudnnGraphVersionCheck() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(answer: c_int) -> *const c_char {
    let words = match answer {
        SUCCESS => c"CUDNN_STATUS_SUCCESS",
        BAD_PARAM => c"CUDNN_STATUS_BAD_PARAM",
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
        _ => c"CUDNN_STATUS_EXECUTION_FAILED",
    };
    words.as_ptr()
}

/// It allocates memory, which a capture does not take.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(handle: *mut *mut Handle) -> c_int {
    if world().spoil().is_some() {
        return EXECUTION_FAILED;
    }
    // SAFETY: the caller gives room for a handle.
    unsafe { *handle = Box::into_raw(Box::new(Handle { stream: 0 })) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnDestroy(handle: *mut Handle) -> c_int {
    // SAFETY: the handle is one of `cudnnCreate`, and is not used again.
    drop(unsafe { Box::from_raw(handle) });
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetStream(handle: *mut Handle, stream: u64) -> c_int {
    // SAFETY: the handle is live.
    unsafe { (*handle).stream = stream };
    SUCCESS
}
