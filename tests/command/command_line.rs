//! The commands as a user meets them: exit codes, documents, and what is said about mistakes.

use crate::support::{
    PROGRAM, Scratch, compiled, diagnostics, document, lines, printed, refused,
    roundelay, schema,
};
use roundelay::Nanos;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

const READER: &str = r#"
model reader {
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
cluster one { 1 x core }
train {
    data text("texts/*.txt"), batch 4, steps 3, seed 3
    optimizer sgd(lr = 0.1)
    evaluate { every 3 }
}
plan { rule sync, placement accumulate, micro_batches 1, stages 1 }
"#;

/// Lines of one kind.
fn of_kind<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn usage_mistakes_end_with_2() {
    let scratch = Scratch::new("usage");
    let program = scratch.file("line.rdl", PROGRAM);
    refused(&mut roundelay(""), 2, &["Usage"]);
    refused(&mut roundelay("trian"), 2, &["trian"]);
    refused(roundelay("plan --tpo 3").arg(&program), 2, &["--tpo"]);
    refused(roundelay("plan --top 0").arg(&program), 2, &["--top", "of at least 1"]);
    refused(roundelay("run --resume").arg(&program), 2, &["--checkpoint"]);
    refused(roundelay("run --device tpu").arg(&program), 2, &["cuda"]);
    for idle in [
        "run --device cpu --graphs never",
        "evaluate --device cpu --deadline 3 --weights never",
    ] {
        refused(roundelay(idle).arg(&program), 2, &["is for GPUs"]);
    }
    let every = "run --checkpoint-every 0 --checkpoint never";
    refused(roundelay(every).arg(&program), 2, &["checkpoint-every"]);
    let schedule = compiled(&scratch, &program, "line.schedule");
    for command in ["show --steps 100000000", "simulate --steps 18446744073709551615"] {
        refused(roundelay(command).arg(&schedule), 1, &["too long a timeline: at most"]);
    }
    for command in ["run", "evaluate --checkpoint never"] {
        let mut command = roundelay(command);
        refused(command.arg(&schedule).args(["--set", "rule=sync"]), 2, &["`--set`"]);
    }
    assert_eq!(diagnostics(roundelay("run --set rule=sync").arg(&schedule), 2).len(), 1);
    for (command, words) in [
        ("plan --tpo 3", "unexpected argument '--tpo' found"),
        ("compile", "arguments were not provided: --output <FILE.SCHEDULE>"),
        ("run --device tpu", "invalid value 'tpu' for '--device"),
    ] {
        let told = diagnostics(roundelay(command).arg(&program), 2);
        let message = told[0]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn plan_prints_every_decision_and_cost() {
    let scratch = Scratch::new("plan");
    let program = scratch.file("line.rdl", PROGRAM);
    let found = document(roundelay("plan --top 3").arg(&program), "plan");
    assert_eq!(found["plans"].as_array().map(Vec::len), Some(3));
    assert_eq!(found["space"]["rule"]["number"], 2);
    let first = &found["plans"][0];
    let one = document(
        roundelay("plan --top 1").arg(&program).args(["--set", "placement = pipeline"]),
        "plan",
    );
    assert_eq!(one["plans"][0]["placement"], "pipeline");
    assert!(first["step_time_s"].as_f64() <= one["plans"][0]["step_time_s"].as_f64());
    let table = printed(roundelay("plan --explain").arg(&program));
    assert!(table.starts_with("rank"), "{table}");
}

#[test]
fn run_prints_a_line_for_every_event() {
    let scratch = Scratch::new("run");
    let program = scratch.file("line.rdl", PROGRAM);
    let lines = lines(&printed(roundelay("run --json --device cpu").arg(&program)));
    let events: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    let step = ["step"; 3];
    let expected =
        [&["plan", "begin"][..], &step, &["evaluate"], &step, &["evaluate", "end"]];
    assert_eq!(events, expected.concat());
    let mut plan = lines[0].clone();
    plan.as_object_mut().expect("a line is an object").remove("event");
    schema::hold("plan", &plan);
    let steps: Vec<u64> =
        of_kind(&lines, "step").iter().filter_map(|line| line["step"].as_u64()).collect();
    assert_eq!(steps, [0, 1, 2, 3, 4, 5]);
    let end = &lines[lines.len() - 1];
    assert_eq!(end["steps"], 6);
    assert_eq!(end["predicted"]["pools"], end["measured"]["pools"]);
    assert_eq!(end["predicted"]["bytes"], end["measured"]["bytes"]);
}

/// Arrays of a few numbers do not fill the lines of memory that they lie in.
#[test]
fn what_is_measured_is_what_was_predicted_whatever_the_widths() {
    let scratch = Scratch::new("widths");
    let odd = PROGRAM.replace("real[batch, 8]", "real[batch, 9]").replace(
        "linear(relu(linear(x, 8)), 8)",
        "linear(relu(linear(layer_norm(x), 7)), 9)",
    );
    let program = scratch.file("line.rdl", &odd);
    for placement in ["accumulate", "pipeline", "data"] {
        let mut run = roundelay("run --json --device cpu --set");
        let run = run.arg(format!("placement = {placement}")).arg(&program);
        let lines = lines(&printed(run.args(["--set", "exactness = reordered"])));
        let end = &lines[lines.len() - 1];
        assert_eq!(end["predicted"]["pools"], end["measured"]["pools"], "{placement}");
    }
}

#[test]
fn a_run_stops_where_it_is_told() {
    let scratch = Scratch::new("steps");
    let program = scratch.file("line.rdl", PROGRAM);
    let whole = lines(&printed(roundelay("run --json").arg(&program)));
    let part = lines(&printed(roundelay("run --json --steps 2").arg(&program)));
    let losses = |lines: &[Value]| -> Vec<Value> {
        of_kind(lines, "step").iter().map(|line| line["loss"].clone()).collect()
    };
    assert_eq!(losses(&part), losses(&whole)[..2]);
}

#[test]
fn documents_keep_their_schemas() {
    let scratch = Scratch::new("documents");
    let program = scratch.file("line.rdl", PROGRAM);
    let (schedule, kept) = (scratch.path("line.schedule"), scratch.path("kept"));
    let compiled =
        document(roundelay("compile").arg(&program).arg("-o").arg(&schedule), "check");
    let checked = document(roundelay("check").arg(&schedule), "check");
    assert_eq!(compiled, checked);
    let clocked = document(roundelay("simulate --steps 20").arg(&schedule), "simulate");
    let planned = document(roundelay("plan --top 1").arg(&program), "plan");
    assert_eq!(clocked["step_time_s"], planned["plans"][0]["step_time_s"]);
    let usual = document(roundelay("simulate").arg(&schedule), "simulate");
    assert!(
        usual["steps"].as_u64() > Some(8),
        "one more than leaves the end out: {usual}"
    );
    for cost in ["step_time_s", "bubble"] {
        assert_eq!(usual[cost], planned["plans"][0][cost], "{cost}");
    }
    let trained = printed(roundelay("run --json --checkpoint").arg(&kept).arg(&schedule));
    let evaluated = document(
        roundelay("evaluate --checkpoint").arg(&kept).arg(&schedule),
        "evaluate",
    );
    let told = lines(&trained);
    let last = of_kind(&told, "evaluate").into_iter().next_back().expect("it evaluates");
    assert_eq!((&evaluated["step"], &evaluated["loss"]), (&last["step"], &last["loss"]));
    let grid = printed(roundelay("show").arg(&schedule));
    assert!(grid.contains("makespan"), "{grid}");
    let steady = document(roundelay("simulate").arg(&schedule), "simulate");
    let step =
        Nanos((steady["step_time_s"].as_f64().unwrap_or(0.0) * 1e9).round() as u64);
    assert!(grid.contains(&format!(", step {step}, idle")), "{grid} {step}");
    let text = printed(roundelay("simulate --steps 1").arg(&schedule));
    let words = "over all steps, with start and drain; 1 step takes";
    assert!(text.contains(words), "{text}");
}

#[test]
fn refused_programs_say_where_and_what() {
    let scratch = Scratch::new("refused");
    let mistaken =
        PROGRAM.replace("linear(x, 8)", "linera(x, 8)").replace("batch 8,", "batch 2.5,");
    let program = scratch.file("line.rdl", &mistaken);
    let found = diagnostics(roundelay("plan").arg(&program), 1);
    assert_eq!(found.len(), 2, "all mistakes at once: {found:?}");
    for diagnostic in &found {
        assert_eq!(diagnostic["file"], program.display().to_string().as_str());
        assert_eq!(diagnostic["severity"], "error");
        assert!(diagnostic["column"].as_u64() > Some(0), "{diagnostic}");
    }
    let lines: Vec<Option<u64>> = found.iter().map(|d| d["line"].as_u64()).collect();
    assert_eq!(lines, [Some(5), Some(11)]);
    assert!(found[0]["hint"].as_str().is_some_and(|hint| hint.contains("linear")));
    for command in ["plan", "run", "compile -o never.schedule"] {
        refused(roundelay(command).arg(&program), 1, &["linera", "line.rdl:5"]);
    }
}

/// What nobody did takes no time.
#[test]
fn a_run_of_no_steps_has_a_prediction_alone() {
    let scratch = Scratch::new("no-steps");
    let program = scratch.file("line.rdl", PROGRAM);
    let run = |words: &str| printed(roundelay(words).arg(&program));
    let told = run("run --device cpu --steps 0");
    assert!(told.contains("\n0 steps\n") && told.contains("\npredicted "), "{told}");
    assert!(!told.contains("measured"), "{told}");
    let told = lines(&run("run --device cpu --steps 0 --json"));
    let end = told.last().expect("a run ends with a line");
    assert!(end["measured"].is_null() && end["predicted"]["bytes"].is_u64(), "{end}");
}

#[test]
fn settings_are_held_to_the_language() {
    let scratch = Scratch::new("settings");
    let program = scratch.file("line.rdl", PROGRAM);
    let set = |text: &str| {
        let mut command = roundelay("plan --set");
        command.arg(text).arg(&program);
        command
    };
    refused(&mut set("placment = data"), 1, &["`placment`", "did you mean `placement`?"]);
    refused(&mut set("placement = dat"), 1, &["`dat`", "`data`"]);
    refused(&mut set("stages = 4 .. 2"), 1, &["empty"]);
    refused(&mut set("rule"), 1, &["--set"]);
    let found = diagnostics(&mut set("placment = data"), 1);
    assert_eq!((&found[0]["file"], &found[0]["line"]), (&"--set".into(), &1.into()));
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let scratch = Scratch::new("no-plan");
    let program = scratch.file("line.rdl", PROGRAM);
    let too_small = |command: &str| {
        let mut command = roundelay(command);
        command.arg(&program).args(["--set", "memory <= 100 B"]);
        command
    };
    for command in ["plan", "run", "compile -o never.schedule"] {
        let words = ["no plan fits: memory", "more on each device"];
        assert_eq!(refused(&mut too_small(command), 1, &words).out, "");
    }
    let found = diagnostics(&mut too_small("plan"), 1);
    assert_eq!(found[0]["code"], "no_plan");
    assert!(found[0]["hint"].as_str().is_some_and(|hint| hint.starts_with("memory <= ")));
    let strict = ["--set", "exactness = exact", "--set", "rule = cyclic_v2"];
    refused(roundelay("plan").arg(&program).args(strict), 1, &["exactness delayed"]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let scratch = Scratch::new("files");
    let program = scratch.file("line.rdl", PROGRAM);
    for (command, name) in [
        ("plan", "none.rdl"),
        ("run", "none.rdl"),
        ("run", "none.schedule"),
        ("check", "none.schedule"),
        ("simulate", "none.schedule"),
        ("fmt", "none.rdl"),
    ] {
        refused(roundelay(command).arg(scratch.path(name)), 1, &[name, "No such file"]);
    }
    for command in ["plan -o", "compile -o"] {
        let output = scratch.path("no/such/folder");
        refused(roundelay(command).arg(&output).arg(&program), 1, &["no/such/folder"]);
    }
    let output = scratch.path("no/such/folder");
    refused(roundelay("devices -o").arg(&output), 1, &["no/such/folder"]);
    refused(roundelay("check").arg(&program), 1, &["not a schedule file", "line.rdl:1"]);
    refused(roundelay("run --device cuda").arg(&program), 3, &["--device cpu"]);
    let half = scratch.file("half.rdl", &PROGRAM.replace("seed 3", "seed 3, dtype bf16"));
    refused(roundelay("run --device cuda").arg(half), 3, &["`dtype f32` or `dtype f64`"]);
    let [missing, file] = ["never-kept", "line.rdl"].map(|name| scratch.path(name));
    for (command, folder, words) in [
        ("evaluate --checkpoint", &missing, "there is no folder"),
        ("evaluate --checkpoint", &file, "is not a folder"),
        ("run --checkpoint", &file, "is not a folder"),
    ] {
        refused(roundelay(command).arg(folder).arg(&program), 1, &[words]);
    }
}

#[test]
fn an_edit_by_hand_is_seen_and_sealed_only_when_it_holds() {
    let scratch = Scratch::new("seal");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let text = fs::read_to_string(&schedule).expect("it was written");
    scratch.file("line.schedule", &text.replace("\n  seed: 3\n", "\n  seed: 4\n"));
    let hash = text.lines().position(|line| line.starts_with("hash "));
    let hash = format!("line.schedule:{}:", hash.expect("there is a hash") + 1);
    for command in ["check", "run", "simulate"] {
        refused(roundelay(command).arg(&schedule), 1, &["hash", "--seal", &hash]);
    }
    printed(roundelay("check --seal").arg(&schedule));
    printed(roundelay("check").arg(&schedule));
    printed(roundelay("run").arg(&schedule));

    let update =
        text.lines().rfind(|line| line.contains(" U s")).expect("there are updates");
    let broken =
        scratch.file("broken.schedule", &text.replace(&format!("{update}\n"), ""));
    let before = fs::read_to_string(&broken).expect("it was written");
    let found = diagnostics(roundelay("check --seal").arg(&broken), 1);
    assert!(found.iter().all(|diagnostic| diagnostic["line"].is_u64()), "{found:?}");
    assert_eq!(fs::read_to_string(&broken).expect("it is there"), before);
}

#[test]
fn faults_of_routines_are_told_on_the_line_of_the_call() {
    let scratch = Scratch::new("calls");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let text = fs::read_to_string(&schedule).expect("it was written");
    let is_call = |line: &&str| line.trim_start().starts_with("- kernel: ");
    assert!(text.lines().filter(is_call).count() > 4, "{text}");
    let calls = text.lines().enumerate().filter(|(_, line)| is_call(line));
    for (index, line) in calls {
        let mut lines: Vec<&str> = text.lines().collect();
        let nameless = format!("{}nothing", &line[..line.find(':').unwrap_or(0) + 2]);
        lines[index] = &nameless;
        let broken = scratch.file("broken.schedule", &(lines.join("\n") + "\n"));
        let place = format!("broken.schedule:{}", index + 1);
        let expected = ["nothing", &*place, "compile its program again"];
        refused(roundelay("check --seal").arg(broken), 1, &expected);
    }
}

#[test]
fn a_plan_file_pins_what_is_compiled() {
    let scratch = Scratch::new("plan-file");
    let program = scratch.file("line.rdl", PROGRAM);
    let (plan, schedule) = (scratch.path("plan.yaml"), scratch.path("pinned.schedule"));
    let pinned = ["--set", "placement = pipeline", "--set", "rule = cyclic_v2"];
    printed(roundelay("plan -o").arg(&plan).arg(&program).args(pinned));
    let compile = || {
        let mut command = roundelay("compile");
        command.arg(&program).arg("--plan").arg(&plan).arg("-o").arg(&schedule);
        command
    };
    printed(&mut compile());
    let text = fs::read_to_string(&schedule).expect("it was written");
    assert!(text.contains("\n  placement: pipeline\n"), "{text}");
    printed(compile().args(["--set", "core.memory = 4 GB"]));
    for line in ["rule = sync", "minimize = step_time"] {
        refused(compile().args(["--set", line]), 2, &[line, "--plan"]);
    }
    // Which plans may be is no decision of one.
    printed(compile().args(["--set", "exactness = truncated"]));
    refused(compile().args(["--set", "exactness = exact"]), 1, &["delayed", "exactness"]);
    printed(compile().args(["--set", "memory <= 1 MB"]));
    refused(compile().args(["--set", "memory <= 1 kB"]), 1, &["memory <= 1.728 kB"]);
    let plan_text = fs::read_to_string(&plan).expect("it was written");
    scratch.file(
        "plan.yaml",
        &plan_text.replace("placement: pipeline", "placement: pipelin"),
    );
    refused(&mut compile(), 1, &["plan.yaml:2"]);
    scratch.file("plan.yaml", &plan_text.replace("micro_batches: 2", "micro_batches: 3"));
    refused(&mut compile(), 1, &["plan.yaml", "micro"]);
}

/// Whether reading it or lowering it finds the first misfit.
#[test]
fn a_plan_of_another_program_is_told_as_that() {
    let scratch = Scratch::new("other-plan");
    let program = scratch.file("line.rdl", PROGRAM);
    let plan = scratch.path("plan.yaml");
    let pinned = ["--set", "placement = pipeline", "--set", "rule = cyclic_v2"];
    printed(roundelay("plan -o").arg(&plan).arg(&program).args(pinned));
    let other = PROGRAM.replace("model line", "model other");
    for (from, to) in [("linear(relu(linear(x, 8)), 8)", "x"), ("relu(", "gelu(")] {
        let text = other.replace(from, to).replace("x, y", "linear(x, 8), y");
        let other = scratch.file("other.rdl", &text);
        let mut compile = roundelay("compile -o never.schedule --plan");
        let words = ["another program", "for model `line`", "is `other`", "plan.yaml:"];
        refused(compile.arg(&plan).arg(other), 1, &words);
    }
}

#[test]
fn a_folder_with_checkpoints_is_not_overwritten() {
    let scratch = Scratch::new("occupied");
    let program = scratch.file("line.rdl", PROGRAM);
    let run = |words: &str| {
        let mut command = roundelay(words);
        command.arg(&program).arg("--checkpoint").arg(scratch.path("kept"));
        command
    };
    let anew = printed(&mut run("run --steps 0 --resume"));
    assert!(anew.contains("starts anew, for there is no checkpoint"), "{anew}");
    fs::remove_dir_all(scratch.path("kept")).expect("it was made");
    printed(&mut run("run --steps 4"));
    refused(&mut run("run"), 1, &["holds checkpoints", "--resume"]);
    let rest = lines(&printed(&mut run("run --json --resume")));
    let begin = of_kind(&rest, "begin")[0];
    assert_eq!(
        (&begin["resumed"], &begin["first"]),
        (&"goes on exactly".into(), &4.into())
    );
}

/// Nothing happens then; whoever expects training hears why.
#[test]
fn a_run_that_is_done_already_says_so() {
    let scratch = Scratch::new("done-already");
    let program = scratch.file("line.rdl", PROGRAM);
    let run = |words: &str| {
        let mut command = roundelay(words);
        command.arg(&program).arg("--checkpoint").arg(scratch.path("kept"));
        printed(&mut command)
    };
    let first = run("run --steps 4");
    assert!(!first.contains("done already"), "{first}");
    for (words, said) in [
        (
            "run --resume --steps 4",
            "step 4: all 4 steps are done already, nothing is trained",
        ),
        (
            "run --resume --steps 2",
            "step 4: all 2 steps are done already, nothing is trained",
        ),
    ] {
        let done = run(words);
        assert!(done.contains(said) && done.contains("a larger `--steps`"), "{done}");
    }
    let rest = run("run --resume");
    assert!(rest.contains("step 4: goes on exactly"), "{rest}");
    assert!(!rest.contains("done already"), "{rest}");
}

#[test]
fn a_run_that_fails_ends_with_3() {
    let scratch = Scratch::new("failed-run");
    let program = scratch.file("line.rdl", &PROGRAM.replace("steps 6", "steps 1000000"));
    let kept = scratch.path("kept");
    let mut command = roundelay("run --json --checkpoint-every 1 --checkpoint");
    let piped =
        command.arg(&kept).arg(program).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut text = String::new();
    while !text.contains("\"event\":\"step\"") {
        text.clear();
        assert_ne!(
            out.read_line(&mut text).expect("the output is text"),
            0,
            "it ended early"
        );
    }
    let away = scratch.path("away");
    fs::rename(&kept, away).expect("the folder of checkpoints can be moved");
    text.clear();
    out.read_to_string(&mut text).expect("the output is text");
    assert_eq!(child.wait().expect("it was started").code(), Some(3));
    let last = text.lines().next_back().expect("a failure is a line");
    let told: Value = serde_json::from_str(last).expect("it is JSON");
    schema::hold("diagnostics", &told);
    assert!(
        told["diagnostics"][0]["message"].as_str().is_some_and(|m| m.contains("kept"))
    );
}

#[test]
fn arenas_that_do_not_fit_into_this_machine_end_a_run_with_3() {
    let scratch = Scratch::new("too-large");
    let large = PROGRAM
        .replace(
            "linear(relu(linear(x, 8)), 8)",
            "linear(relu(linear(x, 100000000000)), 8)",
        )
        .replace("memory 1 GB", "memory 1000 TB")
        .replace("micro_batches 2,", "placement pipeline, micro_batches 2,");
    let program = scratch.file("line.rdl", &large);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let words =
        ["of memory left", "the arena of `", "those of all 2 devices", "plan with"];
    refused(roundelay("run --device cpu").arg(&schedule), 3, &words);
    let found = diagnostics(roundelay("run --device cpu").arg(&schedule), 3);
    assert!(found[0]["message"].as_str().is_some_and(|m| m.contains("memory left")));
}

/// Nothing is set aside for steps that are far away.
#[test]
fn a_run_may_have_no_end() {
    let scratch = Scratch::new("no-end");
    let file = scratch.file("line.rdl", PROGRAM);
    let steps = ["run", "--json", "--steps", "18446744073709551615"].join(" ");
    let mut child = roundelay(&steps)
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let out = child.stdout.take().expect("it is piped");
    let begun = BufReader::new(out).lines().map_while(Result::ok);
    let trained =
        begun.filter(|line| line.contains("\"event\":\"step\"")).take(3).count();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(trained, 3);
}

#[test]
fn passes_are_those_of_one_step() {
    let scratch = Scratch::new("passes");
    let schedule = compiled(&scratch, &scratch.file("line.rdl", PROGRAM), "s");
    refused(
        roundelay("show --as csv --steps 5").arg(&schedule),
        2,
        &["`--as csv` has the passes of one training step"],
    );
}

#[test]
fn data_is_found_from_program_schedule_and_option() {
    let scratch = Scratch::new("data");
    let program = scratch.file("reader.rdl", READER);
    refused(roundelay("run").arg(&program), 1, &["texts/*.txt"]);
    let text = "all the voices sing a roundelay, one after another. ".repeat(40);
    scratch.file("texts/one.txt", &text);
    let losses = |command: &mut Command| -> Vec<Value> {
        let lines = lines(&printed(command));
        of_kind(&lines, "step").iter().map(|line| line["loss"].clone()).collect()
    };
    let here = losses(roundelay("run --json").arg(&program));
    scratch.file("deep/down/note", "");
    let schedule = compiled(&scratch, &program, "deep/down/reader.schedule");
    let elsewhere = scratch.path("deep");
    let relative = "run --json down/reader.schedule";
    assert_eq!(losses(roundelay(relative).current_dir(&elsewhere)), here);
    scratch.file("other/texts/one.txt", &text.to_uppercase());
    let other = scratch.path("other");
    let there = losses(roundelay("run --json --data").arg(&other).arg(&schedule));
    assert_ne!(there, here);
    let drawn = scratch.file("line.rdl", PROGRAM);
    refused(roundelay("run --data").arg(&other).arg(&drawn), 1, &["drawn", "other"]);
}

#[test]
fn a_loss_that_is_no_number_is_said_once() {
    let scratch = Scratch::new("not-a-number");
    let program = scratch.file("line.rdl", &PROGRAM.replace("lr = 0.1", "lr = 1e30"));
    let weights = scratch.path("weights.safetensors");
    let mut command = roundelay("run");
    let run = command.arg(&program).arg("--save").arg(&weights);
    let output = run.output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("later ones may be none either").count(), 1, "{said}");
    assert_eq!(
        said.matches("holds NaN or infinity").count(),
        1,
        "and so are weights: {said}"
    );
}

#[test]
fn formatting_is_idempotent_and_can_be_checked() {
    let scratch = Scratch::new("fmt");
    let program = scratch.file("line.rdl", PROGRAM);
    let read = || fs::read_to_string(&program).expect("it is there");
    refused(roundelay("fmt --check").arg(&program), 1, &["not formatted"]);
    assert_eq!(read(), PROGRAM);
    printed(roundelay("fmt").arg(&program));
    let once = read();
    printed(roundelay("fmt").arg(&program));
    assert_eq!(read(), once);
    printed(roundelay("fmt --check").arg(&program));
    scratch.file("line.rdl", "model line {");
    refused(
        roundelay("fmt").arg(&program),
        1,
        &["error[syntax]", "line.rdl:1", "| model line {"],
    );
    assert_eq!(read(), "model line {");
}

#[test]
fn this_machine_is_a_cluster_file() {
    let scratch = Scratch::new("devices");
    let told =
        document(roundelay("devices -o").arg(scratch.path("machine.rdl")), "devices");
    let written =
        fs::read_to_string(scratch.path("machine.rdl")).expect("it was written");
    assert_eq!(told["cluster"], written.as_str());
    printed(roundelay("fmt --check").arg(scratch.path("machine.rdl")));
    let (model, rest) =
        PROGRAM.split_once("device core").expect("the program has devices");
    let (_, train) = rest.split_once("\ntrain").expect("the program trains");
    let text = format!("import \"machine.rdl\"\n{model}train{train}");
    let program = scratch.file("here.rdl", &text);
    printed(roundelay("plan").arg(&program));
}
