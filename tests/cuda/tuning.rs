//! The fastest algorithm of a product is found once and kept, so that runs repeat.

use crate::bench::{Bench, Run, has_compiler, program};
use std::fs;

const PLAN: &str = "rule sync, placement accumulate, micro_batches 2, stages 1";

/// Algorithms that the library offers, of which one is fast.
const SEVERAL: (&str, &str) = ("STANDIN_CUDA_ALGORITHMS", "4");

/// A training whose choices are kept in the scratch folder.
fn run(bench: &Bench, settings: &[(&str, &str)]) -> Run {
    let cache = bench.own_cache();
    let cache = ("ROUNDELAY_CACHE", cache.as_str());
    let program = program(bench, "tiny", 1, "steps 2", PLAN);
    bench.run("--device cuda", &program, &[&[cache], settings].concat())
}

#[test]
fn algorithms_are_tried_once_and_the_best_is_kept() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("tuned");
    let one = run(&bench, &[("STANDIN_CUDA_ALGORITHMS", "1")]);
    assert!(one.count("products") > 0, "the library makes products");
    assert!(bench.choices().is_empty(), "nothing is to be chosen of one");
    let first = run(&bench, &[SEVERAL]);
    let choices = bench.choices();
    assert!(first.count("products") > one.count("products"), "trials are products");
    assert!(first.count("slow_products") > 0, "slow ones are tried");
    assert!(!choices.is_empty());
    let again = run(&bench, &[SEVERAL]);
    assert_eq!(again.count("products"), one.count("products"), "nothing is tried again");
    assert_eq!(again.count("slow_products"), 0, "the fast ones were kept");
    assert!(again.is(&first));
    fs::write(&choices[0], b"broken").expect("writable");
    let mended = run(&bench, &[SEVERAL]);
    assert!(mended.count("slow_products") > 0, "a broken choice is made again");
    assert_eq!(run(&bench, &[SEVERAL]).count("slow_products"), 0);
    assert_eq!(bench.choices(), choices, "in the same files, and no halves");
}

/// Another trial could not be kept, so there is none: the first way stands, and what would help is told.
#[test]
fn a_kept_way_that_is_not_there_is_told_and_tried_no_more() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("lost");
    let kept = run(&bench, &[SEVERAL, ("STANDIN_CUDA_FASTEST", "3")]);
    assert!(kept.count("slow_products") > 0, "slow ones are tried");
    let choices = bench.choices();
    let fewer = [("STANDIN_CUDA_ALGORITHMS", "2"), ("STANDIN_CUDA_FASTEST", "1")];
    let lost = run(&bench, &fewer);
    let told = lost.end["gpus"]["untried"].as_str().unwrap_or_default();
    assert!(told.contains("keeps a way that is not there; remove it"), "{told}");
    let file = told.split('`').nth(1).unwrap_or_default();
    assert!(choices.iter().any(|choice| choice.display().to_string() == file), "{file}");
    assert_eq!(run(&bench, &fewer).count("products"), lost.count("products"));
    let once = run(&bench, &[("STANDIN_CUDA_ALGORITHMS", "1")]);
    assert_eq!(lost.count("products"), once.count("products"), "nothing is tried");
}

/// The first choice stands for all products from the first trial that fails on. It is kept for that
/// one alone: the next run tries all others.
#[test]
fn a_trial_that_fails_is_the_last_one() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("untried");
    // All four have been looked at once by then.
    let failed = run(&bench, &[SEVERAL, ("STANDIN_CUDA_REFUSE", "12")]);
    let told = failed.end["gpus"]["untried"].as_str().unwrap_or_default();
    assert!(told.starts_with("product: "), "it is said: {told}");
    let failing = bench.choices();
    assert_eq!(failing.len(), 1, "what would fail again is kept");
    let next = run(&bench, &[SEVERAL]);
    assert!(next.end["gpus"]["untried"].is_null(), "all is tried");
    let choices = bench.choices();
    assert!(choices.len() > 1 && choices.contains(&failing[0]), "{choices:?}");
    assert!(next.count("products") > failed.count("products"), "others were tried");
    let last = run(&bench, &[SEVERAL]);
    assert_eq!(bench.choices(), choices);
    assert!(last.count("slow_products") < last.count("products"), "fast ones were kept");
    assert!(last.is(&next));
}

/// What cannot be kept is not tried: the next run could choose otherwise.
#[test]
fn nothing_is_chosen_where_nothing_is_kept() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("untuned");
    let program = program(&bench, "tiny", 1, "steps 2", PLAN);
    let nowhere = ("ROUNDELAY_CACHE", "/dev/null/cache");
    let run = bench.run("--device cuda", &program, &[SEVERAL, nowhere]);
    let one = bench.run("--device cuda", &program, &[nowhere]);
    assert!(one.count("products") > 0, "the library makes products");
    assert!(one.is(&run), "two runs have the same bits");
    assert_eq!(run.count("products"), one.count("products"), "nothing is tried");
    assert_eq!(
        run.count("slow_products"),
        run.count("products"),
        "the first choice stands"
    );
    assert!(one.end["gpus"]["untried"].is_null(), "nothing is to be chosen of one");
    let told = run.end["gpus"]["untried"].as_str().unwrap_or_default();
    let why = "product: what a trial finds cannot be kept in `/dev/null/cache`";
    assert!(told.contains(why), "{told}");
    assert!(run.notes.contains(why), "{}", run.notes);
}

/// Where a trial finds no memory the first way stands, unkept, and that is said.
#[test]
fn what_no_memory_is_left_for_is_not_tried() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("cramped");
    let run = run(&bench, &[SEVERAL, ("STANDIN_CUDA_MEMORY", "33554432")]);
    assert!(bench.choices().is_empty(), "nothing is kept");
    let told = run.end["gpus"]["untried"].as_str().unwrap_or_default();
    assert!(told.starts_with("product: ") && told.contains("OUT_OF_MEMORY"), "{told}");
    assert!(run.notes.contains("may not be the fastest: product"), "{}", run.notes);
}
