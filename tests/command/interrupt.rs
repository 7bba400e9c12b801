//! Ctrl-C ends a run cleanly: whole checkpoint, all that was promised on standard output, the exit
//! code of an interruption, and a way to go on to the same bits. It also ends what follows a search,
//! whose plans are told all the same.

use crate::support::{Ended, Scratch, lines, printed, root, roundelay, schema};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A run that would take hours.
const PROGRAM: &str = r#"
model ladder {
    input x: real[batch, 16]
    input y: real[batch, 16]
    h = x
    repeat 4 as rung {
        h = h + dropout(relu(linear(layer_norm(h), 16)), 0.1)
    }
    loss mse(linear(h, 16), y)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train {
    data synthetic, batch 16, steps 1000000, seed 5
    optimizer adamw(lr = 1e-3)
}
plan { exactness delayed, rule cyclic_v2, placement pipeline, micro_batches 2, stages 2 }
"#;

fn compiled(scratch: &Scratch) -> PathBuf {
    let source = scratch.file("ladder.rdl", PROGRAM);
    let schedule = scratch.path("ladder.schedule");
    printed(roundelay("compile").arg(source).arg("-o").arg(&schedule));
    schedule
}

fn interrupt(child: &Child) {
    signal(child, "-INT");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.expect("`kill` can be called").success());
}

/// How an interrupted run ended.
struct Stopped {
    code: Option<i32>,
    lines: Vec<Value>,
    err: String,
}

/// A run that has done some steps, what it says next, and what it said.
fn begun(command: &mut Command) -> (Child, BufReader<ChildStdout>, String) {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut text = String::new();
    read_steps(5, &mut out, &mut text);
    (child, out, text)
}

/// Reads on until so many steps are told.
fn read_steps(count: usize, out: &mut impl BufRead, text: &mut String) {
    while text.matches("\"event\":\"step\"").count() < count {
        let read = out.read_line(text).expect("output is UTF-8");
        assert!(read > 0, "it ended on its own: {text}");
    }
}

/// A run that still goes on does so many steps, and then comes to rest.
fn goes_on(
    (mut child, mut out): (Child, BufReader<ChildStdout>),
    mut text: String,
    steps: usize,
) {
    read_steps(steps, &mut out, &mut text);
    interrupt(&child);
    out.read_to_string(&mut text).expect("output is UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{text}");
}

/// Sends some signals to a run after some steps.
fn stopped(command: &mut Command, signals: &[&str]) -> Stopped {
    let (mut child, mut out, mut text) = begun(command);
    signals.iter().for_each(|name| signal(&child, name));
    out.read_to_string(&mut text).expect("output is UTF-8");
    let mut err = String::new();
    let mut from = child.stderr.take().expect("it is piped");
    from.read_to_string(&mut err).expect("messages are UTF-8");
    let code = child.wait().expect("it ends").code();
    Stopped { code, lines: lines(&text), err }
}

fn losses(lines: &[Value]) -> Vec<Value> {
    let steps = lines.iter().filter(|line| line["event"] == "step");
    steps.map(|line| line["loss"].clone()).collect()
}

fn train(schedule: &Path, kept: &Path) -> Command {
    let mut command =
        roundelay("run --device cpu --json --checkpoint-every 1000000 --checkpoint");
    command.arg(kept).arg(schedule);
    command
}

#[test]
fn an_interrupted_run_keeps_what_it_did_and_goes_on_to_the_same_bits() {
    let scratch = Scratch::new("interrupt");
    let (schedule, kept) = (compiled(&scratch), scratch.path("what is kept"));
    let mut long = train(&schedule, &kept);
    let first = stopped(long.args(["--steps", "900000"]), &["-INT"]);
    assert_eq!(first.code, Some(130), "{}", first.err);
    let done = losses(&first.lines).len() as u64;
    let end = first.lines.last().expect("there are lines");
    assert_eq!((&end["event"], &end["steps"]), (&"end".into(), &done.into()));
    let resume = format!("--checkpoint '{}' --resume --steps 900000`", kept.display());
    assert!(first.err.contains(&resume), "{}", first.err);

    let until = (done + 5).to_string();
    let mut again = train(&schedule, &kept);
    let second = lines(&printed(again.args(["--resume", "--steps", &until])));
    assert_eq!(second[0]["resumed"], "goes on exactly");
    assert_eq!(second[0]["first"], done);
    let mut whole = train(&schedule, &scratch.path("whole"));
    let whole = losses(&lines(&printed(whole.args(["--steps", &until]))));
    assert!([losses(&first.lines), losses(&second)].concat() == whole);
}

#[test]
fn an_interrupted_run_without_checkpoints_says_so_and_saves_weights() {
    let scratch = Scratch::new("interrupt-save");
    let (schedule, saved) = (compiled(&scratch), scratch.path("kept.safetensors"));
    let mut run = roundelay("run --json --save");
    let found = stopped(run.arg(&saved).arg(&schedule), &["-TERM"]);
    assert_eq!(found.code, Some(130), "{}", found.err);
    assert!(found.err.contains("no checkpoint was kept"), "{}", found.err);
    let done = losses(&found.lines).len();
    let mut again = roundelay("run --json --save");
    let other = scratch.path("whole.safetensors");
    printed(again.arg(&other).args(["--steps", &done.to_string()]).arg(&schedule));
    let bytes = |path: &Path| std::fs::read(path).expect("it was saved");
    assert!(bytes(&saved) == bytes(&other), "weights after {done} steps");
}

/// Whoever reads no more has the run come to rest, and finds what it did.
#[test]
fn a_run_ends_with_its_reader() {
    let scratch = Scratch::new("interrupt-reader");
    let (schedule, kept) = (compiled(&scratch), scratch.path("kept"));
    let (child, out, _) = begun(&mut train(&schedule, &kept));
    drop(out);
    let found = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(found.code, 130, "{}", found.err);
    assert!(found.err.contains("go on with `--checkpoint"), "{}", found.err);
    let cause = ", for whoever read standard output has closed it; ";
    assert!(found.err.contains(cause), "{}", found.err);
    assert!(!found.err.contains("cannot print"), "{}", found.err);
    let mut again = train(&schedule, &kept);
    let begin = &lines(&printed(again.args(["--resume", "--steps", "1"])))[0];
    assert!(begin["first"].as_u64() >= Some(5), "{begin}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_cannot_print_ends_and_says_why() {
    let scratch = Scratch::new("interrupt-full");
    let schedule = compiled(&scratch);
    let full = fs::File::create("/dev/full").expect("Linux has it");
    let mut run = train(&schedule, &scratch.path("kept"));
    let child = run.stdout(full).stderr(Stdio::piped()).spawn();
    let ended = child.and_then(Child::wait_with_output).expect("it starts and ends");
    let found = Ended::from(ended);
    assert_eq!(found.code, 3, "{}", found.err);
    for words in ["cannot print: ", "interrupted after step "] {
        assert!(found.err.contains(words), "{words}: {}", found.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_terminal_brings_a_run_to_rest_unless_hangups_are_ignored() {
    let scratch = Scratch::new("interrupt-hangup");
    let (schedule, kept) = (compiled(&scratch), scratch.path("kept"));
    let found = stopped(&mut train(&schedule, &kept), &["-HUP"]);
    assert_eq!(found.code, Some(130), "{}", found.err);
    assert!(found.err.contains("go on with `--checkpoint"), "{}", found.err);

    let run = train(&schedule, &scratch.path("ignored"));
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    ignoring.arg(run.get_program()).args(run.get_args());
    let (child, out, text) = begun(&mut ignoring);
    signal(&child, "-HUP");
    goes_on((child, out), text, 50);
}

/// What is not whole may be many gigabytes.
#[test]
fn examples_that_are_interrupted_leave_no_part_behind() {
    let scratch = Scratch::new("interrupt-examples");
    let schedule = compiled(&scratch);
    for name in ["-INT", "-TERM", "-HUP"] {
        let folder = scratch.path(name);
        let names = || {
            let entries = fs::read_dir(&folder).into_iter().flatten();
            entries
                .map(|own| own.expect("it can be read").file_name())
                .collect::<Vec<_>>()
        };
        let mut data = roundelay("data --steps 400000 -o");
        data.arg(&folder).arg(&schedule).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = data.spawn().expect("the binary starts");
        while names().is_empty() {
            assert!(child.try_wait().expect("it is a child").is_none(), "it ended");
            thread::sleep(Duration::from_millis(2));
        }
        signal(&child, name);
        let found = Ended::from(child.wait_with_output().expect("it ends"));
        assert_eq!(found.code, 130, "{}", found.err);
        let told = "interrupted: not all examples were written";
        assert!(found.err.contains(told), "{}", found.err);
        assert!(names().is_empty(), "{:?}", names());
    }
}

/// A rank that has reached rank 0, and waits for it to begin.
#[test]
fn a_rank_that_waits_for_others_ends_at_once() {
    let scratch = Scratch::new("interrupt-early");
    let schedule = compiled(&scratch);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let mut run = roundelay("run --deadline 3600");
    let rank = [("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", 2)];
    run.envs(rank.map(|(name, number)| (name, number.to_string())));
    run.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", (port - 1).to_string());
    run.arg(&schedule).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = run.spawn().expect("the binary starts");
    let _rank_0 = listener.accept().expect("it comes");
    interrupt(&child);
    let found = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(found.code, 130, "{}", found.err);
    assert!(found.err.contains("interrupted before the first step"), "{}", found.err);
}

/// A wrong number of ranks, or one that is started alone, is no matter of ten minutes.
#[test]
fn ranks_say_for_whom_they_wait() {
    for (rank, waits) in [
        (0, "note: rank 0 waits at 127.0.0.1:PORT for ranks 1, 2 of 3"),
        (2, "note: rank 2 does not reach rank 0 at 127.0.0.1:PORT yet"),
    ] {
        says_for_whom_it_waits(rank, waits);
    }
}

fn says_for_whom_it_waits(rank: u16, waits: &str) {
    let scratch = Scratch::new("interrupt-waits");
    let mut run = roundelay("run --deadline 3600");
    let rank = [("RANK", rank), ("LOCAL_RANK", 0), ("WORLD_SIZE", 3)];
    run.envs(rank.map(|(name, number)| (name, number.to_string())));
    let free = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr());
    let port = free.expect("a port is free").port();
    run.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", (port - 1).to_string());
    run.arg(compiled(&scratch)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("the binary starts");
    let mut err = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("messages are UTF-8");
    let waits = waits.replace("PORT", &port.to_string());
    assert!(line.starts_with(&waits), "{line}");
    interrupt(&child);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

/// A run whose output is not read comes to no rest.
#[test]
fn a_later_interruption_ends_the_run_at_once() {
    let scratch = Scratch::new("interrupt-twice");
    let (schedule, kept) = (compiled(&scratch), scratch.path("kept"));
    let (child, _out, _) = begun(&mut train(&schedule, &kept));
    for name in ["-INT", "-TERM"] {
        signal(&child, name);
        thread::sleep(Duration::from_millis(1_200));
    }
    let found = Ended::from(child.wait_with_output().expect("it ends"));
    assert_eq!(found.code, 130, "{}", found.err);
}

/// `timeout` signals its child and then the group of both.
/// As with Ctrl-Z and `fg`: what wakes has waited for nobody. An action takes longer than the driver
/// sleeps, so none has ended when it looks again.
#[test]
fn a_run_that_is_suspended_for_longer_than_its_deadline_goes_on() {
    let scratch = Scratch::new("suspended");
    let wide = PROGRAM.replace(", 16]", ", 2048]").replace(", 16)", ", 2048)");
    let wide = wide.replace("batch 16", "batch 256").replace("repeat 4", "repeat 1");
    let mut run = roundelay("run --device cpu --json --deadline 2");
    let (child, out, _) = begun(run.arg(scratch.file("wide.rdl", &wide)));
    signal(&child, "-STOP");
    thread::sleep(Duration::from_secs(5));
    signal(&child, "-CONT");
    goes_on((child, out), String::new(), 5);
}

#[test]
fn signals_that_come_together_are_one_and_lose_nothing() {
    let scratch = Scratch::new("interrupt-together");
    let (schedule, kept) = (compiled(&scratch), scratch.path("kept"));
    let found = stopped(&mut train(&schedule, &kept), &["-INT", "-TERM"]);
    assert_eq!(found.code, Some(130), "{}", found.err);
    assert!(found.err.contains("go on with `--checkpoint"), "{}", found.err);
    assert!(!found.err.contains("ends now\n"), "{}", found.err);
    let end = found.lines.last().expect("there are lines");
    assert_eq!(end["event"], "end", "{}", found.err);
}

/// What `plan` with these words prints when Ctrl-C comes so long after its search, if not after its
/// last line.
fn known(scratch: &Scratch, words: &str, later: Duration) -> Ended {
    let best = scratch.path("best.yaml");
    let _ = fs::remove_file(&best);
    let program = root().join("examples/quickstart.rdl");
    let mut command = roundelay(&format!("plan {words} -o"));
    command.arg(&best).arg(program).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // The best plan is written between the search and what is asked besides.
    while !best.exists() {
        let ended = child.try_wait().expect("it is a child");
        assert!(ended.is_none(), "it ended on its own: {ended:?}");
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(later);
    interrupt(&child);
    Ended::from(child.wait_with_output().expect("it ends"))
}

/// The document of the same.
fn known_document(scratch: &Scratch, words: &str, later: Duration) -> Value {
    let found = known(scratch, &format!("{words} --json"), later);
    assert_eq!(found.code, 130, "{found:?}");
    let document = serde_json::from_str(&found.out).expect("it is whole");
    schema::hold("plan", &document);
    document
}

#[test]
fn an_interruption_after_the_search_leaves_the_ranking() {
    let scratch = Scratch::new("interrupt-explanation");
    let missing = "the explanation was not made";
    let found = known(&scratch, "--explain", Duration::ZERO);
    assert_eq!(found.code, 130, "{found:?}");
    assert!(found.err.contains(missing), "{}", found.err);
    assert!(found.out.contains("rank") && found.out.contains("step time"), "{found:?}");
    let document = known_document(&scratch, "--explain", Duration::ZERO);
    assert_eq!(document["plans"][0]["rank"], 1);
    assert!(document["notes"].to_string().contains(missing), "{}", document["notes"]);
    assert!(document.get("explain").is_none());
}

/// Before a plan is clocked for it there is no front; sooner or later the signal comes in between.
#[test]
fn an_interrupted_front_is_of_what_was_found() {
    let scratch = Scratch::new("interrupt-front");
    let found = known(&scratch, "--pareto", Duration::ZERO);
    assert_eq!(found.code, 130, "{found:?}");
    let told = ["the front was not found", "clocked so far"];
    assert!(told.iter().any(|words| found.err.contains(words)), "{}", found.err);
    assert!(found.out.contains("rank") && found.out.contains("step time"), "{found:?}");
    for eighths in 0.. {
        let later = Duration::from_millis(125 * eighths);
        let document = known_document(&scratch, "--pareto --explain", later);
        assert_eq!(document["plans"][0]["rank"], 1);
        assert!(document.get("explain").is_none());
        let notes = document["notes"].to_string();
        let Some(front) = document.get("front") else {
            assert!(notes.contains("neither front nor explanation was made"), "{notes}");
            continue;
        };
        assert!(notes.contains("the explanation was not made"), "{notes}");
        assert_eq!(front["complete"], false);
        assert!(front["open"].as_u64() > Some(0), "{front}");
        assert!(!front["plans"].as_array().expect("the schema holds").is_empty());
        return;
    }
}

/// Waits until a process listens for Ctrl-C.
#[cfg(target_os = "linux")]
fn until_it_listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    loop {
        let text = fs::read_to_string(&status).expect("it runs");
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16));
        // Signals count from one, and this one is the second.
        if caught.expect("Linux tells").expect("a mask") & 2 != 0 {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// However early the signal comes, whoever reads JSON gets a document.
#[cfg(target_os = "linux")]
#[test]
fn a_search_that_is_interrupted_before_it_found_a_plan_says_so() {
    let program = root().join("examples/gpt-1024.rdl");
    for (json, name) in
        [(true, "-INT"), (false, "-INT"), (false, "-TERM"), (false, "-HUP")]
    {
        let mut command = roundelay(if json { "plan --json" } else { "plan" });
        command.arg(&program).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        until_it_listens(&child);
        signal(&child, name);
        let found = Ended::from(child.wait_with_output().expect("it ends"));
        assert_eq!(found.code, 130, "{found:?}");
        assert!(found.err.contains("interrupted"), "{}", found.err);
        if !json {
            assert_eq!(found.out, "");
            continue;
        }
        let document: Value = serde_json::from_str(&found.out).expect("it is whole");
        schema::hold("diagnostics", &document);
        assert_eq!(document["diagnostics"][0]["code"], "interrupted");
    }
}

/// A plan for thousands of devices alone may take longer than anybody waits for an end.
#[cfg(target_os = "linux")]
#[test]
fn a_search_over_a_large_flat_cluster_ends_soon_after_an_interruption() {
    let scratch = Scratch::new("interrupt-flat");
    let flat =
        PROGRAM.replace("2 x core", "4096 x core").replace("batch 16", "batch 4096");
    let plan = flat.find("plan {").expect("it has one");
    let program = scratch.file("flat.rdl", &flat[..plan]);
    for later in [1, 3] {
        let mut command = roundelay("plan");
        command.arg(&program).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        until_it_listens(&child);
        thread::sleep(Duration::from_secs(later));
        let wished = Instant::now();
        interrupt(&child);
        let found = Ended::from(child.wait_with_output().expect("it ends"));
        // A fast machine may have ended it before.
        let is_told = found.code == 130 && found.err.contains("interrupted");
        assert!(is_told || found.code == 0, "{found:?}");
        assert!(wished.elapsed() < Duration::from_secs(15), "{:?}", wished.elapsed());
    }
}

/// Whatever searches first: a program whose search takes long.
#[cfg(target_os = "linux")]
#[test]
fn a_search_before_other_work_ends_at_an_interruption_and_says_so() {
    let scratch = Scratch::new("interrupt-before");
    // In a type that this machine measures: another one is refused before any search.
    let text = fs::read_to_string(root().join("examples/gpt-1024.rdl"));
    let text = text.expect("it is shipped").replace("bf16", "f32");
    let program = scratch.file("gpt.rdl", &text);
    let output = scratch.path("never");
    for words in ["compile", "run", "evaluate", "data", "profile"] {
        let mut command = roundelay(words);
        command.args(["--json".as_ref(), program.as_os_str()]);
        match words {
            "run" => &mut command,
            "evaluate" => command.arg("--weights").arg(&output),
            _ => command.arg("-o").arg(&output),
        };
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the binary starts");
        until_it_listens(&child);
        interrupt(&child);
        let found = Ended::from(child.wait_with_output().expect("it ends"));
        assert_eq!(found.code, 130, "{words}: {found:?}");
        assert!(found.err.contains("interrupted: "), "{words}: {}", found.err);
        let document: Value = serde_json::from_str(&found.out).expect("it is whole");
        schema::hold("diagnostics", &document);
        assert_eq!(document["diagnostics"][0]["code"], "interrupted", "{words}");
        assert!(!output.exists(), "{words}");
    }
}
