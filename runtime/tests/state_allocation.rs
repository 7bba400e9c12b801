//! A state is held once on its way: beside it there is one array of a parameter at a time where it goes to
//! arenas or comes from them, with a part of it where it is split, and nothing where it is written. What is
//! read goes to arenas without being held, and so does what goes from them to a file.
#![expect(unsafe_code, reason = "a counting allocator")]

#[allow(dead_code, reason = "each test file uses its part")]
mod support;

use roundelay_dsl::Program;
use roundelay_runtime::{
    AnyMachine, Checkpoints, Dataset, Latest, Provenance, State, Timing,
};
use roundelay_schedule::{Order, Placement, Rule, Sequence, States, Tensor};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    env, fs, process,
};
use support::{
    models,
    runs::{compile, machine, plan, saved},
};

struct Counting;

thread_local! {
    /// Bytes that this thread has, and the most that it had.
    static LIVE: Cell<[i64; 2]> = const { Cell::new([0; 2]) };
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let [live, most] = LIVE.get();
        let live = live + layout.size() as i64;
        LIVE.set([live, most.max(live)]);
        // SAFETY: as for the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let [live, most] = LIVE.get();
        LIVE.set([live - layout.size() as i64, most]);
        // SAFETY: as for the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that a work has beside those that were there before, and what it makes.
fn most<T>(work: impl FnOnce() -> T) -> (i64, T) {
    let [before, _] = LIVE.get();
    LIVE.set([before; 2]);
    let made = work();
    let [_, most] = LIVE.get();
    (most - before, made)
}

/// Two wide layers, so that names and lists are little beside numbers.
fn wide() -> Program {
    models::program(&format!(
        "model wide {{
            input x: real[batch, 256]
            input y: real[batch, 256]
            h = linear(relu(linear(x, 512)), 256)
            loss mse(h, y)
        }}
        {}",
        models::job(12)
    ))
}

fn bytes(state: &State) -> i64 {
    let arrays =
        state.tensors.values().flat_map(|t| t.versions.iter().chain(&t.optimizer));
    arrays.map(|array| array.len() as i64).sum()
}

/// Names and lists.
const LITTLE: i64 = 40_000;

#[test]
fn a_state_is_held_once_on_its_way() {
    let program = wide();
    let kinds = [
        (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated),
        (Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, States::Replicated),
    ];
    let rows = Tensor::rows(2, Sequence::Whole);
    for (kind, tensor) in kinds.into_iter().flat_map(|k| [(k, Tensor::WHOLE), (k, rows)])
    {
        let plan = plan(&program, kind, (2, 2)).with_tensor(tensor);
        let schedule = compile(&program, &plan);
        let mut cpu = machine(&schedule, Timing::Natural);
        cpu.replay(4, &mut |_| {}).unwrap();
        let size = schedule.job.dtype.wide_size() as i64;
        let parameters = schedule.job.parameters.iter();
        let array =
            parameters.map(|own| own.whole_elements() as i64 * size).max().unwrap();

        let part = array / i64::from(schedule.tensor_parts());

        let (taken, state) = most(|| saved(&mut cpu));
        let whole = bytes(&state);
        assert!(taken <= whole + part + LITTLE, "{plan:?} saves in {taken}");
        let (taken, ()) = most(|| cpu.load(&state).unwrap());
        assert!(taken <= array + LITTLE, "{plan:?} loads in {taken}");

        let folder = env::temp_dir().join(format!("roundelay-held-{}", process::id()));
        let provenance =
            Provenance::new(&schedule, &Dataset::open(&schedule.job, None).unwrap());
        let checkpoints = Checkpoints::open(&folder, provenance).unwrap();
        let (taken, _) = most(|| checkpoints.save(&state).unwrap());
        assert!(taken <= LITTLE, "{plan:?} writes in {taken}");
        let mut any = AnyMachine::from(cpu);
        let (taken, ()) = most(|| drop(any.checkpoint(Some(&checkpoints)).unwrap()));
        assert!(taken <= array + part + LITTLE, "{plan:?} writes its own in {taken}");
        let (taken, found) = most(|| Latest::of(&folder).unwrap());
        assert!(taken <= array + LITTLE, "{plan:?} opens in {taken}");
        let found = found.checkpoint.unwrap().state;
        assert_eq!(found.clone().held().unwrap(), state);
        let (taken, ()) = most(|| any.load(&found).unwrap());
        assert!(taken <= 2 * array + LITTLE, "{plan:?} loads what it reads in {taken}");
        fs::remove_dir_all(folder).unwrap();
    }
}
