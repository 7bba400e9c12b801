//! Convolutions by cuDNN, where a trial found it faster and its numbers those of own functions.

use crate::{
    bench::{ALL, Bench, CUDNN, Run, has_compiler, program_of},
    support::{document, ended},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A residual network: a wide stem that skips pixels, filters of three pixels with and without strides, one
/// of them in two groups, and one that skips pixels with filters of one.
const RESIDUAL: &str = "model residual {
    input pixels: real[batch, 8, 8, 4]
    input labels: i32[batch]
    x = relu(batch_norm(conv2d(pixels, 16, kernel = 5, stride = 2, padding = 2, bias = false)))
    x = relu(x + batch_norm(conv2d(x, 16, bias = false)))
    y = relu(batch_norm(conv2d(x, 32, stride = 2, bias = false)))
    y = batch_norm(conv2d(y, 32, groups = 2, bias = false))
    x = relu(y + batch_norm(conv2d(x, 32, kernel = 1, stride = 2, bias = false)))
    logits = linear(global_pool(x), 4)
    loss cross_entropy(logits, labels)
}";

/// A smaller one, for what is asked of every algorithm.
pub(crate) const PLAIN: &str = "model plain {
    input pixels: real[batch, 6, 6, 4]
    input labels: i32[batch]
    x = relu(conv2d(pixels, 8, kernel = 3, padding = 1))
    logits = linear(global_pool(relu(conv2d(x, 8, kernel = 3, stride = 2, padding = 1))), 4)
    loss cross_entropy(logits, labels)
}";

/// On the clock of the stand-ins own functions take long, so that the library is noticed to be faster.
const SLOW_OWN: (&str, &str) =
    ("STANDIN_CUDA_CLOCK", "convolution=900/1,engine-slow=500/1");

pub(crate) fn program(bench: &Bench, model: &str, train: &str) -> PathBuf {
    let name = train.replace(|letter: char| !letter.is_alphanumeric(), "-");
    let train = format!("batch 8, seed 11, optimizer sgd(lr = 0.05), {train}");
    let plan =
        "exactness delayed, rule sync, placement accumulate, micro_batches 2, stages 1";
    program_of(bench, &name, (model, 1), &train, plan)
}

/// A training whose choices are kept in the scratch folder.
fn run(bench: &Bench, words: &str, program: &Path, more: &[(&str, &str)]) -> Run {
    let cache = bench.own_cache();
    let cache = ("ROUNDELAY_CACHE", cache.as_str());
    bench.run(&format!("--device cuda {words}"), program, &[&[cache], more].concat())
}

/// A training without cuDNN.
fn without(name: &str, model: &str, train: &str) -> Run {
    let bench = Bench::new(name);
    bench.run("--device cuda", &program(&bench, model, train), &[])
}

/// The files that keep choices of convolutions.
fn kept(bench: &Bench) -> usize {
    let files = fs::read_dir(bench.scratch.path("cache")).expect("the cache is there");
    let names = files.map(|file| file.expect("readable").file_name());
    let is_choice = |name: &std::ffi::OsString| {
        name.to_str().is_some_and(|name| name.starts_with("convolution-"))
    };
    names.filter(is_choice).count()
}

fn counts(run: &Run) -> (u64, u64, &Value) {
    let told = &run.end["gpus"]["convolutions"];
    let count = |name: &str| told[name].as_u64().expect("a count");
    (count("cudnn"), count("own"), &told["why_own"])
}

fn near(own: &Run, other: &Run, tolerance: f64) {
    assert_eq!(own.losses.len(), other.losses.len());
    for (own, other) in own.losses.iter().zip(&other.losses) {
        assert!((own - other).abs() < tolerance * other, "{own} against {other}");
    }
}

#[test]
fn the_fastest_algorithm_is_found_kept_and_taken() {
    if !has_compiler() {
        return;
    }
    let all = counts(&without("unconvolved-residual", RESIDUAL, "steps 6")).1;
    let bench = Bench::with_cudnn("convolved");
    let program = program(&bench, RESIDUAL, "steps 6");
    let offers = ("STANDIN_CUDNN_OFFERS", "slow,winograd,large,drifting,fast,short");
    let first = run(&bench, "", &program, &[offers, SLOW_OWN]);
    assert!(first.count("slow_convolutions") > 0, "slow ones are tried");
    assert_eq!(first.count("odd_convolutions"), 0, "what may not be taken is not tried");
    let (cudnn, own, why) = counts(&first);
    assert_eq!((cudnn, own), (all, 0), "{why}");
    let beside = |run: &Run| run.end["beside_bytes"].as_u64().expect("a size");
    let plain = without("unconvolved-beside", RESIDUAL, "steps 6");
    assert!(beside(&first) < beside(&plain), "own functions take scratch memory");
    assert!(why.is_null() && kept(&bench) > 0, "{why}");
    assert!(!first.notes.contains("cuDNN"), "{}", first.notes);
    let again = run(&bench, "", &program, &[offers, SLOW_OWN]);
    assert!(again.is(&first), "what is kept has the same bits");
    assert!(again.count("convolutions") > 0, "the library makes them");
    assert!(again.count("convolutions") < first.count("convolutions"), "without trials");
    assert_eq!(again.count("slow_convolutions"), 0, "the fast ones were kept");
    assert!(again.count("graph_launches") > 0, "convolutions are recorded");
    let without = run(&bench, "--graphs never", &program, &[offers, SLOW_OWN]);
    assert!(without.is(&first), "graphs change no bit");
    for order in ["late", "5"] {
        let order = ("STANDIN_CUDA_ORDER", order);
        let other = run(&bench, "", &program, &[offers, SLOW_OWN, order]);
        assert!(other.is(&first), "the order changes no bit");
    }
    near(&first, &bench.run("--device cpu", &program, &[]), 2e-3);
}

/// In 16 bits too; but gradients in other types than what they are made of are own functions'.
#[test]
fn sixteen_bits_are_convolved_by_the_library() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("convolved-narrow");
    let single = program(&bench, RESIDUAL, "steps 6");
    let single = bench.run("--device cpu", &single, &[]);
    for (dtype, mixed) in [("bf16", false), ("bf16 { gradients f32 }", true)] {
        let train = format!("steps 6, dtype {dtype}");
        let all = counts(&without(&format!("unconvolved-{mixed}"), RESIDUAL, &train)).1;
        let narrow = program(&bench, RESIDUAL, &train);
        let narrow = run(&bench, "", &narrow, &[SLOW_OWN]);
        let (cudnn, own, why) = counts(&narrow);
        assert_eq!((cudnn > 0, own > 0, cudnn + own), (true, mixed, all), "{dtype}");
        let said = why.as_str().is_some_and(|why| why.contains("one type"));
        assert_eq!(said, mixed, "{dtype}: {why}");
        near(&narrow, &single, 0.03);
    }
}

/// Algorithms that make other bits every time or other numbers, that refuse, and such as are slower.
#[test]
fn what_is_not_better_is_never_taken() {
    if !has_compiler() {
        return;
    }
    let plain = without("unconvolved", PLAIN, "steps 4");
    let (cudnn, all, why) = counts(&plain);
    assert!(cudnn == 0 && all > 0, "{why}");
    assert!(why.as_str().is_some_and(|why| why.contains("there is no cuDNN")), "{why}");
    assert!(!plain.notes.contains("cuDNN"), "{}", plain.notes);
    let none = "has no deterministic engine within the memory that it may take";
    let kept_own = "our own kernels won the trial";
    let cases = [
        ("drifting,winograd,short", SLOW_OWN, none),
        ("wrong,failing,large", SLOW_OWN, kept_own),
        ("slow", ("STANDIN_CUDA_CLOCK", "engine-slow=900/1"), kept_own),
    ];
    for (offers, slow, reason) in cases {
        let bench = Bench::with_cudnn(&format!("convolved-{}", offers.len()));
        let program = program(&bench, PLAIN, "steps 4");
        let offers = ("STANDIN_CUDNN_OFFERS", offers);
        let first = run(&bench, "", &program, &[offers, slow]);
        let wrong = first.count("wrong_convolutions") > 0;
        assert_eq!(wrong, offers.1.contains("wrong"), "wrong ones are tried");
        let note = "an engine of cuDNN is left out";
        assert_eq!(first.notes.contains(note), wrong, "{}", first.notes);
        let told = &first.end["gpus"]["convolutions"]["wrong"];
        assert_eq!(told.is_string(), wrong, "{told}");
        let again = run(&bench, "", &program, &[offers, slow]);
        assert_eq!(again.count("convolutions"), 0, "{offers:?}");
        for run in [first, again] {
            let (cudnn, own, why) = counts(&run);
            assert_eq!((cudnn, own), (0, all), "{offers:?}: {why}");
            assert!(why.as_str().is_some_and(|why| why.contains(reason)), "{why}");
            assert_eq!(run.count("odd_convolutions"), 0, "{offers:?}");
            assert!(run.is(&plain), "{offers:?}: own functions make the same bits");
        }
    }
    let bench = Bench::with_cudnn("convolved-beside-wrong");
    let program = program(&bench, PLAIN, "steps 4");
    let offers = ("STANDIN_CUDNN_OFFERS", "wrong,fast");
    let right = run(&bench, "", &program, &[offers, SLOW_OWN]);
    assert_eq!(counts(&right).0, all, "another algorithm is taken");
    near(&right, &plain, 2e-3);
}

/// Of a result above 2 MiB pieces are looked at, and its end.
#[test]
fn large_results_are_looked_at_in_pieces() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("convolved-large");
    let model = "model large {
        input pixels: real[batch, 132, 132, 8]
        input labels: i32[batch]
        x = conv2d(pixels, 8, kernel = 2, padding = 0, groups = 8, bias = false)
        loss cross_entropy(linear(global_pool(x), 4), labels)
    }";
    let program = program(&bench, model, "steps 2");
    let slow = ("STANDIN_CUDA_CLOCK", "grouped=900/1");
    for offers in ["wrong", "torn"] {
        let run = run(&bench, "", &program, &[slow, ("STANDIN_CUDNN_OFFERS", offers)]);
        let (cudnn, own, why) = counts(&run);
        assert!(cudnn == 0 && own > 0, "{offers}: {why}");
        let wrong = run.end["gpus"]["convolutions"]["wrong"].as_str();
        let said = "4 images of 132 x 132 x 8 with 8 filters of 2 x 2";
        assert!(wrong.is_some_and(|wrong| wrong.contains(said)), "{offers}: {wrong:?}");
        let kept = fs::remove_dir_all(bench.scratch.path("cache"));
        kept.expect("the next one is tried anew");
    }
    let right = run(&bench, "", &program, &[slow]);
    let told = &right.end["gpus"]["convolutions"];
    assert!(told["wrong"].is_null(), "{told}");
}

/// An engine may copy large images, and not small ones; the copies are in memory that is told.
#[test]
fn large_arrays_leave_engines_more_memory() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("convolved-roomy");
    let model = "model roomy {
        input pixels: real[batch, 512, 512, 4]
        input labels: i32[batch]
        x = relu(conv2d(pixels, 8, kernel = 3, stride = 32, padding = 1))
        x = conv2d(x, 8, kernel = 3, padding = 1)
        loss cross_entropy(linear(global_pool(x), 4), labels)
    }";
    let small = program(&bench, model, "steps 1");
    let text = fs::read_to_string(small).expect("it was written");
    let program = bench.scratch.file("many.rdl", &text.replace("batch 8", "batch 36"));
    let offers = ("STANDIN_CUDNN_OFFERS", "roomy");
    let run = run(&bench, "", &program, &[SLOW_OWN, offers]);
    let (cudnn, own, why) = counts(&run);
    assert!(cudnn == 3 && own > 0, "forward, and sums that are written and added: {why}");
    let inputs = 2 * 36 * 512 * 512 * 4 * size_of::<f32>() as u64;
    let beside = run.end["beside_bytes"].as_u64();
    assert!(beside > Some(inputs + (33 << 20)), "{beside:?}");
}

/// What cannot be kept is not tried, so own functions stay; and an old library is as good as none.
#[test]
fn without_a_trial_own_functions_stay() {
    if !has_compiler() {
        return;
    }
    let plain = without("unconvolved-nowhere", PLAIN, "steps 4");
    let all = counts(&plain).1;
    let bench = Bench::with_cudnn("convolved-nowhere");
    let program = program(&bench, PLAIN, "steps 4");
    let nowhere = ("ROUNDELAY_CACHE", "/dev/null/cache");
    let untried = bench.run("--device cuda", &program, &[SLOW_OWN, nowhere]);
    let old = ("STANDIN_CUDNN_VERSION", "8700");
    let old = run(&bench, "", &program, &[SLOW_OWN, old]);
    for (run, reason) in [(&untried, "no trial was kept"), (&old, "there is no cuDNN")] {
        let (cudnn, own, why) = counts(run);
        assert_eq!((cudnn, own, run.count("convolutions")), (0, all, 0), "{why}");
        assert!(why.as_str().is_some_and(|why| why.contains(reason)), "{why}");
        assert!(run.is(&plain), "{reason}");
        assert!(!run.notes.contains("cuDNN"), "{}", run.notes);
    }
}

/// The library ends the process at its first call where parts of it are missing, so it is not called.
#[test]
fn devices_says_which_cudnn_is_there() {
    let there = ended(&mut Bench::with_cudnn("cudnn-devices").command("devices"));
    assert!(there.out.contains("cuBLASLt 130000, cuDNN 91000"), "{}", there.out);
    let (old, absent) = (Bench::with_cudnn("old-cudnn-devices"), Bench::new("no-cudnn"));
    let part = Bench::with("part-cudnn-devices", &[&ALL[..], &CUDNN[..3]].concat());
    for (bench, version) in [(old, "8700"), (absent, "91000"), (part, "91000")] {
        let mut command = bench.command("devices");
        let told = ended(command.env("STANDIN_CUDNN_VERSION", version));
        let said = "own convolutions, because there is no cuDNN 8.9 or newer";
        assert!(told.code == 0 && told.out.contains(said), "{}", told.out);
    }
}

#[test]
fn a_cudnn_without_its_engines_is_not_started() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with("cudnn-engines", &[&ALL[..], &CUDNN[..5]].concat());
    let program = program(&bench, PLAIN, "steps 2");
    let (cudnn, own, why) = {
        let run = bench.run("--device cuda", &program, &[SLOW_OWN]);
        let (cudnn, own, why) = counts(&run);
        (cudnn, own, why.clone())
    };
    assert!(cudnn == 0 && own > 0, "{why}");
    let said = "cuDNN does not start: it lacks its `libcudnn_engines`";
    assert!(why.as_str().is_some_and(|why| why.contains(said)), "{why}");
}

/// All that the library makes of random calls is held to the references, unless it is not wanted.
#[test]
fn the_check_of_kernels_tries_the_library() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::with_cudnn("convolved-check");
    let words = "devices --check-kernels --calls 1 --seed 2 --only conv2d";
    let all = format!("{words},conv2d_backward,conv2d_weights");
    let told = document(&mut bench.command(&all), "kernel-check");
    assert_eq!(told["cudnn"], 91_000, "{told}");
    let rows = told["rows"].as_array().expect("the schema holds");
    assert_eq!(rows.len(), 3 * 4, "passes in all element types");
    for row in rows {
        assert!(row["wrong"].is_null(), "{row}");
        let by_library = row["convolutions"].as_u64() > Some(0);
        assert_eq!(by_library, row["dtype"] != "f64", "{row}");
    }
    let own =
        document(&mut bench.command(&format!("{words} --own-products")), "kernel-check");
    let rows = own["rows"].as_array().expect("the schema holds");
    assert!(rows.iter().all(|row| row["convolutions"] == 0), "{own}");
    assert_eq!(own["cudnn"], 0, "{own}");
    let mut wrong = bench.command(words);
    let wrong = ended(wrong.env("STANDIN_CUDNN_OFFERS", "wrong"));
    assert!(wrong.code == 3 && wrong.err.contains("WRONG in f32: conv2d"), "{wrong:?}");
}
