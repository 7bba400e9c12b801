//! Routines that are edited by hand: a schedule with them holds, and nothing that it trains is taken for
//! what the model trains.

use crate::support::{Scratch, compiled, document, lines, printed, refused, roundelay};
use std::{fs, path::Path};

const PROGRAM: &str = r#"
model line {
    input x: real[batch, 4]
    loss mse(linear(layer_norm(linear(x, 8), epsilon = 1e-3), 4), x)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
cluster one { 1 x core }
train { data synthetic, batch 8, steps 8, seed 3, optimizer sgd(lr = 0.1) }
"#;

const WARNING: &str = "the routines of this schedule, or the units that they train in, are not those that \
                       were compiled";

/// What is said when an edit of a schedule file is sealed.
fn edited(file: &Path, edit: impl Fn(&str) -> String) -> String {
    let text = fs::read_to_string(file).expect("it was written");
    let changed = edit(&text);
    assert_ne!(changed, text);
    fs::write(file, changed).expect("it can be written");
    refused(roundelay("check --seal").arg(file), 0, &[]).err
}

/// The epsilon of every norm, which no rule of the checker knows.
fn another_epsilon(text: &str) -> String {
    let mut parts = text.split("epsilon: ");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |before, part| {
        let rest = part.trim_start_matches(|c: char| !matches!(c, ',' | '}'));
        before + "epsilon: 0.5" + rest
    })
}

#[test]
fn edited_routines_are_told_and_do_not_go_on_exactly() {
    let scratch = Scratch::new("recoded");
    let program = scratch.file("line.rdl", PROGRAM);
    let file = compiled(&scratch, &program, "line.schedule");
    let run = |words: &str| {
        let mut run = roundelay("run --device cpu --json");
        let run = run.args(words.split_whitespace()).arg(&file);
        let all = lines(&printed(run.arg("--checkpoint").arg(scratch.path("kept"))));
        all[0]["resumed"].as_str().expect("it says so first").to_owned()
    };
    run("--steps 2");

    // What says how long they take changes nothing that they compute.
    let slower = edited(&file, |text| text.replacen("predicted: ", "predicted: 1", 1));
    assert!(!slower.contains("warning"), "{slower}");
    assert_eq!(run("--resume --steps 4"), "goes on exactly");

    let told = edited(&file, another_epsilon);
    assert!(told.contains(WARNING), "{told}");
    let facts = document(roundelay("check").arg(&file), "check");
    assert_eq!(facts["warnings"][0]["message"], WARNING);
    let resumed = run("--resume --steps 6");
    assert!(resumed.contains("computes something else"), "{resumed}");
    assert_eq!(run("--resume --steps 8"), "goes on exactly");
}

/// Nothing else says that the routines of units are not those of a whole model.
#[test]
fn units_that_are_called_a_whole_are_told() {
    let scratch = Scratch::new("recoded-units");
    let text = PROGRAM.replace(
        "loss mse(linear(layer_norm(linear(x, 8), epsilon = 1e-3), 4), x)",
        "h = linear(x, 8)
    repeat 2 as layer { h = relu(linear(h, 8)) }
    loss mse(linear(h, 4), x)",
    );
    let plan = "plan { exactness local, rule local(units = 2), placement accumulate }";
    let program = scratch.file("line.rdl", &format!("{text}{plan}"));
    let file = compiled(&scratch, &program, "line.schedule");
    let whole = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("  boundaries: "));
        let lines: Vec<&str> = lines.collect();
        lines.join("\n").replacen("rule: \"local(units = 2)\"", "rule: sync", 1) + "\n"
    };
    let told = edited(&file, whole);
    assert!(told.contains(WARNING), "{told}");
}
