//! Training in 16 bits, which only a GPU does.

use crate::{
    bench::{Bench, arenas, has_compiler, program},
    support::ended,
};
use std::fs;

const PLAN: &str = "rule cyclic_v2, placement data, micro_batches 2, stages 2";

#[test]
fn sixteen_bits_learn_and_stay_near_thirty_two() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("mixed");
    let single = program(&bench, "single", 2, "steps 16", PLAN);
    let single = bench.run("--device cuda", &single, &[]);
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let mixed =
            program(&bench, "mixed", 2, &format!("steps 16, dtype {dtype}"), PLAN);
        let late = bench.run("--device cuda", &mixed, &[("STANDIN_CUDA_ORDER", "late")]);
        let drawn = bench.run("--device cuda", &mixed, &[("STANDIN_CUDA_ORDER", "5")]);
        assert!(late.is(&drawn), "{dtype}: the order changes no bit");
        let (first, last) = (late.losses[0], late.losses[15]);
        assert!(last < first - 0.1, "{dtype}: {first} to {last}");
        for (own, other) in late.losses.iter().zip(&single.losses) {
            assert!((own - other).abs() < 0.03 * other, "{dtype}: {own} against {other}");
        }
        assert_eq!(
            arenas(&late.end["measured"]),
            arenas(&late.end["predicted"]),
            "{dtype}"
        );
    }
}

/// Logits by chunks, in both widths: near the CPU's losses, and the same with graphs and without.
#[test]
fn a_loss_that_makes_its_logits_by_chunks() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("chunked");
    let loss = "cross_entropy(linear(layer_norm(x), vocab), targets)";
    let chunked = "linear_cross_entropy(layer_norm(x), targets, vocab, chunks = 3)";
    let program = |train: &str| {
        let text = fs::read_to_string(program(&bench, "whole", 2, train, PLAN));
        let text = text.expect("the program was just written");
        assert!(text.contains(loss));
        bench.scratch.file("chunked.rdl", &text.replace(loss, chunked))
    };
    let on_cpu = bench.run("--device cpu", &program("steps 8"), &[]);
    for (train, most) in
        [("steps 8", 2e-3), ("steps 8, dtype bf16 { gradients f32 }", 0.02)]
    {
        let program = program(train);
        let own = bench.run("--device cuda", &program, &[("STANDIN_CUDA_ORDER", "late")]);
        assert!(own.count("products") > 0, "{train}: the library multiplies");
        for (own, other) in own.losses.iter().zip(&on_cpu.losses) {
            assert!((own - other).abs() < most * other, "{train}: {own} against {other}");
        }
        assert_eq!(
            arenas(&own.end["measured"]),
            arenas(&own.end["predicted"]),
            "{train}"
        );
        let ungraphed = bench.run("--device cuda --graphs never", &program, &[]);
        assert!(own.is(&ungraphed), "{train}: graphs change no bit");
    }
}

/// Rows of an odd number of classes begin where tensor cores load, however the library multiplies, if the loss
/// makes them: all three products of the classifier, forward and back, and those of held-out data. As an
/// array that everybody may read they do not.
#[test]
fn logits_of_odd_classes_are_aligned_where_the_loss_makes_them() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("odd-classes");
    let whole = "cross_entropy(linear(layer_norm(x), vocab, bias = false), targets)";
    let chunked = "linear_cross_entropy(layer_norm(x), targets, vocab, chunks = 3)";
    let run = |loss: &str, device: &str, train: &str| {
        let train = format!("steps 4, {train} evaluate {{ every 2 }}");
        let text = fs::read_to_string(program(&bench, "odd", 2, &train, PLAN));
        let text = text.expect("the program was just written");
        let own = "cross_entropy(linear(layer_norm(x), vocab), targets)";
        let odd = text.replace(own, loss).replace("vocab = 24", "vocab = 27");
        let file = bench.scratch.file("odd.rdl", &odd);
        bench.run(&format!("--device {device}"), &file, &[])
    };
    let train = "dtype bf16 { gradients f32 },";
    for (loss, is_aligned) in [(chunked, true), (whole, false)] {
        let [on_cpu, own] = [("cpu", ""), ("cuda", train)]
            .map(|(device, train)| run(loss, device, train));
        assert!(own.count("products") > 0, "the library multiplies");
        let unaligned = own.count("unaligned_products");
        assert_eq!(unaligned == 0, is_aligned, "{loss}: {unaligned} of 54 bytes");
        assert_eq!(arenas(&own.end["measured"]), arenas(&own.end["predicted"]));
        assert_eq!(own.losses.len(), 4);
        for (own, other) in own.losses.iter().zip(&on_cpu.losses) {
            assert!((own - other).abs() < 0.02 * other, "{loss}: {own} against {other}");
        }
        assert_eq!(own.looks.len(), 2);
    }
}

/// Norms of divided features and losses of divided classes are made of wide sums, which the parts
/// exchange in 32 bits whatever the type of the job.
#[test]
fn wide_sums_of_split_tensors_stay_wide() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("mixed-grid");
    for tensor in ["rows 2", "rows 2, columns 2"] {
        let plan = format!(
            "rule sync, placement accumulate, stages 1, micro_batches 2, tensor {{ {tensor} }}"
        );
        let single = program(&bench, "grid", 4, "steps 8", &plan);
        let single = bench.run("--device cpu", &single, &[]);
        let mixed = program(&bench, "grid", 4, "steps 8, dtype bf16", &plan);
        let mixed = bench.run("--device cuda", &mixed, &[]);
        assert_eq!(mixed.losses.len(), single.losses.len(), "{tensor}");
        for (own, other) in mixed.losses.iter().zip(&single.losses) {
            assert!(
                (own - other).abs() < 0.01 * other,
                "{tensor}: {own} against {other}"
            );
        }
    }
}

/// Parts that share the tokens have shares of the gradients of norms and biases, which meet in the
/// type that gradients are summed in.
#[test]
fn gradients_of_shared_tokens_meet_as_they_are_summed() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("mixed-tokens");
    let plan = "rule sync, placement accumulate, stages 1, micro_batches 2, \
                tensor { rows 2, columns 2 }, sequence split";
    let single = program(&bench, "tokens", 4, "steps 8", plan);
    let single = bench.run("--device cpu", &single, &[]);
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let train = format!("steps 8, dtype {dtype}");
        let mixed = program(&bench, "tokens", 4, &train, plan);
        let mixed = bench.run("--device cuda", &mixed, &[]);
        assert_eq!(mixed.losses.len(), single.losses.len(), "{dtype}");
        for (own, other) in mixed.losses.iter().zip(&single.losses) {
            assert!((own - other).abs() < 0.01 * other, "{dtype}: {own} against {other}");
        }
    }
}

/// A master copy is kept with the rest, so a run that stops goes on with the same bits.
#[test]
fn a_checkpoint_in_sixteen_bits_goes_on_exactly() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("mixed-kept");
    for dtype in ["bf16", "bf16 { gradients f32 }"] {
        let program =
            program(&bench, "kept", 2, &format!("steps 8, dtype {dtype}"), PLAN);
        let whole = bench.run("--device cuda", &program, &[]);
        let folder = bench.scratch.path(&format!("kept-{}", dtype.len()));
        let kept = format!("--device cuda --checkpoint {}", folder.display());
        bench.run(&format!("{kept} --steps 3"), &program, &[]);
        let rest = bench.run(&format!("{kept} --resume"), &program, &[]);
        assert_eq!(rest.losses, whole.losses[3..], "{dtype}");
        assert!(rest.bytes == whole.bytes, "{dtype}");
    }
}

#[test]
fn what_sixteen_bits_cannot_do_yet_is_a_sentence() {
    let bench = Bench::new("mixed-refused");
    let train = "steps 2, dtype bf16";
    let program = program(&bench, "mixed", 2, train, PLAN);
    let half = crate::bench::program(&bench, "half", 2, "steps 2, dtype f16", PLAN);
    let unscaled = ended(bench.command("run --device cuda").arg(&half));
    assert!(
        unscaled.code == 3 && unscaled.err.contains("no scaling yet"),
        "{unscaled:?}"
    );
    let on_cpu = ended(bench.command("run --device cpu").arg(&program));
    assert!(
        on_cpu.code == 3 && on_cpu.err.contains("computes in f32 and f64"),
        "{on_cpu:?}"
    );
}
