//! Attention forward by cuDNN, where a trial found it faster and its numbers those of our functions.

use crate::{
    attending::{BF16, SLOW_ALL, SLOW_SPECIAL, choices, program, program_of},
    bench::{Bench, Run, counted, has_compiler},
    support::document,
};
use serde_json::Value;
use std::fs;

/// Calls of attention forward, and of its gradients, that are launched.
const FORWARD: u64 = 1;
const GRADIENTS: u64 = 1;

/// A training in 16 bits whose choices are kept in the scratch folder.
fn run(bench: &Bench, words: &str, more: &[(&str, &str)]) -> Run {
    let cache = bench.own_cache();
    let settings = [&[("ROUNDELAY_CACHE", cache.as_str())], more].concat();
    bench.run(&format!("--device cuda {words}"), &program(bench, BF16), &settings)
}

/// Calls by cuDNN and by functions of ours, and why by these.
fn counts(run: &Run) -> (u64, u64, String) {
    let told = &run.end["gpus"]["attention"];
    let count = |name: &str| told[name].as_u64().expect("a count");
    let why = told["why_own"].as_str().unwrap_or_default();
    (count("cudnn"), count("sm90") + count("usual"), why.to_owned())
}

#[test]
fn a_faster_library_is_found_kept_and_taken() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("attended");
    let all = [SLOW_ALL, ("STANDIN_CUDNN_OFFERS", "drifting,short,slow,fast")];
    let first = run(&bench, "", &all);
    let (cudnn, own, why) = counts(&first);
    assert_eq!((cudnn, own), (FORWARD, GRADIENTS), "{why}");
    assert!(why.contains("deterministic gradient needs memory for all scores"), "{why}");
    assert!(first.count("slow_attentions") > 0, "slow ones are tried");
    assert_eq!(first.count("odd_attentions"), 0, "what may not be taken is not tried");
    assert!(!choices(&bench.own_cache()).is_empty(), "what was chosen is kept");
    // Were it tried again, functions of ours would be taken now.
    let again = [("STANDIN_CUDNN_OFFERS", "drifting,short,slow,fast")];
    let other = run(&bench, "", &again);
    assert_eq!(counts(&other).0, FORWARD, "what was kept is taken");
    assert!(other.count("attentions") < first.count("attentions"), "without trials");
    assert_eq!(other.count("slow_attentions"), 0, "the fast one was kept");
    assert!(other.is(&first), "it has the same bits");
    assert!(other.count("graph_launches") > 0, "it is recorded");
    for (words, order) in [("--graphs never", "early"), ("", "late"), ("", "5")] {
        let other = run(&bench, words, &[again[0], ("STANDIN_CUDA_ORDER", order)]);
        assert_eq!(counts(&other).0, FORWARD);
        assert!(other.is(&first), "neither graphs nor the order change a bit");
    }
    let cpu = bench.run("--device cpu", &program(&bench, "steps 4"), &[]);
    for (own, other) in first.losses.iter().zip(&cpu.losses) {
        assert!((own - other).abs() < 0.03 * other, "{own} against {other}");
    }
}

/// Functions of ours stand where the library is slower, and the next run does not even start it.
#[test]
fn a_slower_library_is_left_alone() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("attended-slowly");
    let slow = [SLOW_SPECIAL, ("STANDIN_CUDNN_OFFERS", "slow")];
    let first = run(&bench, "", &slow);
    let (cudnn, own, why) = counts(&first);
    assert_eq!((cudnn, own), (0, FORWARD + GRADIENTS));
    assert!(why.contains("functions for every device won the trial"), "{why}");
    assert!(first.count("attentions") > 0, "it was tried");
    // Without it the library does not start, of which whoever starts it tells.
    let part = fs::remove_file(bench.scratch.path("libcudnn_heuristic.so.9"));
    part.expect("it was there");
    let again = run(&bench, "", &[("STANDIN_CUDNN_OFFERS", "fast")]);
    let (cudnn, _, why) = counts(&again);
    assert_eq!((cudnn, again.count("attentions")), (0, 0));
    assert!(why.contains("functions for every device won the trial"), "{why}");
    assert!(again.is(&first));
}

/// What is found while the library does not start says nothing of runs in which it does, and the other way
/// round.
#[test]
fn a_library_that_did_not_start_was_not_compared() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("attended-broken");
    let part = bench.scratch.path("libcudnn_heuristic.so.9");
    let aside = bench.scratch.path("aside");
    let offers = [SLOW_ALL, ("STANDIN_CUDNN_OFFERS", "fast")];
    fs::rename(&part, &aside).expect("it is there");
    let (cudnn, own, why) = counts(&run(&bench, "", &offers));
    assert_eq!((cudnn, own), (0, FORWARD + GRADIENTS));
    assert!(why.contains("cuDNN does not start"), "{why}");
    let kept = choices(&bench.own_cache());
    fs::rename(&aside, &part).expect("it was moved");
    assert_eq!(counts(&run(&bench, "", &offers)).0, FORWARD, "it is compared now");
    assert!(choices(&bench.own_cache()).len() > kept.len(), "under another name");
    fs::rename(&part, &aside).expect("it is there");
    let again = run(&bench, "", &offers);
    assert_eq!((counts(&again).0, again.count("slow_attentions")), (0, 0));
    assert!(again.end["gpus"]["untried"].is_null(), "what was kept without it is taken");
}

/// Engines that refuse, take too much memory or make other numbers are left out.
#[test]
fn engines_that_make_other_numbers_are_never_taken() {
    if !has_compiler() {
        return;
    }
    for (engines, is_wrong) in
        [("wrong", true), ("torn", true), ("failing", false), ("large", false)]
    {
        let bench = Bench::with_cudnn(&format!("attended-{engines}"));
        let run = run(&bench, "", &[SLOW_ALL, ("STANDIN_CUDNN_OFFERS", engines)]);
        let (cudnn, own, why) = counts(&run);
        assert_eq!((cudnn, own), (0, FORWARD + GRADIENTS), "{engines}: {why}");
        assert_eq!(run.count("odd_attentions"), 0, "{engines}");
        let wrong = run.end["gpus"]["attention"]["wrong"].as_str().unwrap_or_default();
        let words = "heads of 64 by cuDNN's engine";
        assert_eq!(wrong.contains(words), is_wrong, "{engines}: {wrong}");
        let said = "what makes other numbers is left out: attention to 20 positions";
        assert_eq!(run.notes.contains(said), is_wrong, "{engines}: {}", run.notes);
    }
}

/// Why the library makes nothing is said.
#[test]
fn what_the_library_does_not_make_is_told() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("attended-not");
    let sights = [
        ("causal = true, window = 5", "91000", "a window bounds what positions see"),
        ("causal = true", "8907", "cuDNN 8907 makes no attention"),
        ("causal = true", "91000", "has no deterministic engine"),
    ];
    for (sight, version, said) in sights {
        let cache = bench.own_cache();
        let settings = [
            ("ROUNDELAY_CACHE", cache.as_str()),
            ("STANDIN_CUDNN_VERSION", version),
            ("STANDIN_CUDNN_OFFERS", "drifting"),
        ];
        let program = program_of(&bench, sight, BF16);
        let run = bench.run("--device cuda", &program, &settings);
        let (cudnn, _, why) = counts(&run);
        assert!(cudnn == 0 && why.contains(said), "{sight}: {why}");
        assert_eq!(run.count("attentions"), 0, "{sight}");
    }
}

/// Heads that share keys, what sees all positions, and queries, keys and values in one array are held to the
/// references, by the library and by functions of ours.
#[test]
fn the_check_of_kernels_tries_the_library() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("attended-check");
    let words = "devices --check-kernels --calls 6 --seed 2 --only attention";
    let counts = bench.scratch.path("counts");
    let mut command = bench.command(words);
    command.env("STANDIN_CUDA_COUNTS", &counts);
    let told = document(&mut command, "kernel-check");
    let rows = told["rows"].as_array().expect("the schema holds");
    assert!(rows.iter().all(|row| row["wrong"].is_null()), "{told}");
    let is_by_library = |row: &&Value| row["attentions"].as_u64() > Some(0);
    let by_library = rows.iter().filter(is_by_library).count();
    assert_eq!(by_library, 2, "both types of 16 bits: {told}");
    let packed = counted(&counts, "packed_attentions").expect("they are counted");
    assert!(packed > 0, "{told}");
}
