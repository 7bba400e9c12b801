//! A hunt for faults among random programs. What the planner accepts is lowered, proven, read as it
//! was written, and trained: replays equal the plain recursion bit for bit, and where the rule is
//! synchronous one device without any trick trains nearly the same numbers. What it refuses, it
//! refuses with a reason.
//!
//! `ROUNDELAY_HUNT=1000..2000` takes these seeds instead of the usual few.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

#[path = "../cuda/bench.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod bench;
mod draft;
mod judge;
mod model;
mod on_gpus;
mod on_ranks;
mod parts;
mod planning;
#[path = "../support/ports.rs"]
mod ports;
mod program;
#[path = "../support/random.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod random;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod support;
mod training;
#[path = "../nccl/world.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod world;

use bench::has_compiler;
use judge::Verdict;
use program::Program;
use std::{env, iter, ops::Range, panic, sync::Mutex, thread};

/// Seeds of every run.
const USUAL: Range<u64> = 0..30;

fn seeds() -> Range<u64> {
    let Ok(said) = env::var("ROUNDELAY_HUNT") else { return USUAL };
    let (first, last) = said.split_once("..").expect("seeds are a range: `0..30`");
    first.parse().expect("a number")..last.parse().expect("a number")
}

/// What came of a program; a panic is a fault too.
fn outcome(
    seed: u64,
    judge: fn(&Program) -> Result<Verdict, String>,
) -> Result<Verdict, String> {
    let program = Program::of(seed);
    match panic::catch_unwind(|| judge(&program)) {
        Ok(judged) => judged.map_err(|fault| format!("seed {seed}: {fault}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("");
            Err(format!("seed {seed}: a panic: {text}"))
        }
    }
}

/// Judges all programs, so many at a time.
///
/// # Panics
/// With all that does not hold, or when fewer than `least` of a hundred were trained, which would show little.
fn hunt(least: u64, hunters: usize, judge: fn(&Program) -> Result<Verdict, String>) {
    let next = Mutex::new(seeds());
    let hunter = || -> Vec<Result<Verdict, String>> {
        let taken = || next.lock().expect("no judge has it").next();
        iter::from_fn(taken).map(|seed| outcome(seed, judge)).collect()
    };
    let outcomes: Vec<Result<Verdict, String>> = thread::scope(|scope| {
        let hunters: Vec<_> = (0..hunters).map(|_| scope.spawn(hunter)).collect();
        let found =
            hunters.into_iter().map(|own| own.join().expect("panics are outcomes"));
        found.flatten().collect()
    });
    let (mut trained, mut faults) = (0, Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(Verdict::Trained) => trained += 1,
            Ok(Verdict::Refused) => {}
            Err(fault) => faults.push(fault),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let all = seeds().end - seeds().start;
    assert!(trained * 100 >= all * least, "{trained} of {all} were trained");
}

#[test]
fn random_programs_are_trained_as_they_say_or_refused_with_a_reason() {
    hunt(40, 1, judge::judge);
}

/// These take the longest.
#[test]
fn gpus_train_random_programs_as_the_cpu_does() {
    if has_compiler() {
        hunt(40, 2, on_gpus::judge);
    }
}

#[test]
fn ranks_train_random_programs_as_one_process_does() {
    if has_compiler() {
        hunt(20, 1, on_ranks::judge);
    }
}

#[test]
fn a_seed_always_gives_the_same_program() {
    for seed in USUAL {
        assert_eq!(Program::of(seed).text(), Program::of(seed).text());
    }
    assert_ne!(Program::of(1).text(), Program::of(2).text());
}
