//! What the command line says before anything goes wrong: of memory that limits do not leave, of heads
//! that no unit uses, of keys that something else has, of names that are said twice, of plans of other
//! programs, of plans that break a line of theirs, of lines that rule every plan out, of folders that are
//! named as files, of kinds of memory that share addresses, of pins that say nothing, and of how far a run
//! is.

use crate::support::{
    self, Scratch, diagnostics, document, ended, printed, root, roundelay,
};
use roundelay::{CompileError, SearchOptions, SourceFile};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const LAYERS: &str = r#"
model layers {
    input x: real[batch, 16]
    input targets: i32[batch]
    y = relu(linear(x, 16))
    z = y
    repeat 4 as layer { z = z + linear(layer_norm(z), 16) }
    head after y { loss cross_entropy(linear(y, 8), targets) }
    loss cross_entropy(linear(z, 8), targets)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train { data synthetic, batch 8, steps 2, seed 3, optimizer sgd(lr = 0.1), evaluate { every 1 } }
plan { exactness local, rule sync, placement pipeline, micro_batches 2, stages 2 }
"#;

/// Large arenas, so that bounds between what a process has anyway and what it wants are easily hit.
fn compiled(scratch: &Scratch) -> PathBuf {
    let wide = LAYERS.replace("[batch, 16]", "[batch, 1024]").replace("16)", "1024)");
    let program = scratch.file("wide.rdl", &wide);
    let schedule = scratch.path("wide.schedule");
    printed(roundelay("compile").arg(program).arg("-o").arg(&schedule));
    schedule
}

/// A command in a shell that may have this many kibibytes of addresses.
#[cfg(target_os = "linux")]
fn limited(kibibytes: u64, words: &str, file: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\"");
    let own = roundelay(words);
    command.arg("-c").arg(script).arg(own.get_program()).args(own.get_args()).arg(file);
    command
}

/// Whatever the limit, a run is done or refused with the reason; it is never ended in its middle. What
/// the heaps of two threads leave for a third, between 100 and 104 MiB, is not the same every time.
#[cfg(target_os = "linux")]
#[test]
fn a_run_under_a_limit_on_addresses_is_done_or_refused() {
    let scratch = Scratch::new("limited");
    let schedule = compiled(&scratch);
    let (mut ends, mut refusals) = (Vec::new(), Vec::new());
    let limits =
        [100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_500, 2_000, 4_000, 64_000];
    for mebibytes in limits {
        let words = "run --device cpu --steps 2";
        let found = ended(
            limited(mebibytes << 10, words, &schedule).env_remove("MALLOC_ARENA_MAX"),
        );
        let said = &found.err;
        let is_told = said.contains("the limit on addresses (`ulimit -v`) leaves")
            || said.contains("the system refuses memory");
        let is_deaf = said.contains("error: cannot listen for signals: ");
        let is_arena = is_told && said.contains("the arena of `core.");
        let is_refused = found.code == 3 && (is_deaf || is_arena);
        assert!(is_refused || found.code == 0, "{mebibytes} MiB: {found:?}");
        ends.push(found.code);
        refusals.push(found.err);
    }
    let first = ends.iter().position(|code| *code == 0).expect("64 GB are enough");
    assert!(first > 0, "100 MiB are too few");
    assert!(ends[first..].iter().all(|code| *code == 0), "{ends:?}");
    let words =
        ["(`ulimit -v`) leaves", "a look at held-out data", "threads", "raise the limit"];
    let says_all = |told: &String| words.iter().all(|word| told.contains(word));
    assert!(refusals[..first].iter().any(says_all), "{refusals:?}");
    // With one heap for all threads less is enough.
    let mut frugal = limited(limits[first - 1] << 10, "run --device cpu", &schedule);
    let found = ended(frugal.env("MALLOC_ARENA_MAX", "1"));
    assert_eq!(found.code, 0, "{found:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_evaluation_under_a_limit_on_addresses_is_refused_with_the_reason() {
    let scratch = Scratch::new("limited-evaluation");
    let schedule = compiled(&scratch);
    let kept = scratch.path("kept.safetensors");
    printed(roundelay("run --steps 1 --save").arg(&kept).arg(&schedule));
    let words = format!("evaluate --weights {}", kept.display());
    let found = ended(&mut limited(100 << 10, &words, &schedule));
    assert_eq!(found.code, 3, "{found:?}");
    for word in [
        "(`ulimit -v`) leaves",
        "for a forward pass",
        "for parameters on their way there",
    ] {
        assert!(found.err.contains(word), "{word}: {}", found.err);
    }
}

#[test]
fn a_head_that_no_unit_uses_is_told_under_the_rule_that_is_set() {
    let scratch = Scratch::new("idle-head");
    let program = scratch.file("layers.rdl", LAYERS);
    let said = |settings: &[&str]| {
        let set = settings.iter().flat_map(|setting| ["--set", setting]);
        let found = ended(roundelay("plan").args(set).arg(&program));
        assert_eq!(found.code, 0, "{found:?}");
        found.err
    };
    assert!(!said(&[]).contains("no unit ends here"));
    let told = said(&["rule = local(units = 2)"]);
    assert!(told.contains("no unit ends here, so the head is left out"), "{told}");
    assert!(told.contains("layers.rdl:8:16"), "{told}");
}

#[test]
fn a_key_that_something_else_has_is_hinted_by_what_has_it() {
    let scratch = Scratch::new("foreign-key");
    let program = scratch.file("layers.rdl", LAYERS);
    for (setting, hint) in [
        ("two.devices = 4", "write `cluster.devices = …`"),
        ("core.devices = 4", "write `cluster.devices = …`"),
        (
            "two.memory = 2 GB",
            "the devices of cluster `two` are `core`; write `core.memory",
        ),
        ("two.latency = 1 us", "the links of cluster `two` are `bus`"),
    ] {
        let found = ended(roundelay("plan --set").arg(setting).arg(&program));
        assert_eq!(found.code, 1, "{found:?}");
        assert!(found.err.contains(hint), "{setting}: {}", found.err);
    }
}

#[test]
fn a_plan_that_names_its_model_twice_is_refused() {
    let scratch = Scratch::new("twice");
    let program = scratch.file("layers.rdl", LAYERS);
    let plan = scratch.path("plan.yaml");
    printed(roundelay("plan -o").arg(&plan).arg(&program));
    let text = fs::read_to_string(&plan).expect("it was written");
    let schedule = scratch.path("layers.schedule");
    let mut compile = roundelay("compile --plan");
    compile.arg(&plan).arg(&program).arg("-o").arg(&schedule);
    printed(&mut compile);
    for key in ["model: layers", "cluster: two"] {
        let line = 1 + text.lines().position(|line| line == key).expect("it is named");
        fs::write(&plan, format!("{text}{key}\n")).expect("it can be written");
        let found = ended(&mut compile);
        assert_eq!(found.code, 1, "{found:?}");
        let (name, _) = key.split_once(':').expect("a key");
        let said = format!("`{name}` is said twice, first in line {line}");
        assert!(found.err.contains(&said), "{}", found.err);
    }
}

/// A plan of another program is taken where it goes with this one, with a warning.
#[test]
fn a_plan_of_another_program_is_doubted() {
    let scratch = Scratch::new("doubt");
    let program = scratch.file("layers.rdl", LAYERS);
    let [plan, schedule] =
        ["plan.yaml", "layers.schedule"].map(|name| scratch.path(name));
    printed(roundelay("plan -o").arg(&plan).arg(&program));
    let compiled = |text: &str| {
        let program = scratch.file("other.rdl", text);
        let mut compile = roundelay("compile --plan");
        let found = ended(compile.arg(&plan).arg(program).arg("-o").arg(&schedule));
        assert_eq!(found.code, 0, "{found:?}");
        found.err
    };
    assert!(!compiled(LAYERS).contains("warning"));
    let told = compiled(&LAYERS.replace("model layers", "model ladder"));
    assert!(told.contains("warning: the plan is of another program"), "{told}");
    assert!(told.contains("model `layers`, and the program's is `ladder`"), "{told}");
    assert!(told.contains("plan.yaml:"), "{told}");
    let told = compiled(&LAYERS.replace("cluster two", "cluster pair"));
    assert!(told.contains("cluster `two`, and the program's is `pair`"), "{told}");
    let other = scratch.path("other.rdl");
    let diff = ["--diff".as_ref(), plan.as_os_str(), plan.as_os_str(), other.as_os_str()];
    let told = ended(roundelay("plan").args(diff)).err;
    assert!(told.contains("cluster `two`, and the program's is `pair`"), "{told}");
}

/// What would split tensors is no remedy where the model has nothing of the kind.
#[test]
fn a_pin_about_what_the_model_has_not_is_told() {
    let scratch = Scratch::new("idle-pin");
    let program = scratch.file("layers.rdl", LAYERS);
    for (pin, lacking) in [
        ("sequence = split", "the model has no sequences"),
        ("images = split", "the model has no convolutions or pools of images"),
    ] {
        let found = ended(roundelay("plan --set").arg(pin).arg(&program));
        assert_eq!(found.code, 0, "{found:?}");
        let said = format!("{}{}", found.out, found.err);
        assert!(said.contains(lacking), "{said}");
        assert!(!said.contains("would split them"), "{said}");
    }
}

/// The working folder has a name in messages, and so has what an import of it reads.
#[test]
fn the_working_folder_is_named() {
    let scratch = Scratch::new("working-folder");
    let said = |name: &str, text: &str, words: &str| {
        let file = scratch.file(name, text);
        let folder = file.parent().expect("it lies in one");
        let found = ended(roundelay(words).current_dir(folder).arg(name));
        assert_eq!(found.code, 1, "{found:?}");
        found.err
    };
    let told = said("imports.rdl", &format!("import \".\"\n{LAYERS}"), "plan");
    assert!(told.contains("cannot import `.`: it is a folder"), "{told}");
    let lists = LAYERS.replace("rule sync", "rule sync, order listed(\".\")");
    let told = said("lists.rdl", &lists, "plan");
    assert!(told.contains("cannot read the lists `.`: it is a folder"), "{told}");
    let text = r#"
model bytes {
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)
}
train { data text("*.none"), batch 8, steps 2, optimizer sgd(lr = 0.1) }
"#;
    let told = said("bytes.rdl", text, "run");
    assert!(told.contains("no file matches `*.none` under `.`"), "{told}");
}

/// Addresses that several buffers have count once, so kinds add up to no more than the arena.
#[test]
fn kinds_add_up_to_no_more_than_the_arena() {
    let scratch = Scratch::new("kinds");
    for example in ["data-zero3", "accumulate", "slices"] {
        let program = root().join(format!("examples/{example}.rdl"));
        let schedule = scratch.path("one.schedule");
        printed(roundelay("compile").arg(program).arg("-o").arg(&schedule));
        let facts = document(roundelay("check").arg(&schedule), "check");
        for device in facts["devices"].as_object().expect("the schema holds").values() {
            let kinds = device["memory"].as_object().expect("the schema holds");
            let sum: u64 = kinds.values().filter_map(|bytes| bytes.as_u64()).sum();
            let arena = device["arena_bytes"].as_u64().expect("the schema holds");
            assert!(sum > arena / 10 * 9 && sum <= arena, "{example}: {sum} of {device}");
        }
    }
}

/// The program with other lines in its plan block.
fn planning(scratch: &Scratch, name: &str, lines: &str) -> PathBuf {
    let start = LAYERS.find("plan {").expect("there is a block");
    scratch.file(name, &format!("{}plan {{\n{lines}\n}}\n", &LAYERS[..start]))
}

/// `compile` with the plan of one program for another one.
fn compile_with(scratch: &Scratch, plan_of: &Path, program: &Path) -> Command {
    let plan = scratch.path("plan.yaml");
    printed(roundelay("plan -o").arg(&plan).arg(plan_of));
    let mut compile = roundelay("compile --plan");
    compile.arg(&plan).arg(program).arg("-o").arg(scratch.path("layers.schedule"));
    compile
}

/// Every line of the plan block that a plan file does not keep is told with its place, and the plan is
/// taken all the same.
#[test]
fn lines_that_a_plan_does_not_keep_are_told() {
    let scratch = Scratch::new("broken-lines");
    let pinned = "rule sync, placement pipeline, order gpipe, recompute none";
    let own = format!("{pinned}, micro_batches 2, stages 2");
    let own = planning(&scratch, "layers.rdl", &own);
    let other = planning(
        &scratch,
        "other.rdl",
        "exactness local, stages 1\n    order zb_h1 | 1f1b, micro_batches 4 .. 8\n    \
         tensor { rows 2 }, placement pipeline\n    stage 1 { recompute full }",
    );
    let mut compile = compile_with(&scratch, &own, &other);
    let said = ended(&mut compile);
    assert_eq!(said.code, 0, "{said:?}");
    for (has, says, place) in [
        ("`stages 2`", "`stages 1`", ":16:18"),
        ("`order gpipe`", "`order zb_h1 | 1f1b`", ":17:5"),
        ("`micro_batches 2`", "`micro_batches 4 .. 8`", ":17:25"),
        ("`tensor { rows 1 }`", "`rows 2`", ":18:14"),
        ("`stage 1 { recompute none }`", "`stage 1 { recompute full }`", ":19:5"),
    ] {
        let told = format!("the plan has {has}, the program says {says}\n");
        assert!(said.err.contains(&told), "{told}: {}", said.err);
        assert!(said.err.contains(&format!("other.rdl{place}\n")), "{}", said.err);
    }
    assert_eq!(said.err.matches("warning[plan]").count(), 5, "{}", said.err);
    let facts = document(&mut compile, "check");
    let warnings = facts["warnings"].as_array().expect("there are some");
    assert_eq!(warnings.len(), 5, "{facts}");
    assert_eq!((&warnings[0]["line"], &warnings[0]["column"]), (&16.into(), &18.into()));
    let kept = document(&mut compile_with(&scratch, &own, &own), "check");
    assert!(kept.get("warnings").is_none(), "{kept}");
}

/// A plan file is no way around the class of gradients or the memory that a program allows.
#[test]
fn what_a_program_forbids_a_plan_file_does_not_bring_back() {
    let scratch = Scratch::new("back-door");
    let pinned = "rule cyclic_v2, placement pipeline, stages 2, micro_batches 2";
    let own = planning(&scratch, "delayed.rdl", &format!("exactness delayed, {pinned}"));
    let silent = planning(&scratch, "silent.rdl", "placement pipeline");
    let exact = planning(&scratch, "exact.rdl", "stages 2\nexactness reordered");
    for (program, line, says) in [
        (silent, 15, "where it has no line `exactness`"),
        (exact, 17, "allows reordered"),
    ] {
        let told = diagnostics(&mut compile_with(&scratch, &own, &program), 1);
        let [refused] = &told[..] else { panic!("{told:?}") };
        let message = refused["message"].as_str().expect("the schema holds");
        assert!(message.contains("the plan is delayed: "), "{message}");
        assert!(message.contains(says), "{message}");
        assert_eq!(
            (&refused["line"], &refused["severity"]),
            (&line.into(), &"error".into())
        );
        assert!(refused["hint"].to_string().contains("write `exactness delayed`"));
    }
    let small = planning(
        &scratch,
        "small.rdl",
        &format!("exactness delayed\nmemory <= 3 kB, {pinned}"),
    );
    let told = diagnostics(&mut compile_with(&scratch, &own, &small), 1);
    let [refused] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&refused["line"], &refused["column"]), (&17.into(), &1.into()));
    let message = refused["message"].as_str().expect("the schema holds");
    assert!(
        message.contains("the plan breaks `memory <= 3 kB`: device core."),
        "{message}"
    );
    let hint = refused["hint"].as_str().expect("the schema holds");
    assert!(hint.contains("3 kB are allowed; `memory <= "), "{hint}");
    // The line of the hint lets it through.
    let line = hint.rsplit('`').nth(1).expect("a line in quotes");
    let enough = planning(&scratch, "enough.rdl", &format!("exactness delayed\n{line}"));
    printed(&mut compile_with(&scratch, &own, &enough));
}

/// Nor is a plan that a program of somebody makes.
#[test]
fn what_a_program_forbids_the_library_does_not_bring_back() {
    let parsed = |text: &str| {
        let source = SourceFile::new("layers.rdl", text);
        roundelay::parse(&source).expect("it is right")
    };
    let rule = "exactness delayed, rule cyclic_v2";
    let delayed = LAYERS.replace("exactness local, rule sync", rule);
    let delayed = parsed(&delayed);
    let ranking =
        roundelay::plan(&delayed, &SearchOptions::default()).expect("plans fit");
    roundelay::compile(&delayed, ranking.best()).expect("the plan is sound");
    let exact = parsed(&LAYERS.replace("exactness local, ", ""));
    let refused = roundelay::compile(&exact, ranking.best()).expect_err("it is delayed");
    assert!(matches!(refused, CompileError::Exactness(_)), "{refused}");
    assert!(refused.to_string().ends_with("the program allows reordered"), "{refused}");
}

/// What devices lack is said as `plan` says it, once for each kind of them.
#[test]
fn a_plan_on_devices_that_are_too_small_is_told_once() {
    let scratch = Scratch::new("too-small");
    let own = scratch.file("layers.rdl", LAYERS);
    let small = scratch.file("small.rdl", &LAYERS.replace("memory 1 GB", "memory 5 kB"));
    let told = diagnostics(&mut compile_with(&scratch, &own, &small), 1);
    let [refused] = &told[..] else { panic!("{told:?}") };
    let message = refused["message"].as_str().expect("the schema holds");
    for words in
        ["device core.", " needs at least ", " of 5.00 kB: ", " are missing, most is "]
    {
        assert!(message.contains(words), "{words}: {message}");
    }
}

/// No bound is told to be raised where the device has no more.
#[test]
fn a_bound_is_no_way_out_where_the_device_is_too_small_itself() {
    let scratch = Scratch::new("both-small");
    let own = scratch.file("layers.rdl", LAYERS);
    for (device, line, says) in [
        ("3 kB", 0, ""),
        ("5 kB", 16, "3 kB are allowed, and the device has no more than 5 kB"),
    ] {
        let bounded = planning(&scratch, "bounded.rdl", "memory <= 3 kB");
        let text = fs::read_to_string(&bounded).expect("it was written");
        let small = text.replace("memory 1 GB", &format!("memory {device}"));
        let told = diagnostics(
            &mut compile_with(&scratch, &own, &scratch.file("s.rdl", &small)),
            1,
        );
        let [refused] = &told[..] else { panic!("{told:?}") };
        assert_eq!(refused["line"], line, "{refused}");
        let hint = refused["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(says) && !hint.contains("`memory <= "), "{hint}");
    }
}

/// Where one line rules every plan out, the refusal points at it.
#[test]
fn a_refusal_points_at_the_line_that_is_to_blame() {
    let scratch = Scratch::new("blame");
    for (line, place) in [
        ("stages 99", (17, 1)),
        ("memory <= 100 B", (17, 1)),
        ("placement pipeline, micro_batches 3", (17, 21)),
        ("tensor { rows 3 }", (17, 10)),
        ("rule cyclic_v1", (17, 1)),
    ] {
        let program =
            planning(&scratch, "blamed.rdl", &format!("minimize step_time\n{line}"));
        let told = diagnostics(roundelay("plan").arg(&program), 1);
        let found = (&told[0]["line"], &told[0]["column"]);
        assert_eq!(found, (&place.0.into(), &place.1.into()), "{line}: {told:?}");
        let text = ended(roundelay("plan").arg(&program)).err;
        let arrow = format!("blamed.rdl:{}:{}\n", place.0, place.1);
        assert!(text.contains(&arrow), "{text}");
    }
    let program = planning(&scratch, "open.rdl", "minimize step_time");
    let told = diagnostics(roundelay("plan --set stages=99").arg(&program), 1);
    assert_eq!((&told[0]["file"], &told[0]["line"]), (&"--set".into(), &1.into()));
}

/// Times that nobody can count are refused; no plan takes no time.
#[test]
fn a_step_that_takes_longer_than_can_be_counted_is_refused() {
    let scratch = Scratch::new("endless");
    let wide = LAYERS.replace("[batch, 16]", "[batch, 1024]").replace("16)", "1024)");
    let program = scratch.file("wide.rdl", &wide.replace("batch 8", "batch 4096"));
    let set = "core.compute = 1 FLOP/s";
    let told = diagnostics(roundelay("plan --set").arg(set).arg(&program), 1);
    let message = told[0]["message"].as_str().expect("the schema holds");
    assert!(message.starts_with("time: "), "{message}");
    assert!(message.contains("device core."), "{message}");
    assert!(message.contains("computes at 1 FLOP/s and moves 10.00 GB/s"), "{message}");
    let slow = document(
        roundelay("plan --set").arg("core.compute = 1 MFLOP/s").arg(&program),
        "plan",
    );
    let time = slow["plans"][0]["step_time_s"].as_f64().expect("the schema holds");
    assert!(time > 1e4, "{time}");
}

/// Launchers and schedulers of jobs keep standard error in files, where no bar is.
#[test]
fn a_run_tells_its_loss_where_standard_error_is_no_terminal() {
    let scratch = Scratch::new("progress");
    let program =
        scratch.file("layers.rdl", &LAYERS.replace(", evaluate { every 1 }", ""));
    let found = ended(roundelay("run --device cpu").arg(&program));
    assert_eq!(found.code, 0, "{}", found.err);
    let line = found.err.lines().find(|line| line.starts_with("step 1 of 2: loss "));
    let line = line.unwrap_or_else(|| panic!("no line of progress: {}", found.err));
    assert!(line.ends_with(" samples/s"), "{line}");
    let json = ended(roundelay("run --device cpu --json").arg(&program));
    assert!(!json.err.contains("step 1"), "its lines tell it: {}", json.err);
}

const READER: &str = r#"
model reader {
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
cluster one { 1 x core }
train { data text("text.txt"), batch 4, steps 3, optimizer sgd(lr = 0.1), evaluate { every 3 } }
plan { rule sync, placement accumulate, micro_batches 1, stages 1 }
"#;

/// `script` gives a command a terminal; a bar that is drawn before a line stays in it.
#[cfg(target_os = "linux")]
#[test]
fn a_bar_leaves_the_lines_around_it_whole() {
    let scratch = Scratch::new("bar");
    scratch.file("text.txt", &"all the voices sing a roundelay. ".repeat(40));
    let program = scratch.file("reader.rdl", READER);
    let schedule = support::compiled(&scratch, &program, "reader.schedule");
    let run = roundelay("");
    let (run, schedule) = (run.get_program().display(), schedule.display());
    let words = format!("{run} run --device cpu {schedule}");
    let mut script = Command::new("script");
    let script = script.args(["-qec", &words, "/dev/null"]).stdin(Stdio::null());
    let Ok(found) = script.output() else { return };
    let shown = String::from_utf8_lossy(&found.stdout);
    let (before, _) = shown.split_once("data: ").unwrap_or_else(|| panic!("{shown}"));
    assert!(!before.contains("/3"), "a bar stands before the line: {shown:?}");
    assert!(shown.contains("/3 "), "there is a bar: {shown:?}");
}

/// Every rank of a run from a program reads it, and rank 0 tells what is odd about it.
#[test]
fn other_ranks_than_the_first_tell_errors_alone() {
    let scratch = Scratch::new("ranks-warned");
    let program = scratch.file("order.rdl", &LAYERS.replace("bus", "order"));
    let told = |rank: &str| {
        let mut run = roundelay("run --device cpu --deadline 1");
        let place = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2")];
        run.envs(place).env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "1");
        let found = ended(run.arg(&program));
        assert_eq!(found.code, 3, "{found:?}");
        found.err.contains("warning[")
    };
    assert_eq!([told("0"), told("1")], [true, false]);
}
