//! Synchronous against cyclic training and local rules: the same data, seeds and numbers of steps
//! under each rule.
//!
//! `cargo bench --bench comparison -- --runs FILE [--text FOLDER]
//! [--task text, shapes, deep_text, deep_shapes] [--minutes M] [--workers W]`
//!
//! Every run that is done is a line of FILE; runs that stand there are not done again, so that a
//! comparison that was stopped goes on. All runs take one device (`accumulate`): numbers do not
//! depend on the placement. The tables show what is there. `docs/results.md` reads them.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod case;
mod grid;
mod record;
mod table;
mod train;

use case::{Case, Task};
use record::Records;
use std::{
    collections::VecDeque,
    env,
    error::Error,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What is asked for.
struct Arguments {
    runs: PathBuf,
    text: PathBuf,
    tasks: Vec<Task>,
    time: Duration,
    workers: usize,
}

const USAGE: &str = "cargo bench --bench comparison -- --runs FILE [--text FOLDER] \
                     [--task text, shapes, deep_text, deep_shapes] [--minutes M] \
                     [--workers W]";

/// Reads the arguments; cargo adds `--bench`.
fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut runs = None;
    let mut text = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
    let mut tasks = Task::ALL.to_vec();
    let (mut minutes, mut workers) = (90, 2);
    let mut given = env::args().skip(1);
    while let Some(name) = given.next() {
        if name == "--bench" {
            continue;
        }
        let value = given.next().ok_or(USAGE)?;
        match name.as_str() {
            "--runs" => runs = Some(PathBuf::from(value)),
            "--text" => text = PathBuf::from(value),
            "--task" => {
                let named = Task::ALL.into_iter().find(|task| task.name() == value);
                tasks = vec![named.ok_or(USAGE)?];
            }
            "--minutes" => minutes = value.parse()?,
            "--workers" => workers = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let time = Duration::from_secs(60 * minutes);
    Ok(Arguments { runs: runs.ok_or(USAGE)?, text, tasks, time, workers })
}

/// Runs what is missing, several cases at a time, until the time is over.
fn complete(arguments: &Arguments, records: &Mutex<Records>) -> Result<(), String> {
    let start = Instant::now();
    let cases = grid::cases().into_iter();
    let wanted = cases.filter(|case| arguments.tasks.contains(&case.task));
    let queue: Mutex<VecDeque<Case>> = Mutex::new(wanted.collect());
    let failed = AtomicBool::new(false);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<(), String> {
        while !failed.load(Ordering::SeqCst) && start.elapsed() < arguments.time {
            let Some(case) = next() else { break };
            let one = run(&case, &arguments.text, records);
            one.map_err(|error| {
                failed.store(true, Ordering::SeqCst);
                format!("{case}: {error}")
            })?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.workers).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<(), String>>| {
            worker.join().unwrap_or_else(|_| Err("a run panicked".to_owned()))
        };
        workers.into_iter().try_for_each(join)
    })
}

fn run(case: &Case, text: &Path, records: &Mutex<Records>) -> Result<(), Box<dyn Error>> {
    let prepared = train::Prepared::new(case, text)?;
    let key = prepared.key();
    if records.lock().unwrap_or_else(PoisonError::into_inner).has(case, key) {
        return Ok(());
    }
    let start = Instant::now();
    let outcome = prepared.train()?;
    let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.add(case, key, outcome, start.elapsed())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let records = Mutex::new(Records::open(&arguments.runs)?);
    complete(&arguments, &records)?;
    let records = records.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", table::search(&records));
    println!("{}", table::comparison(&records));
    println!("{}", table::local(&records));
    let cases = grid::cases();
    let done = cases.iter().filter(|case| records.outcome(case).is_some()).count();
    let (all, minutes) = (cases.len(), records.minutes());
    println!("{done} of {all} runs, {minutes:.0} minutes");
    Ok(())
}
