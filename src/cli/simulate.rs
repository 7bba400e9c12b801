//! `simulate` and `show`: a schedule on the clock.

use super::{
    FORMAT, Form,
    args::{ShowArgs, ShowForm, SimulateArgs},
    failure::Failure,
    load, print, print_json,
    problem::Code,
};
use roundelay::{
    Checked,
    parts::{
        dsl::write_lists,
        schedule::{Nanos, Simulation, lists_of, simulate_steady},
    },
};
use serde::Serialize;
use std::path::Path;

/// Actions of a timeline that is kept in memory.
const REPLAYED_MAX: u64 = 1 << 24;

/// Training steps that may be replayed however many actions they have.
const STEPS_LEAST: u64 = 8;

/// Training steps of a timeline where nothing is said.
const STEPS_SHOWN: u64 = 3;

#[derive(Serialize)]
struct Document {
    format: u32,
    steps: u64,
    step_time_s: f64,
    makespan_s: f64,
    bubble: f64,
    /// None where a step takes no time.
    samples_per_s: Option<f64>,
}

pub(super) fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    let schedule = load::schedule(&args.file)?;
    let timeline = match args.steps {
        Some(steps) => replayed(&schedule, steps, &args.file)?,
        None => steady(&schedule, &args.file)?,
    };
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let step_time = timeline.step_time();
    let document = Document {
        format: FORMAT,
        steps: timeline.steps(),
        step_time_s: seconds(step_time.0),
        makespan_s: seconds(timeline.makespan().0),
        bubble: timeline.bubble(),
        samples_per_s: (step_time > Nanos(0))
            .then(|| f64::from(schedule.job.batch) / seconds(step_time.0)),
    };
    if args.json {
        return print_json(&document, Form::Document);
    }
    let rate = document.samples_per_s;
    let rate = rate.map_or(String::new(), |rate| format!("{rate:.1} samples/s, "));
    let steps = match document.steps {
        1 => "1 step takes".to_owned(),
        steps => format!("{steps} steps take"),
    };
    let over = match timeline.is_steady() {
        true => "",
        false => " over all steps, with start and drain",
    };
    print(&format!(
        "predicted: {step_time} a step, {rate}bubble {:.1} %{over}; {steps} {}\n",
        100.0 * document.bubble,
        timeline.makespan()
    ))
}

/// The longest timeline that memory can hold.
fn steps_most(schedule: &Checked) -> u64 {
    (REPLAYED_MAX / schedule.actions.len().max(1) as u64).max(STEPS_LEAST)
}

/// The timeline of this many training steps, if it is one that memory can hold.
fn replayed<'a>(
    schedule: &'a Checked,
    steps: u64,
    path: &Path,
) -> Result<Simulation<'a>, Failure> {
    let most = steps_most(schedule);
    if steps > most {
        let message = format!(
            "{steps} training steps of {} actions are too long a timeline: at most {most} fit",
            schedule.actions.len()
        );
        return Err(Failure::refused(Code::Limit, path, message));
    }
    counted(roundelay::simulate(schedule, steps), path)
}

/// The timeline of so many steps that the steady state is seen.
fn steady<'a>(schedule: &'a Checked, path: &Path) -> Result<Simulation<'a>, Failure> {
    counted(simulate_steady(schedule), path)
}

/// A timeline that came to its end.
fn counted<'a>(timeline: Simulation<'a>, path: &Path) -> Result<Simulation<'a>, Failure> {
    match timeline.endless() {
        Some(endless) => Err(Failure::refused(Code::Limit, path, endless.to_string())),
        None => Ok(timeline),
    }
}

pub(super) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let schedule = load::schedule(&args.file)?;
    if args.form == ShowForm::Csv && args.steps.is_some() {
        let message = "`--as csv` has the passes of one training step; drop `--steps`";
        return Err(Failure::usage(&args.file, message));
    }
    let steps = args.steps.unwrap_or(STEPS_SHOWN);
    let timeline = || replayed(&schedule, steps, &args.file);
    match args.form {
        ShowForm::Grid => {
            let timeline = timeline()?;
            let steady = steady(&schedule, &args.file)?;
            print(&roundelay::grid(&timeline, &steady, Nanos(0), timeline.makespan()))
        }
        ShowForm::Trace => print_json(&roundelay::trace(&timeline()?), Form::Document),
        ShowForm::Html => {
            print(&roundelay::page(&timeline()?, &steady(&schedule, &args.file)?))
        }
        ShowForm::Csv => match lists_of(&schedule) {
            Ok(lists) => print(&write_lists(&lists)),
            Err(why) => Err(Failure::refused(Code::Lists, &args.file, why.to_string())),
        },
    }
}
