//! Every kind of plan, held to the CPU machine: captured as graphs, whole periods or single launches, given
//! action by action, twice.

use crate::bench::{Bench, Run, arenas, clipping, has_compiler, program};
use std::path::PathBuf;

/// Kind of plan, devices, and the lines that pin it.
const PLANS: [(&str, u32, &str); 6] = [
    ("shared", 4, "rule cyclic_v2, placement shared, micro_batches 2, stages 2"),
    (
        "data",
        4,
        "rule cyclic_v2, placement data, micro_batches 4, stages 2, states replicated",
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

/// Whether devices and slots are back where they were within the run: then graphs are launched
/// again, else each period is recorded for itself.
#[derive(Clone, Copy)]
pub(crate) enum Recurrence {
    Soon,
    Late,
}

/// How far a loss in 32 bits may be from the CPU's, relatively: sums run in another order, and
/// seven steps of AdamW carry that on.
const TOLERANCE: f64 = 2e-3;

fn near(cuda: &Run, cpu: &Run, what: &str) {
    assert_eq!(cuda.losses.len(), cpu.losses.len(), "{what}");
    for (step, (own, other)) in cuda.losses.iter().zip(&cpu.losses).enumerate() {
        let apart = (own - other).abs() / other.abs();
        assert!(apart < TOLERANCE, "{what}, step {step}: {own} against {other}");
    }
}

fn holds((name, devices, plan): (&str, u32, &str), recurrence: Recurrence) {
    let written = |bench: &Bench| program(bench, name, devices, "steps 7", plan);
    let Some(run) = holds_for(name, recurrence, written) else { return };
    let [periods, launches] = ["graphs", "launch_graphs"].map(|of| &run.end["gpus"][of]);
    assert_eq!(*periods, 0, "{name}: launches alone are recorded");
    let [recorded, launched] = ["graphs", "graph_launches"].map(|what| run.count(what));
    assert_eq!(*launches, recorded, "{name}: all that is recorded is kept");
    // Of split tensors, calls of a launch find what other rows bring.
    match plan.contains("tensor") {
        true => assert_eq!(recorded, 0, "{name}"),
        false => assert!(launched > recorded && recorded > 0, "{name}: {recorded}"),
    }
}

/// Holds a program to the CPU machine; the run in which launches are recorded, if there is a compiler.
pub(crate) fn holds_for(
    name: &str,
    recurrence: Recurrence,
    written: impl Fn(&Bench) -> PathBuf,
) -> Option<Run> {
    if !has_compiler() {
        return None;
    }
    let bench = Bench::new(name);
    let program = written(&bench);
    let cpu = bench.run("--device cpu", &program, &[]);
    let late = [("STANDIN_CUDA_ORDER", "late")];
    let graphed = bench.run("--device cuda", &program, &late);
    near(&graphed, &cpu, name);
    let [graphs, launches] = ["graphs", "graph_launches"].map(|what| graphed.count(what));
    match recurrence {
        Recurrence::Soon => assert!(launches > graphs && graphs > 0, "{name}: {graphs}"),
        Recurrence::Late => assert!(launches == graphs && graphs > 0, "{name}: {graphs}"),
    }
    assert!(graphed.count("products") > 0, "{name}: the library multiplies");
    assert_eq!(graphed.count("queues"), 32, "{name}: streams wait for themselves alone");
    let ungraphed = bench.run("--device cuda --graphs never", &program, &late);
    assert_eq!(ungraphed.count("graphs"), 0, "{name}");
    assert!(ungraphed.is(&graphed), "{name}: graphs change no bit");
    let ordered = |seed, words| {
        let run = bench.run(words, &program, &[("STANDIN_CUDA_ORDER", seed)]);
        assert!(run.is(&graphed), "{name}: order {seed}, {words}");
        run
    };
    ordered("1", "--device cuda");
    let launches = ordered("2", "--device cuda --graphs launches");
    figures(&graphed, &cpu, name);
    Some(launches)
}

/// Arenas are as large as was planned, to the byte, and as much is moved as on the CPU.
fn figures(cuda: &Run, cpu: &Run, name: &str) {
    let (predicted, measured) = (&cuda.end["predicted"], &cuda.end["measured"]);
    assert_eq!(arenas(measured), arenas(predicted), "{name}: arenas");
    for count in ["transfers", "bytes"] {
        assert_eq!(measured[count], cpu.end["measured"][count], "{name}: {count}");
    }
    let peaks = [measured, &cpu.end["measured"]].map(|figures| {
        let pools = figures["pools"].as_object().expect("pools are an object");
        pools
            .values()
            .filter_map(|pool| pool["activation_peak_bytes"].as_u64())
            .sum::<u64>()
    });
    assert_eq!(peaks[0], peaks[1], "{name}: activations that were really touched");
}

#[test]
fn cyclic_stages_that_share_devices() {
    holds(PLANS[0], Recurrence::Soon);
}

#[test]
fn cyclic_workers_with_all_stages() {
    holds(PLANS[1], Recurrence::Soon);
}

#[test]
fn cyclic_workers_that_hand_stages_on() {
    holds(PLANS[2], Recurrence::Soon);
}

#[test]
fn a_pipeline() {
    holds(PLANS[3], Recurrence::Late);
}

#[test]
fn sharded_states() {
    holds(PLANS[4], Recurrence::Soon);
}

/// Stages of a pipeline, some on one device: what they find of a norm goes from one to another.
#[test]
fn stages_that_clip() {
    let plan = "rule sync, placement pipeline, order interleaved, chunks 2, micro_batches 4, \
                stages 4, replicas 1";
    let written =
        |bench: &Bench| clipping(program(bench, "clipping-stages", 2, "steps 7", plan));
    holds_for("clipping-stages", Recurrence::Late, written);
}

/// Rows of shards: what parts of tensors and what shards find of a norm is added up.
#[test]
fn sharded_rows_that_clip() {
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 2, \
                states zero2, tensor { rows 2 }";
    let written =
        |bench: &Bench| clipping(program(bench, "clipping", 4, "steps 7", plan));
    holds_for("clipping", Recurrence::Soon, written);
}

#[test]
fn synchronous_replicas() {
    holds(PLANS[5], Recurrence::Soon);
}

#[test]
fn rows_of_split_tensors() {
    let plan = "rule sync, placement pipeline, order 1f1b, stages 2, micro_batches 2, \
                tensor { rows 2 }, sequence split";
    holds(("rows", 4, plan), Recurrence::Late);
}

#[test]
fn slices_of_sequences() {
    let plan = "rule sync, placement pipeline, order seq1f1b, slices 4, stages 2, \
                micro_batches 2, replicas 1";
    holds(("slices", 2, plan), Recurrence::Late);
}
