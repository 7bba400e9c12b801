//! `run`: train, with progress, and compare prediction with measurement at the end.

mod end;
mod progress;
mod tell;

pub(super) use tell::{Note, held_out};

use super::{
    Form,
    args::{DeviceChoice, GraphChoice, RunArgs},
    compile,
    failure::Failure,
    load::{self, Input},
    note, print, print_json,
    watch::{Known, Watch, leave},
};
use progress::{Beside, Progress};
use roundelay::{
    Checked, Every, Folder, Given, Graphs, Interrupt, Met, On, Outcome, RunOptions,
    SearchOptions, Seat, Start, parts::planner,
};
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tell::{StoppedBy, Teller};

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let seat = Seat::of_environment().map_err(|error| Failure::ranks(&error))?;
    let told = Told::of(&seat);
    let on = choose_device(args)?;
    let nothing = nothing(args, told)?;
    let mut watch = Watch::new(nothing.clone())?;
    let mut options = RunOptions {
        on,
        steps: args.steps,
        data: args.data.clone().into(),
        sources: Vec::new(),
        start: choose_start(args),
        save: args.save.clone(),
        interrupt: Interrupt::default(),
        seat,
        deadline: Duration::from_secs(args.deadline),
    };
    let schedule = watch.follow(nothing, |_| prepare(args, told, &mut options))?;
    let progress = Progress::new();
    options.interrupt = interrupt(watch, progress.beside());
    let mut teller = Teller::new(args.json, progress, options.interrupt.clone());
    let outcome = roundelay::run(&schedule, &options, |event| teller.tell(event));
    let (printed, stopped_by) = teller.done();
    let outcome = outcome.map_err(|error| Failure::run(&args.program.file, &error))?;
    if told == Told::Here && printed.is_ok() {
        end::tell(&schedule, &outcome, args.json)?;
        tell_saved(args)?;
    }
    let end = args.steps.unwrap_or(schedule.job.steps);
    let early = options.interrupt.is_raised() && outcome.report.end < end;
    let stopped = early.then(|| stopped(args, &outcome, stopped_by));
    ended(printed, stopped)
}

/// How a run ended that came to rest: with all steps, or with those before it was stopped. A reader that
/// has gone away stops it like Ctrl-C.
fn ended(printed: io::Result<()>, stopped: Option<String>) -> Result<(), Failure> {
    match (printed, stopped) {
        (Err(error), stopped) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::output(&error).with(stopped.as_deref()))
        }
        (Ok(()) | Err(_), Some(stopped)) => Err(Failure::interrupted(&stopped)),
        (Ok(()) | Err(_), None) => Ok(()),
    }
}

/// Which of several ranks tells what happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// This one, which is the first.
    Here,
    Elsewhere,
}

impl Told {
    fn of(seat: &Seat) -> Self {
        if seat.is_first() { Self::Here } else { Self::Elsewhere }
    }
}

/// What Ctrl-C leaves while a schedule is made or read; of several ranks the first one tells it.
fn nothing(args: &RunArgs, told: Told) -> Result<Known, Failure> {
    let tells = told == Told::Here && args.json;
    Known::nothing(NOTHING, &args.program.file, tells.then_some(Form::Line))
}

/// What comes of a run that did not begin.
const NOTHING: &str = "nothing was trained";

/// The first wish for an end ends a run after the steps that were begun, one that comes later ends it at once,
/// and so does any while nothing was begun: ranks may wait long for each other. Before the run, while the
/// planner works, nothing is lost, and it ends there, as `watch` says.
fn interrupt(watch: Watch, beside: Beside) -> Interrupt {
    let interrupt = Interrupt::default();
    let raised = interrupt.clone();
    let handler = move || match raised.raise() {
        Met::Run => {
            beside.note(
                "interrupted: finishes the steps that were begun; again to end now",
            );
        }
        Met::Echo => {}
        Met::Preparation => {
            note(&format!("interrupted before the first step: {NOTHING}"));
            leave()
        }
        Met::Wish => {
            note("interrupted again: ends now");
            leave()
        }
    };
    watch.hand_over(handler);
    interrupt
}

/// Where an interrupted run stands, why where nobody has interrupted it, and how it goes on.
fn stopped(args: &RunArgs, outcome: &Outcome, by: StoppedBy) -> String {
    let kept = match &args.checkpoint {
        Some(folder) => {
            let folder = quoted(&folder.display().to_string());
            let steps = args.steps.map(|steps| format!(" --steps {steps}"));
            let steps = steps.unwrap_or_default();
            format!("go on with `--checkpoint {folder} --resume{steps}`")
        }
        None => "no checkpoint was kept; `--checkpoint` keeps them".to_owned(),
    };
    let cause = match by {
        StoppedBy::Reader => ", for whoever read standard output has closed it",
        StoppedBy::Other => "",
    };
    format!("interrupted after step {}{cause}; {kept}", outcome.report.end)
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./+=:,@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// What a choice says of a machine whose periods are graphs or not.
pub(super) fn on(device: DeviceChoice, graphs: Graphs) -> On {
    match device {
        DeviceChoice::Auto => On::Best(graphs),
        DeviceChoice::Cpu => On::Cpu,
        DeviceChoice::Cuda => On::Cuda(graphs),
    }
}

fn choose_device(args: &RunArgs) -> Result<On, Failure> {
    let graphs = match args.graphs {
        None | Some(GraphChoice::Periods) => Graphs::Periods,
        Some(GraphChoice::Launches) => Graphs::Launches,
        Some(GraphChoice::Never) => Graphs::Never,
    };
    needs_gpu(args.device, ("--graphs", args.graphs), &args.program.file)?;
    Ok(on(args.device, graphs))
}

/// Refuses an option that was given for GPUs where none is to be taken.
pub(super) fn needs_gpu<T>(
    device: DeviceChoice,
    (option, given): (&str, Option<T>),
    file: &Path,
) -> Result<(), Failure> {
    match (device, given) {
        (DeviceChoice::Cpu, Some(_)) => {
            let message =
                format!("`{option}` is for GPUs, and `--device cpu` takes none");
            Err(Failure::usage(file, &message))
        }
        (DeviceChoice::Auto | DeviceChoice::Cuda, Some(_)) | (_, None) => Ok(()),
    }
}

fn choose_start(args: &RunArgs) -> Start {
    let every = Every::new(args.checkpoint_every).expect("its range begins at 1");
    let folder = args.checkpoint.clone().map(|path| Folder { path, every });
    let given = |file: &PathBuf| Given { file: file.clone(), fresh: args.fresh.clone() };
    let weights = args.weights.as_ref().map(given);
    match folder {
        Some(folder) if args.resume => Start::Resume { folder, weights },
        keep => Start::Anew { weights, keep },
    }
}

fn tell_saved(args: &RunArgs) -> Result<(), Failure> {
    match &args.save {
        Some(file) if !args.json => print(&format!("weights in `{}`\n", file.display())),
        Some(_) | None => Ok(()),
    }
}

/// Plans and compiles a program, behind a look at what any plan of it needs, or reads a schedule.
fn prepare(
    args: &RunArgs,
    told: Told,
    options: &mut RunOptions,
) -> Result<Checked, Failure> {
    let input = load::input(&args.program)?;
    match told {
        Told::Here => input.warn(&args.program.file),
        Told::Elsewhere => {}
    }
    options.sources = match &input {
        Input::Program(loaded) => loaded.read.clone(),
        Input::Schedule(_) => vec![args.program.file.clone()],
    };
    let loaded = match input {
        Input::Program(loaded) => loaded,
        Input::Schedule(schedule) => return Ok(*schedule),
    };
    let program = &loaded.program;
    let ahead = options.look_ahead(program);
    ahead.map_err(|error| Failure::run(&args.program.file, &error))?;
    let ranking = compile::ranking(&loaded, &SearchOptions::default())?;
    match (told, args.json) {
        (Told::Elsewhere, _) => {}
        (Told::Here, true) => {
            let notes = planner::remarks(&ranking, program);
            let plan = &planner::document(&ranking, program).with_notes(notes);
            print_json(&PlanLine { event: "plan", plan }, Form::Line)?;
        }
        (Told::Here, false) => print(&roundelay::table(&ranking, program))?,
    }
    compile::lowered(&loaded, ranking.best())
}

/// The JSON line of the search.
#[derive(Serialize)]
struct PlanLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    plan: &'a planner::Document,
}
