//! Operands that may be one memory: what a kernel then makes has the bits that it has apart, in every
//! form, and the kernel says so of no operands that it must not.

use crate::{
    common::{
        Array, Body, Build, CONTEXT, call, run_at,
        sample::{Draw, contents, large, sample, sample_in},
    },
    emulation::{
        Bound, can_compile,
        compare::steps,
        run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::{Context, Kernel, NAMES, Real};
use roundelay_schedule::{Access, Call, Float, GradientSums};
use std::collections::BTreeSet;

const CALLS_PER_KERNEL: u64 = 40;

/// Kernels that say so of some of their calls.
const REPLACING: [&str; 15] = [
    "adamw",
    "batch_norm_backward",
    "cross_entropy_backward",
    "cross_entropy_part_backward",
    "gelu_backward",
    "gelu_tanh_backward",
    "linear_cross_entropy",
    "masked_cross_entropy_backward",
    "mse_backward",
    "multiply",
    "relu_backward",
    "scale",
    "sgd",
    "silu_backward",
    "soft_cap_backward",
];

/// Operands that are one memory.
type Pairs = Vec<[usize; 2]>;

/// Of a call, which operands may be one memory: each two alone, and all at once.
fn replaces(call: &Call) -> Vec<Pairs> {
    let all = Kernel::parse(call).expect("the call is well formed").replaces();
    let mut ways: Vec<Pairs> = all.iter().map(|pair| vec![*pair]).collect();
    ways.extend((all.len() > 1).then_some(all));
    ways
}

/// Where what a call writes lies.
fn place(pairs: &Pairs, index: usize) -> usize {
    let pair = pairs.iter().find(|[_, written]| *written == index);
    pair.map_or(index, |[read, _]| *read)
}

/// The bits of all that a call writes, where each pair of operands is one memory.
fn bits<R: Real>(
    call: &Call,
    start: &[Array<R>],
    pairs: &Pairs,
    (body, context): (Body, &Context),
) -> Vec<u64> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let mut arrays = start.to_vec();
    let mut pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    pairs.iter().for_each(|[read, written]| pointers[*written] = pointers[*read]);
    run_at::<R>(&kernel, &pointers, body, context);
    let written = kernel.accesses().iter().enumerate();
    let written = written.filter(|(_, access)| **access != Access::Read);
    let numbers = written.flat_map(|(index, _)| arrays[place(pairs, index)].numbers());
    numbers.map(|number| number.widen().to_bits()).collect()
}

fn assert_alike<R: Real>(call: &Call, draw: &mut Draw, pairs: &Pairs) {
    let start = contents::<R>(call, draw);
    for body in [Body::Fast, Body::Plain] {
        for threads in [1, 3] {
            let context = &Context { threads, ..CONTEXT };
            let [apart, together] =
                [&vec![], pairs].map(|pairs| bits(call, &start, pairs, (body, context)));
            assert_eq!(apart, together, "{} {body:?} {pairs:?}", call.kernel);
        }
    }
}

/// Sums are drawn at random, so each kernel shows both; what adds is never in place.
#[test]
fn one_memory_changes_no_bit() {
    let mut seen = BTreeSet::new();
    for name in NAMES {
        for seed in 0..CALLS_PER_KERNEL {
            let draw = &mut Draw::new(seed);
            let call = if seed % 8 == 7 { large(name, draw) } else { sample(name, draw) };
            for pairs in replaces(&call) {
                seen.insert(*name);
                assert_alike::<f32>(&call, draw, &pairs);
                assert_alike::<f64>(&call, draw, &pairs);
            }
        }
    }
    assert_eq!(seen, REPLACING.into());
}

/// Flags of a batch norm that goes back, the shapes from what says which slopes count up to the last
/// slopes but dx, and in how many ways its operands may be one memory.
type Form<'a> = (&'a [&'a str], &'a [&'a [u64]], usize);

/// Rows that are longer than what is set aside at once.
#[test]
fn one_memory_changes_no_bit_of_long_rows() {
    let (array, row): (&[u64], &[u64]) = (&[5, 1500], &[1500]);
    let forms: [Form<'_>; 4] = [
        (&[], &[array], 1),
        (&["relu"], &[array, array], 1),
        (&["relu", "again"], &[row, array], 1),
        (&["relu", "opened"], &[array, array, array], 3),
    ];
    for (flags, slopes, ways) in forms {
        let call = call("batch_norm_backward").reals(&[array, row, row, row]);
        let call = flags.iter().fold(call, |call, flag| call.flag(flag, true));
        let call = call.reals(slopes).reals(&[array, row, row, row, row]);
        assert_eq!(replaces(&call).len(), ways);
        for pairs in replaces(&call) {
            assert_alike::<f32>(&call, &mut Draw::new(5), &pairs);
        }
    }
}

/// The two are a whole operand each, one read and one written: an element that is added to would
/// be lost. None stands in two pairs.
#[test]
fn what_is_replaced_is_read_and_what_replaces_it_written() {
    for name in NAMES {
        for seed in 0..CALLS_PER_KERNEL {
            let call = sample(name, &mut Draw::new(seed));
            let kernel = Kernel::parse(&call).expect("the call is well formed");
            let pairs = kernel.replaces();
            for [read, written] in &pairs {
                assert_eq!(kernel.accesses()[*read], Access::Read, "{name}");
                assert_eq!(kernel.accesses()[*written], Access::Write, "{name}");
                let elements =
                    [read, written].map(|place| call.operands[*place].elements());
                assert_eq!(elements[0], elements[1], "{name}");
            }
            let operands: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
            assert_eq!(operands.len(), 2 * pairs.len(), "{name}");
        }
    }
}

/// The stored bits of what a call writes on a device.
fn device_bits(
    call: &Call,
    start: &[Array<f64>],
    (dtype, placement): (Float, Placement),
    pairs: &Pairs,
) -> Vec<u64> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let operands = call.operands.iter().zip(start);
    let store = |array, element| Stored::new(array, element, dtype).placed(placement);
    let mut stored: Vec<Stored> =
        operands.map(|(operand, array)| store(array, operand.element)).collect();
    let mut pointers: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    pairs.iter().for_each(|[read, written]| pointers[*written] = pointers[*read]);
    let context = &CONTEXT;
    run_steps(&steps(call, dtype), &Bound { operands: &pointers, context });
    let written = (0..stored.len()).filter(|i| kernel.accesses()[*i] != Access::Read);
    written.flat_map(|i| stored[place(pairs, i)].values()).map(f64::to_bits).collect()
}

#[test]
fn one_memory_changes_no_bit_on_devices() {
    if !can_compile() {
        return;
    }
    let types =
        [Float::F32, Float::Bf16(GradientSums::F32), Float::F16(GradientSums::Same)];
    for (name, dtype) in REPLACING.iter().flat_map(|name| types.map(|t| (name, t))) {
        for seed in 0..6 {
            let draw = &mut Draw::new(seed);
            let call = sample_in(dtype, name, draw);
            let start = contents::<f64>(&call, draw);
            let placements = [Placement::Aligned, Placement::Unaligned];
            for (pairs, placement) in
                replaces(&call).iter().flat_map(|pairs| placements.map(|p| (pairs, p)))
            {
                for pair in pairs {
                    let [read, made] = pair.map(|place| call.operands[place].element);
                    assert_eq!(read, made, "{name}");
                }
                let way = (dtype, placement);
                let [apart, together] =
                    [&vec![], pairs].map(|pairs| device_bits(&call, &start, way, pairs));
                assert_eq!(apart, together, "{name} {pairs:?} {dtype:?} {placement:?}");
            }
        }
    }
}
