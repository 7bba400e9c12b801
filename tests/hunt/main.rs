//! A hunt for faults among random programs. What the planner accepts is lowered, proven, read as it
//! was written, and trained: replays equal the plain recursion bit for bit, and where the rule is
//! synchronous one device without any trick trains nearly the same numbers. What it refuses, it
//! refuses with a reason.
//!
//! `ROUNDELAY_HUNT=1000..2000` takes these seeds instead of the usual few.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod draft;
mod judge;
mod model;
mod parts;
mod planning;
mod program;
#[path = "../support/random.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod random;
mod training;

use judge::{Verdict, judge};
use program::Program;
use std::{env, ops::Range, panic};

/// Seeds of every run.
const USUAL: Range<u64> = 0..30;

/// At least this many of a hundred programs are trained, or the hunt shows little.
const TRAINED: u64 = 40;

fn seeds() -> Range<u64> {
    let Ok(said) = env::var("ROUNDELAY_HUNT") else { return USUAL };
    let (first, last) = said.split_once("..").expect("seeds are a range: `0..30`");
    first.parse().expect("a number")..last.parse().expect("a number")
}

#[test]
fn random_programs_are_trained_as_they_say_or_refused_with_a_reason() {
    let (mut trained, mut faults) = (0, Vec::new());
    for seed in seeds() {
        let program = Program::of(seed);
        match panic::catch_unwind(|| judge(&program)) {
            Ok(Ok(Verdict::Trained)) => trained += 1,
            Ok(Ok(Verdict::Refused)) => {}
            Ok(Err(fault)) => faults.push(format!("seed {seed}: {fault}")),
            Err(_) => faults.push(format!("seed {seed}: a panic, see above")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let all = seeds().end - seeds().start;
    assert!(trained * 100 >= all * TRAINED, "{trained} of {all} were trained");
}

#[test]
fn a_seed_always_gives_the_same_program() {
    for seed in USUAL {
        assert_eq!(Program::of(seed).text(), Program::of(seed).text());
    }
    assert_ne!(Program::of(1).text(), Program::of(2).text());
}
