//! Damaged schedule files, whose hashes are set right or left as they are.

use crate::{
    damage::{Damage, both_pieces},
    memory::{self, peak},
    programs::PROGRAM,
    random::Random,
    said::says_where,
    sample,
};
use roundelay::{
    SearchOptions, SourceFile, check, compile, parse, plan, read, seal, write,
};
use roundelay_kernels::Kernels;
use roundelay_schedule::Schedule;

/// For each law.
const TEXTS: usize = 8_000;

/// Pieces of one language alone.
const SCRAPS: [&str; 3] = ["#", "*a", "b0.0"];

/// A small file that passes the checker.
fn proven() -> String {
    let program = parse(&SourceFile::new("x.rdl", PROGRAM)).expect("a program");
    let ranking = plan(&program, &SearchOptions::default()).expect("a plan");
    let checked = compile(&program, ranking.best()).expect("a schedule");
    write(&checked)
}

/// A short header, and an action of every kind.
fn varied() -> String {
    let whole = include_str!("../fixtures/schedule/whole.schedule");
    let (header, _) = whole.split_once("actions\n").expect("a whole file");
    let sample = sample::small();
    let (_, actions) = sample.split_once("actions\n").expect("a whole file");
    seal(&format!("{header}actions\n{actions}")).expect("a whole file")
}

/// What damage left of a schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Mistakes,
    /// It is one, but not safe.
    Schedule,
    Proven,
}

/// Looks at a text as everyone would.
fn look_at(text: &str) -> Left {
    let schedule = match read(text) {
        Ok(schedule) => schedule,
        Err(errors) => {
            says_where(text, &errors);
            return Left::Mistakes;
        }
    };
    let again = read(&write(&schedule));
    assert!(again.is_ok_and(|again| again == schedule), "{text}");
    match check(schedule, &Kernels) {
        Ok(_) => Left::Proven,
        Err(report) => {
            assert!(!report.to_string().is_empty(), "{text}");
            Left::Schedule
        }
    }
}

/// Texts that damage makes of one.
fn damaged(text: &str, seed: u64) -> impl Iterator<Item = String> {
    let (originals, mut random) = (both_pieces(text), Random::new(seed));
    (0..TEXTS / 2)
        .map(move |round| Damage(&SCRAPS).to(&originals[round % 2], &mut random))
}

#[test]
fn damaged_schedules_end_soon_and_small() {
    let original = proven();
    assert!(look_at(&original) == Left::Proven);
    let mut left = Vec::new();
    for text in damaged(&original, 2).chain(damaged(&varied(), 3)) {
        let text = seal(&text).unwrap_or(text);
        let held = peak(|| left.push(look_at(&text)));
        assert!(held <= memory::MOST, "{held} bytes for\n{text}");
    }
    for (wanted, least) in [(Left::Proven, TEXTS / 100), (Left::Schedule, TEXTS / 100)] {
        let found = left.iter().filter(|own| **own == wanted).count();
        assert!(found > least, "some damage is harmless: {found}");
    }
}

#[test]
fn a_damaged_text_with_the_old_hash_is_the_old_schedule_or_has_mistakes() {
    for (original, seed) in [(proven(), 4), (varied(), 5)] {
        let schedule: Schedule = read(&original).expect("a whole file");
        for text in damaged(&original, seed) {
            let held = peak(|| match read(&text) {
                Ok(same) => assert!(same == schedule, "{text}"),
                Err(errors) => says_where(&text, &errors),
            });
            assert!(held <= memory::MOST, "{held} bytes for\n{text}");
        }
    }
}
