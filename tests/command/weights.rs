//! Weights and metrics on the command line: what a run saves is what `evaluate` and the next run
//! start from, and what does not fit is said in full.

use crate::support::{Scratch, document, ended, lines, printed, roundelay};
use serde_json::Value;
use std::{fs, path::PathBuf, process::Command};

const PROGRAM: &str = r#"
model classifier {
    input x: real[batch, 8]
    input targets: i32[batch]
    hidden = relu(linear(x, 16))
    logits = linear(hidden, 4)
    loss cross_entropy(logits, targets)
    metric accuracy(logits, targets)
    metric perplexity(logits, targets)
    early = accuracy(hidden, targets)
    metric early
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train {
    data synthetic, batch 16, steps 6, seed 3
    optimizer sgd(lr = 0.2)
    evaluate { every 3 }
}
plan { rule sync, placement pipeline, micro_batches 2, stages 2 }
"#;

/// A scratch folder with the compiled program, so that every start is quick.
fn compiled(name: &str) -> (Scratch, PathBuf) {
    let scratch = Scratch::new(name);
    let program = scratch.file("classifier.rdl", PROGRAM);
    let schedule = scratch.path("classifier.schedule");
    printed(roundelay("compile").arg(program).arg("-o").arg(&schedule));
    (scratch, schedule)
}

fn evaluations(text: &str) -> Vec<Value> {
    let evaluates = |line: &Value| line["event"] == "evaluate";
    lines(text).into_iter().filter(evaluates).collect()
}

/// Overwrites numbers of the first array of a file of f32.
fn spoiled(path: &PathBuf, numbers: &[f32]) -> String {
    let mut bytes = fs::read(path).expect("it was written");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let header: Value =
        serde_json::from_slice(&bytes[8..8 + length as usize]).expect("a JSON header");
    let arrays = header.as_object().expect("arrays by name").iter();
    let first = arrays.filter(|(name, _)| *name != "__metadata__");
    let (name, _) = first
        .min_by_key(|(_, array)| array["data_offsets"][0].as_u64())
        .expect("there are arrays");
    for (number, place) in numbers.iter().zip((8 + length as usize..).step_by(4)) {
        bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    fs::write(path, bytes).expect("the scratch folder can be written");
    name.clone()
}

#[test]
fn weights_that_are_no_numbers_are_told_when_they_are_read() {
    let (scratch, schedule) = compiled("not-finite");
    let saved = scratch.path("kept.safetensors");
    printed(roundelay("run --device cpu --steps 1 --save").arg(&saved).arg(&schedule));
    let start = |words: &str| {
        let mut command = roundelay(words);
        ended(command.arg(&saved).arg(&schedule))
    };
    let all = [
        "run --device cpu --weights",
        "run --device cpu --json --weights",
        "evaluate --weights",
        "evaluate --json --weights",
    ];
    for words in all {
        let whole = start(words);
        assert!(
            whole.code == 0 && !whole.err.contains("NaN or infinity"),
            "{}",
            whole.err
        );
    }
    let name = spoiled(&saved, &[f32::NAN, 1.0, f32::NEG_INFINITY]);
    for words in all {
        let told = start(words).err;
        assert_eq!(told.matches("NaN or infinity").count(), 1, "{told}");
        assert!(told.contains(": 2 of ") && told.contains(&name), "{told}");
    }
}

#[test]
fn what_a_run_saves_is_what_the_next_one_starts_from() {
    let (scratch, schedule) = compiled("weights");
    let saved = scratch.path("kept.safetensors");
    let first = printed(roundelay("run --json --save").arg(&saved).arg(&schedule));
    let last = evaluations(&first).pop().expect("it evaluates at the end");
    let evaluate = || roundelay("evaluate --weights");
    let found = document(evaluate().arg(&saved).arg(&schedule), "evaluate");
    assert_eq!((&found["loss"], &found["metrics"]), (&last["loss"], &last["metrics"]));
    assert_eq!(found["step"], Value::Null);
    let said = printed(evaluate().arg(&saved).arg(&schedule));
    assert!(said.contains("kept.safetensors: held-out loss"), "{said}");
    assert!(said.contains(", accuracy ") && said.contains(", perplexity "), "{said}");

    let again = || roundelay("run --json --steps 3 --weights");
    let next = scratch.path("next.safetensors");
    let second = printed(again().arg(&saved).arg("--save").arg(&next).arg(&schedule));
    let mut begun = lines(&second).into_iter().filter(|line| line["event"] == "begin");
    let begun = begun.next().expect("it begins");
    assert_eq!(begun["resumed"], "starts from the weights of a file");
    let loss = |text: &str, event: &str| -> f64 {
        let of = |line: &Value| line["event"] == event;
        let line = lines(text).into_iter().find(of).expect("there is one");
        line["loss"].as_f64().expect("a loss is a number")
    };
    assert!(loss(&second, "step") < loss(&first, "step"));
    let other = document(evaluate().arg(&next).arg(&schedule), "evaluate");
    let third = evaluations(&second).pop().expect("it evaluates at the end");
    assert_eq!(other["loss"], third["loss"]);
    assert_ne!(other["loss"], found["loss"]);
}

#[test]
fn metrics_are_measured_wherever_the_loss_is() {
    let (scratch, schedule) = compiled("metrics");
    let kept = scratch.path("kept");
    let run = roundelay("run --json --checkpoint").arg(&kept).arg(&schedule).output();
    let text = String::from_utf8(run.expect("the binary starts").stdout).expect("UTF-8");
    let told = evaluations(&text);
    assert_eq!(told.len(), 2);
    for event in &told {
        let metric = |name: &str| event["metrics"][name].as_f64().expect("a number");
        let loss = event["loss"].as_f64().expect("a loss is a number");
        assert!((metric("perplexity") - loss.exp()).abs() < 1e-12);
        assert!((0.0..=1.0).contains(&metric("accuracy")));
        assert!((0.0..=1.0).contains(&metric("early")));
        assert_eq!(event["metrics"].as_object().map(|all| all.len()), Some(3));
    }
    let found = document(
        roundelay("evaluate --checkpoint").arg(&kept).arg(&schedule),
        "evaluate",
    );
    assert_eq!(found["metrics"], told[1]["metrics"]);
    let said = printed(roundelay("run").arg(&schedule));
    let line = said.lines().find(|line| line.starts_with("step 6: "));
    let line = line.unwrap_or_else(|| panic!("nothing is said of step 6: {said}"));
    for word in ["held-out loss ", ", accuracy ", ", early ", ", perplexity "] {
        assert!(line.contains(word), "{line}");
    }
}

/// A command that must end with this exit code and say all of this.
fn refused(command: &mut Command, code: i32, words: &[&str]) {
    let ended = ended(command);
    assert_eq!(ended.code, code, "{command:?}: {}{}", ended.out, ended.err);
    for word in words {
        assert!(ended.err.contains(word), "`{word}` is not in: {}", ended.err);
    }
    assert!(!ended.out.contains("\"step\""), "it trained: {}", ended.out);
}

#[test]
fn weights_that_do_not_fit_are_refused_in_full() {
    let (scratch, schedule) = compiled("weights-refused");
    let saved = scratch.path("kept.safetensors");
    printed(roundelay("run --steps 1 --save").arg(&saved).arg(&schedule));
    let other =
        PROGRAM.replace("hidden", "hiden").replace("linear(hiden, 4)", "other(hiden)");
    let other =
        other.replace("model", "block other(x) { y = linear(x, 4), return y }\nmodel");
    let other = scratch.file("other.rdl", &other);
    let words = [
        "does not fit the model",
        "`logits.weight` is not a parameter of the model",
        "`logits.y.weight` is missing; nearest is `logits.weight`",
        "`logits.y.bias` is missing",
    ];
    refused(roundelay("run --json --weights").arg(&saved).arg(&other), 1, &words);
    refused(roundelay("evaluate --weights").arg(&saved).arg(&other), 1, &words);

    let bytes = fs::read(&saved).expect("it was saved");
    let cut = scratch.path("cut.safetensors");
    fs::write(&cut, &bytes[..bytes.len() - 1]).expect("the folder can be written");
    let run = || roundelay("run --json --weights");
    refused(run().arg(&cut).arg(&schedule), 1, &["is not a whole safetensors file"]);
    let nowhere = scratch.path("nowhere/kept.safetensors");
    refused(run().arg(&nowhere).arg(&schedule), 1, &["cannot read"]);
    let save = || roundelay("run --json --save");
    refused(save().arg(&nowhere).arg(&schedule), 1, &["cannot write", "nowhere"]);
}

/// How a run with `--json` says that it begins, and its first loss.
fn begun(text: &str) -> (Value, Option<Value>) {
    let of = |event: &str| lines(text).into_iter().find(|line| line["event"] == event);
    let begin = of("begin").expect("it begins");
    (begin["resumed"].clone(), of("step").map(|step| step["loss"].clone()))
}

/// Who goes on from a folder need not know what the run in it began with.
#[test]
fn a_run_from_weights_that_was_stopped_at_once_goes_on_from_them() {
    let (scratch, schedule) = compiled("weights-stopped");
    let [kept, other, saved] = ["kept", "other", "w"].map(|name| scratch.path(name));
    printed(roundelay("run --device cpu --save").arg(&saved).arg(&schedule));
    let run = |words: &str, folder: &PathBuf| {
        let mut run = roundelay(&format!("run --device cpu --json {words} --checkpoint"));
        run.arg(folder).arg(&schedule);
        run
    };
    let weights = "starts from the weights of a file";
    let expected = begun(&printed(run("", &other).arg("--weights").arg(&saved)));
    assert_eq!(expected.0, weights);
    let none = begun(&printed(run("--steps 0", &kept).arg("--weights").arg(&saved)));
    assert_eq!(none, (weights.into(), None));
    let gone_on = begun(&printed(&mut run("--resume", &kept)));
    assert_eq!(gone_on, ("goes on exactly".into(), expected.1.clone()));

    // A job that is started again and again says the same every time.
    let again = scratch.path("again");
    let job = |steps: u32| {
        let words = format!("--resume --steps {steps} --checkpoint-every 1");
        begun(&printed(run(&words, &again).arg("--weights").arg(&saved)))
    };
    assert_eq!(job(1), expected);
    assert_eq!(job(2).0, "goes on exactly");
}

#[test]
fn evaluate_looks_at_one_of_two() {
    let (scratch, schedule) = compiled("weights-usage");
    let [kept, saved] = ["kept", "kept.safetensors"].map(|name| scratch.path(name));
    refused(roundelay("evaluate").arg(&schedule), 2, &["--checkpoint", "--weights"]);
    let mut both = roundelay("evaluate --checkpoint");
    refused(
        both.arg(&kept).arg("--weights").arg(&saved).arg(&schedule),
        2,
        &["--weights"],
    );
}

/// A command whose files have at most so many blocks.
fn limited(blocks: u32, words: &str) -> Command {
    let command = roundelay(words);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

/// The system would end the process by a signal there, which says nothing.
#[test]
fn a_file_that_may_not_become_so_large_is_an_error_with_words() {
    let (scratch, schedule) = compiled("weights-limit");
    let saved = scratch.path("kept.safetensors");
    let mut run = limited(0, "run --device cpu --save");
    refused(run.arg(&saved).arg(&schedule), 3, &["cannot write", "kept.safetensors"]);
    assert!(!saved.exists());
}

/// The first checkpoint of a run from weights, before its first step.
#[test]
fn a_first_checkpoint_that_has_no_room_is_a_failure_of_the_run() {
    let (scratch, schedule) = compiled("weights-room");
    let saved = scratch.path("start.safetensors");
    printed(roundelay("run --device cpu --save").arg(&saved).arg(&schedule));
    let mut run = limited(0, "run --device cpu --weights");
    run.arg(&saved).arg("--checkpoint").arg(scratch.path("kept")).arg(&schedule);
    let words = ["cannot write", "kept", "any earlier checkpoint is whole"];
    refused(&mut run, 3, &words);
}

/// What was written of a checkpoint is removed where the rest has no room.
#[test]
fn a_checkpoint_that_has_no_room_leaves_nothing_behind() {
    let (scratch, schedule) = compiled("checkpoint-room");
    let folder = scratch.path("kept");
    let mut run = limited(2, "run --device cpu --checkpoint");
    let words = ["cannot write", "step-", "any earlier checkpoint is whole"];
    refused(run.arg(&folder).arg(&schedule), 3, &words);
    let left = fs::read_dir(folder).expect("it was made").flatten();
    assert_eq!(left.map(|own| own.file_name()).collect::<Vec<_>>(), [".held"]);
}

const MASKED: &str = r#"
model masked {
    input tokens: i32[batch, 8]
    input targets: i32[batch, 8]
    logits = linear(embedding(tokens, 5, 8), 4)
    loss cross_entropy(logits, targets, masked = true)
    metric perplexity(logits, targets, masked = true)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train { data tokens("masked.bin", u8), batch 8, steps 2, seed 3, optimizer sgd(lr = 0.2) }
plan { rule sync, placement accumulate }
"#;

/// Most rows have no target, and a micro-batch of one row mostly has none.
#[test]
fn a_masked_loss_on_held_out_data_is_a_mean_over_targets_whatever_the_micro_batches() {
    let scratch = Scratch::new("masked");
    let program = scratch.file("masked.rdl", MASKED);
    let token = |k: usize| if k % 23 == 5 { (k % 4) as u8 } else { 4 };
    let tokens: Vec<u8> = (0..6000).map(token).collect();
    fs::write(scratch.path("masked.bin"), tokens).expect("it can be written");
    let weights = scratch.path("w.safetensors");
    printed(roundelay("run --save").arg(&weights).arg(&program));
    let evaluated = |more: &str| {
        let mut command = roundelay(&format!("evaluate {more} --weights"));
        document(command.arg(&weights).arg(&program), "evaluate")
    };
    let loss = |found: &Value| found["loss"].as_f64().expect("there are targets");
    let whole = evaluated("--set micro_batches=1");
    for n in [2, 4, 8] {
        let own = evaluated(&format!("--set micro_batches={n}"));
        let apart = (loss(&own) - loss(&whole)).abs();
        assert!(apart < 1e-5 * loss(&whole), "{n}: {own} {whole}");
    }
    let rows = "--set tensor.rows=2 --set micro_batches=8";
    assert!(
        (loss(&evaluated(rows)) - loss(&whole)).abs() < 1e-5,
        "the classes are split"
    );
    let (head, tail) = MASKED.split_once("    logits").expect("it has logits");
    let (_, tail) = tail.split_once("\n}").expect("the model ends");
    let loss_of_x = "    loss linear_cross_entropy(embedding(tokens, 5, 8), targets, 4, masked = true)";
    let fused = format!("{head}{loss_of_x}\n}}{tail}");
    let fused = scratch.file("fused.rdl", &fused);
    let saved = scratch.path("fused.safetensors");
    printed(roundelay("run --save").arg(&saved).arg(&fused));
    let fused = |n: u32| {
        let mut command =
            roundelay(&format!("evaluate --set micro_batches={n} --weights"));
        loss(&document(command.arg(&saved).arg(&fused), "evaluate"))
    };
    assert!((fused(8) - fused(1)).abs() < 1e-5, "logits are made by the loss");
    let perplexity = whole["metrics"]["perplexity"].as_f64().expect("it is a number");
    assert!((perplexity.ln() - loss(&whole)).abs() < 1e-9, "{whole}");
    assert_eq!((&whole["examples"], &whole["held_out"]), (&64.into(), &66.into()));
    let fewer = evaluated("--examples 9");
    assert_eq!(fewer["examples"], 8, "whole batches");
    let said = printed(roundelay("evaluate --weights").arg(&weights).arg(&program));
    assert!(said.contains(" over 64 of 66 held-out examples"), "{said}");

    fs::write(scratch.path("masked.bin"), vec![4; 6000]).expect("it can be written");
    assert_eq!(evaluated("")["loss"], Value::Null, "no target, no mean");
}

/// What is measured then is older than what whoever asks believes.
#[test]
fn a_damaged_checkpoint_is_told_wherever_another_takes_its_place() {
    let (scratch, schedule) = compiled("evaluate-damaged");
    let kept = scratch.path("kept");
    let run = "run --checkpoint-every 3 --checkpoint";
    printed(roundelay(run).arg(&kept).arg(&schedule));
    let newest = kept.join("step-000000000006.safetensors");
    let bytes = fs::read(&newest).expect("it was written");
    fs::write(&newest, &bytes[..bytes.len() / 2]).expect("it can be written");
    for words in ["evaluate --checkpoint", "evaluate --json --checkpoint"] {
        let found = ended(roundelay(words).arg(&kept).arg(&schedule));
        assert_eq!(found.code, 0, "{}", found.err);
        assert!(found.out.contains("step 3") || found.out.contains("\"step\": 3"));
        for word in ["warning: ", "000006.safetensors` is not a whole checkpoint"] {
            assert!(found.err.contains(word), "`{word}` is not in: {}", found.err);
        }
    }
}

/// All steps are done then, and nothing else has what was learned.
#[test]
fn weights_are_saved_where_the_last_checkpoint_cannot_be() {
    let (scratch, schedule) = compiled("save-unkept");
    let [whole, saved] = ["whole", "saved"].map(|name| scratch.path(name));
    printed(roundelay("run --device cpu --save").arg(&whole).arg(&schedule));
    let kept = scratch.path("kept");
    let run = || {
        let mut run = roundelay("run --device cpu --checkpoint-every 4 --checkpoint");
        run.arg(&kept).arg(&schedule).arg("--save").arg(&saved);
        run
    };
    let way = |step: u32| {
        let _ = fs::remove_dir_all(&kept);
        let name = format!("kept/step-{step:012}.safetensors/inside");
        scratch.file(&name, "a folder stands in the way");
        format!("cannot write `{}", kept.display())
    };
    refused(&mut run(), 3, &[&way(4)]);
    assert!(!saved.exists(), "the training is not done");
    refused(&mut run(), 3, &[&way(6)]);
    let read = |path: &PathBuf| fs::read(path).expect("it was written");
    assert!(read(&saved) == read(&whole));
}
