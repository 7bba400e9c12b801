//! No kernel allocates once it is prepared.
#![allow(unsafe_code, reason = "an allocator counts what passes through it")]

mod common;

use common::{
    Array, Body, CONTEXT, run_at,
    sample::{Draw, contents, large, sample},
};
use roundelay_kernels::{Context, Kernel, NAMES};
use roundelay_schedule::Call;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn assert_no_allocation(call: &Call, threads: usize, draw: &mut Draw) {
    let mut arrays = contents::<f32>(call, draw);
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    let context = Context { threads, ..CONTEXT };
    kernel.prepare::<f32>(threads);
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for _ in 0..3 {
        run_at::<f32>(&kernel, &pointers, Body::Fast, &context);
    }
    let after = ALLOCATIONS.load(Ordering::SeqCst);
    assert_eq!(before, after, "{} with {threads} threads", call.kernel);
}

#[test]
fn a_prepared_kernel_allocates_nothing() {
    // Threads that help are counted, so the test harness must be done with starting this one.
    thread::sleep(Duration::from_millis(200));
    for (place, name) in NAMES.iter().enumerate() {
        for threads in [1, 2, 3] {
            let draw = &mut Draw::new(place as u64);
            assert_no_allocation(&sample(name, draw), threads, draw);
            assert_no_allocation(&large(name, draw), threads, draw);
        }
    }
}
