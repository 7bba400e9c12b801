//! Every kind of plan on as many processes as it has devices, held to one process bit for bit.

use crate::{
    bench::{Bench, ENOUGH, clipping, has_compiler, program, wide_program},
    support::lines,
    world::World,
};
use std::{fs, path::PathBuf};

/// Kind of plan, devices, and the lines that pin it.
const PLANS: [(&str, u32, &str); 10] = [
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
    (
        "rows",
        4,
        "rule sync, placement pipeline, order 1f1b, micro_batches 2, stages 2, tensor { rows 2 }",
    ),
    (
        "tokens",
        4,
        "rule cyclic_v2, placement data, micro_batches 2, stages 2, tensor { rows 2 }, sequence split",
    ),
    (
        "grid",
        4,
        "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, tensor { rows 2, columns 2 }",
    ),
    (
        "depth",
        4,
        "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 2, states zero3, tensor { rows 2 }",
    ),
];

/// All ranks write what their stand-ins counted.
pub(crate) fn counting(world: World, ranks: u32) -> World {
    (0..ranks).fold(world, |world, rank| {
        let counts = world.bench.scratch.path(&format!("rank-counts-{rank}"));
        world.on(rank, "STANDIN_CUDA_COUNTS", &counts.display().to_string())
    })
}

/// What the stand-ins of a rank counted in its last training.
pub(crate) fn counted(world: &World, rank: u32, what: &str) -> u64 {
    let counts = world.bench.scratch.path(&format!("rank-counts-{rank}"));
    let text = fs::read_to_string(counts).expect("every rank counts");
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find_map(|(name, count)| (name == what).then_some(count));
    found.and_then(|count| count.parse().ok()).expect("a number")
}

/// Bytes of all messages that were given to NCCL.
fn sent(world: &World, ranks: u32) -> u64 {
    (0..ranks).map(|rank| counted(world, rank, "sent")).sum()
}

/// Orders of work, and when messages are read.
pub(crate) const ORDERS: [[(&str, &str); 2]; 3] = [
    [("STANDIN_CUDA_ORDER", "late"), ("STANDIN_NCCL_SENDS", "met")],
    [("STANDIN_CUDA_ORDER", "5"), ("STANDIN_NCCL_SENDS", "met")],
    [("STANDIN_CUDA_ORDER", "9"), ("STANDIN_NCCL_SENDS", "eager")],
];

/// Whether a plan splits no tensor, so that launches are a rank's own from end to end.
fn is_whole(name: &str) -> bool {
    PLANS.iter().any(|(own, _, plan)| *own == name && !plan.contains("tensor"))
}

/// Ranks have the bits of one process on a program in all these orders; returns the bytes of a
/// step's messages, as they were given to NCCL and as they are counted.
pub(crate) fn compare(
    (name, ranks): (&str, u32),
    orders: &[[(&str, &str); 2]],
    written: impl Fn(&Bench) -> PathBuf,
) -> Vec<(u64, u64)> {
    let whole = World::new(name, 1);
    let file = written(&whole.bench);
    let one = whole.bench.run("--device cuda", &file, &[]);
    let trained = orders.iter().enumerate().map(|(number, settings)| {
        let world = settings.iter().fold(
            World::new(&format!("{name}-{number}"), ranks),
            |world, (own, value)| world.set(own, value),
        );
        let world = counting(world, ranks);
        let many = world.train("--device cuda", &file);
        assert!(many.is(&one), "{name}, {settings:?}: the bits of one process");
        assert!(many.count("exchanges") > 0, "{name}: ranks speak through NCCL");
        assert!(many.count("grouped") > 0, "{name}: some messages go together");
        let recorded = many.end["gpus"]["launch_graphs"].as_u64();
        assert!(recorded > Some(0) || !is_whole(name), "{name}: launches are graphs");
        let measured = &many.end["measured"];
        for figure in ["pools", "transfers", "bytes"] {
            assert_eq!(measured[figure], one.end["measured"][figure], "{name}: {figure}");
        }
        let [steps, bytes] = [&many.end["steps"], &measured["bytes"]]
            .map(|figure| figure.as_u64().expect("it is a number"));
        (sent(&world, ranks) / steps, bytes)
    });
    trained.collect()
}

/// Messages are as long as is counted.
fn holds((name, ranks, plan): (&str, u32, &str)) {
    holds_for(name, ranks, |bench| program(bench, name, ranks, "steps 7", plan));
}

fn holds_for(name: &str, ranks: u32, written: impl Fn(&Bench) -> PathBuf) {
    if !has_compiler() {
        return;
    }
    for (given, counted) in compare((name, ranks), &ORDERS, written) {
        assert_eq!(given, counted, "{name}");
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

/// Inputs that every rank sends to its device ahead of their feeds.
#[test]
fn large_inputs() {
    let plan = "rule cyclic_v2, placement data, stages 2, states replicated";
    holds_for("large-inputs", 2, |bench| wide_program(bench, ENOUGH, 5, plan));
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

#[test]
fn rows_of_split_tensors_in_a_pipeline() {
    holds(PLANS[6]);
}

#[test]
fn rows_that_split_tokens() {
    holds(PLANS[7]);
}

#[test]
fn a_grid_of_rows_and_columns() {
    holds(PLANS[8]);
}

#[test]
fn rows_beside_sharded_states() {
    holds(PLANS[9]);
}

/// What parts of tensors and what shards find of a norm is added up across ranks: single numbers,
/// of which most ranks own none.
#[test]
fn sharded_rows_that_clip() {
    if !has_compiler() {
        return;
    }
    let (name, ranks, plan) = PLANS[9];
    let written = |bench: &Bench| clipping(program(bench, name, ranks, "steps 7", plan));
    for (given, counted) in compare(("clipping", ranks), &ORDERS[..1], written) {
        assert_eq!(given, counted);
    }
}

/// Stages of a pipeline whose replicas have shards: one number goes from rank to rank, and back.
#[test]
fn stages_of_shards_that_clip() {
    if !has_compiler() {
        return;
    }
    let plan = "rule sync, placement pipeline, order 1f1b, micro_batches 2, stages 2, \
                replicas 2, states zero1";
    let written =
        |bench: &Bench| clipping(program(bench, "clipping-stages", 4, "steps 7", plan));
    for (given, counted) in compare(("clipping-stages", 4), &ORDERS[..2], written) {
        assert_eq!(given, counted);
    }
}

/// Three parts, whose shares are not of one length.
const THIRDS: &str = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                      tensor { rows 3 }";

/// Shares of sums of 512 numbers among three parts.
#[test]
fn shares_that_are_not_of_one_length() {
    if !has_compiler() {
        return;
    }
    let thirds = |bench: &Bench| program(bench, "thirds", 3, "steps 4", THIRDS);
    for (given, counted) in compare(("thirds", 3), &ORDERS[..1], thirds) {
        let parts = 3;
        assert!(given <= counted, "what is counted is rounded up");
        assert!(counted - given < 4 * parts, "{given} bytes for {counted}");
    }
}

/// The adjoint of what two maps read is a sum that is added to something: parts get all of it, so
/// that it is rounded once, and send more than is counted.
#[test]
fn sums_that_are_added_in_16_bits() {
    if !has_compiler() {
        return;
    }
    let map = "linear(gelu(linear(x, 3 * width)), width)";
    let one = "linear(gelu(linear(layer_norm(x), 2 * width)), width)";
    let added = |bench: &Bench| {
        let file = program(bench, "added", 3, "steps 4, dtype bf16", THIRDS);
        let text = fs::read_to_string(&file).expect("the program is text");
        let text = text.replace(one, &format!("{map} + {map}"));
        fs::write(&file, text).expect("the program is ours");
        file
    };
    for (given, counted) in compare(("added", 3), &ORDERS[..1], added) {
        assert!(given > counted, "{given} bytes for {counted}");
    }
}

#[test]
fn split_tensors_of_16_bits() {
    if !has_compiler() {
        return;
    }
    for (name, ranks, plan) in [PLANS[6], PLANS[7], PLANS[8]] {
        let name = &*format!("{name}-bf16");
        let written =
            |bench: &Bench| program(bench, name, ranks, "steps 4, dtype bf16", plan);
        for (given, counted) in compare((name, ranks), &ORDERS[..1], written) {
            assert_eq!(given, counted, "{name}");
        }
    }
}

#[test]
fn ranks_of_a_plan_behind_the_first_device() {
    if !has_compiler() {
        return;
    }
    let plan = "rule sync, placement pipeline, micro_batches 4, stages 2, devices 2, \
                first_device 1";
    let whole = World::new("behind", 1);
    let file = program(&whole.bench, "tiny", 3, "steps 3", plan);
    let one = whole.bench.run("--device cuda", &file, &[]);
    let world = World::new("behind-ranks", 2);
    assert!(world.train("--device cuda", &file).is(&one));
    let told = world.run("run --device cuda --deadline 60", Some(&file));
    let note = "begins at device 1 of its cluster: rank 0 has `core.1`";
    assert!(told[0].err.contains(note), "{}", told[0].err);
}

#[test]
fn numbers_of_16_bits() {
    if !has_compiler() {
        return;
    }
    let plan =
        "rule cyclic_v2, placement data, micro_batches 2, stages 2, states replicated";
    let whole = World::new("bf16", 1);
    let file = program(&whole.bench, "tiny", 2, "steps 5, dtype bf16", plan);
    let one = whole.bench.run("--device cuda", &file, &[]);
    let world = World::new("bf16-ranks", 2).set("STANDIN_CUDA_ORDER", "late");
    assert!(world.train("--device cuda", &file).is(&one));
}

#[test]
fn checkpoints_of_ranks_go_on_as_one_process_and_back() {
    if !has_compiler() {
        return;
    }
    let world = World::new("resumed", 3).set("STANDIN_CUDA_ORDER", "late");
    let plan = "rule cyclic_v2, placement shared, micro_batches 2, stages 2";
    let steps = "steps 6, evaluate { every 3 }";
    let file = program(&world.bench, "tiny", 3, steps, plan);
    let one = World::new("resumed-one", 1);
    let whole = one.bench.run("--device cuda", &file, &[]);
    let folder = world.bench.scratch.path("kept");
    let kept = format!("--checkpoint {} --checkpoint-every 2", folder.display());
    let words = format!("run --json --device cuda --deadline 60 {kept}");
    let first = world.run(&format!("{words} --steps 3"), Some(&file));
    assert!(first.iter().all(|own| own.code == 0), "{first:?}");
    let looks = lines(&first[0].out).into_iter();
    let looks: Vec<_> = looks.filter(|line| line["event"] == "evaluate").collect();
    assert_eq!(looks, whole.looks[..1], "rank 0 looks at what one process looks at");
    let second = world.train(&format!("--device cuda {kept} --resume --steps 5"), &file);
    assert_eq!(second.losses, whole.losses[3..5]);
    let last = one.bench.run(&format!("--device cuda {kept} --resume"), &file, &[]);
    assert_eq!(last.losses, whole.losses[5..]);
    assert!(last.bytes == whole.bytes, "ranks and one process go on from each other");
}
