//! `run`: train, with progress, and compare prediction with measurement at the end.

use super::{
    FORMAT, Form,
    args::{DeviceChoice, GraphChoice, RunArgs},
    compile,
    failure::{Failure, INTERRUPTED},
    load::{self, Input},
    note, print, print_json,
};
use indicatif::{ProgressBar, ProgressStyle};
use roundelay::{
    Checked, Folder, Graphs, Interrupt, Measures, On, Outcome, RunEvent, RunOptions,
    Search, Seat, Start, TokenFacts,
    parts::{
        planner,
        runtime::{Measured, Resumed},
        schedule::{self, Kind},
    },
};
use serde::Serialize;
use std::{collections::BTreeMap, path::Path, process, slice, time::Duration};

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let start = choose_start(args)?;
    let seat =
        Seat::of_environment().map_err(|error| Failure::gpus(&error.to_string()))?;
    let told = Told::of(&seat);
    let schedule = prepare(args, told)?;
    let options = RunOptions {
        on: choose_device(args),
        steps: args.steps,
        data: args.data.clone(),
        start,
        save: args.save.clone(),
        interrupt: interrupt(&args.program.file)?,
        seat,
        deadline: Duration::from_secs(args.deadline),
    };
    let mut teller = Teller::new(args.json);
    let outcome = roundelay::run(&schedule, &options, |event| teller.tell(event))
        .map_err(|error| Failure::run(&args.program.file, &error))?;
    teller.bar.finish_and_clear();
    teller.printed?;
    if told == Told::Here {
        tell_end(&schedule, &outcome, args.json)?;
        tell_saved(args)?;
    }
    let end = args.steps.unwrap_or(schedule.job.steps);
    match options.interrupt.is_raised() && outcome.report.end < end {
        true => Err(Failure::interrupted(&stopped(args, &outcome))),
        false => Ok(()),
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
        if seat.rank == 0 { Self::Here } else { Self::Elsewhere }
    }
}

/// The first Ctrl-C ends a run after the steps that were begun, the second one at once. Before
/// the run, while the planner works, nothing is lost, and the signal does what it always does.
fn interrupt(file: &Path) -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let raised = interrupt.clone();
    let handler = move || {
        if raised.raise() {
            process::exit(INTERRUPTED.into());
        }
        note("interrupted: finishes the steps that were begun; again to end now");
    };
    match ctrlc::set_handler(handler) {
        Ok(()) => Ok(interrupt),
        Err(error) => {
            let message = format!("cannot listen for Ctrl-C: {error}");
            Err(Failure::refused("signal", file, message))
        }
    }
}

/// Where an interrupted run stands, and how it goes on.
fn stopped(args: &RunArgs, outcome: &Outcome) -> String {
    let kept = match &args.checkpoint {
        Some(folder) => {
            format!("go on with `--checkpoint {} --resume`", folder.display())
        }
        None => "no checkpoint was kept; `--checkpoint` keeps them".to_owned(),
    };
    format!("interrupted before step {}; {kept}", outcome.report.end)
}

/// What a choice says of a machine whose periods are graphs or not.
pub(super) fn on(device: DeviceChoice, graphs: Graphs) -> On {
    match device {
        DeviceChoice::Auto => On::Best(graphs),
        DeviceChoice::Cpu => On::Cpu,
        DeviceChoice::Cuda => On::Cuda(graphs),
    }
}

fn choose_device(args: &RunArgs) -> On {
    let graphs = match args.graphs {
        GraphChoice::Periods => Graphs::Periods,
        GraphChoice::Never => Graphs::Never,
    };
    on(args.device, graphs)
}

fn choose_start(args: &RunArgs) -> Result<Start, Failure> {
    let every = args.checkpoint_every;
    let folder = args.checkpoint.clone().map(|path| Folder { path, every });
    match (folder, &args.weights) {
        (Some(_), Some(_)) if args.resume => {
            let message = "`--resume` goes on with the weights of the newest checkpoint, \
                           `--weights` starts with others; leave one of the two away";
            Err(Failure::usage(&args.program.file, message))
        }
        (Some(folder), None) if args.resume => Ok(Start::Resume(folder)),
        (keep, weights) => Ok(Start::Anew { weights: weights.clone(), keep }),
    }
}

fn tell_saved(args: &RunArgs) -> Result<(), Failure> {
    match &args.save {
        Some(file) if !args.json => print(&format!("weights in `{}`\n", file.display())),
        Some(_) | None => Ok(()),
    }
}

/// Plans and compiles a program, or reads a schedule.
fn prepare(args: &RunArgs, told: Told) -> Result<Checked, Failure> {
    let input = load::input(&args.program)?;
    if let (Told::Here, Some(save)) = (told, &args.save) {
        let read = match &input {
            Input::Program(loaded) => &loaded.read[..],
            Input::Schedule(_) => slice::from_ref(&args.program.file),
        };
        load::try_output(save, read)?;
    }
    let loaded = match input {
        Input::Program(loaded) => loaded,
        Input::Schedule(schedule) => return Ok(*schedule),
    };
    let program = &loaded.program;
    let ranking = roundelay::plan(program, &Search::default())
        .map_err(|refusal| Failure::no_plan(&loaded, &refusal))?;
    match (told, args.json) {
        (Told::Elsewhere, _) => {}
        (Told::Here, true) => {
            let notes = planner::remarks(&ranking, program);
            let plan = &planner::document(&ranking).with_notes(notes);
            print_json(&PlanLine { event: "plan", plan }, Form::Line)?;
        }
        (Told::Here, false) => print(&roundelay::table(&ranking, program))?,
    }
    compile::lowered(&loaded, ranking.best())
}

/// What held-out data says.
pub(super) fn held_out(measures: &Measures) -> String {
    let Measures { loss, metrics } = measures;
    let metrics: String =
        metrics.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect();
    format!("held-out loss {loss:.4}{metrics}")
}

/// The JSON line of the search.
#[derive(Serialize)]
struct PlanLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    plan: &'a planner::Document,
}

/// Any other JSON line.
#[derive(Serialize)]
struct Line {
    format: u32,
    #[serde(flatten)]
    event: Event,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Begin {
        resumed: String,
        first: u64,
        end: u64,
        bigram_entropy: Option<f64>,
    },
    Step {
        step: u64,
        loss: f64,
        samples_per_s: f64,
        elapsed_s: f64,
    },
    Evaluate {
        step: u64,
        loss: f64,
        metrics: BTreeMap<String, f64>,
    },
    End {
        steps: u64,
        predicted: Figures,
        measured: Figures,
        beside_bytes: u64,
        kernels: u64,
        gpus: Option<Box<Gpus>>,
    },
}

#[derive(Serialize)]
struct Gpus {
    graphs: u64,
    ungraphed: Option<String>,
    unrecorded: Option<String>,
    handed_bytes: u64,
    connection_bytes: u64,
    page_bytes: u64,
    products: Products,
    convolutions: Convolutions,
    attention: Attention,
}

/// Matrix products of all routines, by who makes them.
#[derive(Serialize)]
struct Products {
    cublaslt: u64,
    own: u64,
    why_own: Option<String>,
    wrong: Option<String>,
}

/// Convolutions of all routines that are no products, by who makes them.
#[derive(Serialize)]
struct Convolutions {
    cudnn: u64,
    own: u64,
    why_own: Option<String>,
    wrong: Option<String>,
}

/// Calls of attention on tensor cores, by who makes them.
#[derive(Serialize)]
struct Attention {
    cudnn: u64,
    sm90: u64,
    usual: u64,
    why_usual: Option<String>,
    why_own: Option<String>,
    wrong: Option<String>,
}

#[derive(Serialize)]
struct Figures {
    pools: BTreeMap<String, Pool>,
    step_time_s: f64,
    transfers: u64,
    bytes: u64,
}

#[derive(Default, Serialize)]
struct Pool {
    arena_bytes: u64,
    activation_peak_bytes: u64,
}

/// Prints events as they come.
struct Teller {
    json: bool,
    bar: ProgressBar,
    printed: Result<(), Failure>,
}

impl Teller {
    fn new(json: bool) -> Self {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { json, bar, printed: Ok(()) }
    }

    fn tell(&mut self, event: RunEvent) {
        let told = if self.json { tell_line(event) } else { self.tell_human(event) };
        if self.printed.is_ok() {
            self.printed = told;
        }
    }

    fn tell_human(&self, event: RunEvent) -> Result<(), Failure> {
        match event {
            RunEvent::Note(text) => {
                note(&format!("note: {text}"));
                Ok(())
            }
            RunEvent::Begin { tokens, resumed, ignored, first, end } => {
                ignored.iter().for_each(|file| note(&format!("warning: {file}")));
                self.bar.set_length(end.max(first));
                self.bar.set_position(first);
                print(&begun(tokens, &resumed, first))
            }
            RunEvent::Step { step, loss, samples_per_second, elapsed: _ } => {
                self.bar.set_position(step + 1);
                self.bar.set_message(format!(
                    "loss {loss:.4}, {samples_per_second:.1} samples/s"
                ));
                Ok(())
            }
            RunEvent::Evaluate { step, loss, metrics } => {
                let said = held_out(&Measures { loss, metrics });
                self.bar.suspend(|| print(&format!("step {step}: {said}\n")))
            }
        }
    }
}

fn tell_line(event: RunEvent) -> Result<(), Failure> {
    print_line(match event {
        RunEvent::Note(text) => {
            note(&format!("note: {text}"));
            return Ok(());
        }
        RunEvent::Begin { tokens, resumed, ignored, first, end } => {
            ignored.iter().for_each(|file| note(&format!("warning: {file}")));
            let bigram_entropy = tokens.and_then(|tokens| tokens.bigram_entropy);
            Event::Begin { resumed: how(&resumed), first, end, bigram_entropy }
        }
        RunEvent::Step { step, loss, samples_per_second, elapsed } => Event::Step {
            step,
            loss,
            samples_per_s: samples_per_second,
            elapsed_s: elapsed.as_secs_f64(),
        },
        RunEvent::Evaluate { step, loss, metrics } => {
            Event::Evaluate { step, loss, metrics }
        }
    })
}

fn print_line(event: Event) -> Result<(), Failure> {
    print_json(&Line { format: FORMAT, event }, Form::Line)
}

fn begun(tokens: Option<TokenFacts>, resumed: &Resumed, first: u64) -> String {
    let mut said = String::new();
    if let Some(TokenFacts { training, held_out, bigram_entropy }) = tokens {
        said += &format!("data: {training} tokens to train on, {held_out} held out");
        if let Some(entropy) = bigram_entropy {
            said += &format!("; held-out bigram entropy {entropy:.4}");
        }
        said += "\n";
    }
    if *resumed != Resumed::FromStart {
        said += &format!("step {first}: {}\n", how(resumed));
    }
    said
}

fn how(resumed: &Resumed) -> String {
    match resumed {
        Resumed::Exactly => "goes on exactly".to_owned(),
        Resumed::WithOtherBits { reason } => format!("goes on with other bits: {reason}"),
        Resumed::FromParameters { reason } => {
            format!("goes on from the newest parameters alone: {reason}")
        }
        Resumed::FromStart => "starts anew".to_owned(),
        Resumed::WithoutCheckpoint => {
            "starts anew, for there is no checkpoint to go on from".to_owned()
        }
        Resumed::FromWeights => "starts from the weights of a file".to_owned(),
    }
}

fn tell_end(schedule: &Checked, outcome: &Outcome, json: bool) -> Result<(), Failure> {
    let report = &outcome.report;
    let steps = report.end.saturating_sub(report.first);
    let (predicted, measured) = (predicted(schedule), measured(schedule, outcome));
    if json {
        let (beside_bytes, kernels) = (report.measured.beside.0, report.measured.kernels);
        let gpus = report.measured.gpus.as_ref().map(|gpus| {
            Box::new(Gpus {
                graphs: gpus.graphs,
                ungraphed: gpus.ungraphed.clone(),
                unrecorded: gpus.unrecorded.clone(),
                handed_bytes: gpus.handed.0,
                connection_bytes: gpus.connections.0,
                page_bytes: gpus.page.0,
                products: Products {
                    cublaslt: gpus.products.library,
                    own: gpus.products.own,
                    why_own: gpus.products.why_own.clone(),
                    wrong: gpus.products.wrong.clone(),
                },
                convolutions: Convolutions {
                    cudnn: gpus.convolutions.library,
                    own: gpus.convolutions.own,
                    why_own: gpus.convolutions.why_own.clone(),
                    wrong: gpus.convolutions.wrong.clone(),
                },
                attention: Attention {
                    cudnn: gpus.attention.library,
                    sm90: gpus.attention.sm90,
                    usual: gpus.attention.usual,
                    why_usual: gpus.attention.why_usual.clone(),
                    why_own: gpus.attention.why_own.clone(),
                    wrong: gpus.attention.wrong.clone(),
                },
            })
        });
        let end = Event::End { steps, predicted, measured, beside_bytes, kernels, gpus };
        return print_line(end);
    }
    let row = |name: &str, f: &Figures| {
        let arena: u64 = f.pools.values().map(|pool| pool.arena_bytes).sum();
        let activations: u64 = f.pools.values().map(|p| p.activation_peak_bytes).sum();
        format!(
            "{name:<10} {:>12} {:>12} {:>14} {:>10} {:>12}\n",
            schedule::Nanos((f.step_time_s * 1e9) as u64),
            schedule::Bytes(arena),
            schedule::Bytes(activations),
            f.transfers,
            schedule::Bytes(f.bytes),
        )
    };
    let last = report
        .losses
        .last()
        .map_or(String::new(), |loss| format!(", last loss {loss:.4}"));
    print(&format!(
        "{steps} steps{last}\n{:<10} {:>12} {:>12} {:>14} {:>10} {:>12}\n{}{}",
        "",
        "step time",
        "arenas",
        "activations",
        "messages",
        "bytes",
        row("predicted", &predicted),
        row("measured", &measured),
    ))?;
    tell_beside(&report.measured)
}

/// What devices take besides arenas.
fn tell_beside(measured: &Measured) -> Result<(), Failure> {
    match measured.beside {
        schedule::Bytes(0) => {}
        beside => {
            print(&format!("besides arenas, kernels and products took {beside}\n"))?;
        }
    }
    match measured.gpus.as_ref().map(|gpus| gpus.connections) {
        None | Some(schedule::Bytes(0)) => Ok(()),
        Some(taken) => print(&format!("NCCL took {taken} to connect ranks\n")),
    }
}

fn predicted(schedule: &Checked) -> Figures {
    let facts = schedule.facts();
    let steps = schedule::enough_steps(schedule);
    let mut pools = BTreeMap::<String, Pool>::new();
    for (device, arena) in &facts.device_arena {
        let kind = facts.kinds.get(&(*device, Kind::Activation));
        for coordinate in schedule.coordinates() {
            let own = pool_name(schedule, schedule.device_at(*device, &coordinate));
            let pool = pools.entry(own).or_default();
            pool.arena_bytes += arena.0;
            pool.activation_peak_bytes += kind.map_or(0, |bytes| bytes.0);
        }
    }
    Figures {
        pools,
        step_time_s: roundelay::simulate(schedule, steps).step_time().0 as f64 / 1e9,
        transfers: facts.messages,
        bytes: facts.link_bytes.values().map(|bytes| bytes.0).sum(),
    }
}

fn measured(schedule: &Checked, outcome: &Outcome) -> Figures {
    let Measured { steps, arenas, link_bytes, messages, .. } = &outcome.report.measured;
    let each = |count: u64| count.checked_div(*steps).unwrap_or(0);
    let mut pools = BTreeMap::<String, Pool>::new();
    for (device, arena) in arenas {
        let pool = pools.entry(pool_name(schedule, *device)).or_default();
        pool.arena_bytes += arena.0;
        let touched = outcome.touched.get(&(*device, Kind::Activation));
        pool.activation_peak_bytes += touched.map_or(0, |touched| touched.span.0);
    }
    Figures {
        pools,
        step_time_s: outcome.report.replayed.as_secs_f64() / (*steps).max(1) as f64,
        transfers: each(*messages),
        bytes: each(link_bytes.values().map(|bytes| bytes.0).sum()),
    }
}

fn pool_name(schedule: &Checked, device: schedule::DeviceId) -> String {
    let target = &schedule.target;
    target.pools[target.devices[device].pool].name.clone()
}
