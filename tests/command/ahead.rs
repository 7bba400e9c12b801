//! What no plan has a say in is told before the search for one.

use crate::support::{Scratch, compiled, lines, printed, refused, roundelay};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A model of letters with this data, in the plan block these lines.
fn letters(scratch: &Scratch, data: &str, plan: &str) -> PathBuf {
    let text = format!(
        "model letters {{\n input tokens: i32[batch, 8]\n input targets: i32[batch, 8]\n \
         loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)\n}}\n\
         device core {{ memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }}\n\
         cluster one {{ 1 x core }}\n\
         train {{ data {data}, batch 8, steps 2, optimizer sgd(lr = 0.1), evaluate {{ every 1 }} }}\n\
         plan {{ {plan} }}\n"
    );
    scratch.file("letters.rdl", &text)
}

/// As [`letters`], of pictures.
fn pictures(scratch: &Scratch, plan: &str) -> PathBuf {
    let program = letters(scratch, "images(\"pictures\")", plan);
    let text = fs::read_to_string(&program).expect("it was written");
    let rest = &text[text.find("device core").expect("it has one")..];
    let model = "model pictures {\n input images: real[batch, 8, 8, 3]\n \
                 input targets: i32[batch]\n \
                 loss cross_entropy(linear(reshape(images, [batch, 192]), 10), targets)\n}\n";
    scratch.file("pictures.rdl", &format!("{model}{rest}"))
}

/// No plan has so many stages: whoever searches for one says that.
const NO_PLAN: &str = "stages 99";

/// A file of weights that has one array of one number.
fn weights(scratch: &Scratch, name: &str) -> PathBuf {
    let header = r#"{"other":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let length = String::from_utf8((header.len() as u64).to_le_bytes().to_vec());
    let length = length.expect("a small number is text");
    scratch.file(name, &format!("{length}{header}\0\0\0\0"))
}

/// A command of a program for which there is no plan is refused for another reason.
fn told_first(command: &mut Command, program: &Path, words: &[&str]) {
    let told = refused(command.arg(program), 1, words);
    assert!(!told.err.contains("no plan fits"), "it searched: {}", told.err);
}

/// The command for which this is there plans, and finds no plan.
fn goes_on(command: &mut Command, program: &Path) {
    refused(command.arg(program), 1, &["no plan fits"]);
}

#[test]
fn data_that_cannot_be_used_is_told_before_the_search() {
    let scratch = Scratch::new("ahead-data");
    let [out, kept] = ["examples", "kept"].map(|name| scratch.path(name));
    scratch.file("kept/step-000000000002.safetensors", "anything");
    let commands = [
        ("run", None),
        ("evaluate --checkpoint", Some(&kept)),
        ("data --steps 1 -o", Some(&out)),
    ];
    let all = commands.map(|(words, path)| {
        move || {
            let mut command = roundelay(words);
            command.args(path);
            command
        }
    });
    scratch.file("short.bin", "short");
    scratch.file("pictures/cat/1.png", "no picture");
    for (data, words) in [
        ("text(\"*.none\")", "no file matches `*.none`"),
        ("tokens(\"none.bin\", u8)", "cannot read"),
        ("tokens(\"short.bin\", u8)", "5 tokens"),
    ] {
        let program = letters(&scratch, data, NO_PLAN);
        all.iter().for_each(|command| told_first(&mut command(), &program, &[words]));
    }
    let program = pictures(&scratch, NO_PLAN);
    all.iter().for_each(|command| told_first(&mut command(), &program, &["1.png"]));
    // A tenth of it is no window.
    scratch.file("letters.txt", &"letters".repeat(10));
    let program = letters(&scratch, "text(\"*.txt\")", NO_PLAN);
    for command in &all[..2] {
        told_first(&mut command(), &program, &["held-out"]);
    }
    goes_on(&mut all[2](), &program);
}

#[test]
fn weights_and_checkpoints_that_cannot_be_used_are_told_before_the_search() {
    let scratch = Scratch::new("ahead-weights");
    let program = letters(&scratch, "synthetic", NO_PLAN);
    let other = weights(&scratch, "other.safetensors");
    let file = scratch.file("full/step-000000000002.safetensors", "anything");
    let (full, empty) = (scratch.path("full"), scratch.path("empty"));
    fs::create_dir(&empty).expect("the scratch folder can be written");
    let (missing, under) = (scratch.path("missing"), file.join("under"));
    for (words, path, says) in [
        ("run --weights", &missing, "cannot read"),
        ("run --weights", &other, "does not fit the model"),
        ("run --checkpoint", &file, "is not a folder"),
        ("run --checkpoint", &under, "cannot write"),
        ("run --checkpoint", &full, "holds checkpoints, up to step 2"),
        ("run --resume --checkpoint", &file, "is not a folder"),
        ("evaluate --weights", &missing, "cannot read"),
        ("evaluate --weights", &other, "does not fit the model"),
        ("evaluate --checkpoint", &missing, "there is no folder"),
        ("evaluate --checkpoint", &empty, "holds no whole checkpoint"),
    ] {
        told_first(roundelay(words).arg(path), &program, &[says]);
    }
    for words in ["run --checkpoint", "run --resume --checkpoint"] {
        goes_on(roundelay(words).arg(&missing), &program);
        assert!(!missing.exists(), "a run that does not begin leaves no folder");
    }
    // Where a folder is there, nothing is written to it, and where parents are missing, none is made.
    for folder in [&empty, &missing.join("deep")] {
        goes_on(roundelay("run --checkpoint").arg(folder), &program);
    }
    assert_eq!(fs::read_dir(&empty).expect("it is there").count(), 0);
    assert!(!missing.exists());
    // What a run goes on from is read when it does.
    goes_on(roundelay("run --resume --checkpoint").arg(&full), &program);
}

/// A plan under a local rule may add heads, which may begin fresh; all else is known.
#[test]
fn weights_are_looked_at_although_a_plan_may_add_heads() {
    let scratch = Scratch::new("ahead-heads");
    let [own, missing] = ["own.safetensors", "missing"].map(|name| scratch.path(name));
    let trained = letters(&scratch, "synthetic", "rule sync, placement accumulate");
    printed(roundelay("run --device cpu --steps 1 --save").arg(&own).arg(&trained));
    let program = letters(&scratch, "synthetic", "exactness local, stages 99");
    for (file, fresh, says) in [
        (&missing, "unit0.head", "cannot read"),
        (&own, "nonsense", "`nonsense`"),
        (&own, "unit.head", "`unit.head`"),
    ] {
        let mut command = roundelay("run --weights");
        told_first(command.arg(file).args(["--fresh", fresh]), &program, &[says]);
    }
    for fresh in ["unit0", "unit0.head", "unit0.head.linear", "linear"] {
        let mut command = roundelay("run --weights");
        goes_on(command.arg(&own).args(["--fresh", fresh]), &program);
    }
}

#[test]
fn a_type_that_does_not_compute_is_told_before_the_search() {
    let scratch = Scratch::new("ahead-type");
    let program = letters(&scratch, "text(\"*.none\")", NO_PLAN);
    let half = "seed 1, dtype bf16, batch 8";
    let text = fs::read_to_string(&program).expect("it was written");
    let program =
        scratch.file("half.rdl", &text.replace("batch 8,", &format!("{half},")));
    for command in ["run --device cpu", "evaluate --device cpu --weights none"] {
        let told = refused(roundelay(command).arg(&program), 3, &["bf16"]);
        assert!(!told.err.contains("no plan fits"), "it searched: {}", told.err);
    }
}

/// What was opened for the whole batch is fed in micro-batches of the plan.
#[test]
fn a_program_sees_the_examples_of_its_schedule() {
    let scratch = Scratch::new("ahead-examples");
    scratch.file("letters.txt", &"all the voices sing a roundelay. ".repeat(40));
    let plan = "rule sync, placement accumulate, micro_batches 4";
    let program = letters(&scratch, "text(\"*.txt\")", plan);
    let schedule = compiled(&scratch, &program, "letters.schedule");
    let losses = |file: &Path| -> Vec<Value> {
        let told = printed(roundelay("run --device cpu --json").arg(file));
        let told = lines(&told).into_iter().filter(|line| line["event"] != "plan");
        told.filter_map(|line| line.get("loss").cloned()).collect()
    };
    let found = losses(&program);
    assert!(found.len() >= 4, "steps and looks at held-out data: {found:?}");
    assert_eq!(found, losses(&schedule));
}
