//! How trials time: in graphs, on a clock of the stand-ins that says what takes how long, for the host and
//! for the device.

use crate::{
    bench::{Bench, Run, counted, has_compiler, program},
    convolving,
    support::ended,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

const PLAN: &str = "rule sync, placement accumulate, micro_batches 2, stages 1";

/// What an environment says.
type Settings<'a> = &'a [(&'a str, &'a str)];

/// The second of two algorithms costs the device less, and the host more than either costs the device.
const COSTLY: [(&str, &str); 3] = [
    ("STANDIN_CUDA_ALGORITHMS", "2"),
    ("STANDIN_CUDA_CLOCK", "product-0=100/5,product-1=60/300"),
    ("STANDIN_CUDA_FASTEST", "1"),
];

fn written(bench: &Bench) -> PathBuf {
    program(bench, "timed", 1, "steps 4", PLAN)
}

/// A training whose choices are kept in the scratch folder.
fn run(bench: &Bench, words: &str, program: &Path, settings: Settings<'_>) -> Run {
    let cache = bench.own_cache();
    let cache = ("ROUNDELAY_CACHE", cache.as_str());
    let words = format!("--device cuda {words}");
    bench.run(&words, program, &[&[cache], settings].concat())
}

/// The second of two such trainings, which tries nothing.
fn kept(bench: &Bench, words: &str, program: &Path, settings: Settings<'_>) -> Run {
    let first = run(bench, words, program, settings);
    let second = run(bench, words, program, settings);
    assert!(second.count("products") < first.count("products"), "all was kept");
    assert!(second.is(&first), "runs repeat");
    second
}

/// Whether the algorithm that is said to be the fastest makes all products, or none.
fn takes_fastest(run: &Run) -> bool {
    let (all, slow) = (run.count("products"), run.count("slow_products"));
    assert!(all > 0 && (slow == 0 || slow == all), "{slow} of {all} are slow");
    slow == 0
}

/// What the host does for a call is nothing to a trial, and steps that are no graphs take the same ways.
#[test]
fn the_device_alone_decides() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("timed-host");
    let program = written(&bench);
    let graphed = kept(&bench, "", &program, &COSTLY);
    assert!(graphed.count("graph_launches") > 0);
    assert!(takes_fastest(&graphed), "the device needs less for it");
    let once = bench.choices();
    let given = run(&bench, "--graphs never", &program, &COSTLY);
    assert_eq!(given.count("graph_launches"), 0);
    assert!(given.is(&graphed) && takes_fastest(&given), "in the ways of graphs");
    assert_eq!(bench.choices(), once, "it finds all that it looks for");
}

/// A profile gives every call, but measures what a run replays.
#[test]
fn a_profile_takes_what_is_best_in_graphs() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("timed-profile");
    let (program, cache) = (written(&bench), bench.own_cache());
    let counts = bench.scratch.path("profile-counts");
    let mut profile = bench.command("profile --device cuda --top 1 --patience 1");
    profile.arg(&program).arg("-o").arg(bench.scratch.path("table.yaml"));
    profile.env("ROUNDELAY_CACHE", cache).env("STANDIN_CUDA_COUNTS", &counts);
    let profile = ended(profile.envs(COSTLY));
    assert_eq!(profile.code, 0, "{profile:?}");
    let tried = bench.choices();
    assert!(!tried.is_empty(), "it tries");
    let run = run(&bench, "", &program, &COSTLY);
    assert!(takes_fastest(&run), "it finds what is best in graphs");
    assert_eq!(bench.choices(), tried, "and a run takes that");
}

/// While the device gets faster, or slower, no way is the better one for coming earlier or later.
#[test]
fn a_drifting_clock_decides_nothing() {
    if !has_compiler() {
        return;
    }
    // Four in a hundred are noticed, less than the clock drifts by in a round.
    for (fastest, clock) in [("3", "product-3=96/1"), ("1", "product-1=96/1"), ("0", "")]
    {
        for drift in ["steady", "rising", "swaying"] {
            let bench = Bench::new(&format!("timed-{drift}-{fastest}"));
            let program = written(&bench);
            let settings = [
                ("STANDIN_CUDA_ALGORITHMS", "4"),
                ("STANDIN_CUDA_FASTEST", fastest),
                ("STANDIN_CUDA_CLOCK", clock),
                ("STANDIN_CUDA_DRIFT", drift),
            ];
            let kept = kept(&bench, "", &program, &settings);
            assert!(takes_fastest(&kept), "{drift}: not the one in place {fastest}");
        }
    }
}

/// What refuses to be recorded fails, however fast it is, and is said; the stream goes on.
#[test]
fn what_cannot_be_recorded_is_left_out_of_graphs() {
    if !has_compiler() {
        return;
    }
    for (place, refusing, other) in [(1, "product-1", "0"), (0, "product-0", "1")] {
        let bench = Bench::new(&format!("unrecorded-{place}"));
        let program = written(&bench);
        let clock = format!("{refusing}=50/1");
        let settings = [
            ("STANDIN_CUDA_ALGORITHMS", "2"),
            ("STANDIN_CUDA_CLOCK", clock.as_str()),
            ("STANDIN_CUDA_UNRECORDED", refusing),
            ("STANDIN_CUDA_FASTEST", other),
        ];
        let first = run(&bench, "", &program, &settings);
        let said = format!("product, way {} of 2: cublasLtMatmul", place + 1);
        let told = first.end["gpus"]["unrecorded"].as_str().unwrap_or_default();
        assert!(told.contains(&said), "{told}");
        let note = "left out, because it cannot be part of a graph: product";
        assert!(first.notes.contains(note), "{}", first.notes);
        let second = run(&bench, "", &program, &settings);
        assert!(takes_fastest(&second) && second.is(&first), "{refusing}");
        assert!(second.count("graph_launches") > 0, "{refusing}");
        assert!(second.end["gpus"]["unrecorded"].is_null(), "nothing is tried");
    }
}

/// Where nothing can be recorded nothing is known of times: the first choice stands, and is not kept.
#[test]
fn where_nothing_can_be_recorded_nothing_is_kept() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("unrecorded-all");
    let program = written(&bench);
    let settings = [
        ("STANDIN_CUDA_ALGORITHMS", "2"),
        ("STANDIN_CUDA_CLOCK", ""),
        ("STANDIN_CUDA_UNRECORDED", "product-0,product-1"),
    ];
    for _ in 0..2 {
        let run = run(&bench, "--graphs never", &program, &settings);
        assert!(run.notes.contains("cannot be part of a graph"), "{}", run.notes);
        assert!(bench.choices().is_empty());
    }
}

/// Engines of cuDNN take the host long for every call, and that is nothing to a graph.
#[test]
fn engines_are_timed_in_graphs() {
    if !has_compiler() {
        return;
    }
    let clock = ("STANDIN_CUDA_CLOCK", "convolution=1000/1,engine-fast=500/9000");
    let unrecorded = ("STANDIN_CUDA_UNRECORDED", "engine-fast");
    for (number, settings, by_library) in
        [(0, &[clock][..], true), (1, &[clock, unrecorded], false)]
    {
        let bench = Bench::with_cudnn(&format!("timed-engines-{number}"));
        let program = convolving::program(&bench, convolving::PLAIN, "steps 3");
        let run = run(&bench, "", &program, settings);
        let told = &run.end["gpus"]["convolutions"];
        assert_eq!(told["cudnn"].as_u64() > Some(0), by_library, "{number}: {told}");
        assert_eq!(told["own"].as_u64() > Some(0), !by_library, "{number}: {told}");
        let left_out = run.notes.contains("part of a graph: convolution, way 2 of 2");
        assert_eq!(left_out, !by_library, "{}", run.notes);
    }
}

/// Where the sums beside a product are made was timed with one algorithm of it, and says nothing of others.
#[test]
fn what_was_timed_with_another_algorithm_is_not_taken() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("timed-places");
    let program = program(&bench, "places", 1, "steps 2, dtype bf16", PLAN);
    let named = |kind: &str| {
        let mut files = bench.choices();
        files.retain(|file| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(kind))
        });
        files
    };
    let fastest =
        |clock| [("STANDIN_CUDA_ALGORITHMS", "4"), ("STANDIN_CUDA_CLOCK", clock)];
    kept(&bench, "", &program, &fastest("product-1=50/1"));
    let places = named("place-").len();
    assert!(places > 0, "both ways were timed");
    for file in named("product-") {
        fs::remove_file(file).expect("it is there");
    }
    kept(&bench, "", &program, &fastest("product-3=50/1"));
    assert_eq!(named("place-").len(), 2 * places, "they are timed again");
}

/// Whoever looks at held-out data takes what was kept.
#[test]
fn looks_take_what_is_kept() {
    if !has_compiler() {
        return;
    }
    let settings = [
        ("STANDIN_CUDA_ALGORITHMS", "2"),
        ("STANDIN_CUDA_CLOCK", "product-1=60/1"),
        ("STANDIN_CUDA_FASTEST", "1"),
    ];
    let bench = Bench::new("timed-looks");
    let program = program(&bench, "timed", 1, "steps 4, evaluate { every 2 }", PLAN);
    run(&bench, "", &program, &settings);
    let weights = bench.scratch.path("weights.safetensors");
    let counts = bench.scratch.path("look-counts");
    let cache = bench.own_cache();
    let [kept, nowhere] = [cache.as_str(), "/dev/null/cache"].map(|cache| {
        let mut look = bench.command("evaluate --device cuda --weights");
        look.arg(&weights).arg(&program).env("STANDIN_CUDA_COUNTS", &counts);
        let look = ended(look.env("ROUNDELAY_CACHE", cache).envs(settings));
        assert_eq!(look.code, 0, "{look:?}");
        ["products", "slow_products"].map(|name| counted(&counts, name))
    });
    assert_eq!(kept[0], nowhere[0], "nothing is tried");
    assert_eq!(nowhere[0], nowhere[1], "without choices the first stand");
    assert!(kept[1] < nowhere[1], "{kept:?}");
}
