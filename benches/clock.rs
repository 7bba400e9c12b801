//! Predicted step time over measured step time, with a table that `profile` made just before:
//! `cargo bench --bench clock`. Words after `--` choose rows by a part of their name.
//!
//! The prediction is the clock's steady step time of the schedule that the table prices. The
//! measurement is that of an ordinary replay, (T(long) − T(short)) / (long − short) steps, so
//! that start and drain cancel out; quick steps are counted by the hundred, because a machine
//! disturbs a few milliseconds more than a second. Both alternate five times, because the machine may be
//! another one a minute later; the median of the five ratios counts.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use roundelay::{
    Checked, Plan, ProfileOptions, Program, SearchOptions, SourceFile,
    parts::runtime::{Cpu, CpuOptions, Dataset, State},
};
use std::{
    env,
    error::Error,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Alternations; the median counts.
const ROUNDS: usize = 5;
/// Training steps of the short replay.
const SHORT: u64 = 4;
/// What the long replay has more: this many seconds, but at least so many training steps.
const MORE: (f64, u64) = (1.5, 20);

/// One row of the table.
struct Row {
    name: &'static str,
    example: &'static str,
    decisions: &'static [&'static str],
    /// What is promised: |ratio − 1|.
    bound: f64,
}

const ROWS: [Row; 6] = [
    Row {
        name: "accumulate, 1 device",
        example: "accumulate.rdl",
        decisions: &[],
        bound: 0.05,
    },
    Row {
        name: "quickstart sync, 1 device",
        example: "quickstart.rdl",
        decisions: &[
            "rule = sync",
            "placement = accumulate",
            "devices = 1",
            "micro_batches = 4",
            "stages = 1",
        ],
        bound: 0.05,
    },
    Row {
        name: "quickstart sync data, 2 devices",
        example: "quickstart.rdl",
        decisions: &[
            "rule = sync",
            "placement = data",
            "devices = 2",
            "micro_batches = 2",
            "states = replicated",
            "stages = 1",
        ],
        bound: 0.10,
    },
    Row {
        name: "quickstart cyclic data, 2 devices",
        example: "quickstart.rdl",
        decisions: &[
            "rule = cyclic_v2",
            "placement = data",
            "devices = 2",
            "micro_batches = 2",
            "states = replicated",
            "stages = 2",
        ],
        bound: 0.10,
    },
    Row {
        name: "quickstart cyclic pipeline, 2 devices",
        example: "quickstart.rdl",
        decisions: &[
            "rule = cyclic_v2",
            "placement = pipeline",
            "devices = 2",
            "micro_batches = 4",
            "stages = 2",
        ],
        bound: 0.10,
    },
    Row {
        name: "handoff, 2 devices",
        example: "data-handoff.rdl",
        decisions: &["devices = 2", "micro_batches = 2", "stages = 2"],
        bound: 0.10,
    },
];

fn program(row: &Row) -> Result<Program, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(row.example);
    let source = SourceFile::new(path.display().to_string(), fs::read_to_string(&path)?);
    let mut program = roundelay::parse(&source)?;
    for decision in row.decisions {
        program.search.set(decision)?;
    }
    Ok(program)
}

/// Seconds that a training step takes on the clock, by a table that is measured now.
fn predicted(program: &mut Program, plan: &Plan) -> Result<f64, Box<dyn Error>> {
    let mut options = ProfileOptions { top: 1, ..ProfileOptions::default() };
    options.settling.patience = Duration::from_secs(10);
    let table = Arc::new(roundelay::profile(program, &options, |_| ())?);
    for link in program.target.links.iter_mut() {
        (link.1.bandwidth, link.1.latency) =
            (table.copies.bandwidth, table.copies.latency);
    }
    program.target.host.wake = table.wake;
    let devices = program.target.devices.ids();
    program.profiles = devices.map(|device| (device, Arc::clone(&table))).collect();
    let schedule = roundelay::compile(program, plan)?;
    let clocked = roundelay::simulate_steady(&schedule);
    Ok(clocked.step_time().0 as f64 * 1e-9)
}

/// Seconds that a training step takes, which are about `expected`.
fn measured(cpu: &mut Cpu, expected: f64) -> Result<f64, Box<dyn Error>> {
    let mut replay = |steps: u64| -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        cpu.replay(cpu.step() + steps, &mut |_| ())?;
        Ok(start.elapsed().as_secs_f64())
    };
    let more = MORE.1.max((MORE.0 / expected) as u64);
    let (short, long) = (replay(SHORT)?, replay(SHORT + more)?);
    Ok((long - short) / more as f64)
}

/// The plan's schedule, loaded and warm.
fn machine(schedule: &Checked) -> Result<Cpu, Box<dyn Error>> {
    let data = Box::new(Dataset::open(&schedule.job, None)?);
    let mut cpu = Cpu::new(schedule, data, CpuOptions::default())?;
    cpu.load(&State::drawn(&schedule.job))?;
    cpu.replay(SHORT, &mut |_| ())?;
    Ok(cpu)
}

fn show(row: &Row) -> Result<(), Box<dyn Error>> {
    let mut program = program(row)?;
    let plan = roundelay::plan(&program, &SearchOptions::default())?.best().clone();
    let mut cpu = machine(&roundelay::compile(&program, &plan)?)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let clock = predicted(&mut program, &plan)?;
        let replay = measured(&mut cpu, clock)?;
        rounds.push((clock / replay, clock * 1e3, replay * 1e3));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, clock, replay) = rounds[ROUNDS / 2];
    let (least, most) = (rounds[0].0, rounds[ROUNDS - 1].0);
    let held = if (ratio - 1.0).abs() <= row.bound { "yes" } else { "no" };
    println!(
        "{:<38} {clock:>12.2} {replay:>12.2}  {ratio:.3}  {least:.3} .. {most:.3}  {:>3.0} %  {held}",
        row.name,
        row.bound * 100.0,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> =
        env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("median of {ROUNDS} alternations; every device has one thread");
    println!(
        "{:<38} {:>12} {:>12}  ratio  least .. most   bound  held",
        "", "predicted ms", "measured ms"
    );
    for row in &ROWS {
        if wanted.is_empty() || wanted.iter().any(|word| row.name.contains(word)) {
            show(row)?;
        }
    }
    Ok(())
}
