//! What `--set` changes of a training.

use crate::settings::{FLAT, MODEL, PARTS, program, set};
use roundelay_dsl::{NoFiles, Refused, SourceFile, Tables, parse_set};

/// Sweeps over the numbers of a training need no other file.
#[test]
fn trainings_are_set_as_the_file_would() {
    let file = |train: &str| format!("{FLAT}\ntrain {{ batch 8, {train} }}");
    let plain = file("steps 5, seed 3, optimizer sgd(lr = 0.1)");
    for (setting, edited) in [
        ("train.steps = 9", "steps 9, seed 3, optimizer sgd(lr = 0.1)"),
        ("train.seed = 4", "steps 5, seed 4, optimizer sgd(lr = 0.1)"),
        (
            "train.optimizer = adamw(lr = warmup(2, 1e-3), no_decay = [\"line*\"])",
            "steps 5, seed 3, optimizer adamw(lr = warmup(2, 1e-3), no_decay = [\"line*\"])",
        ),
        ("train { seed 4, steps 9 }", "steps 9, seed 4, optimizer sgd(lr = 0.1)"),
    ] {
        let expected = program(&file(edited));
        assert_eq!(set(&plain, &[setting]), Ok(expected), "{setting}");
    }
    for (setting, word) in [
        ("train.seed = -1", "whole number"),
        ("train.optimizer = adam(lr = 1)", "Adam is `adamw`"),
        ("train.optimizer = sgd(lr = 1e-60)", "1e-60"),
        ("train.optimizer = sgd(lr = 1, no_decay = [\"x*\"])", "no parameter matches"),
        ("train.dtype = bf16", "where a program is read"),
        ("train.data = synthetic", "write `data` in the file"),
        ("train.sead = 3", "`seed`"),
        ("seed = 3", "did you mean `train.seed`?"),
    ] {
        let told = set(&plain, &[setting]).expect_err(setting);
        assert!(told.contains(word), "{setting}: {told}");
    }
    let sparing = file("optimizer sgd(lr = 0.1, no_decay = [\"line*\"])");
    let told = set(&sparing, &["train.optimizer = sgd(lr = 1)"]).expect_err("it is lost");
    assert!(told.contains("repeat `no_decay = [\"line*\"]`"), "{told}");
    let kept = "train.optimizer = sgd(lr = 1, no_decay = [\"line*\"])";
    assert!(set(&sparing, &[kept]).is_ok());
}

/// Rates of devices depend on it, and whether constants can be written.
#[test]
fn the_type_of_numbers_is_set_where_a_program_is_read() {
    let device = "device fast { memory 2 GB, bandwidth 9 GB/s, \
                  compute 80 GFLOP/s { bf16 90 GFLOP/s } }";
    let text = |train: &str| {
        let parts = format!("{PARTS}{device}\ncluster two {{ 2 x fast joined by bus }}");
        SourceFile::new("m.rdl", format!("{MODEL}{parts}\n{train}"))
    };
    let read = |train: &str, settings: &[&str]| {
        let read = parse_set(&text(train), &NoFiles, Tables::Read, settings);
        read.map(|(program, _)| program).map_err(|refused| match refused {
            Refused::Program(mistakes) => mistakes.to_string(),
            Refused::Setting(mistake) => mistake.to_string(),
        })
    };
    for (train, setting, edited) in [
        ("", "train.dtype = bf16", "train { dtype bf16 }"),
        ("train { seed 4 }", "train.dtype = bf16", "train { seed 4, dtype bf16 }"),
        ("train { dtype bf16 }", "train.dtype=f64", "train { dtype f64 }"),
        (
            "train { dtype f64 }",
            "train.dtype = bf16 { gradients f32 }",
            "train { dtype bf16 { gradients f32 } }",
        ),
    ] {
        let set = read(train, &[setting, "stages = 2"]);
        assert_eq!(set, read(edited, &["stages = 2"]), "{setting}");
    }
    let small = "train { dtype f64, optimizer sgd(lr = 1e-60) }";
    assert!(read(small, &[]).is_ok());
    let lost = read(small, &["train.dtype = f32"]).expect_err("it is no number in f32");
    assert!(lost.contains("m.rdl"), "{lost}");
    let other = ["train.dtype = f32", "train.optimizer = sgd(lr = 0.1)"];
    assert!(read(small, &other).is_ok(), "what is replaced holds nobody up");
    let wrong = read("", &["train.dtype = f31"]).expect_err("there is no such type");
    assert!(wrong.contains("unknown element type `f31`"), "{wrong}");
}

/// All orders of some settings.
fn orders<'a>(settings: &[&'a str]) -> Vec<Vec<&'a str>> {
    if settings.is_empty() {
        return vec![Vec::new()];
    }
    let first = |place: usize| {
        let mut rest = settings.to_vec();
        let first = rest.remove(place);
        orders(&rest).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (0..settings.len()).flat_map(first).collect()
}

/// Whoever sweeps over several settings need not know which of them to give first.
#[test]
fn settings_mean_the_same_in_every_order() {
    let plain = format!(
        "{FLAT}\ntrain {{ batch 8, seed 3, optimizer sgd(lr = 0.1) }}\nplan {{ }}"
    );
    let spare = "train.optimizer = adamw(lr = 1e-3, no_decay = [\"*head*\"])";
    let (local, exactness) = ("rule = local(units = 2)", "exactness = local");
    for settings in [
        &[spare, local, exactness, "train.batch = 16"][..],
        &[
            "train.optimizer = sgd(lr = 1)",
            "rule = cyclic_v2",
            "train { steps 9, seed 4 }",
        ],
        &["train.batch = 4", "micro_batches = 4", "train.optimizer = sgd(lr = 1)", local],
        &[
            "cluster.devices = 2",
            "core.memory = 3 GB",
            "bus.latency = 9 us",
            "stages = 2",
        ],
        &["minimize = cost", "core.price = 1 USD/h", "cluster.devices = 6"],
        &["cuts = [1]", "stages = 2", "train.optimizer = sgd(lr = 1)"],
    ] {
        let expected = set(&plain, settings);
        assert!(expected.is_ok(), "{settings:?}: {expected:?}");
        assert_ne!(expected, Ok(program(&plain)), "{settings:?}");
        for order in orders(settings) {
            assert_eq!(set(&plain, &order), expected, "{order:?}");
        }
    }
    for (settings, word) in [
        (&[spare, "rule = sync", "train.steps = 9"][..], "no parameter matches"),
        (&["train.optimizer = adam(lr = 1)", local, "train.seed = 4"], "Adam is `adamw`"),
        (&["minimize = cost", "cluster.devices = 6", "stages = 2"], "price"),
        (&["cuts = [1]", "stages = 3", "train.optimizer = sgd(lr = 1)"], "stages"),
    ] {
        for order in orders(settings) {
            let told = set(&plain, &order).expect_err("it is refused in every order");
            assert!(told.contains(word), "{order:?}: {told}");
        }
    }
}

/// Nor where the type of numbers is among them, with which a program is read.
#[test]
fn a_type_of_numbers_is_set_in_every_order() {
    let text =
        format!("{MODEL}{PARTS}{FLAT}\ntrain {{ batch 8, optimizer sgd(lr = 0.1) }}");
    let source = SourceFile::new("m.rdl", text);
    let read = |settings: &[&str]| {
        let read = parse_set(&source, &NoFiles, Tables::Read, settings);
        read.map(|(program, _)| program).map_err(|refused| format!("{refused:?}"))
    };
    let optimizer = "train.optimizer = adamw(lr = 1e-3, no_decay = [\"*head*\"])";
    let settings = ["train.dtype = f64", optimizer, "rule = local(units = 2)"];
    let expected = read(&settings);
    assert!(expected.is_ok(), "{expected:?}");
    for order in orders(&settings) {
        assert_eq!(read(&order), expected, "{order:?}");
    }
}
