//! Seconds to lower, check and clock pipelines of growing length, and to write and read their
//! schedule files: `cargo bench --bench lowering`. Words after `--` are the micro-batches to try
//! instead.
//!
//! The model is a chain of cheap nodes, a stage per node and a device per stage, in order 1F1B: S
//! stages on N micro-batches make about 4 · S · N actions, half of them launches and half
//! transfers. Every size is run in a process of its own, so that the peak of resident memory is
//! that of one schedule; it counts lowering, checking and clocking, not the file.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod usage;

use roundelay::{
    Checked, Plan, Program, SourceFile,
    parts::{
        codegen,
        kernels::Kernels,
        planner::Algebra,
        schedule::{Order, Placement, Rule, States},
    },
};
use std::{env, error::Error, fmt, process::Command, time::Instant};
use usage::{peak, processors};

/// Stages, and devices.
const STAGES: u32 = 64;
/// Micro-batches of each size; the last makes two million actions.
const MICRO_BATCHES: [u32; 4] = [64, 512, 2048, 8192];
/// Training steps on the clock.
const STEPS: u64 = 2;
/// In the environment of the process that runs one size.
const ONE: &str = "ROUNDELAY_LOWERING_MICRO_BATCHES";

/// A chain with a cheap node per stage, and the devices for it.
fn program(micro_batches: u32) -> Result<Program, Box<dyn Error>> {
    let text = format!(
        "model chain {{
            input x: real[batch, 2]
            input y: real[batch, 2]
            h = linear(x, 2)
            repeat {} {{ h = linear(h, 2) }}
            loss mse(h, y)
        }}
        device core {{ memory 8 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 2 us }}
        cluster all {{ {STAGES} x core joined by bus }}
        train {{ data synthetic, batch {micro_batches}, optimizer sgd(lr = 0.1), steps 2 }}",
        STAGES - 1,
    );
    Ok(roundelay::parse(&SourceFile::new("chain.rdl", text))?)
}

fn plan(program: &Program, micro_batches: u32) -> Plan {
    let nodes = program.model.cuttable() as u32;
    let cuts = (1..STAGES).map(|stage| stage * nodes / STAGES).collect();
    let (rule, placement) = (Rule::Sync, Placement::Pipeline);
    let (order, states) = (Order::OneForwardOneBackward, States::Replicated);
    Plan::new(rule, placement, order, states, micro_batches, cuts)
}

/// Seconds of a phase: on the wall, and of all processors together where the system tells them.
#[derive(Clone, Copy)]
struct Seconds {
    wall: f64,
    processors: f64,
}

/// What a phase made, and how long it took.
fn timed<T>(phase: impl FnOnce() -> T) -> (T, Seconds) {
    let (start, before) = (Instant::now(), processors());
    let made = phase();
    let wall = start.elapsed().as_secs_f64();
    (made, Seconds { wall, processors: processors() - before })
}

fn one(micro_batches: u32) -> Result<(), Box<dyn Error>> {
    let program = program(micro_batches)?;
    let plan = plan(&program, micro_batches);
    let (schedule, lower) =
        timed(|| codegen::lower_with(&program, &plan, &Algebra::default()));
    let schedule = schedule?;
    let actions = schedule.actions.len();
    let (checked, check) = timed(|| roundelay::check(schedule, &Kernels));
    let checked: Checked = checked?;
    let (simulation, clock) = timed(|| roundelay::simulate(&checked, STEPS));
    drop(simulation);
    let peak = peak().map_or("?".to_owned(), |peak| peak.to_string());
    let (text, write) = timed(|| roundelay::write(&checked));
    let (read, reading) = timed(|| roundelay::read(&text));
    assert!(read? == *checked, "a file reads back as what was written");
    let both = lower.wall + check.wall;
    println!(
        "{micro_batches:>6} {actions:>9} {lower} {check} {both:>8.3} {clock} {peak:>8} {:>10.0} \
         {write} {reading} {:>8}",
        actions as f64 / both,
        text.len() / 1_000_000,
    );
    Ok(())
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7.3} ({:>5.2})", self.wall, self.processors)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(one_size) = env::var(ONE) {
        return one(one_size.parse()?);
    }
    let wanted: Vec<u32> =
        env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    println!(
        "1F1B over {STAGES} stages; seconds (of processors); the clock runs {STEPS} steps; MB"
    );
    println!(
        "{:>6} {:>9} {:>15} {:>15} {:>8} {:>15} {:>8} {:>10} {:>15} {:>15} {:>8}",
        "N",
        "actions",
        "lower",
        "check",
        "both",
        "clock",
        "peak",
        "actions/s",
        "write",
        "read",
        "file"
    );
    for micro_batches in if wanted.is_empty() { &MICRO_BATCHES[..] } else { &wanted } {
        let mut process = Command::new(env::current_exe()?);
        process.env(ONE, micro_batches.to_string());
        if !process.status()?.success() {
            return Err(format!("{micro_batches} micro-batches failed").into());
        }
    }
    Ok(())
}
