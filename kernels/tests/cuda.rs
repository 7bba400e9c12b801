//! Every kernel's steps for CUDA devices, run by the emulation, against its plain reference.

mod common;
mod emulation;

use common::{
    Array, Body, Build, CONTEXT, call, run,
    sample::{Draw, Mix, contents, large, mixed, sample, sample_in},
};
use emulation::{
    can_compile,
    compare::{compare, steps, tolerance},
    stored::Placement,
};
use roundelay_kernels::{Context, Kernel, Mode, NAMES, cuda::Step};
use roundelay_schedule::{Element, Float, GradientSums};

const CALLS_PER_KERNEL: u64 = 6;

/// Kernels without steps: the machine makes exchanges, and pixels are divided on the CPU alone.
const REFUSED: [&str; 11] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "halo",
    "halo_add",
    "pixel_norm_moments",
    "pixel_norm_statistics",
    "pixel_norm",
    "pixel_norm_slopes",
    "pixel_norm_backward",
    "pixel_norm_parameters",
];

fn compare_samples(dtype: Float, mixes: &[Mix]) {
    if !can_compile() {
        return;
    }
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        for seed in 0..CALLS_PER_KERNEL {
            let draw = &mut Draw::new(seed);
            let call = sample_in(dtype, name, draw);
            let start = contents::<f64>(&call, draw);
            let mode = if seed % 4 == 0 { Mode::Evaluation } else { Mode::Training };
            let context = Context { mode, slice_offset: seed % 3, ..CONTEXT };
            let mix = mixes[seed as usize % mixes.len()];
            let way = (
                dtype,
                if seed % 3 == 2 { Placement::Unaligned } else { Placement::Aligned },
            );
            compare(&mixed(call, mix), &start, way, &context, tolerance(dtype));
        }
    }
}

#[test]
fn every_kernel_in_f32() {
    compare_samples(Float::F32, &[Mix::Narrow]);
}

#[test]
fn every_kernel_in_f64() {
    compare_samples(Float::F64, &[Mix::Narrow]);
}

#[test]
fn every_kernel_in_bf16() {
    let mixes = [Mix::Narrow, Mix::Statistics, Mix::Gradients];
    compare_samples(Float::Bf16(GradientSums::F32), &mixes);
}

#[test]
fn every_kernel_in_f16() {
    compare_samples(Float::F16(GradientSums::Same), &[Mix::Statistics]);
}

#[test]
fn large_calls() {
    if !can_compile() {
        return;
    }
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        let draw = &mut Draw::new(1);
        let call = large(name, draw);
        let start = contents::<f64>(&call, draw);
        let dtype = Float::Bf16(GradientSums::Same);
        compare(
            &mixed(call, Mix::Statistics),
            &start,
            (dtype, Placement::Aligned),
            &CONTEXT,
            tolerance(dtype),
        );
    }
}

/// A kernel that is new needs a form, or a refusal by name.
#[test]
fn every_kernel_has_a_form_or_is_refused_by_name() {
    for name in NAMES {
        let call = sample(name, &mut Draw::new(2));
        let form =
            Kernel::parse(&call).expect("the call is well formed").cuda(Float::F32);
        assert_eq!(form.is_err(), REFUSED.contains(name), "{name}: {form:?}");
    }
}

/// What programs use every step is not converted.
#[test]
fn usual_mixes_of_types_need_no_conversion() {
    let copies = ["copy", "accumulate", "scale"];
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        for mix in [Mix::Statistics, Mix::Gradients] {
            let call = mixed(sample(name, &mut Draw::new(3)), mix);
            let steps = steps(&call, Float::Bf16(GradientSums::F32));
            let converts = steps.steps.iter().any(|step| match step {
                Step::Launch(launch) => launch.function.symbol.starts_with("scale_"),
                Step::Product(_) => false,
            });
            assert_eq!(converts, copies.contains(name), "{name} {mix:?}");
        }
    }
}

/// Zeros stand where they do on the CPU, element by element, in whole tensors and in parts.
#[test]
fn masks_are_those_of_the_cpu() {
    if !can_compile() {
        return;
    }
    let shape: &[u64] = &[37, 24];
    let whole = call("dropout").number("rate", 0.4).integer("operator", 9);
    let part = whole.clone().integer("parts", 3).integer("columns", 24);
    for (call, part) in [(whole, 0), (part, 2)] {
        let call = call.reals(&[shape; 2]);
        let context = Context { part, step: 71, micro_batch: 5, ..CONTEXT };
        let start = [Array::Real(vec![1.0; 37 * 24]), Array::Real(vec![0.0; 37 * 24])];
        for dtype in [Float::F32, Float::Bf16(GradientSums::Same)] {
            compare(&call, &start, (dtype, Placement::Aligned), &context, 2e-3);
        }
    }
}

/// Heads of the sizes that tensor cores take, with everything that may change what is seen, keys
/// before the first query's own among it; lse
/// and o are those of the forward pass, as in a training.
fn compare_attention(depth: u64, (least, longest): (u64, u64), dtype: Float, seed: u64) {
    let draw = &mut Draw::new(seed);
    let (batch, key_heads, group) =
        (1 + draw.below(2), 1 + draw.below(2), 1 + draw.below(2));
    let sequence = least + draw.below(longest);
    let heads = key_heads * group;
    let before = if seed.is_multiple_of(2) { draw.below(longest) } else { 0 };
    let wide: &[u64] = &[batch, sequence, heads * depth];
    let keys: &[u64] = &[batch, before + sequence, key_heads * depth];
    let build = |name, seed: u64| {
        let call = call(name).integer("heads", heads as i64);
        let call = call.integer("key_heads", key_heads as i64);
        let call = call.flag("causal", seed.is_multiple_of(2));
        // A wide window and a long sequence have tiles that are wholly visible and tiles that are not.
        let window = if least > 200 { 100 } else { 20 };
        let call = match seed.is_multiple_of(3) {
            true => call.integer("window", window),
            false => call,
        };
        if seed % 4 == 1 { call.number("cap", 1.5) } else { call }
    };
    let forward = build("attention", seed).reals(&[wide, keys, keys, wide]);
    let forward = forward.operand(Element::Wide, &[batch, heads, sequence]);
    let start = contents::<f64>(&forward, draw);
    let way =
        (dtype, if seed % 4 == 3 { Placement::Unaligned } else { Placement::Aligned });
    compare(&forward, &start, way, &CONTEXT, tolerance(dtype));
    let mut done = start.clone();
    run(&forward, &mut done, Body::Plain, &CONTEXT);
    let backward =
        build("attention_backward", seed).flag("accumulate", seed.is_multiple_of(5));
    let backward = backward.reals(&[wide, keys, keys, wide]);
    let backward = backward.operand(Element::Wide, &[batch, heads, sequence]);
    let backward = backward.reals(&[wide, wide, keys, keys]);
    let slopes = contents::<f64>(&backward, draw);
    let start = [&done[..], &slopes[5..]].concat();
    compare(&backward, &start, way, &CONTEXT, 2.0 * tolerance(dtype));
}

#[test]
fn attention_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    for seed in 0..6 {
        compare_attention(64, (1, 150), Float::Bf16(GradientSums::Same), seed);
        compare_attention(128, (1, 150), Float::F16(GradientSums::Same), seed + 1);
    }
    compare_attention(128, (1, 150), Float::Bf16(GradientSums::Same), 8);
    compare_attention(64, (230, 40), Float::Bf16(GradientSums::Same), 6);
    compare_attention(128, (230, 40), Float::Bf16(GradientSums::Same), 3);
}

/// What sanitizers have the time for.
#[test]
fn short_sequences_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    compare_attention(64, (1, 40), Float::Bf16(GradientSums::Same), 3);
    compare_attention(128, (1, 80), Float::F16(GradientSums::Same), 5);
}
