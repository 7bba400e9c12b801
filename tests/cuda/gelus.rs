//! The GELU by a hyperbolic tangent and its slope, which the library makes with a product, or a pass of
//! ours behind one: whichever is faster.

use crate::bench::{Bench, Run, arenas, has_compiler, program};
use std::{
    fs,
    path::{Path, PathBuf},
};

const PLAN: &str = "rule cyclic_v2, placement data, micro_batches 2, stages 2";

/// The model of these tests with the other GELU.
fn bent(bench: &Bench, name: &str, train: &str) -> PathBuf {
    let exact = program(bench, name, 2, train, PLAN);
    let text = fs::read_to_string(exact).expect("it was written");
    assert!(text.contains("gelu("), "{text}");
    bench.scratch.file(&format!("{name}-bent.rdl"), &text.replace("gelu(", "gelu_tanh("))
}

fn near(own: &Run, other: &Run, share: f64) {
    assert_eq!(own.losses.len(), other.losses.len());
    for (own, other) in own.losses.iter().zip(&other.losses) {
        assert!((own - other).abs() < share * other, "{own} against {other}");
    }
}

/// In 16 bits the library takes both; no bit depends on graphs or on the order of streams.
#[test]
fn the_library_makes_gelus_of_sixteen_bits() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("gelus");
    let single = bent(&bench, "single", "steps 12");
    let cpu = bench.run("--device cpu", &single, &[]);
    let own = bench.run("--device cuda", &single, &[]);
    assert_eq!(own.count("gelus"), 0, "in 32 bits they are ours");
    near(&own, &cpu, 2e-3);
    // On a clock where a product takes as long with a GELU as without, and a pass takes time too.
    let cache = bench.own_cache();
    let run = |words: &str, program: &Path, order: &str| {
        let clock = ("STANDIN_CUDA_CLOCK", "product-0=100/1");
        let kept = ("ROUNDELAY_CACHE", cache.as_str());
        bench.run(words, program, &[("STANDIN_CUDA_ORDER", order), clock, kept])
    };
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let narrow = bent(&bench, "narrow", &format!("steps 12, dtype {dtype}"));
        let graphed = run("--device cuda", &narrow, "late");
        // Forward and backward of two layers, twice: for the first micro-batch and for others.
        assert!(graphed.count("gelus") >= 8, "{}", graphed.count("gelus"));
        near(&graphed, &cpu, 0.03);
        let figures = ["measured", "predicted"].map(|what| arenas(&graphed.end[what]));
        assert_eq!(figures[0], figures[1], "{dtype}: arenas are as large as was planned");
        let words = "--device cuda --graphs never";
        let given = run(words, &narrow, "3");
        assert!(given.is(&graphed), "{dtype}: graphs and order change no bit");
        let refused =
            bench.run("--device cuda", &narrow, &[("STANDIN_CUDA_PRODUCTS", "refuse")]);
        assert_eq!(refused.count("products"), 0, "own functions make all");
        near(&refused, &cpu, 0.03);
    }
}

/// What is before a GELU and does not lie as the library wants it is left to ours.
#[test]
fn the_library_makes_no_gelus_of_odd_rows() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("odd-gelus");
    let even = bent(&bench, "odd", "steps 3, dtype bf16");
    let text = fs::read_to_string(even).expect("it was written");
    let text = text.replace("2 * width", "2 * width + 4");
    let odd = bench.scratch.file("odd-rows.rdl", &text);
    let run = bench.run("--device cuda", &odd, &[]);
    assert_eq!(run.count("gelus"), 0);
    assert!(run.count("products") > 0, "the library multiplies");
    let single = text.replace(", dtype bf16", "");
    let single = bench.scratch.file("odd-single.rdl", &single);
    near(&run, &bench.run("--device cpu", &single, &[]), 0.03);
}

/// The faster of the two ways is found once and kept, so that runs repeat; without trials the library's
/// stands.
#[test]
fn the_faster_way_of_a_gelu_is_kept() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("tried-gelus");
    let program = bent(&bench, "tried", "steps 2, dtype bf16");
    let folder = |name: &str| bench.scratch.path(name);
    let run = |cache: &PathBuf, gelus: &str| {
        let cache = ("ROUNDELAY_CACHE", cache.to_str().expect("the path is text"));
        bench.run("--device cuda", &program, &[cache, ("STANDIN_CUDA_GELUS", gelus)])
    };
    let untried = run(&PathBuf::from("/dev/null/cache"), "slow");
    assert!(untried.count("gelus") > 0, "nothing is tried, so the library's stands");
    let tried = run(&folder("slow"), "slow");
    assert!(tried.count("gelus") > 0, "the slow way is tried");
    let kept = run(&folder("slow"), "slow");
    assert_eq!(kept.count("gelus"), 0, "and not taken");
    assert!(kept.is(&tried), "two runs have the same bits");
    assert!(run(&folder("slow"), "fast").is(&kept), "what was kept is taken");
    let files = fs::read_dir(folder("slow")).expect("the cache is there");
    for file in files.map(|file| file.expect("readable").path()) {
        if file.extension().is_some_and(|it| it == "algorithm") {
            fs::write(file, b"broken").expect("writable");
        }
    }
    let mended = run(&folder("slow"), "slow");
    assert!(mended.count("gelus") > 0, "a broken choice is made again");
    assert!(mended.is(&kept), "as before");
}
