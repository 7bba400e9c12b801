//! One random change to a schedule that waits no more than it needs: the checker finds it, or
//! every replay still gives the right bits; and what it reports names what was changed.

mod cases;
mod examples;
mod graph;
mod judge;
mod lines;
mod machine;
mod mutant;
#[allow(dead_code, reason = "other tests use the other plans")]
#[path = "../support/plans.rs"]
mod plans;
#[allow(dead_code, reason = "other tests want other numbers")]
#[path = "../support/random.rs"]
mod random;
mod tables;

use cases::Case;
use judge::Truth;
use mutant::{Change, Fault, Naming};
use random::Random;
use roundelay_kernels::Kernels;
use roundelay_schedule::{Checked, Schedule, check};
use std::{collections::BTreeMap, fmt};

/// Mutants of each kind, schedule and turn.
const TURNS: usize = 5;

/// Orders in which a mutant that was not found is replayed.
const ORDERS: usize = 20;

/// One of this many mutants that were not found runs on threads too.
const THREADED: usize = 16;

/// Texts of what went wrong that a failure shows.
const SHOWN: usize = 20;

/// What became of the mutants of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    found: usize,
    /// Reports that name the action or row itself.
    itself: usize,
    /// Reports that name only what lacks something through it.
    through: usize,
}

/// What became of all mutants.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, Count>,
    missed: Vec<String>,
    unnamed: Vec<String>,
    harmless: usize,
}

impl Tally {
    fn total(&self) -> Count {
        let mut total = Count::default();
        for count in self.counts.values() {
            total.all += count.all;
            total.found += count.found;
            total.itself += count.itself;
            total.through += count.through;
        }
        total
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let together = [("together", self.total())];
        writeln!(f, "{:<20}    all  found itself through", "")?;
        for (kind, count) in
            self.counts.iter().chain(together.iter().map(|(k, c)| (k, c)))
        {
            let Count { all, found, itself, through } = count;
            writeln!(f, "{kind:<20} {all:>6} {found:>6} {itself:>6} {through:>7}")?;
        }
        for text in self.missed.iter().chain(&self.unnamed).take(SHOWN) {
            writeln!(f, "{text}")?;
        }
        Ok(())
    }
}

/// A schedule and what its replays must give.
struct Original {
    name: String,
    schedule: Schedule,
    truth: Truth,
}

impl Original {
    fn new(Case { name, schedule }: Case) -> Self {
        let checked =
            check(schedule, &Kernels).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        let truth = Truth::of(&checked);
        let schedule = checked.into_inner();
        let fine = truth.in_orders(&schedule, &[], 6, &mut Random::new(1));
        fine.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        Self { name, schedule, truth }
    }

    /// Mutates once, and looks what comes of it.
    fn mutate(
        &self,
        (kind, change): (&'static str, Change),
        oracle: OracleOf,
        random: &mut Random,
        tally: &mut Tally,
    ) {
        let mut mutant = self.schedule.clone();
        let Some(fault) = change(&mut mutant, random) else { return };
        if mutant == self.schedule {
            return;
        }
        let count = tally.counts.entry(kind).or_default();
        count.all += 1;
        match check(mutant, &Kernels) {
            Err(report) => {
                count.found += 1;
                match fault.named(&report) {
                    Naming::Itself => count.itself += 1,
                    Naming::Through => count.through += 1,
                    Naming::Missed => tally
                        .unnamed
                        .push(format!("{kind}: {}: {fault:?}: {report}", self.name)),
                }
            }
            Ok(mutant) => {
                tally.harmless += 1;
                let threaded = tally.harmless.is_multiple_of(THREADED);
                let own;
                let truth = match oracle {
                    OracleOf::Original => &self.truth,
                    OracleOf::Mutant => {
                        own = Truth::of(&mutant);
                        &own
                    }
                };
                if let Err(wrong) = replay(truth, &mutant, &fault, threaded, random) {
                    tally
                        .missed
                        .push(format!("{kind}: {}: {fault:?}: {wrong}", self.name));
                }
            }
        }
    }
}

fn replay(
    truth: &Truth,
    mutant: &Checked,
    fault: &Fault,
    threaded: bool,
    random: &mut Random,
) -> Result<(), String> {
    truth.in_orders(mutant, &fault.focus, ORDERS, random)?;
    truth.on_held_out(mutant)?;
    match threaded {
        true => truth.on_threads(mutant, random.bits()),
        false => Ok(()),
    }
}

/// Whose recursion says what is right.
#[derive(Clone, Copy, Debug)]
enum OracleOf {
    Original,
    /// What routines compute is theirs to say.
    Mutant,
}

#[test]
fn what_the_checker_does_not_find_does_no_harm() {
    let mut tally = Tally::default();
    let mut random = Random::new(7);
    for case in cases::cases() {
        let original = Original::new(case);
        for _ in 0..TURNS {
            for kind in lines::LINES.iter().chain(tables::TABLES) {
                original.mutate(*kind, OracleOf::Original, &mut random, &mut tally);
            }
            for kind in tables::CALLS {
                original.mutate(*kind, OracleOf::Mutant, &mut random, &mut tally);
            }
        }
    }
    assert!(tally.total().all >= 10_000, "{tally}");
    assert!(tally.missed.is_empty() && tally.unnamed.is_empty(), "{tally}");
}
