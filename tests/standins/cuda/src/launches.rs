//! `libcuda`: what streams are given.

use crate::{
    forbid,
    kernels::{self, Function},
    settings::Launch,
    work::Work,
    world::{
        Health, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, SUCCESS, world,
    },
};
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};

/// A copy as the driver describes it.
#[repr(C)]
struct Rectangles {
    from_x: usize,
    from_y: usize,
    from_kind: c_uint,
    from_host: *const c_void,
    from: u64,
    from_array: *const c_void,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: c_uint,
    to_host: *const c_void,
    to: u64,
    to_array: *const c_void,
    to_pitch: usize,
    width: usize,
    rows: usize,
}

/// The largest distance of rows in a copy.
const MOST_PITCH: usize = (1 << 31) - 1;

/// The kind of memory that devices have.
const OF_DEVICE: c_uint = 2;

fn line(from: u64, to: u64, bytes: usize) -> Work {
    let width = bytes as u64;
    Work::Copy { from, to, width, rows: 1, from_pitch: width, to_pitch: width }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: u64,
) -> c_int {
    let mut world = world();
    if !world.memory.is_pinned(from as u64, bytes as u64) {
        forbid("host memory that is not pinned is copied to a device");
    }
    if !world.memory.is_live(to, bytes as u64) {
        return INVALID_VALUE;
    }
    world.give(stream, line(from as u64, to, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: u64,
) -> c_int {
    let mut world = world();
    if !world.memory.is_pinned(to as u64, bytes as u64) {
        forbid("device memory is copied to host memory that is not pinned");
    }
    if !world.memory.is_live(from, bytes as u64) {
        return INVALID_VALUE;
    }
    world.give(stream, line(from, to as u64, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: u64,
) -> c_int {
    let mut world = world();
    let live = |start| world.memory.is_live(start, bytes as u64);
    if !live(to) || !live(from) {
        return INVALID_VALUE;
    }
    if from < to + bytes as u64 && to < from + bytes as u64 {
        forbid("a copy overlaps itself");
    }
    world.give(stream, line(from, to, bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const c_void, stream: u64) -> c_int {
    let mut world = world();
    // SAFETY: the caller gives such a description.
    let copy = unsafe { &*copy.cast::<Rectangles>() };
    let rows = copy.rows as u64;
    let bytes = |pitch: usize| (rows - 1) * pitch as u64 + copy.width as u64;
    let plain = [copy.from_x, copy.from_y, copy.to_x, copy.to_y] == [0; 4]
        && [copy.from_kind, copy.to_kind] == [OF_DEVICE; 2]
        && copy.width <= copy.from_pitch.min(copy.to_pitch);
    let pitches = copy.from_pitch.max(copy.to_pitch);
    let live = rows > 0
        && pitches <= MOST_PITCH
        && world.memory.is_live(copy.from, bytes(copy.from_pitch))
        && world.memory.is_live(copy.to, bytes(copy.to_pitch));
    if !plain || !live {
        return INVALID_VALUE;
    }
    let work = Work::Copy {
        from: copy.from,
        to: copy.to,
        width: copy.width as u64,
        rows,
        from_pitch: copy.from_pitch as u64,
        to_pitch: copy.to_pitch as u64,
    };
    world.give(stream, work)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(
    to: u64,
    byte: c_uchar,
    bytes: usize,
    stream: u64,
) -> c_int {
    let mut world = world();
    match world.memory.is_live(to, bytes as u64) {
        true => world.give(stream, Work::Fill { to, byte, bytes: bytes as u64 }),
        false => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut u64, code: *const u8) -> c_int {
    let refusal = {
        let mut world = world();
        world.spoil().or_else(|| world.heard())
    };
    if let Some(refusal) = refusal {
        return refusal;
    }
    // SAFETY: the caller gives machine code; whatever else it is has as many bytes.
    match unsafe { kernels::image(code) }.map(kernels::load) {
        Some(Ok(handle)) => {
            let mut world = world();
            if let Err(refusal) = world.make(handle, "a module") {
                return refusal;
            }
            world.modules.insert(handle);
            // SAFETY: the caller gives room for a handle.
            unsafe { *module = handle };
            SUCCESS
        }
        Some(Err(refusal)) => refusal,
        None => INVALID_IMAGE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: u64) -> c_int {
    let mut world = world();
    if !world.is_idle() {
        forbid("a module is unloaded, whose functions work under way may be");
    }
    world.contexts.end(module);
    if world.modules.remove(&module) { SUCCESS } else { INVALID_HANDLE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut Function,
    module: u64,
    symbol: *const c_char,
) -> c_int {
    // SAFETY: the caller gives a name that ends with zero.
    match kernels::function(module, unsafe { CStr::from_ptr(symbol) }) {
        Some(found) => {
            // SAFETY: the caller gives room for a handle.
            unsafe { *function = Box::into_raw(Box::new(found)) };
            SUCCESS
        }
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(
    function: *mut Function,
    _: c_uint,
    value: c_int,
) -> c_int {
    // SAFETY: the handle is one of `cuModuleGetFunction`, and the world's lock is held.
    let _world = world();
    unsafe { (*function).shared = value as u32 };
    if value as u32 > 227 << 10 { INVALID_VALUE } else { SUCCESS }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: *const Function,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: u64,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    let mut world = world();
    world.counts.kernels += 1;
    let shape = ([x, y, z], [bx, by, bz], shared);
    // SAFETY: the handle is one of `cuModuleGetFunction`; the caller gives a value for each
    // parameter.
    let (kernel, module) =
        unsafe { (world.kernel(&*function, shape, parameters), (*function).module) };
    if !world.contexts.are_of_one([module, stream]) {
        return INVALID_HANDLE;
    }
    let symbol = format!("{kernel:?}");
    let comes =
        |launch: &mut Option<Launch>| launch.as_mut().and_then(|own| own.comes(&symbol));
    let (fails, hangs) =
        (comes(&mut world.settings.fail), comes(&mut world.settings.hang));
    let work = match fails.or(hangs) {
        Some(_) => Work::Endless,
        None => Work::Kernel(kernel),
    };
    let given = world.give(stream, work);
    if let Some(calls) = fails {
        // The launch is taken; what comes after it hears of the failure.
        world.health = Health::Failing(calls);
    }
    given
}
