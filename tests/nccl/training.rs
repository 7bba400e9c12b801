//! Every kind of plan on as many processes as it has devices, held to one process bit for bit.

use crate::{
    bench::{Run, has_compiler, program},
    world::World,
};
use std::{fs, path::Path};

/// Kind of plan, devices, and the lines that pin it.
const PLANS: [(&str, u32, &str); 6] = [
    ("shared", 3, "rule cyclic_v2, placement shared, micro_batches 2, stages 2"),
    (
        "workers",
        2,
        "rule cyclic_v2, placement data, micro_batches 2, stages 2, states replicated",
    ),
    (
        "handoff",
        4,
        "rule cyclic_v2, placement data, micro_batches 4, stages 4, states handoff",
    ),
    ("pipeline", 2, "rule sync, placement pipeline, micro_batches 4, stages 2"),
    ("zero3", 4, "rule sync, placement data, micro_batches 4, stages 2, states zero3"),
    (
        "replicas",
        4,
        "rule sync, placement data, micro_batches 4, stages 1, states replicated",
    ),
];

/// A training of all ranks that must end well, as the first one tells it.
pub(crate) fn train(world: &World, words: &str, program: &Path) -> Run {
    let weights = world.bench.scratch.path("ranks.safetensors");
    let _ = fs::remove_file(&weights);
    let counts = world.bench.scratch.path("rank-counts");
    let weights_text = weights.to_str().expect("the path is text");
    let words =
        format!("run --json --device cuda {words} --deadline 60 --save {weights_text}");
    let ended = world.run(&words, Some(program));
    for (rank, own) in ended.iter().enumerate() {
        assert_eq!(own.code, 0, "rank {rank}: {}", own.err);
        assert!(rank == 0 || own.out.is_empty(), "rank 0 alone tells: {}", own.out);
    }
    Run::of(&ended[0], &weights, &counts)
}

fn holds((name, ranks, plan): (&str, u32, &str)) {
    if !has_compiler() {
        return;
    }
    let settings: [[(&str, &str); 2]; 3] = [
        [("STANDIN_CUDA_ORDER", "late"), ("STANDIN_NCCL_SENDS", "met")],
        [("STANDIN_CUDA_ORDER", "5"), ("STANDIN_NCCL_SENDS", "met")],
        [("STANDIN_CUDA_ORDER", "9"), ("STANDIN_NCCL_SENDS", "eager")],
    ];
    let whole = World::new(name, 1);
    let file = program(&whole.bench, name, ranks, "steps 7", plan);
    let one = whole.bench.run("--device cuda --graphs never", &file, &[]);
    for (number, settings) in settings.iter().enumerate() {
        let world = settings.iter().fold(
            World::new(&format!("{name}-{number}"), ranks),
            |world, (own, value)| world.set(own, value),
        );
        let many = train(&world, "", &file);
        assert!(many.is(&one), "{name}, {settings:?}: the bits of one process");
        for figure in ["pools", "transfers", "bytes"] {
            let (own, other) = (&many.end["measured"], &one.end["measured"]);
            assert_eq!(own[figure], other[figure], "{name}: {figure}");
        }
    }
}

#[test]
fn cyclic_stages_that_share_devices() {
    holds(PLANS[0]);
}

#[test]
fn cyclic_workers_with_all_stages() {
    holds(PLANS[1]);
}

#[test]
fn cyclic_workers_that_hand_stages_on() {
    holds(PLANS[2]);
}

#[test]
fn a_pipeline() {
    holds(PLANS[3]);
}

#[test]
fn sharded_states() {
    holds(PLANS[4]);
}

#[test]
fn synchronous_replicas() {
    holds(PLANS[5]);
}
