//! What goes wrong is seen: a wait that is not kept, a device that fails, memory that cannot be
//! mapped, a library that is missing or refuses.

use crate::{
    bench::{ALL, Bench, has_compiler, one_device, program},
    support::{ended, lines},
};

const PLAN: &str =
    "rule cyclic_v2, placement data, micro_batches 2, stages 2, states handoff";

/// The launch of the update in the second period.
const UPDATE: &str = "adamw_constants:2";

/// Of waits all over a run, each left out once, some change what comes out: the order that the
/// stand-ins take would show a missing one.
#[test]
fn a_wait_that_is_not_kept_is_found() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("forgotten");
    let program = program(&bench, "tiny", 2, "steps 4", PLAN);
    let late = ("STANDIN_CUDA_ORDER", "late");
    let words = "--device cuda --graphs never";
    let whole = bench.run(words, &program, &[late]);
    let waits = whole.count("waits");
    let found = (1..=24).filter(|part| {
        let number = (waits * part / 25).to_string();
        let forget = ("STANDIN_CUDA_FORGET", number.as_str());
        let weights = bench.scratch.path("damaged.safetensors");
        let mut command = bench.command(&format!("run {words} --json --save"));
        let ended = ended(command.arg(&weights).arg(&program).envs([late, forget]));
        let bytes = std::fs::read(&weights).unwrap_or_default();
        ended.code != 0 || bytes != whole.bytes
    });
    let found = found.count();
    assert!(found >= 3, "{found} of 24");
}

#[test]
fn a_device_that_fails_is_named_with_period_and_action() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("broken");
    let program = program(&bench, "tiny", 2, "steps 6", PLAN);
    for (number, order) in [("40", "early"), ("400", "late"), ("900", "3")] {
        let mut command = bench.command("run --device cuda --graphs never");
        command.env("STANDIN_CUDA_FAIL", number).env("STANDIN_CUDA_ORDER", order);
        let ended = ended(command.arg(&program));
        assert_eq!(ended.code, 3, "{ended:?}");
        for word in ["GPU 0 (Stand-in", "period", " on "] {
            assert!(ended.err.contains(word), "{number}: {word}: {}", ended.err);
        }
        // The library of products says in its own words that the device has failed.
        let reasons = ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUBLAS_STATUS_EXECUTION_FAILED"];
        assert!(reasons.iter().any(|reason| ended.err.contains(reason)), "{}", ended.err);
    }
}

/// Neither its memory nor that of looks at held-out data is given back while it is at work.
#[test]
fn a_device_that_does_not_end_is_named_and_left_alone() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("hung");
    for (name, train) in
        [("plain", "steps 4"), ("looks", "steps 4, evaluate { every 2 }")]
    {
        let program = program(&bench, name, 2, train, PLAN);
        let mut command = bench.command("run --device cuda --graphs never --deadline 2");
        command.env("STANDIN_CUDA_HANG", "60").env("STANDIN_CUDA_ORDER", "late");
        let ended = ended(command.arg(&program));
        assert_eq!(ended.code, 3, "{name}: {ended:?}");
        assert!(
            ended.err.contains("nothing was completed on GPU 0"),
            "{name}: {ended:?}"
        );
    }
}

/// A look at what was learned waits for a GPU no longer than a run does.
#[test]
fn an_evaluation_gives_up_a_device_that_does_not_end() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("hung-look");
    let program = program(&bench, "looked", 2, "steps 1", PLAN);
    let weights = bench.scratch.path("weights.safetensors");
    let mut run = bench.command("run --device cpu --save");
    assert_eq!(ended(run.arg(&weights).arg(&program)).code, 0);
    let mut look = bench.command("evaluate --device cuda --deadline 1 --weights");
    look.env("STANDIN_CUDA_HANG", "2").env("STANDIN_CUDA_ORDER", "late");
    let ended = ended(look.arg(&weights).arg(&program));
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("was not done within 1s"), "{ended:?}");
}

/// Where an action of the second period stands still, while later ones are given to the device.
#[test]
fn the_action_that_does_not_end_is_named() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("stuck");
    let (program, [first, second, update]) = one_device(&bench);
    let launches = [(first, "look_up:3"), (second, "look_up:4"), (update, UPDATE)];
    for (action, launch) in launches {
        for order in ["late", "early"] {
            let mut command =
                bench.command("run --device cuda --graphs never --deadline 1");
            command.env("STANDIN_CUDA_HANG", launch).env("STANDIN_CUDA_ORDER", order);
            let ended = ended(command.arg(&program));
            assert_eq!(ended.code, 3, "{launch}: {ended:?}");
            let said =
                format!("{action} on lane 0 of d0 in period 1 is the first action");
            assert!(
                ended.err.contains(&said),
                "{launch}, {order}: {said}: {}",
                ended.err
            );
        }
    }
}

/// A failure is heard of by whatever is called next: while a period is waited for, or while later actions
/// are given, which are not to blame.
#[test]
fn the_action_at_which_the_device_fails_is_named_whoever_hears_of_it() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("failing");
    let (program, [_, second, update]) = one_device(&bench);
    let failed = |launch: String| {
        let mut command = bench.command("run --device cuda --graphs never");
        command.env("STANDIN_CUDA_FAIL", launch).env("STANDIN_CUDA_ORDER", "late");
        let ended = ended(command.arg(&program));
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.err.contains("GPU 0 (Stand-in, "), "{}", ended.err);
        ended.err
    };
    for (action, launch) in [(second, "look_up:4"), (update, UPDATE)] {
        let heard = failed(format!("{launch}/3000"));
        let said = format!("{action} on lane 0 of d0 in period 1 is the first action");
        assert!(heard.contains(&said), "{launch}: {said}: {heard}");
    }
    let heard = failed("look_up:4/3".to_owned());
    assert!(
        heard.contains("is the first action that is not known to be done"),
        "{heard}"
    );
    assert!(!heard.contains("failed on"), "what was given then is not to blame: {heard}");
}

/// As long as actions of a period are done.
#[test]
fn a_period_may_take_longer_than_the_deadline() {
    if !has_compiler() {
        return;
    }
    const DEADLINE: u64 = 2;
    let bench = Bench::new("slow");
    let (program, _) = one_device(&bench);
    let mut command = bench.command("run --json --device cuda --graphs never --steps 1");
    command.args(["--deadline", &DEADLINE.to_string()]);
    command.env("STANDIN_CUDA_SLOW", "normalise").env("STANDIN_CUDA_SLOW_FOR", "400");
    let ended = ended(command.env("STANDIN_CUDA_ORDER", "3").arg(&program));
    assert_eq!(ended.code, 0, "{ended:?}");
    let told = lines(&ended.out);
    let step = told.iter().find(|line| line["event"] == "step").expect("it is done");
    let seconds = step["elapsed_s"].as_f64();
    assert!(seconds.is_some_and(|seconds| seconds > DEADLINE as f64), "{step:?}");
}

/// One block of memory, or products by own kernels, where nothing else is to be had.
#[test]
fn what_is_missing_is_made_up_for() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("without");
    let program = program(&bench, "tiny", 2, "steps 6", PLAN);
    let whole = bench.run("--device cuda", &program, &[]);
    let unmapped = bench.run("--device cuda", &program, &[("STANDIN_CUDA_MAPS", "no")]);
    assert!(unmapped.is(&whole));
    let refuse = [("STANDIN_CUDA_PRODUCTS", "refuse")];
    let refused = bench.run("--device cuda", &program, &refuse);
    let without = Bench::with("without-products", &ALL[..2]);
    let own = without.run("--device cuda", &program, &[]);
    assert_eq!((refused.count("products"), own.count("products")), (0, 0));
    assert!(own.is(&refused), "a library that refuses is as good as none");
    let cache = bench.own_cache();
    let fail = [
        ("STANDIN_CUDA_PRODUCTS", "fail"),
        ("STANDIN_CUDA_ALGORITHMS", "3"),
        ("ROUNDELAY_CACHE", cache.as_str()),
    ];
    let failing = bench.run("--device cuda", &program, &fail);
    assert_eq!(failing.count("products"), 0, "no algorithm makes what a trial asks for");
    assert!(own.is(&failing));
    let why = "cuBLASLt answers CUBLAS_STATUS_NOT_SUPPORTED";
    for (run, why) in [(&refused, why), (&failing, why), (&own, "there is no cuBLASLt")] {
        let products = &run.end["gpus"]["products"];
        assert!(
            products["cublaslt"] == 0 && products["own"].as_u64() > Some(0),
            "{products}"
        );
        assert!(
            products["why_own"].as_str().is_some_and(|it| it.contains(why)),
            "{products}"
        );
        assert!(run.notes.contains("own functions make"), "{}", run.notes);
        assert!(run.notes.contains(why), "{}", run.notes);
    }
    let products = &whole.end["gpus"]["products"];
    assert!(products["own"] == 0 && products["why_own"].is_null(), "{products}");
    assert!(products["cublaslt"].as_u64() > Some(0), "{products}");
    assert!(!whole.notes.contains("own functions make"), "{}", whole.notes);
    for (mine, other) in own.losses.iter().zip(&whole.losses) {
        assert!((mine - other).abs() < 2e-3 * other, "{mine} against {other}");
    }
}
