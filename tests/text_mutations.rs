//! Damaged texts of programs and of schedule files: whatever the text, it ends with what it
//! says or with mistakes that have a place, soon, and within bounded memory.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

#[path = "support/damage.rs"]
mod damage;
#[allow(dead_code, reason = "other tests want other numbers")]
#[path = "support/random.rs"]
mod random;

use damage::{Damage, pieces};
use random::Random;
use roundelay::{SourceFile, check, format, parse, read, seal, write};
use roundelay_kernels::Kernels;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fs,
    path::Path,
};

/// Damaged texts of each kind.
const TEXTS: usize = 15_000;

/// Bytes that one text may take at most, whatever numbers stand in it: the checker's declared
/// limits for the rows of a file, and the parser's for a program.
const MEMORY: i64 = 256 << 20;

/// The system's allocator, which counts what each thread holds.
struct Counting;

thread_local! {
    /// Bytes that this thread holds, and the most that it held.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn count(bytes: i64) {
    // A thread that ends has no counter any more.
    let _ = HELD.try_with(|held| {
        let now = held.get().0 + bytes;
        held.set((now, held.get().1.max(now)));
    });
}

// SAFETY: all work is the system allocator's; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that were held at once above those held before.
fn peak(work: impl FnOnce()) -> i64 {
    let before = HELD.get().0;
    HELD.set((before, before));
    work();
    HELD.get().1 - before
}

const PROGRAM: &str = "\
model m {
    input x: real[batch, 4]
    z = x
    repeat 1 as i { z = z + linear(z, 4) }
    loss mse(z, x)
}
device d { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
link l { bandwidth 1 GB/s, latency 1 us }
cluster c { 4 x d joined by l }
train { data synthetic, batch 8, optimizer sgd(lr = 0.1), steps 4 }
plan { rule sync, placement accumulate, stages 1, micro_batches 2, memory <= 1 GB }
";

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "4095",
    "65536",
    "4294967295",
    "4294967296",
    "-1",
    "1e999",
    "18446744073709551616",
];
const SCRAPS: [&str; 24] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "=",
    "|",
    "..",
    "\"",
    "#",
    "\n",
    " ",
    "- ",
    "*a",
    "&a ",
    "\u{0}",
    "\u{1F3B6}",
    "batch",
    "repeat 99999 {",
    "b0.0",
    "hash x\n",
];

const DAMAGE: Damage<'_> = Damage { scraps: &SCRAPS, numbers: &NUMBERS };

/// Looks at the text of a program as everyone would; whether it is one.
fn look_at_program(text: &str) -> bool {
    let formatted = format(text).is_ok();
    match parse(&SourceFile::new("x.rdl", text)) {
        Ok(_) => {
            assert!(formatted, "{text}");
            true
        }
        Err(wrong) => {
            assert!(wrong.iter().count() > 0, "{text}");
            assert!(wrong.iter().all(|d| !d.message.is_empty()), "{text}");
            false
        }
    }
}

/// Looks at the text of a schedule file as everyone would; whether it can be replayed.
fn look_at_schedule(text: &str) -> bool {
    match read(text) {
        Ok(schedule) => {
            let written = write(&schedule);
            let same = read(&written).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
            assert!(same == schedule, "{text}");
            match check(schedule, &Kernels) {
                Ok(_) => true,
                Err(report) => {
                    assert!(!report.to_string().is_empty(), "{text}");
                    false
                }
            }
        }
        Err(wrong) => {
            let lines = text.lines().count().max(1);
            assert!(wrong.iter().count() > 0, "{text}");
            assert!(wrong.iter().all(|e| (1..=lines).contains(&e.line)), "{text}");
            false
        }
    }
}

#[test]
fn damaged_programs_end_soon_and_small() {
    assert!(look_at_program(PROGRAM));
    let original = pieces(PROGRAM);
    let mut random = Random::new(1);
    let mut accepted = 0;
    for _ in 0..TEXTS {
        let text = DAMAGE.to(&original, &mut random);
        let held = peak(|| accepted += usize::from(look_at_program(&text)));
        assert!(held <= MEMORY, "{held} bytes for\n{text}");
    }
    assert!(accepted > TEXTS / 100, "some damage is harmless: {accepted}");
}

/// A small file that passes the checker.
fn schedule() -> String {
    let program = parse(&SourceFile::new("x.rdl", PROGRAM)).expect("a program");
    let ranking =
        roundelay::plan(&program, &roundelay::SearchOptions::default()).expect("a plan");
    let checked = roundelay::compile(&program, ranking.best()).expect("a schedule");
    write(&checked)
}

#[test]
fn damaged_schedules_end_soon_and_small() {
    let original = schedule();
    assert!(look_at_schedule(&original));
    let original = pieces(&original);
    let mut random = Random::new(2);
    let mut accepted = 0;
    for round in 0..TEXTS {
        let mut text = DAMAGE.to(&original, &mut random);
        if round % 2 == 0 {
            text = seal(&text).unwrap_or(text);
        }
        let held = peak(|| accepted += usize::from(look_at_schedule(&text)));
        assert!(held <= MEMORY, "{held} bytes for\n{text}");
    }
    assert!(accepted > TEXTS / 100, "some damage is harmless: {accepted}");
}

/// Files with an expectation on the bad line; the crates' own tests read them.
#[test]
fn there_are_forty_fixtures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let files = |kind: &str| -> usize {
        let folder = fs::read_dir(root.join(kind)).expect("the folder is there");
        let texts = folder.map(|file| {
            let path = file.expect("readable").path();
            fs::read_to_string(path).expect("fixtures are text")
        });
        texts.filter(|text| text.contains("# error: ")).count()
    };
    let count = files("program") + files("schedule");
    assert!(count >= 40, "{count} fixtures");
}
