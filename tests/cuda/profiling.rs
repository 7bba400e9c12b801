//! What events between calls do to a profile: on a clock of the stand-ins that charges for them, nothing. A
//! profile is of a GPU where there is one.

use crate::{
    bench::{Bench, counted, has_compiler, program},
    support::document,
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

const ONE_QUEUE: &str = "rule sync, placement accumulate, micro_batches 2, stages 1";
const PIPELINE: &str = "rule cyclic_v2, placement pipeline, micro_batches 4, stages 2";

/// What a profile finds where an event takes the device this many microseconds.
struct Found {
    /// Nanoseconds of calls by their texts.
    calls: BTreeMap<String, u64>,
    /// Seconds of a step, as a plan predicts it by the table.
    step: f64,
    /// Graphs that were launched.
    launched: u64,
}

fn profiled(bench: &Bench, program: &Path, (event, order): (u64, &str)) -> Found {
    let [table, counts] = ["table.yaml", "counts"].map(|name| bench.scratch.path(name));
    let mut profile = bench.command("profile --top 1 --patience 1");
    profile.arg(program).arg("-o").arg(&table).env("STANDIN_CUDA_COUNTS", &counts);
    let clock = format!("event={event}/0");
    profile.env("STANDIN_CUDA_CLOCK", clock).env("STANDIN_CUDA_ORDER", order);
    let told = document(&mut profile, "table");
    let rows = told["calls"].as_array().expect("the schema holds").iter();
    let row =
        |row: &Value| Some((row["call"].as_str()?.to_owned(), row["nanos"].as_u64()?));
    let calls = rows.filter_map(row).filter(|(call, _)| !call.starts_with("feed("));
    Found {
        calls: calls.collect(),
        step: predicted(bench, program),
        launched: counted(&counts, "graph_launches").expect("it is counted"),
    }
}

/// What the best plan takes by the table.
fn predicted(bench: &Bench, program: &Path) -> f64 {
    let text = fs::read_to_string(program).expect("it was written");
    let with = "bandwidth 10 GB/s, measured \"table.yaml\" }";
    let measured = text.replace("bandwidth 10 GB/s }", with);
    let measured = bench.scratch.file("measured.rdl", &measured);
    let plan = document(bench.command("plan --top 1").arg(&measured), "plan");
    plan["plans"][0]["step_time_s"].as_f64().expect("a step takes some time")
}

/// Steps are replayed without events too, as graphs, and by them calls, launches and waits are made to add up
/// to what a run takes; without that, sixty microseconds a call would be a quarter of a step.
#[test]
fn events_between_calls_lengthen_nothing() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("profiling-one");
    let program = program(&bench, "timed", 1, "steps 4", ONE_QUEUE);
    let given = bench.run("--device cuda --graphs never", &program, &[]);
    assert_eq!(given.count("graph_launches"), 0, "there is nothing to try in graphs");
    let least = profiled(&bench, &program, (1, "early"));
    let all = &least.calls;
    assert!(all.values().all(|nanos| *nanos > 98_000), "functions take 100 µs: {all:?}");
    for event in [10, 60] {
        let found = profiled(&bench, &program, (event, "early"));
        assert!(found.launched > 0, "steps are replayed as a run does it");
        assert!(found.calls.keys().eq(all.keys()));
        for (call, nanos) in &found.calls {
            let apart = nanos.abs_diff(all[call]);
            assert!(apart < event * 1_000 / 3, "{call}: {nanos}, not {}", all[call]);
        }
        let ratio = found.step / least.step;
        assert!((ratio - 1.0).abs() < 0.02, "{} s, not {} s", found.step, least.step);
    }
}

/// Whatever the order in which streams do what they are given: moments have passed when they are asked for.
/// Which plan a table ranks first, and so which calls it has, hangs on that order.
#[test]
fn several_streams_are_profiled_without_events_too() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("profiling-several");
    let program = program(&bench, "piped", 2, "steps 4", PIPELINE);
    for order in ["early", "late", "7"] {
        let found = profiled(&bench, &program, (20, order));
        assert!(found.launched > 0, "{order}: steps are replayed as a run does it");
        assert!(!found.calls.is_empty() && found.step > 0.0, "{order}");
    }
}
