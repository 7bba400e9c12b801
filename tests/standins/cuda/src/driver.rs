//! `libcuda`: the driver itself, its devices and contexts.

use crate::{
    contexts,
    world::{INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, world},
};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
};

/// Numbers of the attributes that are asked for.
const MULTIPROCESSORS: c_uint = 16;
const MAJOR: c_uint = 75;
const MINOR: c_uint = 76;
const MAPS: c_uint = 102;

/// The handle of a context is this, and the number of its device.
const CONTEXTS: u64 = 0x100;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_: c_uint) -> c_int {
    let queues = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok();
    world().counts.queues = queues.and_then(|most| most.parse().ok()).unwrap_or(8);
    if world().settings.devices > 0 { SUCCESS } else { NO_DEVICE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller gives room for a number.
    unsafe { *version = world().settings.driver };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller gives room for a number.
    unsafe { *count = world().settings.devices };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    if !(0..world().settings.devices).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller gives room for a device.
    unsafe { *device = ordinal };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    length: c_int,
    _: c_int,
) -> c_int {
    let own = c"Stand-in";
    let bytes = own.to_bytes_with_nul();
    if (length as usize) < bytes.len() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives room for this many letters.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _: c_int) -> c_int {
    // SAFETY: the caller gives room for a number.
    unsafe { *bytes = world().memory.total as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    _: c_int,
) -> c_int {
    let known = match attribute {
        MULTIPROCESSORS => 4,
        MAJOR => world().settings.capability / 10,
        MINOR => world().settings.capability % 10,
        MAPS => i32::from(world().settings.maps),
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller gives room for a number.
    unsafe { *value = known };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_int {
    world().contexts.retain(device as u64);
    // SAFETY: the caller gives room for a handle.
    unsafe { *context = (CONTEXTS + device as u64) as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    let mut world = world();
    let released = world.contexts.release(device as u64);
    world.tell();
    released
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    contexts::enter((context as u64).checked_sub(CONTEXTS));
    SUCCESS
}

/// The names of results, in the driver's words.
fn name(result: c_int) -> &'static CStr {
    match result {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        101 => c"CUDA_ERROR_INVALID_DEVICE",
        200 => c"CUDA_ERROR_INVALID_IMAGE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        500 => c"CUDA_ERROR_NOT_FOUND",
        600 => c"CUDA_ERROR_NOT_READY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        900 => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        901 => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        903 => c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        904 => c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        905 => c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        907 => c"CUDA_ERROR_CAPTURED_EVENT",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(result: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller gives room for an address.
    unsafe { *text = name(result).as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(result: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the same promise.
    unsafe { cuGetErrorName(result, text) }
}
