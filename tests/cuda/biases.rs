//! Gradients of biases, which the library sums beside the products that make those of weights, or our
//! functions behind them: whichever is faster, where both make the same.

use crate::{
    bench::{Bench, Run, arenas, has_compiler, program},
    support::{printed, roundelay},
};
use std::{fs, path::Path};

/// The second micro-batch of each stage adds to what the first one wrote; whole passes, and such in halves.
const PLANS: [&str; 2] = [
    "rule sync, placement accumulate, micro_batches 2, stages 1",
    "rule sync, placement pipeline, order zb_h1, micro_batches 2, stages 2",
];

/// On the clock of the stand-ins our sums take long, so that the library is noticed to be faster.
const SLOW_OWN: (&str, &str) = ("STANDIN_CUDA_CLOCK", "sum_of_segments=900/1");

/// Sums that are not the library's.
const REFUSED: (&str, &str) = ("STANDIN_CUDA_SUMS", "refuse");

/// A training whose choices are kept in the scratch folder.
fn run(bench: &Bench, words: &str, program: &Path, settings: &[(&str, &str)]) -> Run {
    let cache = bench.own_cache();
    let cache = ("ROUNDELAY_CACHE", cache.as_str());
    bench.run(&format!("--device cuda {words}"), program, &[&[cache], settings].concat())
}

fn near(own: &Run, other: &Run, share: f64) {
    assert_eq!(own.losses.len(), other.losses.len());
    for (own, other) in own.losses.iter().zip(&other.losses) {
        assert!((own - other).abs() < share * other, "{own} against {other}");
    }
}

/// In 16 bits, whatever gradients have: no gradient is lost, and no bit depends on graphs or on the order of
/// streams.
#[test]
fn the_library_sums_gradients_of_biases() {
    if !has_compiler() {
        return;
    }
    for (number, plan) in PLANS.into_iter().enumerate() {
        let bench = Bench::new(&format!("biases-{number}"));
        let written = |name: &str, train: &str| program(&bench, name, 2, train, plan);
        let single = written("single", "steps 12");
        let planned = printed(roundelay("plan --json").arg(&single));
        assert!(planned.contains("\"affine_gradients\""), "{plan}: {planned}");
        let cpu = bench.run("--device cpu", &single, &[]);
        let own = run(&bench, "", &single, &[SLOW_OWN]);
        assert_eq!(own.count("sums"), 0, "in 32 bits they are ours");
        near(&own, &cpu, 2e-3);
        for (dtype, share) in [("bf16", 0.02), ("bf16 { gradients f32 }", 2e-3)] {
            let narrow = written("narrow", &format!("steps 12, dtype {dtype}"));
            let tried = run(&bench, "", &narrow, &[SLOW_OWN]);
            near(&tried, &cpu, 0.03);
            let late = ("STANDIN_CUDA_ORDER", "late");
            let kept = run(&bench, "", &narrow, &[late]);
            assert!(kept.is(&tried), "{dtype}: what is kept has the same bits");
            let [all, taken] = [&tried, &kept].map(|run| run.count("sums"));
            assert!(0 < taken && taken < all, "{dtype}: {taken} of {all} are no trials");
            assert!(kept.count("graph_launches") > 0, "{dtype}: sums are recorded");
            let figures = ["measured", "predicted"].map(|what| arenas(&kept.end[what]));
            assert_eq!(figures[0], figures[1], "{dtype}: arenas are as was planned");
            let drawn = ("STANDIN_CUDA_ORDER", "3");
            let given = run(&bench, "--graphs never", &narrow, &[drawn]);
            assert!(given.is(&kept), "{dtype}: graphs and order change no bit");
            // Our own sums of the same numbers differ in the last bits alone.
            let ours = bench.run("--device cuda", &narrow, &[REFUSED]);
            assert_eq!(ours.count("sums"), 0, "they are refused");
            near(&kept, &ours, share);
            let products = [&kept, &ours].map(|run| &run.end["gpus"]["products"]);
            assert_eq!(products[0], products[1], "{dtype}: as many are the library's");
            assert!(products[0]["why_own"].is_null() && products[0]["wrong"].is_null());
        }
    }
}

/// The library makes those of later micro-batches as well, which are added in a pass of their own.
#[test]
fn the_library_sums_what_is_added() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("added-biases");
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let train = format!("steps 2, dtype {dtype}");
        let counted = |count: u32| {
            let plan = format!(
                "rule sync, placement accumulate, micro_batches {count}, stages 1"
            );
            let program = program(&bench, "added", 1, &train, &plan);
            run(&bench, "", &program, &[SLOW_OWN]);
            run(&bench, "--graphs never", &program, &[SLOW_OWN]).count("sums")
        };
        let [one, two] = [1, 2].map(counted);
        assert!(one > 0 && two == 2 * one, "{dtype}: {one} and {two}");
    }
}

/// The faster way is found once and kept, so that runs repeat; without trials our sums stand.
#[test]
fn the_faster_way_of_sums_is_kept() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("tried-biases");
    let program = program(&bench, "tried", 1, "steps 2, dtype bf16", PLANS[0]);
    let nowhere = ("ROUNDELAY_CACHE", "/dev/null/cache");
    let untried = bench.run("--device cuda", &program, &[nowhere, SLOW_OWN]);
    assert_eq!(untried.count("sums"), 0, "nothing is tried, so ours stand");
    let slow = [("STANDIN_CUDA_SUMS", "slow")];
    let tried = run(&bench, "", &program, &slow);
    assert!(tried.count("sums") > 0, "the library's are tried");
    let kept = run(&bench, "", &program, &slow);
    assert_eq!(kept.count("sums"), 0, "and not taken");
    assert!(kept.is(&tried) && kept.is(&untried), "ours have the same bits");
    assert!(run(&bench, "", &program, &[SLOW_OWN]).is(&kept), "what was kept is taken");
}

/// A library that rounds parts of sums to 16 bits is found out, however fast it is, and a note says so.
#[test]
fn sums_that_are_rounded_on_the_way_are_left_out() {
    if !has_compiler() {
        return;
    }
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let bench = Bench::new(&format!("short-biases-{}", dtype.len()));
        let train = format!("steps 2, dtype {dtype}");
        let program = program(&bench, "short", 1, &train, PLANS[0]);
        let short = [("STANDIN_CUDA_SUMS", "short"), SLOW_OWN];
        let tried = run(&bench, "", &program, &short);
        assert!(tried.count("sums") > 0, "{dtype}: they are compared");
        let wrong = &tried.end["gpus"]["products"]["wrong"];
        assert!(wrong.as_str().is_some_and(|it| it.contains("is not ours")), "{wrong}");
        let said = "cuBLASLt makes other numbers";
        assert!(tried.notes.contains(said), "{}", tried.notes);
        let kept = run(&bench, "", &program, &short);
        assert_eq!(kept.count("sums"), 0, "{dtype}: and not taken");
        let ours = bench.run("--device cuda", &program, &[REFUSED]);
        assert!(kept.is(&ours) && tried.is(&ours), "{dtype}: ours have the same bits");
    }
}

/// Beside matrices of odd rows nobody asks the library for sums.
#[test]
fn sums_of_odd_rows_are_ours() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("odd-biases");
    let even = program(&bench, "even", 1, "steps 2, dtype bf16", PLANS[0]);
    let text = fs::read_to_string(even).expect("it was written");
    assert!(text.contains("width = 16"), "{text}");
    let odd = bench.scratch.file("odd.rdl", &text.replace("width = 16", "width = 12"));
    let odd = run(&bench, "", &odd, &[SLOW_OWN]);
    assert_eq!(odd.count("sums"), 0);
    assert!(odd.count("products") > 0, "the library multiplies");
}
