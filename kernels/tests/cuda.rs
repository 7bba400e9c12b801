//! Every kernel's steps for CUDA devices, run by the emulation, against its plain reference.

mod common;
mod emulation;

use common::{
    Array, Body, Build, CONTEXT, call, run,
    sample::{Draw, contents, large, results, sample},
};
use emulation::{Bound, can_compile, run_steps, stored::Stored};
use roundelay_kernels::{
    Context, Kernel, Mode, NAMES,
    cuda::{Step, Steps},
};
use roundelay_schedule::{Access, Call, Element, Float, GradientSums};

const CALLS_PER_KERNEL: u64 = 6;

/// Kernels without steps: the machine makes exchanges.
const REFUSED: [&str; 3] = ["all_reduce", "all_gather", "reduce_scatter"];

/// Operands that a job in 16 bits keeps wide: statistics, losses, states.
fn statistics(name: &str) -> &'static [usize] {
    match name {
        "layer_norm" => &[4, 5],
        "layer_norm_backward" => &[2, 3],
        "layer_norm_parameters" => &[1, 2],
        "batch_norm_backward" => &[2, 3],
        "group_norm" => &[4, 5],
        "group_norm_backward" => &[2, 3],
        "rms_norm" => &[3],
        "rms_norm_backward" => &[2],
        "attention" => &[4],
        "attention_backward" => &[4],
        "cross_entropy" | "masked_cross_entropy" => &[2, 3],
        "cross_entropy_backward" | "masked_cross_entropy_backward" => &[2],
        "cross_entropy_part" => &[2],
        "cross_entropy_join" => &[0, 2, 3],
        "cross_entropy_part_backward" => &[2],
        "mse" | "accuracy" => &[2],
        "sgd" => &[3],
        "adamw" => &[3, 4],
        _ => &[],
    }
}

/// Operands that are sums of a parameter's gradients in the usual programs.
fn gradients(name: &str) -> &'static [usize] {
    match name {
        "matmul" | "multiply_sum_rows" | "embedding_backward" | "conv2d_weights" => &[2],
        "embedding_part_backward" => &[2],
        "accumulate" | "sum_rows" | "scale" => &[1],
        "layer_norm_parameters" => &[4, 5],
        "rms_norm_backward" => &[5],
        "sgd" | "adamw" => &[0],
        _ => &[],
    }
}

/// How wide operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Nothing is.
    Narrow,
    /// Statistics are.
    Statistics,
    /// Sums of gradients are too.
    Gradients,
}

fn mixed(mut call: Call, mix: Mix) -> Call {
    let name = call.kernel.clone();
    let wide = match mix {
        Mix::Narrow => vec![],
        Mix::Statistics => statistics(&name).to_vec(),
        Mix::Gradients => [statistics(&name), gradients(&name)].concat(),
    };
    if name == "batch_norm" && mix != Mix::Narrow {
        let last = call.operands.len() - 1;
        call.operands[last - 1].element = Element::Wide;
        call.operands[last].element = Element::Wide;
    }
    for operand in wide {
        if let Some(operand) = call.operands.get_mut(operand) {
            operand.element = Element::Wide;
        }
    }
    call
}

/// Largest error for a largest value of one: a rounding or two of what is stored, and of sums.
fn tolerance(dtype: Float) -> f64 {
    match dtype {
        Float::F64 => 1e-10,
        Float::F32 => 3e-5,
        Float::Bf16(_) => 1.2e-2,
        Float::F16(_) => 2e-3,
    }
}

fn steps(call: &Call, dtype: Float) -> Steps {
    Kernel::parse(call)
        .expect("the call is well formed")
        .cuda(dtype)
        .expect("the call is well formed")
}

/// Runs a call both ways on the same stored numbers.
fn compare(
    call: &Call,
    start: &[Array<f64>],
    dtype: Float,
    context: &Context,
    tolerance: f64,
) {
    let operands = call.operands.iter().zip(start);
    let mut stored: Vec<Stored> = operands
        .map(|(operand, array)| Stored::new(array, operand.element, dtype))
        .collect();
    let mut expected: Vec<Array<f64>> =
        stored.iter().zip(start).map(|(stored, array)| stored.array(array)).collect();
    run(call, &mut expected, Body::Plain, context);
    let kernel = Kernel::parse(call).expect("the call is well formed");
    for (stored, access) in stored.iter_mut().zip(kernel.accesses()) {
        if *access == Access::Write {
            stored.poison();
        }
    }
    let operands: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    run_steps(&steps(call, dtype), &Bound { operands: &operands, context });
    for index in results(call) {
        let found = stored[index].values();
        let expected =
            in_range(expected[index].values(), call.operands[index].element, dtype);
        near(call, index, &found, &expected, tolerance);
    }
}

/// What is too large for 16 bits is infinite there.
fn in_range(values: &[f64], element: Element, dtype: Float) -> Vec<f64> {
    let most = match (element, dtype) {
        (Element::Real, Float::F16(_)) => 65504.0,
        (Element::Real | Element::Wide | Element::I32, _) => f64::MAX,
    };
    let cut = |x: &f64| if x.abs() > most { x.signum() * f64::INFINITY } else { *x };
    values.iter().map(cut).collect()
}

fn near(call: &Call, index: usize, found: &[f64], expected: &[f64], tolerance: f64) {
    let sizes = expected.iter().map(|value| value.abs());
    let scale = sizes.filter(|size| size.is_finite()).fold(1.0f64, f64::max);
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        let shapes: Vec<_> =
            call.operands.iter().map(|x| (x.element, &x.shape)).collect();
        assert!(
            error <= tolerance || found == expected,
            "{} {:?} {shapes:?}: operand {index}[{i}] is {found:?} for {expected:?}",
            call.kernel,
            call.attributes,
        );
    }
}

fn compare_samples(dtype: Float, mixes: &[Mix]) {
    if !can_compile() {
        return;
    }
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        for seed in 0..CALLS_PER_KERNEL {
            let draw = &mut Draw::new(seed);
            let call = sample(name, draw);
            let start = contents::<f64>(&call, draw);
            let mode = if seed % 4 == 0 { Mode::Evaluation } else { Mode::Training };
            let context = Context { mode, slice_offset: seed % 3, ..CONTEXT };
            let mix = mixes[seed as usize % mixes.len()];
            compare(&mixed(call, mix), &start, dtype, &context, tolerance(dtype));
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
        compare(&mixed(call, Mix::Statistics), &start, dtype, &CONTEXT, tolerance(dtype));
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
    let copies = ["copy", "accumulate", "scale", "affine_add"];
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
            compare(&call, &start, dtype, &context, 2e-3);
        }
    }
}

/// Heads of the sizes that tensor cores take, with everything that may change what is seen; lse
/// and o are those of the forward pass, as in a training.
fn compare_attention(depth: u64, dtype: Float, seed: u64) {
    let draw = &mut Draw::new(seed);
    let (batch, key_heads, group) =
        (1 + draw.below(2), 1 + draw.below(2), 1 + draw.below(2));
    let sequence = 1 + draw.below(150);
    let heads = key_heads * group;
    let wide: &[u64] = &[batch, sequence, heads * depth];
    let keys: &[u64] = &[batch, sequence, key_heads * depth];
    let build = |name, seed: u64| {
        let call = call(name).integer("heads", heads as i64);
        let call = call.integer("key_heads", key_heads as i64);
        let call = call.flag("causal", seed.is_multiple_of(2));
        let call = if seed.is_multiple_of(3) { call.integer("window", 20) } else { call };
        if seed % 4 == 1 { call.number("cap", 1.5) } else { call }
    };
    let forward = build("attention", seed).reals(&[wide, keys, keys, wide]);
    let forward = forward.operand(Element::Wide, &[batch, heads, sequence]);
    let start = contents::<f64>(&forward, draw);
    compare(&forward, &start, dtype, &CONTEXT, tolerance(dtype));
    let mut done = start.clone();
    run(&forward, &mut done, Body::Plain, &CONTEXT);
    let backward =
        build("attention_backward", seed).flag("accumulate", seed.is_multiple_of(5));
    let backward = backward.reals(&[wide, keys, keys, wide]);
    let backward = backward.operand(Element::Wide, &[batch, heads, sequence]);
    let backward = backward.reals(&[wide, wide, keys, keys]);
    let slopes = contents::<f64>(&backward, draw);
    let start = [&done[..], &slopes[5..]].concat();
    compare(&backward, &start, dtype, &CONTEXT, 2.0 * tolerance(dtype));
}

#[test]
fn attention_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    for seed in 0..6 {
        compare_attention(64, Float::Bf16(GradientSums::Same), seed);
        compare_attention(128, Float::F16(GradientSums::Same), seed + 1);
    }
    compare_attention(128, Float::Bf16(GradientSums::Same), 8);
}
