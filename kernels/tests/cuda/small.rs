//! Small calls of every family of kernels for CUDA devices, run by the emulation: what sanitizers
//! have the time for (`.ci/cuda`).

use crate::{
    common::{
        Build, CONTEXT, call,
        sample::{Draw, Mix, contents, mixed, sample_in},
    },
    emulation::{
        Bound, can_compile,
        compare::{compare, steps, tolerance},
        compile_where, run_steps,
        stored::Placement,
    },
};
use roundelay_kernels::{
    Kernel, NAMES,
    cuda::{SOURCES, Source, Step, Steps, count_words},
};
use roundelay_schedule::{Bytes, Call, Element, Float, GradientSums};
use std::collections::BTreeSet;

const BF16: Float = Float::Bf16(GradientSums::F32);

/// Most numbers of all operands of a call that is drawn.
const SMALL: u64 = 3000;

/// What the names of families begin with that have small tests of their own:
/// `short_sequences_on_tensor_cores`, and one below.
const ELSEWHERE: [&str; 2] = ["flash_", "scan.cu"];

/// The first small call of a kernel that is drawn.
fn small(name: &str) -> Call {
    let drawn = (0..).map(|seed| sample_in(BF16, name, &mut Draw::new(seed)));
    let numbers = |call: &Call| {
        let each = call.operands.iter().map(|operand| operand.elements());
        each.sum::<Option<u64>>().expect("the sample is small")
    };
    drawn.into_iter().find(|call| numbers(call) <= SMALL).expect("some call is small")
}

/// A small call of every kernel that devices have.
fn all_small() -> impl Iterator<Item = Call> {
    let has_form = |call: &Call| {
        Kernel::parse(call).expect("the call is well formed").cuda(BF16).is_ok()
    };
    let calls = NAMES.iter().map(|name| small(name)).filter(has_form);
    calls.map(|call| mixed(call, Mix::Statistics))
}

fn check(call: &Call) {
    let start = contents::<f64>(call, &mut Draw::new(7));
    let way = (BF16, Placement::Aligned);
    compare(call, &start, way, &CONTEXT, 2.0 * tolerance(BF16));
}

#[test]
fn a_small_call_of_every_kernel() {
    if can_compile() {
        compile_where(|source| !is_elsewhere(source.name));
        all_small().for_each(|call| check(&call));
    }
}

/// Whether no call here reaches a source.
fn is_elsewhere(source: &str) -> bool {
    ELSEWHERE.iter().any(|family| source.starts_with(family))
}

/// A family that no call reaches would be one that sanitizers never see.
#[test]
fn every_family_has_a_small_call() {
    let calls = all_small().chain(several_blocks());
    let launches =
        calls.flat_map(|call| steps(&call, BF16).steps).flat_map(Step::launches);
    let found: BTreeSet<&str> =
        launches.map(|launch| launch.function.source.name).collect();
    for family in ELSEWHERE {
        let mut names = SOURCES.iter().map(|source| source.name);
        assert!(names.any(|name| name.starts_with(family)), "{family}");
    }
    for Source { name, .. } in SOURCES {
        assert!(found.contains(name) != is_elsewhere(name), "{name}");
    }
}

/// Shapes at which blocks meet in scratch memory, rows are a whole block's, and tiles are full.
fn several_blocks() -> Vec<Call> {
    let (array, row, rows): (&[u64], &[u64], &[u64]) = (&[70, 264], &[264], &[70]);
    let (long, one): (&[u64], &[u64]) = (&[1, 2056], &[1]);
    let (image, filters): (&[u64], &[u64]) = (&[2, 9, 8, 16], &[24, 3, 3, 16]);
    let (seen, each): (&[u64], &[u64]) = (&[2, 9, 8, 24], &[16, 3, 3, 1]);
    let window = |name, groups| {
        let call = call(name).integer("stride", 1).integer("padding", 1);
        call.integer("groups", groups)
    };
    let (joint, alone) = (|name| window(name, 1), |name| window(name, 16));
    let tokens = [600, 4];
    let several = vec![
        call("sum_rows").reals(&[array, row]),
        call("multiply_sum_rows").reals(&[array, array, row]),
        call("layer_norm_parameters").reals(&[array, rows, rows, array, row, row]),
        call("softmax").reals(&[long; 2]),
        call("cross_entropy").real(long).integers(one).reals(&[one, one]),
        call("embedding_backward").integers(&[600]).reals(&[&tokens, &[300, 4]]),
        call("matmul").reals(&[&[136, 72], &[72, 136], &[136, 136]]),
        joint("conv2d").reals(&[image, filters, seen]),
        joint("conv2d_backward").reals(&[seen, filters, image]),
        joint("conv2d_weights").reals(&[image, seen, filters]),
        alone("conv2d").reals(&[image, each, image]),
        alone("conv2d_backward").reals(&[image, each, image]),
        alone("conv2d_weights").reals(&[image, image, each]),
    ];
    several.into_iter().chain(pixels_in_stretches()).collect()
}

/// Sums over images whose pixels are cut into several stretches of each example.
fn pixels_in_stretches() -> [Call; 2] {
    let (x, row, statistics): (&[u64], &[u64], &[u64]) = (&[2, 600, 16], &[16], &[2, 2]);
    let of = |name| call(name).integer("groups", 2).real(x);
    let wide = |call: Call, shape: &[u64]| call.operand(Element::Wide, shape);
    let slopes = wide(wide(of("pixel_norm_slopes").real(row), statistics), statistics);
    [of("pixel_norm_moments"), slopes.real(x)].map(|call| wide(call, &[2, 2, 2]))
}

/// Else sanitizers would never see stretches joined.
#[test]
fn an_example_has_several_stretches() {
    for call in pixels_in_stretches() {
        let steps = steps(&call, BF16).steps.into_iter();
        let first = steps.flat_map(Step::launches).next().expect("a step launches it");
        let blocks = u64::from(first.grid[0]);
        assert!(blocks > call.operands[0].shape[0], "{blocks} blocks of {}", call.kernel);
    }
}

#[test]
fn small_calls_of_several_blocks() {
    if can_compile() {
        several_blocks().iter().for_each(check);
    }
}

/// Windows whose taps are read all at once and row by row, and whose slopes are those of cells and of pixels.
fn pools_of_all_ways() -> Vec<Call> {
    let pools = |[size, stride, padding]: [i64; 3]| {
        let places = |extent: u64| {
            let room = extent + 2 * padding as u64 - size as u64;
            room / stride as u64 + 1
        };
        let (x, y) = ([2, 9, 8, 16], [2, places(9), places(8), 16]);
        let window = move |name| {
            let call = call(name).integer("size", size).integer("stride", stride);
            call.integer("padding", padding)
        };
        [
            window("max_pool").reals(&[&x, &y]),
            window("max_pool_backward").reals(&[&x, &y, &x]),
            window("avg_pool").reals(&[&x, &y]),
            window("avg_pool_backward").reals(&[&y, &x]),
        ]
    };
    [[2, 2, 0], [3, 2, 1], [3, 1, 1], [5, 1, 2]].into_iter().flat_map(pools).collect()
}

#[test]
fn small_pools_of_all_ways() {
    if can_compile() {
        pools_of_all_ways().iter().for_each(check);
    }
}

/// No call of the catalogue launches it: machines do.
#[test]
fn words_of_a_small_array_are_counted() {
    if !can_compile() {
        return;
    }
    let mut words: Vec<u32> = (0..700).map(|i| i % 3).collect();
    let mut found = [0u32; 3];
    let operands = [&mut words[..], &mut found].map(|array| array.as_mut_ptr().cast());
    let step = Step::Launch(count_words(700, 300, 2));
    let steps = Steps { steps: vec![step], scratch: Bytes(0) };
    run_steps(&steps, &Bound { operands: &operands, context: &CONTEXT });
    assert_eq!(found, [100, 100, 33]);
}
