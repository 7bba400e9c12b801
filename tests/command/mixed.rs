//! Training in 16 bits: planned, compiled, checked, written, read and simulated, with the bytes
//! that mixed precision takes, and refused by machines that compute in 32 bits.

use crate::support::{Scratch, ended, refused, roundelay};
use roundelay::{
    Checked, RunOptions, SearchOptions, SourceFile,
    parts::schedule::{DeviceId, Id, Kind},
};

const PROGRAM: &str = r#"
model tiny {
    seq = 7, width = 48, heads = 3, vocab = 33
    input tokens:  i32[batch, seq]
    input targets: i32[batch, seq]
    x = embedding(tokens, vocab, width)
    repeat 2 as layer {
        x = x + dropout(attention(layer_norm(x), heads, causal = true), 0.1)
        x = x + linear(gelu(linear(rms_norm(x), 4 * width)), width)
    }
    logits = linear(layer_norm(x), vocab)
    loss cross_entropy(logits, targets)
    metric accuracy(logits, targets)
}
device gpu { memory 1 GB, compute 10 TFLOP/s, bandwidth 100 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x gpu joined by bus }
train {
    data synthetic, batch 6, steps 8, seed 5
    optimizer METHOD
    dtype DTYPE
}
plan { exactness delayed, rule RULE, placement PLACEMENT, PINNED }
"#;

fn text(dtype: &str, method: &str, plan: [&str; 3]) -> String {
    let [rule, placement, pinned] = plan;
    let named = PROGRAM.replace("DTYPE", dtype).replace("METHOD", method);
    let ruled = named.replace("RULE", rule).replace("PLACEMENT", placement);
    ruled.replace("PINNED", pinned)
}

fn compiled(text: String) -> Checked {
    let source = SourceFile::new("tiny.rdl".to_owned(), text);
    let program = roundelay::parse(&source).expect("the program is right");
    let ranking =
        roundelay::plan(&program, &SearchOptions::default()).expect("a plan fits");
    roundelay::compile(&program, ranking.best()).expect("the plan is sound")
}

const ACCUMULATE: [&str; 3] = ["sync", "accumulate", "micro_batches 2, stages 1"];

#[test]
fn mixed_precision_keeps_the_bytes_that_it_says() {
    let adamw = "adamw(lr = 1e-3)";
    let cases = [
        ("f32", adamw, [4, 4, 8]),
        ("bf16", adamw, [2, 2, 12]),
        ("f16", adamw, [2, 2, 12]),
        ("bf16 { gradients f32 }", adamw, [2, 4, 12]),
        ("f16 { gradients f16 }", "sgd(lr = 0.1)", [2, 2, 4]),
        ("bf16", "sgd(lr = 0.1, momentum = 0.9)", [2, 2, 8]),
    ];
    for (dtype, method, expected) in cases {
        let schedule = compiled(text(dtype, method, ACCUMULATE));
        let elements: u64 = schedule.job.elements.values().sum();
        let bytes = |kind| schedule.bytes_of(DeviceId::new(0), kind).0;
        let found = [Kind::Parameter, Kind::Gradient, Kind::Optimizer].map(bytes);
        assert_eq!(
            found,
            expected.map(|width| (width * elements).next_multiple_of(64)),
            "{dtype} {method}"
        );
        assert_eq!(schedule.job.measured().0, 2 * 4, "losses and metrics are f32");
    }
}

#[test]
fn activations_take_half_but_statistics_stay_wide() {
    let activation = |dtype| {
        let schedule = compiled(text(dtype, "sgd(lr = 0.1)", ACCUMULATE));
        schedule.bytes_of(DeviceId::new(0), Kind::Activation).0
    };
    let (narrow, wide) = (activation("bf16"), activation("f32"));
    assert!(narrow < wide && 2 * narrow > wide, "{narrow} of {wide}");
}

#[test]
fn every_way_of_state_is_lowered_written_and_read_back() {
    let plans = [
        ["sync", "data", "micro_batches 2, states replicated | zero1 | zero2 | zero3"],
        ["sync", "data", "micro_batches 2, states zero1"],
        ["sync", "data", "micro_batches 2, states zero3"],
        ["cyclic_v2", "data", "micro_batches 2, states handoff"],
        ["cyclic_v2", "pipeline", "micro_batches 2, stages 2"],
        ["sync", "pipeline", "micro_batches 3, stages 2"],
    ];
    for plan in plans {
        for dtype in ["bf16", "f16 { gradients f32 }"] {
            let schedule = compiled(text(dtype, "adamw(lr = 1e-3)", plan));
            let written = roundelay::write(&schedule);
            let read = roundelay::read(&written).expect("it was written");
            assert_eq!(roundelay::write(&read), written, "{plan:?}");
            let again = roundelay::check(read, &roundelay::parts::kernels::Kernels);
            let again = again.expect("it was checked");
            assert!(roundelay::simulate(&again, 4).entries().len() > 4);
        }
    }
}

#[test]
fn shards_are_whole_lines_whatever_the_number_of_parameters() {
    let plan = ["sync", "data", "micro_batches 2, states zero1"];
    for vocab in 33..41 {
        let text = text("bf16", "adamw(lr = 1e-3)", plan);
        compiled(text.replace("vocab = 33", &format!("vocab = {vocab}")));
    }
}

#[test]
fn the_cpu_refuses_before_anything_starts() {
    let schedule = compiled(text("bf16", "sgd(lr = 0.1)", ACCUMULATE));
    let mut events = 0;
    let refused = roundelay::run(&schedule, &RunOptions::default(), |_| events += 1);
    let error = refused.expect_err("there is no such machine");
    assert!(!error.is_input() && events == 0);
    assert!(error.to_string().contains("trains in bf16"), "{error}");
    let scratch = Scratch::new("mixed");
    let program = scratch.file("tiny.rdl", &text("bf16", "sgd(lr = 0.1)", ACCUMULATE));
    let table = scratch.path("table.yaml");
    for command in ["run", "profile -o"] {
        let table = command.contains("-o").then_some(&table);
        let run = ended(roundelay(command).args(table).arg(&program));
        let said = run.err.contains("the CPU computes in f32 and f64");
        assert!(run.code == 3 && said, "{run:?}");
    }
}

#[test]
fn types_that_do_not_exist_are_refused_with_a_hint() {
    let refused = |dtype| {
        let text = text(dtype, "sgd(lr = 0.1)", ACCUMULATE);
        let source = SourceFile::new("tiny.rdl".to_owned(), text);
        roundelay::parse(&source).expect_err("there is no such type").to_string()
    };
    assert!(refused("bf61").contains("bf16"));
    assert!(refused("bf16 { gradients f61 }").contains("type of gradients"));
    assert!(refused("bf16 { sums f32 }").contains("unknown key `sums`"));
    assert!(refused("f64 { gradients f32 }").contains("summed in f64"));
}

/// Sums that a device receives are as wide as its own.
#[test]
fn wide_gradients_travel_between_devices() {
    for [rule, placement, pinned] in [
        ["sync", "pipeline", "order chimera, stages 2, micro_batches 2"],
        ["cyclic_v2", "shared", "stages 1, micro_batches 2"],
        ["cyclic_v2", "data", "stages 1, micro_batches 2"],
    ] {
        let plan = [rule, placement, pinned];
        compiled(text("bf16 { gradients f32 }", "adamw(lr = 1e-3)", plan));
    }
}

/// With a GPU or without one: none would train in it either.
#[test]
fn losses_that_are_not_scaled_are_refused_everywhere() {
    let scratch = Scratch::new("scaled");
    let program =
        scratch.file("scaled.rdl", &text("f16", "adamw(lr = 1e-3)", ACCUMULATE));
    let table = scratch.path("table.yaml");
    let mut profile = roundelay("profile -o");
    profile.arg(&table);
    for mut command in [roundelay("run"), roundelay("run --device cuda"), profile] {
        refused(command.arg(&program), 3, &["losses that are scaled", "bf16"]);
    }
    assert!(!table.exists());
}
