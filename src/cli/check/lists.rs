//! `check lists.csv`: whether lists of passes are a training step, and what it takes.

use crate::cli::{
    FORMAT, Form, args::CheckArgs, failure::Failure, load, print, print_json,
};
use roundelay::parts::{
    dsl::{Lists, read_lists},
    schedule::{
        DeviceList, Pass, Units, begins_schedule, counted, item_times, listed_in,
    },
};
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    format: u32,
    devices: usize,
    stages: u32,
    micro_batches: u32,
    passes: usize,
    /// In units of a forward pass.
    span: u64,
    bubble: f64,
    kept: Vec<usize>,
}

pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    if args.seal {
        return Err(Failure::usage(&args.file, "lists have no hash to seal"));
    }
    let text = load::text(&args.file)?;
    if begins_schedule(&text) {
        let message = "this is a schedule file, not lists of passes";
        let hint = "give it another ending than `.csv`";
        return Err(Failure::mistaken(&args.file, message, hint));
    }
    let read = read_lists(&text);
    let lists = read.map_err(|mistakes| Failure::lists(&args.file, &mistakes))?;
    let document = document(&lists);
    match args.json {
        true => print_json(&document, Form::Document),
        false => print(&table(&document)),
    }
}

fn document(lists: &Lists) -> Document {
    let Lists { lists, stages, micro_batches } = lists;
    let times = item_times(lists, &Units::one(*stages))
        .expect("lists that were read come to their ends");
    let span = times.iter().map(|time| time.end).max().unwrap_or(0);
    let busy: u64 = times.iter().map(|time| time.end - time.start).sum();
    let whole = span * lists.len() as u64;
    Document {
        format: FORMAT,
        devices: lists.len(),
        stages: *stages,
        micro_batches: *micro_batches,
        passes: times.iter().map(|time| time.item.passes().len()).sum(),
        span,
        bubble: (whole - busy) as f64 / whole.max(1) as f64,
        kept: lists.iter().map(kept).collect(),
    }
}

/// The most forward passes whose last backward pass is still to come.
fn kept(list: &DeviceList) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for listed in listed_in(list) {
        match listed.pass {
            Pass::Forward => now += 1,
            Pass::Backward | Pass::WeightGradient => now -= 1,
            Pass::InputGradient | Pass::Combine | Pass::Norm | Pass::Update => {}
        }
        most = most.max(now);
    }
    most
}

fn table(document: &Document) -> String {
    let Document { devices, stages, micro_batches, passes, span, bubble, kept, .. } =
        document;
    let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
    format!(
        "checked: {} of {} and {} on {}\n\
         a step takes {span} if a forward pass takes 1, a backward pass 2, each half of one 1 \
         ({:.1} % idle)\n\
         kept at most: {} forward passes per device\n",
        counted(*passes as u64, "pass"),
        counted((*stages).into(), "stage"),
        counted((*micro_batches).into(), "micro-batch"),
        counted(*devices as u64, "device"),
        100.0 * bubble,
        kept.join(", ")
    )
}
