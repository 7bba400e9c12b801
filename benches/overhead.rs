//! Replayed step time over the sum of its kernel times, on the quickstart with one device:
//! `cargo bench --bench overhead`.
//!
//! One device has one lane, so its launches never overlap: a launch is timed whole, and whatever
//! the ratio is above one went into issuing, waking, feeding and reporting.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use roundelay::{
    Checked, SearchOptions, SourceFile,
    parts::runtime::{Cpu, CpuOptions, Dataset, State},
};
use std::{error::Error, fs, path::Path, time::Instant};

/// Training steps before the clock starts.
const WARM_UP: u64 = 4;
/// Training steps of a round.
const STEPS: u64 = 12;
/// Rounds; the median counts.
const ROUNDS: usize = 5;
/// Micro-batches per step: more of them are more actions for the same work.
const MICRO_BATCHES: [u32; 2] = [1, 4];

/// Seconds of one round.
struct Round {
    replayed: f64,
    kernels: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.replayed / self.kernels
    }
}

/// The quickstart on one device, one micro-batch after another.
fn quickstart(micro_batches: u32) -> Result<Checked, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.rdl");
    let source = SourceFile::new(path.display().to_string(), fs::read_to_string(&path)?);
    let mut program = roundelay::parse(&source)?;
    let micro_batches = format!("micro_batches = {micro_batches}");
    let one = ["rule = sync", "placement = accumulate", "devices = 1", "stages = 1"];
    for decision in one.into_iter().chain([&*micro_batches]) {
        program.search.set(decision)?;
    }
    let ranking = roundelay::plan(&program, &SearchOptions::default())?;
    Ok(roundelay::compile(&program, ranking.best())?)
}

fn round(cpu: &mut Cpu) -> Result<Round, Box<dyn Error>> {
    let kernels = |cpu: &Cpu| cpu.measured().map(|all| all.kernel_time().0 as f64 * 1e-9);
    let before = kernels(cpu)?;
    let start = Instant::now();
    cpu.replay(cpu.step() + STEPS, &mut |_| ())?;
    let replayed = start.elapsed().as_secs_f64();
    Ok(Round { replayed, kernels: kernels(cpu)? - before })
}

/// The rounds of a run, by ratio.
fn rounds(schedule: &Checked) -> Result<Vec<Round>, Box<dyn Error>> {
    let data = Box::new(Dataset::open(&schedule.job, None)?);
    let mut cpu = Cpu::new(schedule, data, CpuOptions::default())?;
    cpu.load(&State::drawn(&schedule.job))?;
    cpu.replay(WARM_UP, &mut |_| ())?;
    let mut rounds =
        (0..ROUNDS).map(|_| round(&mut cpu)).collect::<Result<Vec<_>, _>>()?;
    rounds.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    Ok(rounds)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("per step, median and largest ratio of {ROUNDS} rounds of {STEPS} steps");
    println!("micro-batches  actions  replayed ms  kernels ms   ratio  largest");
    for micro_batches in MICRO_BATCHES {
        let schedule = quickstart(micro_batches)?;
        let rounds = rounds(&schedule)?;
        let (median, largest) = (&rounds[ROUNDS / 2], &rounds[ROUNDS - 1]);
        let [replayed, kernels] =
            [median.replayed, median.kernels].map(|s| s * 1e3 / STEPS as f64);
        println!(
            "{micro_batches:>13}  {:>7}  {replayed:>11.2}  {kernels:>10.2}  {:.4}   {:.4}",
            schedule.actions.len(),
            median.ratio(),
            largest.ratio(),
        );
    }
    Ok(())
}
