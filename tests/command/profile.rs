//! `profile` and the tables it writes, as a user meets them.

use crate::support::{Scratch, document, ended, printed, roundelay};
use serde_json::Value;
use std::{fs, path::Path};

/// Of two plans, which are both measured whatever this machine finds faster.
const PROGRAM: &str = r#"
model line {
    input x: real[batch, 8]
    input y: real[batch, 8]
    loss mse(linear(relu(linear(x, 8)), 8), y)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s, measured "table.yaml" }
link bus { measured "table.yaml" }
cluster two { 2 x core joined by bus }
train {
    data synthetic, batch 8, steps 6, seed 3
    optimizer sgd(lr = 0.1)
}
plan {
    rule sync, placement data | accumulate, states replicated, micro_batches 2, stages 1
    replicas 1, tensor { rows 1, columns 1 }
}
"#;

fn measured(scratch: &Scratch) -> std::path::PathBuf {
    let program = scratch.file("line.rdl", PROGRAM);
    let mut profile = roundelay("profile --device cpu --top 2 --patience 1");
    let table = scratch.path("table.yaml");
    let told = document(profile.arg(&program).arg("-o").arg(&table), "table");
    assert_eq!(
        told["rows"].as_u64(),
        told["calls"].as_array().map(|rows| rows.len() as u64)
    );
    program
}

/// What stands under a key of the first plan.
fn first(program: &Path, set: &str) -> Value {
    let mut plan = roundelay("plan --top 1");
    let plan = plan.arg(program).args(["--set", set]);
    document(plan, "plan")["plans"][0].clone()
}

#[test]
fn a_measured_program_is_planned_and_simulated_by_its_table() {
    let scratch = Scratch::new("measured");
    let program = measured(&scratch);
    for placement in ["placement = accumulate", "placement = data"] {
        let plan = first(&program, placement);
        assert_eq!(plan["calls"]["guessed"], 0, "{plan}");
        assert_eq!(plan["calls"]["scaled"], 0, "{plan}");
        assert!(plan["calls"]["measured"].as_u64() > Some(0), "{plan}");
        assert!(plan["lower_bound_s"].as_f64() <= plan["step_time_s"].as_f64());
        let schedule = scratch.path("line.schedule");
        let mut compile = roundelay("compile");
        let compile = compile.arg(&program).args(["--set", placement]);
        printed(compile.arg("-o").arg(&schedule));
        let clocked =
            document(roundelay("simulate --steps 20").arg(&schedule), "simulate");
        assert_eq!(clocked["step_time_s"], plan["step_time_s"]);
    }
    let told = printed(roundelay("plan --explain").arg(&program));
    assert!(told.contains("0 scaled from measured calls"), "{told}");
}

/// Measuring takes long, so a table that cannot be written is refused before.
#[test]
fn a_table_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new("unwritable-table");
    let program = scratch.file("line.rdl", PROGRAM);
    for table in [scratch.path("nowhere/table.yaml"), scratch.path("")] {
        let mut profile = roundelay("profile --device cpu --top 1 --patience 1");
        let found = ended(profile.arg(&program).arg("-o").arg(&table));
        assert_eq!(found.code, 1, "{found:?}");
        assert!(found.err.contains("cannot write `"), "{}", found.err);
        assert!(!found.err.contains(" a step, "), "it measured: {}", found.err);
    }
}

#[test]
fn a_slower_table_gives_slower_plans_and_another_fingerprint() {
    let scratch = Scratch::new("slower");
    let program = measured(&scratch);
    let path = scratch.path("table.yaml");
    let print = || {
        let mut compile = roundelay("compile");
        let compile = compile.arg(&program).arg("-o").arg(scratch.path("a.schedule"));
        document(compile, "check")["fingerprint"].clone()
    };
    let (before, fast) = (print(), first(&program, "placement = accumulate"));
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, text.replace("nanos: ", "nanos: 9")).expect("it can be written");
    let slow = first(&program, "placement = accumulate");
    assert!(slow["step_time_s"].as_f64() > fast["step_time_s"].as_f64());
    assert_ne!(print(), before);
}

#[test]
fn calls_that_were_not_measured_are_counted() {
    let scratch = Scratch::new("scaled");
    let program = measured(&scratch);
    let wider = PROGRAM.replace("batch 8", "batch 32").replace("relu(", "gelu(");
    fs::write(&program, wider).expect("it can be written");
    let plan = first(&program, "placement = accumulate");
    for origin in ["scaled", "guessed"] {
        assert!(plan["calls"][origin].as_u64() > Some(0), "{plan}");
    }
}

#[test]
fn tables_that_do_not_fit_are_refused_with_their_line() {
    let scratch = Scratch::new("tables");
    let program = measured(&scratch);
    let path = scratch.path("table.yaml");
    let text = fs::read_to_string(&path).expect("it was written");
    let refused = |table: &str, words: &[&str]| {
        fs::write(&path, table).expect("it can be written");
        let ended = ended(roundelay("plan").arg(&program));
        assert_eq!(ended.code, 1, "{}", ended.err);
        for word in words {
            assert!(ended.err.contains(word), "no `{word}` in {}", ended.err);
        }
    };
    refused(&text.replace("format: 1", "format: 7"), &["table.yaml:1", "format 7"]);
    refused(
        &text.replace("threads: 1", "threads: 2"),
        &["line.rdl:7", "2 threads", "table.yaml:3"],
    );
    refused(
        &text.replace("dtype: f32", "dtype: f64"),
        &["line.rdl:7", "f64", "table.yaml:4"],
    );
    refused(&text.replace("wake: ", "wake: -"), &["table.yaml:6"]);
    refused(&text[..text.len() / 2], &["table.yaml:"]);
    fs::remove_file(&path).expect("it is there");
    let gone = ended(roundelay("plan").arg(&program));
    assert!(gone.code == 1 && gone.err.contains("cannot read the table"), "{}", gone.err);
    let mut profile = roundelay("profile --device cpu --top 1 --patience 1");
    let uneven = PROGRAM
        .replace("cluster two { 2 x core", "cluster two { 1 x core + 1 x pair")
        .replace("link bus", "device pair { memory 1 GB, compute 20 GFLOP/s, bandwidth 10 GB/s, threads 2 }\nlink bus");
    fs::write(&program, uneven).expect("it can be written");
    let refused = ended(profile.arg(&program).arg("-o").arg(&path));
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("one by one"), "{}", refused.err);
}
