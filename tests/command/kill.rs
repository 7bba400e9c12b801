//! A run that is killed at random instants and resumed trains to the same bits as one that is not.

use crate::support::{Scratch, lines, printed, refused, roundelay};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Of each rule.
const KILLS: u32 = 10;

/// Four stages of one block each, cut by hand, so that workers and pipeline sum alike.
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
cluster four { 4 x core joined by bus }
train {
    data synthetic, batch 16, steps STEPS, seed 5
    optimizer adamw(lr = warmup(4, 1e-2))
    evaluate { every 10 }
}
plan {
    exactness delayed, rule RULE, placement PLACEMENT, micro_batches 4, stages 4
    cuts [5, 10, 15]
}
"#;

fn program(rule: &str, placement: &str, steps: u64) -> String {
    PROGRAM
        .replace("RULE", rule)
        .replace("PLACEMENT", placement)
        .replace("STEPS", &steps.to_string())
}

/// A schedule file, so that every start is quick.
fn compiled(scratch: &Scratch, rule: &str, placement: &str, steps: u64) -> PathBuf {
    let source = scratch.file("ladder.rdl", &program(rule, placement, steps));
    let schedule = scratch.path(&format!("{placement}.schedule"));
    printed(roundelay("compile").arg(source).arg("-o").arg(&schedule));
    schedule
}

fn train(schedule: &Path, checkpoints: &Path) -> Command {
    let mut command = roundelay("run --json --checkpoint-every 2 --checkpoint");
    command.arg(checkpoints).arg(schedule);
    command
}

/// Losses as they are printed, with all their digits, by what they are of and step; a step that
/// was trained again must come to the same loss.
#[derive(Debug, Default, PartialEq)]
struct Losses(BTreeMap<(String, u64), String>);

impl Losses {
    fn add(&mut self, text: &str, line: &Value) {
        let event = line["event"].as_str().expect("every line has an event");
        let printed =
            text.split_once("\"loss\":").and_then(|(_, rest)| rest.split_once(','));
        if let (Some(step), Some((loss, _))) = (line["step"].as_u64(), printed) {
            let known = self.0.insert((event.to_owned(), step), loss.to_owned());
            assert!(known.is_none_or(|known| known == loss), "{event} {step}: {loss}");
        }
    }

    fn extend(&mut self, text: &str) {
        text.lines().zip(lines(text)).for_each(|(text, line)| self.add(text, &line));
    }

    fn of(text: &str) -> Self {
        let mut losses = Self::default();
        losses.extend(text);
        losses
    }

    fn steps(&self) -> usize {
        self.0.keys().filter(|(event, _)| event == "step").count()
    }
}

/// What a run says when it begins, if it came so far.
fn begun(text: &str) -> Option<Value> {
    lines(text).into_iter().find(|line| line["event"] == "begin")
}

/// How long a run is left alone.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// To its end.
    Whole,
    /// Until it has printed this many lines, and then so many milliseconds.
    Until { lines: u64, millis: u64 },
}

impl Life {
    /// Ends before the first line, within a step, or between two.
    fn draw(state: &mut u64) -> Self {
        Life::Until { lines: random(state, 16), millis: random(state, 30) }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Natural,
    Killed,
}

/// Starts a run, kills it when its time has come, and returns the whole lines that it printed.
fn lived(command: &mut Command, life: Life) -> (String, Death) {
    let out = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = out.spawn().expect("the binary starts");
    let mut pipe = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut text = String::new();
    if let Life::Until { lines, millis } = life {
        for _ in 0..lines {
            pipe.read_line(&mut text).expect("the output is text");
        }
        thread::sleep(Duration::from_millis(millis));
        child.kill().expect("a child that was not waited for can be killed");
    }
    pipe.read_to_string(&mut text).expect("the output is text");
    let status = child.wait().expect("it was started");
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    match status.code() {
        None => (text, Death::Killed),
        Some(code) => {
            assert_eq!(code, 0, "{command:?}");
            (text, Death::Natural)
        }
    }
}

/// Numbers below a bound, the same ones every time.
fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % bound
}

/// Trains with kills, each after some lines and milliseconds drawn at random, again from the start
/// when a run comes to its end; every run must come to the losses of one that nobody disturbs.
fn survives_kills(rule: &str, seed: u64) {
    let scratch = Scratch::new(&format!("kill-{rule}"));
    let schedule = compiled(&scratch, rule, "data", 40);
    let whole = Losses::of(&printed(&mut train(&schedule, &scratch.path("whole"))));
    assert_eq!(whole.steps(), 40);
    let (mut random, mut kills) = (seed, 0);
    for round in 0.. {
        let mut losses = Losses::default();
        let mut run = train(&schedule, &scratch.path(&format!("round{round}")));
        run.arg("--resume");
        loop {
            let life = match kills < KILLS {
                true => Life::draw(&mut random),
                false => Life::Whole,
            };
            let (text, death) = lived(&mut run, life);
            losses.extend(&text);
            match death {
                Death::Killed => kills += 1,
                Death::Natural => break,
            }
        }
        assert_eq!(losses, whole, "round {round}");
        if kills == KILLS {
            break;
        }
    }
}

#[test]
fn synchronous_runs_survive_kills() {
    survives_kills("sync", 1);
}

#[test]
fn cyclic_runs_survive_kills() {
    survives_kills("cyclic_v2", 2);
}

#[test]
fn two_versions_survive_kills() {
    survives_kills("cyclic_v1", 3);
}

/// Losses of a run of workers, and of one that was killed and goes on as a pipeline, with what the
/// latter says about it.
fn workers_and_pipeline(rule: &str) -> (Losses, Losses, String) {
    let scratch = Scratch::new(&format!("other-placement-{rule}"));
    let source = scratch.file("ladder.rdl", &program(rule, "data | pipeline", 40));
    let run = |placement: &str, folder: &str| {
        let mut command = train(&source, &scratch.path(folder));
        command.args(["--resume", "--set", &format!("placement = {placement}")]);
        command
    };
    let whole = Losses::of(&printed(&mut run("data", "whole")));
    let (text, _) = lived(&mut run("data", "half"), Life::Until { lines: 20, millis: 0 });
    let mut losses = Losses::of(&text);
    let (rest, _) = lived(&mut run("pipeline", "half"), Life::Whole);
    let begun = begun(&rest).expect("the run comes to its end");
    losses.0.retain(|(_, step), _| Some(*step) < begun["first"].as_u64());
    losses.extend(&rest);
    (whole, losses, begun["resumed"].as_str().expect("the schema holds").to_owned())
}

#[test]
fn cyclic_workers_go_on_as_a_pipeline_with_the_same_bits() {
    for rule in ["cyclic_v1", "cyclic_v2"] {
        let (whole, losses, resumed) = workers_and_pipeline(rule);
        assert_eq!(resumed, "goes on exactly", "{rule}");
        assert_eq!(losses, whole, "{rule}");
    }
}

/// An all-reduce adds whole gradients; a pipeline goes on with its sums term by term.
#[test]
fn synchronous_workers_go_on_as_a_pipeline_and_say_that_bits_differ() {
    let (whole, losses, resumed) = workers_and_pipeline("sync");
    assert!(resumed.starts_with("goes on with other bits"), "{resumed}");
    assert!(losses.0.keys().eq(whole.0.keys()));
    let numbers = |losses: &Losses| -> Vec<f64> {
        losses.0.values().map(|loss| loss.parse().expect("a loss is a number")).collect()
    };
    for (found, expected) in numbers(&losses).into_iter().zip(numbers(&whole)) {
        assert!((found - expected).abs() <= 1e-4 * expected, "{found}, not {expected}");
    }
}

/// A job that is started again while it still runs leaves alone what the first one keeps; once that
/// is killed, nothing stands in the way.
#[test]
fn a_folder_is_of_one_run_at_a_time() {
    let scratch = Scratch::new("kill-held");
    let schedule = compiled(&scratch, "sync", "data", 1_000_000);
    let folder = scratch.path("kept");
    let mut first = train(&schedule, &folder);
    let mut first = first.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut pipe = BufReader::new(first.stdout.take().expect("the output is piped"));
    let mut line = String::new();
    while !line.contains(r#""event":"step""#) {
        line.clear();
        assert!(pipe.read_line(&mut line).expect("the output is text") > 0, "it trains");
    }
    let mut again = train(&schedule, &folder);
    again.arg("--resume");
    refused(&mut again, 1, &["another run writes checkpoints to", "kept"]);
    first.kill().expect("a child that was not waited for can be killed");
    first.wait().expect("it was started");
    printed(again.args(["--steps", "0"]));
}
