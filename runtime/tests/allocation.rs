//! After its first steps a replay allocates nothing, on no thread.
#![expect(unsafe_code, reason = "a counting allocator")]

#[allow(dead_code, reason = "each test file uses its part")]
mod support;

use roundelay_runtime::Timing;
use roundelay_schedule::{Order, Placement, Rule, Sequence, States, Tensor};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use support::{
    models::gpt,
    runs::{compile, machine, plan},
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as for the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn a_replay_allocates_nothing_after_its_first_steps() {
    let program = gpt(2, 12);
    let whole = States::Replicated;
    let kinds = [
        (Rule::Sync, Placement::Accumulate, Order::Sequential, whole),
        (Rule::Sync, Placement::Data, Order::Parallel, States::Zero3),
        (Rule::CyclicV2, Placement::Shared, Order::Cyclic, whole),
        (Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, whole),
    ];
    let rows = Tensor::rows(2, Sequence::Split);
    for (kind, tensor) in kinds.into_iter().flat_map(|k| [(k, Tensor::WHOLE), (k, rows)])
    {
        let plan = plan(&program, kind, (3, 3)).with_tensor(tensor);
        let mut cpu = machine(&compile(&program, &plan), Timing::Natural);
        cpu.replay(8, &mut |_| {}).unwrap();
        let before = ALLOCATIONS.load(SeqCst);
        cpu.replay(20, &mut |_| {}).unwrap();
        assert_eq!(ALLOCATIONS.load(SeqCst) - before, 0, "{plan:?}");
    }
}
