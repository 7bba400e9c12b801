//! `libcuda`: memory.

use crate::{
    forbid,
    memory::GRANULARITY,
    world::{INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, World, world},
};
use std::ffi::{c_int, c_uint, c_void};

/// Memory is only made and freed where nothing is recorded, and freed where nothing is under way.
fn take(bytes: u64) -> Result<u64, c_int> {
    let mut world = world();
    if let Some(refusal) = world.spoil() {
        return Err(refusal);
    }
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if let Some(failure) = world.heard() {
        return Err(failure);
    }
    world.memory.free = world.memory.free.checked_sub(bytes).ok_or(OUT_OF_MEMORY)?;
    Ok(world.number())
}

fn idle(world: &World, what: &str) {
    if !world.is_idle() {
        forbid(&format!("{what}, which work under way may use"));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    let mut world = world();
    if let Some(failure) = world.heard() {
        return failure;
    }
    // SAFETY: the caller gives room for two numbers.
    unsafe {
        *free = world.memory.free as usize;
        *total = world.memory.total as usize;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    _: *const c_void,
    _: c_uint,
) -> c_int {
    // SAFETY: the caller gives room for a number.
    unsafe { *granularity = GRANULARITY as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    start: *mut u64,
    bytes: usize,
    _: usize,
    _: u64,
    _: u64,
) -> c_int {
    let mut world = world();
    if !world.settings.maps || !(bytes as u64).is_multiple_of(GRANULARITY) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives room for an address.
    unsafe { *start = world.memory.reserve(bytes as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(start: u64, _: usize) -> c_int {
    if world().memory.release(start) { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    _: *const c_void,
    _: u64,
) -> c_int {
    if !(bytes as u64).is_multiple_of(GRANULARITY) {
        return INVALID_VALUE;
    }
    match take(bytes as u64) {
        Ok(number) => {
            world().memory.physical.insert(number, bytes as u64);
            // SAFETY: the caller gives room for a handle.
            unsafe { *handle = number };
            SUCCESS
        }
        Err(refusal) => refusal,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> c_int {
    let mut world = world();
    match world.memory.physical.remove(&handle) {
        Some(bytes) => {
            world.memory.free += bytes;
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(
    start: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    _: u64,
) -> c_int {
    let world = world();
    let whole = world.memory.physical.get(&handle) == Some(&(bytes as u64));
    match whole && offset == 0 && world.memory.is_reserved(start, bytes as u64) {
        true => SUCCESS,
        false => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(
    start: u64,
    bytes: usize,
    _: *const c_void,
    _: usize,
) -> c_int {
    let mut world = world();
    if !world.memory.is_reserved(start, bytes as u64) {
        return INVALID_VALUE;
    }
    if let Err(refusal) = world.make(start, "memory") {
        return refusal;
    }
    world.memory.open(start, bytes as u64);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(start: u64, _: usize) -> c_int {
    let mut world = world();
    idle(&world, "memory is unmapped");
    world.contexts.end(start);
    world.memory.close(start).map_or(INVALID_VALUE, |_| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(start: *mut u64, bytes: usize) -> c_int {
    if let Err(refusal) = take(bytes as u64) {
        return refusal;
    }
    let mut world = world();
    let own = world.memory.reserve(bytes as u64);
    if let Err(refusal) = world.make(own, "memory") {
        return refusal;
    }
    world.memory.open(own, bytes as u64);
    // SAFETY: the caller gives room for an address.
    unsafe { *start = own };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(start: u64) -> c_int {
    let mut world = world();
    idle(&world, "memory is freed");
    let Some(bytes) = world.memory.close(start) else { return INVALID_VALUE };
    world.memory.free += bytes;
    world.memory.release(start);
    world.contexts.end(start);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(
    start: *mut *mut c_void,
    bytes: usize,
    _: c_uint,
) -> c_int {
    let mut world = world();
    if let Some(refusal) = world.spoil() {
        return refusal;
    }
    let own = world.memory.pin(bytes);
    if let Err(refusal) = world.make(own, "pinned memory") {
        world.memory.unpin(own);
        return refusal;
    }
    // SAFETY: the caller gives room for an address.
    unsafe { *start = own as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(start: *mut c_void) -> c_int {
    let mut world = world();
    idle(&world, "pinned memory is freed");
    world.contexts.end(start as u64);
    if world.memory.unpin(start as u64) { SUCCESS } else { INVALID_VALUE }
}
