//! Slices of sequences from the command line: planned, written, proven, trained, and refused by name
//! where there are none.

use crate::support::{Scratch, document, ended, printed, roundelay};
use std::path::Path;

const PROGRAM: &str = r#"
model tiny {
    input tokens:  i32[batch, 12]
    input targets: i32[batch, 12]
    x = embedding(tokens, 24, 16) + positions(12, 16)
    repeat 2 as layer {
        x = x + attention(layer_norm(x), 2, causal = true)
        x = x + linear(gelu(linear(layer_norm(x), 32)), 16)
    }
    loss cross_entropy(linear(layer_norm(x), 24), targets)
}
device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
link bus { bandwidth 1 GB/s, latency 1 us }
cluster two { 2 x core joined by bus }
train { data synthetic, batch 4, optimizer sgd(lr = 0.1), steps 3, seed 1 }
plan { rule sync, placement pipeline, stages 2, replicas 1, micro_batches 2 }
"#;

/// The best plan with some lines more.
fn best(program: &Path, set: &[&str]) -> serde_json::Value {
    let mut command = roundelay("plan --top 1");
    command.arg(program).args(set.iter().flat_map(|line| ["--set", line]));
    document(&mut command, "plan")["plans"][0].clone()
}

fn refused(program: &Path, set: &[&str], word: &str) {
    let mut command = roundelay("plan --top 1");
    command.arg(program).args(set.iter().flat_map(|line| ["--set", line]));
    let ended = ended(&mut command);
    assert_ne!(ended.code, 0, "{set:?}: {}", ended.out);
    assert!(ended.err.contains(word), "{set:?}: no `{word}` in {}", ended.err);
}

#[test]
fn slices_are_searched_where_a_program_names_them() {
    let scratch = Scratch::new("slices-plan");
    let program = scratch.file("tiny.rdl", PROGRAM);
    assert_eq!(best(&program, &[])["slices"], 1);
    let pinned = best(&program, &["slices=4"]);
    assert_eq!(pinned["slices"], 4);
    assert!(["seq1f1b", "terapipe"].iter().any(|order| pinned["order"] == *order));
    let open = best(&program, &["order=seq1f1b"]);
    assert!(open["slices"].as_u64().is_some_and(|slices| slices > 1), "{open}");
    let listed = best(&program, &["slices = 1 | 3", "order = 1f1b | seq1f1b"]);
    let expected = if listed["order"] == "1f1b" { 1 } else { 3 };
    assert_eq!(listed["slices"], expected, "{listed}");
}

#[test]
fn what_has_no_slices_is_refused_by_name() {
    let scratch = Scratch::new("slices-refused");
    let program = scratch.file("tiny.rdl", PROGRAM);
    for (set, word) in [
        (&["slices=5"][..], "5 slices do not divide its sequence of 12"),
        (&["slices=2", "order=1f1b"], "seq1f1b and terapipe"),
        (&["slices=1", "order=seq1f1b"], "takes slices of sequences"),
        (&["slices=2", "states=zero1"], "states replicated"),
        (&["slices=2", "placement=accumulate"], "seq1f1b and terapipe"),
    ] {
        refused(&program, set, word);
    }
    let open = PROGRAM.replace(", causal = true", "");
    let open = scratch.file("open.rdl", &open);
    refused(&open, &["slices=2"], "no causal attention");
}

/// Written, read, proven, shown and run, from a schedule and from a plan file.
#[test]
fn a_schedule_of_slices_trains() {
    let scratch = Scratch::new("slices-run");
    let program = scratch.file("tiny.rdl", PROGRAM);
    let (schedule, plan) = (scratch.path("tiny.schedule"), scratch.path("plan.yaml"));
    printed(
        roundelay("plan --set slices=3 --set order=seq1f1b -o").arg(&plan).arg(&program),
    );
    let text = std::fs::read_to_string(&plan).expect("a plan was written");
    assert!(text.contains("slices: 3") && text.contains("order: seq1f1b"), "{text}");
    printed(
        roundelay("compile --plan").arg(&plan).arg(&program).arg("-o").arg(&schedule),
    );
    printed(roundelay("check").arg(&schedule));
    printed(roundelay("show").arg(&schedule));
    let run = printed(roundelay("run --device cpu").arg(&schedule));
    assert!(run.contains("loss"), "{run}");
}

/// A line of the first micro-batch: what stands before its work, the work, and its waits.
fn parted(line: &str) -> [String; 3] {
    let (head, rest) = line.split_once("lag 0").expect("a line has a lag");
    let (work, waits) = rest.split_once("  after").unwrap_or((rest, ""));
    let waits = if waits.is_empty() { String::new() } else { format!("  after{waits}") };
    [format!("{head}lag 0"), work.to_owned(), waits]
}

/// A hand that takes two slices back in the wrong order is stopped, with the place and the reason.
#[test]
fn a_schedule_whose_slices_are_in_a_wrong_order_is_refused() {
    let scratch = Scratch::new("slices-wrong");
    let program = scratch.file("tiny.rdl", PROGRAM);
    let schedule = scratch.path("tiny.schedule");
    let set = "compile --set slices=3 --set order=seq1f1b -o";
    printed(roundelay(set).arg(&schedule).arg(&program));
    let text = std::fs::read_to_string(&schedule).expect("a schedule was written");
    for [one, other, expected] in [
        ["B s5 i0", "B s4 i0", "expected gradient("],
        ["F s3 i0", "F s4 i0", "expected value("],
    ] {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let places = [one, other].map(|task| {
            let stands = |line: &String| line.contains(&format!(" {task} "));
            lines.iter().position(stands).expect("every pass has a line")
        });
        let [first, second] = places.map(|place| parted(&lines[place]));
        lines[places[0]] = [&*first[0], &second[1], &first[2]].concat();
        lines[places[1]] = [&*second[0], &first[1], &second[2]].concat();
        let wrong = scratch.file("wrong.schedule", &(lines.join("\n") + "\n"));
        let ended = ended(roundelay("check --seal").arg(&wrong));
        assert_eq!(ended.code, 1, "{one}: {}", ended.out);
        assert!(ended.err.contains(expected), "{one}: {}", ended.err);
        assert!(ended.err.contains("wrong.schedule:"), "{one}: {}", ended.err);
    }
}
