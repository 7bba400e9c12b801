//! `devices`: what this machine has, as a cluster file.

mod compiled;
mod kernels;

use super::{FORMAT, Form, args::DevicesArgs, failure::Failure, load, print, print_json};
use roundelay::parts::{
    runtime::{Exercise, RankFacts, SelfCheck, SelfCheckRow},
    schedule::Bytes,
};
use serde::Serialize;
use std::{fmt::Write, time::Duration};

#[derive(Serialize)]
struct Document {
    format: u32,
    cluster: String,
    missing: Vec<String>,
}

/// What came of a self-check.
#[derive(Serialize)]
struct Checked<'a> {
    format: u32,
    ranks: &'a [RankFacts],
    rows: Vec<CheckedRow<'a>>,
}

#[derive(Serialize)]
struct CheckedRow<'a> {
    exercise: Exercise,
    bytes: u64,
    time_s: f64,
    bytes_per_s: u64,
    wrong_ranks: &'a [u32],
}

/// All ranks check; the first one says what came of it.
fn self_check(args: &DevicesArgs) -> Result<(), Failure> {
    let (largest, deadline) =
        (Bytes(args.largest << 20), Duration::from_secs(args.deadline));
    let checked = roundelay::self_check(largest, deadline)
        .map_err(|error| Failure::gpus(&error))?;
    let Some(checked) = checked else { return Ok(()) };
    match args.json {
        true => print_json(&document(&checked), Form::Document)?,
        false => print(&table(&checked))?,
    }
    match checked.is_right() {
        true => Ok(()),
        false => Err(Failure::wrong(
            "some ranks got other numbers than they should; do not train on these GPUs, links \
             or libraries before they get the right ones",
        )),
    }
}

fn document(checked: &SelfCheck) -> Checked<'_> {
    let rows = checked.rows.iter().map(|row| CheckedRow {
        exercise: row.exercise,
        bytes: row.size.0,
        time_s: row.time.0 as f64 / 1e9,
        bytes_per_s: row.bandwidth.0,
        wrong_ranks: &row.wrong,
    });
    Checked { format: FORMAT, ranks: &checked.ranks, rows: rows.collect() }
}

fn table(checked: &SelfCheck) -> String {
    let mut text = String::new();
    for RankFacts { rank, host, device, nccl } in &checked.ranks {
        let _ = writeln!(text, "rank {rank} on {host}: {device}, NCCL {nccl}");
    }
    let _ = writeln!(
        text,
        "{:<16} {:>10} {:>12} {:>12}  numbers",
        "", "row", "time", "per link"
    );
    for SelfCheckRow { exercise, size, time, bandwidth, wrong } in &checked.rows {
        let name = match exercise {
            Exercise::AllReduce => "all-reduce",
            Exercise::ReduceScatter => "reduce-scatter",
            Exercise::Ring => "ring",
            Exercise::InTurn => "ring in turn",
            Exercise::AllToAll => "all-to-all",
        };
        let ranks: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let numbers = match ranks.as_slice() {
            [] => "right".to_owned(),
            ranks => format!("WRONG on ranks {}", ranks.join(", ")),
        };
        let _ = writeln!(
            text,
            "{name:<16} {:>10} {:>12} {:>12}  {numbers}",
            size.to_string(),
            time.to_string(),
            bandwidth.to_string()
        );
    }
    text
}

pub(super) fn devices(args: &DevicesArgs) -> Result<(), Failure> {
    if args.self_check {
        return self_check(args);
    }
    if args.check_kernels {
        return kernels::check(args);
    }
    if args.compile {
        return compiled::compile(args);
    }
    let cluster = roundelay::machine();
    if let Some(path) = &args.output {
        load::replace(path, &cluster)?;
    }
    if args.json {
        let absent = roundelay::gpus().err();
        let missing =
            absent.map(|absent| format!("cuda: {absent}")).into_iter().collect();
        return print_json(
            &Document { format: FORMAT, cluster, missing },
            Form::Document,
        );
    }
    print(&cluster)
}
