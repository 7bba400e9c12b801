//! Held-out loss and metrics on a GPU: during a run and of what was learned, in every type.

use crate::{
    bench::{Bench, Run, WINDOWS, arenas, has_compiler, program_of},
    support::{Ended, document, ended},
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Passes in 32 bits on the same numbers: sums run in another order.
const TOLERANCE: f64 = 1e-4;

/// Norms with running statistics, and masks: what is otherwise where nothing is trained.
const IMAGES: &str = "model images {
    input pixels: real[batch, 8, 8, 3]
    input labels: i32[batch]
    x = relu(batch_norm(conv2d(pixels, 8, kernel = 3, padding = 1)))
    x = dropout(global_pool(x), 0.5)
    logits = linear(x, 4)
    loss cross_entropy(logits, labels)
    metric accuracy(logits, labels)
}";

const TEXT: &str = "model tiny {
    seq = 8, width = 16, heads = 2, vocab = 24
    input tokens:  i32[batch, seq]
    input targets: i32[batch, seq]
    x = embedding(tokens, vocab, width) + positions(seq, width)
    repeat 2 as layer {
        x = x + dropout(attention(layer_norm(x), heads, causal = true), 0.3)
        x = x + linear(gelu(linear(layer_norm(x), 2 * width)), width)
    }
    logits = linear(layer_norm(x), vocab)
    loss cross_entropy(logits, targets)
    metric perplexity(logits, targets)
}";

fn program(bench: &Bench, name: &str, model: &str, train: &str, plan: &str) -> PathBuf {
    let train = format!(
        "batch 8, seed 11, steps 6, optimizer adamw(lr = 1e-2), evaluate {{ every 3 }}
        {train}"
    );
    program_of(bench, name, (model, 4), &train, &format!("exactness local, {plan}"))
}

/// Loss and metrics of a line or of a document.
fn numbers(told: &Value) -> Vec<(String, f64)> {
    let number = |value: &Value| value.as_f64().expect("a number is measured");
    let metrics = told["metrics"].as_object().expect("metrics are an object");
    let metrics = metrics.iter().map(|(name, value)| (name.clone(), number(value)));
    [("loss".to_owned(), number(&told["loss"]))].into_iter().chain(metrics).collect()
}

fn near(own: &Value, other: &Value, tolerance: f64, what: &str) {
    let (own, other) = (numbers(own), numbers(other));
    assert_eq!(own.len(), other.len(), "{what}");
    for ((name, own), (same, other)) in own.into_iter().zip(other) {
        assert_eq!(name, same, "{what}");
        let apart = (own - other).abs();
        assert!(apart <= tolerance * other.abs(), "{what} {name}: {own} and {other}");
    }
}

/// A look at what a run has saved.
fn look(bench: &Bench, words: &str, weights: &Path, program: &Path) -> Ended {
    let mut command = bench.command(&format!("evaluate --json {words} --weights"));
    ended(command.arg(weights).arg(program))
}

fn looked(bench: &Bench, words: &str, weights: &Path, program: &Path) -> Value {
    let mut command = bench.command(&format!("evaluate {words} --weights"));
    document(command.arg(weights).arg(program), "evaluate")
}

/// The looks of a training on the GPU, the last of them again from the weights that were saved, on
/// the GPU to the bit, and on the CPU nearly.
fn holds(name: &str, model: &str, plan: &str) {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new(&format!("looks-{name}"));
    let program = program(&bench, name, model, "", plan);
    let late = [("STANDIN_CUDA_ORDER", "late")];
    let run = bench.run("--device cuda", &program, &late);
    let steps: Vec<_> = run.looks.iter().map(|look| look["step"].as_u64()).collect();
    assert_eq!(steps, [Some(3), Some(6)], "{name}");
    let drawn = bench.run("--device cuda", &program, &[("STANDIN_CUDA_ORDER", "5")]);
    assert_eq!(run.looks, drawn.looks, "{name}: the order changes no bit");
    let weights = bench.scratch.path("weights.safetensors");
    let last = run.looks.last().expect("there are two");
    let again = looked(&bench, "--device cuda", &weights, &program);
    near(&again, last, 0.0, name);
    let auto = looked(&bench, "", &weights, &program);
    near(&auto, last, 0.0, name);
    let cpu = looked(&bench, "--device cpu", &weights, &program);
    near(&cpu, last, TOLERANCE, name);
}

#[test]
fn text_with_masks() {
    holds("text", TEXT, "rule cyclic_v2, placement shared, micro_batches 2, stages 2");
}

#[test]
fn images_with_running_statistics() {
    holds("images", IMAGES, "rule sync, placement accumulate, micro_batches 2, stages 1");
}

/// Outside of training, statistics of all pixels are the running ones on every part.
#[test]
fn images_that_are_split_by_pixels() {
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                tensor { rows 2 }, images split";
    holds("pixels", WINDOWS, plan);
}

/// The model of text with a loss that makes its own logits.
fn chunked() -> String {
    let whole = "logits = linear(layer_norm(x), vocab)
    loss cross_entropy(logits, targets)
    metric perplexity(logits, targets)";
    let chunked = "mean = linear_cross_entropy(layer_norm(x), targets, vocab, chunks = 3)
    loss mean
    metric perplexity(mean)";
    assert!(TEXT.contains(whole));
    TEXT.replace(whole, chunked)
}

/// Its gradients come with the loss, which a look does not need.
#[test]
fn a_loss_by_chunks() {
    let plan = "rule cyclic_v2, placement shared, micro_batches 2, stages 2";
    holds("chunks", &chunked(), plan);
}

/// Each part has the logits of its own classes.
#[test]
fn parts_of_a_loss_that_makes_its_logits() {
    let plan = "rule sync, placement accumulate, stages 1, micro_batches 2, \
                tensor { rows 2, columns 2 }";
    holds("parts-of-chunks", &chunked(), plan);
}

#[test]
fn parts_of_split_tensors() {
    let plan = "rule sync, placement accumulate, stages 1, micro_batches 2, \
                tensor { rows 2, columns 2 }";
    holds("parts", TEXT, plan);
}

#[test]
fn slices_of_sequences() {
    let plan = "rule sync, placement pipeline, order seq1f1b, slices 4, stages 2, \
                micro_batches 2, replicas 1";
    holds("slices", TEXT, plan);
}

/// A run looks at what it trains, so the losses of heads are measured; of what was learned heads are
/// no part.
#[test]
fn units_with_heads() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("looks-units");
    let plan = "rule local(units = 2), placement pipeline, stages 2, micro_batches 2";
    let program = program(&bench, "units", TEXT, "", plan);
    let run = bench.run("--device cuda", &program, &[]);
    let trained = numbers(run.looks.last().expect("it looked twice"));
    let weights = bench.scratch.path("weights.safetensors");
    let [on_gpu, on_cpu] = ["--device cuda", "--device cpu"]
        .map(|words| looked(&bench, words, &weights, &program));
    assert!(numbers(&on_gpu).len() < trained.len(), "{on_gpu}: heads are not measured");
    near(&on_gpu, &on_cpu, TOLERANCE, "units");
}

#[test]
fn sixteen_bits_are_looked_at_where_they_were_trained() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("looks-mixed");
    let plan = "rule cyclic_v2, placement data, micro_batches 2, stages 2";
    let single = program(&bench, "single", TEXT, "", plan);
    let single = bench.run("--device cuda", &single, &[]);
    let mixed = program(&bench, "mixed", TEXT, "dtype bf16", plan);
    let folder = bench.scratch.path("kept");
    let words = format!("--device cuda --checkpoint {}", folder.display());
    let run = bench.run(&words, &mixed, &[]);
    for (own, other) in run.looks.iter().zip(&single.looks) {
        near(own, other, 0.03, "against 32 bits");
    }
    let words = format!("evaluate --device cuda --checkpoint {}", folder.display());
    let again = document(bench.command(&words).arg(&mixed), "evaluate");
    near(&again, run.looks.last().expect("it looked twice"), 0.0, "the checkpoint");
    let weights = bench.scratch.path("weights.safetensors");
    let on_cpu = look(&bench, "--device cpu", &weights, &mixed);
    assert_eq!(on_cpu.code, 3, "{on_cpu:?}");
    assert!(on_cpu.err.contains("computes in f32 and f64"), "{on_cpu:?}");
}

/// What looks take is allocated before the first step, and told.
#[test]
fn memory_of_looks_is_there_before_the_first_step() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("looks-memory");
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1";
    let looking = program(&bench, "looking", TEXT, "", plan);
    let text = std::fs::read_to_string(&looking).expect("it was written");
    let idle = text.replace(", evaluate { every 3 }", "");
    let idle = bench.scratch.file("idle.rdl", &idle);
    let [looking_run, idle_run] =
        [&looking, &idle].map(|file| bench.run("--device cuda", file, &[]));
    let beside = |run: &Run| run.end["beside_bytes"].as_u64().expect("it is told");
    let more = beside(&looking_run) - beside(&idle_run);
    assert!(more > 0, "looks take memory");
    assert!(looking_run.trains_like(&idle_run), "looks change no bit of training");
    let arenas = arenas(&looking_run.end["measured"]).into_iter();
    let arenas: u64 = arenas.map(|(_, bytes)| bytes).sum();
    let enough = arenas + beside(&idle_run) + more / 2;
    let scarce = [
        ("STANDIN_CUDA_MEMORY", enough.to_string()),
        ("STANDIN_CUDA_MAPS", "no".to_owned()),
    ];
    let mut command = bench.command("run --json --device cuda");
    let refused = ended(command.arg(&looking).envs(scarce));
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("a look at held-out data"), "{refused:?}");
    assert!(!refused.out.contains("\"step\""), "nothing was trained: {refused:?}");
}

#[test]
fn a_gpu_that_is_missing_is_told_and_the_cpu_looks_where_it_can() {
    let bench = Bench::with("looks-absent", &[]);
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1";
    let program = program(&bench, "absent", TEXT, "", plan);
    let weights = bench.scratch.path("weights.safetensors");
    let run = ended(bench.command("run --device cpu --save").arg(&weights).arg(&program));
    assert_eq!(run.code, 0, "{run:?}");
    let auto = look(&bench, "", &weights, &program);
    assert_eq!(auto.code, 0, "{auto:?}");
    assert!(auto.err.contains("runs on the CPU"), "{auto:?}");
    let asked = look(&bench, "--device cuda", &weights, &program);
    assert_eq!(asked.code, 3, "{asked:?}");
    assert!(asked.err.contains("CUDA"), "{asked:?}");
}
