//! Attention by functions for the GPU at hand, where a trial found them faster than those for every GPU
//! and their numbers the same.

use crate::bench::{self, Bench, Run, has_compiler};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A language model with a head of 64 numbers, which tensor cores take in 16 bits.
const MODEL: &str = "model attending {
    seq = 20, width = 64, vocab = 24
    input tokens:  i32[batch, seq]
    input targets: i32[batch, seq]
    x = embedding(tokens, vocab, width) + positions(seq, width)
    x = x + attention(layer_norm(x), 1, SIGHT)
    loss cross_entropy(linear(layer_norm(x), vocab), targets)
}";

/// On the clock of the stand-ins functions for every GPU take long, or those for this one.
const SLOW_USUAL: (&str, &str) =
    ("STANDIN_CUDA_CLOCK", "flash_64=900/1,flash_queries_64=900/1,flash_keys_64=900/1");
pub(crate) const SLOW_SPECIAL: (&str, &str) =
    ("STANDIN_CUDA_CLOCK", "flash_sm90=900/1,engine-slow=500/1");

/// Or both.
pub(crate) const SLOW_ALL: (&str, &str) =
    ("STANDIN_CUDA_CLOCK", "flash=900/1,engine-slow=500/1");

/// The calls of attention in the routines that are launched.
const CALLS: u64 = 2;

pub(crate) fn program(bench: &Bench, train: &str) -> PathBuf {
    program_of(bench, "causal = true", train)
}

/// A program whose positions see so far.
pub(crate) fn program_of(bench: &Bench, sight: &str, train: &str) -> PathBuf {
    let model = MODEL.replace("SIGHT", sight);
    let name = format!("{sight} {train}");
    let name = name.replace(|letter: char| !letter.is_alphanumeric(), "-");
    let train = format!("batch 1, seed 11, optimizer adamw(lr = 1e-2), {train}");
    let plan =
        "exactness delayed, rule sync, placement accumulate, micro_batches 1, stages 1";
    bench::program_of(bench, &name, (&model, 1), &train, plan)
}

pub(crate) const BF16: &str = "steps 4, dtype bf16";

/// A training in 16 bits whose choices are kept in the scratch folder.
fn run(bench: &Bench, words: &str, more: &[(&str, &str)]) -> Run {
    run_as(bench, BF16, words, more)
}

fn run_as(bench: &Bench, train: &str, words: &str, more: &[(&str, &str)]) -> Run {
    let cache = bench.own_cache();
    let cache = ("ROUNDELAY_CACHE", cache.as_str());
    let program = program(bench, train);
    bench.run(&format!("--device cuda {words}"), &program, &[&[cache], more].concat())
}

/// By whom attention was made: functions for this GPU, and those for every GPU, and why.
fn counts(run: &Run) -> (u64, u64, &Value) {
    let told = &run.end["gpus"]["attention"];
    let count = |name: &str| told[name].as_u64().expect("a count");
    (count("sm90"), count("usual"), &told["why_usual"])
}

/// The names of the files that keep what was chosen.
pub(crate) fn choices(cache: &str) -> Vec<String> {
    let mut kept = files(cache);
    kept.retain(|name| name.starts_with("attention-") && name.ends_with(".algorithm"));
    kept
}

/// The names of files in a folder.
fn files(folder: &str) -> Vec<String> {
    let files = fs::read_dir(folder).expect("the folder is there");
    let names = files.map(|file| file.expect("readable").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

fn says(why: &Value, part: &str) -> bool {
    why.as_str().is_some_and(|why| why.contains(part))
}

#[test]
fn faster_functions_are_found_kept_and_taken() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("attending");
    let first = run(&bench, "", &[SLOW_USUAL]);
    let (sm90, usual, why) = counts(&first);
    assert_eq!((sm90, usual), (CALLS, 0), "{why}");
    assert!(!choices(&bench.own_cache()).is_empty(), "what was chosen is kept");
    assert!(why.is_null() && !first.notes.contains("sm_90a"), "{}", first.notes);
    let again = run(&bench, "", &[SLOW_SPECIAL]);
    assert_eq!(counts(&again).0, CALLS, "what was kept is taken, and not tried again");
    assert!(again.is(&first), "it has the same bits");
    assert!(again.count("graph_launches") > 0, "it is recorded");
    for (words, order) in [("--graphs never", "early"), ("", "late"), ("", "5")] {
        let other = run(&bench, words, &[("STANDIN_CUDA_ORDER", order)]);
        assert_eq!(counts(&other).0, CALLS);
        assert!(other.is(&first), "neither graphs nor the order change a bit");
    }
    let cpu = bench.run("--device cpu", &program(&bench, "steps 4"), &[]);
    for (own, other) in first.losses.iter().zip(&cpu.losses) {
        assert!((own - other).abs() < 0.03 * other, "{own} against {other}");
    }
}

/// Queries, keys and values in one array: both ways of functions make what the CPU makes of it.
#[test]
fn attention_of_one_array_is_made_by_both_ways() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("attending-packed");
    let cache = bench.own_cache();
    let packed = |train| program_of(&bench, "causal = true, packed = true", train);
    let cpu = bench.run("--device cpu", &packed("steps 4"), &[]);
    let kept = ("ROUNDELAY_CACHE", cache.as_str());
    let first = bench.run("--device cuda", &packed(BF16), &[kept, SLOW_USUAL]);
    assert_eq!(counts(&first).0, CALLS, "functions for this GPU are taken");
    let usual = bench.run("--device cuda", &packed(BF16), &[SLOW_SPECIAL]);
    assert_eq!(counts(&usual).1, CALLS, "and those for every GPU");
    for run in [&first, &usual] {
        for (own, other) in run.losses.iter().zip(&cpu.losses) {
            assert!((own - other).abs() < 0.03 * other, "{own} against {other}");
        }
    }
}

/// Functions for every GPU stand where those for this one are slower.
#[test]
fn slower_functions_are_not_taken() {
    if !has_compiler() {
        return;
    }
    let run = run(&Bench::new("attending-slowly"), "", &[SLOW_SPECIAL]);
    let (sm90, usual, why) = counts(&run);
    assert_eq!((sm90, usual), (0, CALLS));
    assert!(says(why, "functions for every device won the trial"), "{why}");
    assert!(run.end["gpus"]["attention"]["wrong"].is_null());
}

/// Functions that make other numbers are left out however fast they are, and a note says so.
#[test]
fn functions_that_make_other_numbers_are_never_taken() {
    if !has_compiler() || env::var_os("CXX").is_some() {
        return;
    }
    let bench = Bench::new("attending-wrongly");
    let compiler = bench.wrong_compiler("BEFORE == Before::Sums; i", "false; i");
    let cache = bench.own_cache();
    for file in files(&cache).iter().filter(|name| name.starts_with("flash_sm90")) {
        fs::remove_file(Path::new(&cache).join(file)).expect("it is there");
    }
    let settings =
        [("ROUNDELAY_CACHE", cache.as_str()), ("CXX", compiler.as_str()), SLOW_USUAL];
    let wrong = bench.run("--device cuda", &program(&bench, BF16), &settings);
    assert_eq!(counts(&wrong).1, CALLS);
    assert!(wrong.notes.contains("by functions for sm_90a is off by"), "{}", wrong.notes);
    let told = &wrong.end["gpus"]["attention"]["wrong"];
    assert!(says(told, "attention to 20 positions by 1 x 20 queries"), "{told}");
}

/// In types that tensor cores do not take there is one way.
#[test]
fn attention_in_32_bits_is_not_chosen() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("attending-widely");
    let run = run_as(&bench, "steps 1", "", &[]);
    let (sm90, usual, why) = counts(&run);
    assert!((sm90, usual) == (0, 0) && why.is_null(), "{why}");
    assert!(choices(&bench.own_cache()).is_empty(), "nothing is to be chosen");
}
