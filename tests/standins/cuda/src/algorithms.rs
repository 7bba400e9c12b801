//! `libcublasLt`: what it tells of an algorithm.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

/// Results that are used.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 7;

/// What is told of an algorithm: of the first two the same, and of the next two.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: *const [u64; 8],
    attribute: u32,
    to: *mut c_void,
    size: usize,
    written: *mut usize,
) -> c_int {
    // SAFETY: the algorithm is one that was offered.
    let [_, place, ..] = unsafe { *algorithm };
    let told = match (attribute, size) {
        (1, 4) => place as u32 / 2,
        (0 | 2..=6, 4) | (7 | 8, 2) => 1,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller gives room for this many bytes and for a number.
    unsafe {
        ptr::copy_nonoverlapping(told.to_le_bytes().as_ptr(), to.cast(), size);
        *written = size;
    }
    SUCCESS
}
