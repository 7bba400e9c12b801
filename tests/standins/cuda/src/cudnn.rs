//! `libcudnn`: the calls that make one convolution.

use crate::{
    convolutions::{Array, Convolution, Motion, Pass, workspace_of},
    forbid,
    numbers::Number,
    settings::Offered,
    work::Work,
    world::world,
};
use std::{
    ffi::{c_char, c_int, c_void},
    ptr, slice,
};

/// Results that are used.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const BAD_PARAM: c_int = 2000;
pub(crate) const NOT_SUPPORTED: c_int = 3000;
pub(crate) const EXECUTION_FAILED: c_int = 5000;

/// Channels that lie next to each other, filters that are not turned, sums in 32 bits.
const NHWC: c_int = 1;
const CROSS_CORRELATION: c_int = 1;
const SINGLE: c_int = 0;

/// Ways to multiply: any, tensor cores, tensor cores on shortened numbers, numbers as they are.
const ANY: c_int = 0;
const TENSOR_CORES: c_int = 1;
const SHORTENED: c_int = 2;
const WHOLE: c_int = 3;

/// A started library.
pub(crate) struct Handle {
    pub(crate) stream: u64,
}

/// What the library says of an algorithm.
#[repr(C)]
struct Offer {
    algorithm: c_int,
    status: c_int,
    milliseconds: f32,
    workspace: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// By the library's number of it.
pub(crate) fn number(kind: c_int) -> Option<Number> {
    match kind {
        SINGLE => Some(Number::F32),
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

/// Makes something that is described.
unsafe fn create<T>(place: *mut *mut T, own: T) -> c_int {
    // SAFETY: the caller gives room for a handle.
    unsafe { *place = Box::into_raw(Box::new(own)) };
    SUCCESS
}

/// Forgets something that was described.
unsafe fn destroy<T>(own: *mut T) -> c_int {
    // SAFETY: the handle is one of `create`, and is not used again.
    drop(unsafe { Box::from_raw(own) });
    SUCCESS
}

/// It allocates memory, which a capture does not take.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(handle: *mut *mut Handle) -> c_int {
    if world().spoil().is_some() {
        return EXECUTION_FAILED;
    }
    // SAFETY: the same promise.
    unsafe { create(handle, Handle { stream: 0 }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnDestroy(handle: *mut Handle) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetStream(handle: *mut Handle, stream: u64) -> c_int {
    // SAFETY: the handle is live.
    unsafe { (*handle).stream = stream };
    SUCCESS
}

const UNSET: Array = Array { number: Number::F32, extents: [0; 4] };

/// Says how an array lies.
unsafe fn set(own: *mut Array, format: c_int, kind: c_int, extents: [c_int; 4]) -> c_int {
    let Some(number) = number(kind) else { return BAD_PARAM };
    if format != NHWC || extents.iter().any(|extent| *extent < 1) {
        return BAD_PARAM;
    }
    let extents = extents.map(|extent| extent as u64);
    // SAFETY: the handle is live.
    unsafe { *own = Array { number, extents } };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreateTensorDescriptor(own: *mut *mut Array) -> c_int {
    // SAFETY: the same promise.
    unsafe { create(own, UNSET) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetTensor4dDescriptor(
    own: *mut Array,
    format: c_int,
    kind: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { set(own, format, kind, [n, c, h, w]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnDestroyTensorDescriptor(own: *mut Array) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreateFilterDescriptor(own: *mut *mut Array) -> c_int {
    // SAFETY: the same promise.
    unsafe { create(own, UNSET) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetFilter4dDescriptor(
    own: *mut Array,
    kind: c_int,
    format: c_int,
    k: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { set(own, format, kind, [k, c, h, w]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnDestroyFilterDescriptor(own: *mut Array) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreateConvolutionDescriptor(own: *mut *mut Motion) -> c_int {
    // SAFETY: the same promise.
    unsafe { create(own, Motion::default()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolution2dDescriptor(
    own: *mut Motion,
    padding_high: c_int,
    padding_wide: c_int,
    stride_high: c_int,
    stride_wide: c_int,
    dilation_high: c_int,
    dilation_wide: c_int,
    mode: c_int,
    sums: c_int,
) -> c_int {
    let expected = (CROSS_CORRELATION, SINGLE, 1, 1);
    if (mode, sums, dilation_high, dilation_wide) != expected {
        return NOT_SUPPORTED;
    }
    let [padding, stride] = [[padding_high, padding_wide], [stride_high, stride_wide]];
    if padding.iter().any(|n| *n < 0) || stride.iter().any(|n| *n < 1) {
        return BAD_PARAM;
    }
    let [padding, stride] = [padding, stride].map(|both| both.map(|n| n as u64));
    // SAFETY: the handle is live.
    unsafe { *own = Motion { padding, stride, groups: 1, math: ANY } };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionGroupCount(
    own: *mut Motion,
    groups: c_int,
) -> c_int {
    // SAFETY: the handle is live.
    unsafe { (*own).groups = groups.max(1) as u64 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionMathType(own: *mut Motion, math: c_int) -> c_int {
    // SAFETY: the handle is live.
    unsafe { (*own).math = math };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnDestroyConvolutionDescriptor(own: *mut Motion) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

/// The way to multiply of an algorithm that is offered for such numbers.
fn math_of(offered: Offered, number: Number) -> c_int {
    match (offered, number) {
        (Offered::Short, Number::F16 | Number::Bf16) => SHORTENED,
        (Offered::Short, Number::F32 | Number::F64) => ANY,
        (_, Number::F16 | Number::Bf16) => TENSOR_CORES,
        (_, Number::F32 | Number::F64) => WHOLE,
    }
}

/// Says what is offered for convolutions of these numbers.
unsafe fn offer(
    array: *const Array,
    pass: Pass,
    wanted: c_int,
    count: *mut c_int,
    offers: *mut Offer,
) -> c_int {
    // SAFETY: the handle is live; the caller gives room for so many offers and a number.
    let (number, places) = unsafe {
        ((*array).number, slice::from_raw_parts_mut(offers, wanted.max(0) as usize))
    };
    let offered = world().settings.offers.clone();
    for (place, own) in places.iter_mut().zip(&offered) {
        *place = Offer {
            algorithm: own.number(pass),
            status: SUCCESS,
            milliseconds: -1.0,
            workspace: workspace_of(*own) as usize,
            determinism: c_int::from(*own != Offered::Drifting),
            math: math_of(*own, number),
            reserved: [0; 3],
        };
    }
    // SAFETY: as above.
    unsafe { *count = offered.len().min(wanted.max(0) as usize) as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionForwardAlgorithm_v7(
    _: *mut Handle,
    x: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    wanted: c_int,
    count: *mut c_int,
    offers: *mut Offer,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { offer(x, Pass::Results, wanted, count, offers) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
    _: *mut Handle,
    weight: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    wanted: c_int,
    count: *mut c_int,
    offers: *mut Offer,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { offer(weight, Pass::Images, wanted, count, offers) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    _: *mut Handle,
    x: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    wanted: c_int,
    count: *mut c_int,
    offers: *mut Offer,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { offer(x, Pass::Filters, wanted, count, offers) }
}

/// Says what an algorithm takes.
unsafe fn workspace(algorithm: c_int, bytes: *mut usize) -> c_int {
    let Some(offered) = Offered::of(algorithm) else { return NOT_SUPPORTED };
    // SAFETY: the caller gives room for a number.
    unsafe { *bytes = workspace_of(offered) as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionForwardWorkspaceSize(
    _: *mut Handle,
    _: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    algorithm: c_int,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { workspace(algorithm, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardDataWorkspaceSize(
    _: *mut Handle,
    _: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    algorithm: c_int,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { workspace(algorithm, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
    _: *mut Handle,
    _: *const Array,
    _: *const Array,
    _: *const Motion,
    _: *const Array,
    algorithm: c_int,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { workspace(algorithm, bytes) }
}

/// A pass as it is called: the factors, and an algorithm with its room.
struct Called {
    pass: Pass,
    scale: *const c_void,
    accumulate: *const c_void,
    algorithm: c_int,
    workspace: u64,
    workspace_bytes: usize,
}

/// Gives a convolution of these arrays to the handle's stream.
unsafe fn convolve(
    handle: *mut Handle,
    called: Called,
    motion: *const Motion,
    arrays: [(*const Array, u64); 3],
) -> c_int {
    let Some(offered) = Offered::of(called.algorithm) else { return NOT_SUPPORTED };
    if offered == Offered::Failing
        || called.workspace_bytes < workspace_of(offered) as usize
    {
        return NOT_SUPPORTED;
    }
    // SAFETY: all handles are live, and factors have 32 bits.
    let (stream, own, scale) = unsafe {
        let [x, weight, y] = arrays.map(|(array, start)| (*array, start));
        let own = Convolution {
            pass: called.pass,
            motion: *motion,
            x,
            weight,
            y,
            accumulate: ptr::read_unaligned(called.accumulate.cast()),
            workspace: called.workspace,
            offered,
        };
        let scale: f32 = ptr::read_unaligned(called.scale.cast());
        ((*handle).stream, own, scale)
    };
    if scale != 1.0 || ![0.0, 1.0].contains(&own.accumulate) {
        return NOT_SUPPORTED;
    }
    if own.motion.math != math_of(offered, own.x.0.number) {
        forbid("a convolution is multiplied otherwise than was offered");
    }
    let mut world = world();
    own.check(&world);
    own.count(&mut world.counts);
    match world.give(stream, Work::Convolution(Box::new(own))) {
        0 => SUCCESS,
        _ => EXECUTION_FAILED,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionForward(
    handle: *mut Handle,
    scale: *const c_void,
    x: *const Array,
    x_at: u64,
    weight: *const Array,
    weight_at: u64,
    motion: *const Motion,
    algorithm: c_int,
    workspace: u64,
    workspace_bytes: usize,
    accumulate: *const c_void,
    y: *const Array,
    y_at: u64,
) -> c_int {
    let pass = Pass::Results;
    let called =
        Called { pass, scale, accumulate, algorithm, workspace, workspace_bytes };
    let arrays = [(x, x_at), (weight, weight_at), (y, y_at)];
    // SAFETY: the same promise.
    unsafe { convolve(handle, called, motion, arrays) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBackwardData(
    handle: *mut Handle,
    scale: *const c_void,
    weight: *const Array,
    weight_at: u64,
    dy: *const Array,
    dy_at: u64,
    motion: *const Motion,
    algorithm: c_int,
    workspace: u64,
    workspace_bytes: usize,
    accumulate: *const c_void,
    dx: *const Array,
    dx_at: u64,
) -> c_int {
    let pass = Pass::Images;
    let called =
        Called { pass, scale, accumulate, algorithm, workspace, workspace_bytes };
    let arrays = [(dx, dx_at), (weight, weight_at), (dy, dy_at)];
    // SAFETY: the same promise.
    unsafe { convolve(handle, called, motion, arrays) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBackwardFilter(
    handle: *mut Handle,
    scale: *const c_void,
    x: *const Array,
    x_at: u64,
    dy: *const Array,
    dy_at: u64,
    motion: *const Motion,
    algorithm: c_int,
    workspace: u64,
    workspace_bytes: usize,
    accumulate: *const c_void,
    dweight: *const Array,
    dweight_at: u64,
) -> c_int {
    let pass = Pass::Filters;
    let called =
        Called { pass, scale, accumulate, algorithm, workspace, workspace_bytes };
    let arrays = [(x, x_at), (dweight, dweight_at), (dy, dy_at)];
    // SAFETY: the same promise.
    unsafe { convolve(handle, called, motion, arrays) }
}
