//! No feed allocates: examples are written while a schedule is replayed.

use roundelay_runtime::{Dataset, Feed};
use roundelay_schedule::{
    Augmentation, Data, Element, Evaluation, Float, Input, Job, Method, Optimizer,
    Origin, Rate, Table,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    env, fs, process,
};

struct Counting;

thread_local! {
    /// Of this thread: the test harness allocates on its own while a test runs.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator counts what passes through it")]
// SAFETY: every request is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

fn input(name: &str, element: Element, shape: &[u64]) -> Input {
    Input {
        name: name.into(),
        element,
        shape: shape.to_vec(),
        bound: 256,
        origin: Origin::Data,
    }
}

fn job(data: Data, inputs: Vec<Input>) -> Job {
    Job {
        model: "none".into(),
        data,
        batch: 4,
        seed: 7,
        steps: 1,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Sgd { momentum: 0.0, nesterov: false },
            rate: Rate::Constant(0.1),
            weight_decay: 0.0,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
        inputs: inputs.into_iter().collect(),
        metrics: Vec::new(),
        parameters: Vec::new(),
        elements: Table::new(),
    }
}

fn allocations(feed: &mut impl Feed, job: &Job) -> usize {
    let mut bytes = [0; 4 * 4 * 3 * 32 * 32];
    let before = ALLOCATIONS.get();
    for t in 0..10 {
        for (id, input) in job.inputs.iter() {
            let length = 4 * input.shape.iter().product::<u64>() as usize;
            feed.fill(id, t, 0, &mut bytes[..length]);
        }
    }
    ALLOCATIONS.get() - before
}

/// CIFAR-10 with one black image per file, in a folder of its own.
fn cifar() -> Data {
    let folder = env::temp_dir().join(format!("roundelay-feed-{}", process::id()));
    fs::create_dir_all(&folder).expect("temporary files can be written");
    let training = (1..=5).map(|k| format!("data_batch_{k}.bin"));
    for file in training.chain(["test_batch.bin".to_owned()]) {
        fs::write(folder.join(file), [0; 3073]).expect("the folder is there");
    }
    let (root, folder) = (String::new(), folder.display().to_string());
    Data::Cifar10 { root, folder, augment: Augmentation::Shift }
}

#[test]
fn no_source_allocates_while_it_feeds() {
    let root = env!("CARGO_MANIFEST_DIR").to_string();
    let text = Data::Text { root, globs: vec!["src/**/*.rs".into()] };
    let tokens =
        ["tokens", "targets"].map(|name| input(name, Element::I32, &[4, 8])).to_vec();
    let features = vec![
        input("x", Element::Real, &[4, 8]),
        input("token", Element::I32, &[4, 3]),
        input("targets", Element::I32, &[4]),
    ];
    let images = vec![
        input("images", Element::Real, &[4, 32, 32, 3]),
        input("targets", Element::I32, &[4]),
    ];
    let shapes = Data::Shapes { classes: 10, size: 32, seed: 1 };
    let jobs = [
        job(shapes, images.clone()),
        job(cifar(), images),
        job(
            Data::Tokens {
                root: env!("CARGO_MANIFEST_DIR").into(),
                file: "src/data.rs".into(),
                width: roundelay_schedule::TokenWidth::U8,
            },
            tokens.clone(),
        ),
        job(text, tokens.clone()),
        job(Data::Synthetic, tokens),
        job(Data::Synthetic, features),
    ];
    for job in jobs {
        let mut training = Dataset::open(&job, None).unwrap();
        let mut held_out = training.held_out(8).unwrap();
        assert_eq!(allocations(&mut training, &job), 0, "{:?}", job.data);
        assert_eq!(allocations(&mut held_out, &job), 0, "{:?}", job.data);
        if let Data::Cifar10 { folder, .. } = &job.data {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
