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

/// Of a call, which operands may be one memory.
fn replaces(call: &Call) -> Option<[usize; 2]> {
    Kernel::parse(call).expect("the call is well formed").replaces()
}

/// The bits of all that a call writes, where `one` says that two operands are one memory.
fn bits<R: Real>(
    call: &Call,
    start: &[Array<R>],
    one: Option<[usize; 2]>,
    (body, context): (Body, &Context),
) -> Vec<u64> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let mut arrays = start.to_vec();
    let mut pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    if let Some([read, written]) = one {
        pointers[written] = pointers[read];
    }
    run_at::<R>(&kernel, &pointers, body, context);
    let written = kernel.accesses().iter().enumerate();
    let written = written.filter(|(_, access)| **access != Access::Read);
    let place = |index: usize| match one {
        Some([read, written]) if written == index => read,
        _ => index,
    };
    let numbers = written.flat_map(|(index, _)| arrays[place(index)].numbers());
    numbers.map(|number| number.widen().to_bits()).collect()
}

fn assert_alike<R: Real>(call: &Call, draw: &mut Draw, one: [usize; 2]) {
    let start = contents::<R>(call, draw);
    for body in [Body::Fast, Body::Plain] {
        for threads in [1, 3] {
            let context = &Context { threads, ..CONTEXT };
            let [apart, together] =
                [None, Some(one)].map(|one| bits(call, &start, one, (body, context)));
            assert_eq!(apart, together, "{} {body:?}", call.kernel);
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
            if let Some(one) = replaces(&call) {
                seen.insert(*name);
                assert_alike::<f32>(&call, draw, one);
                assert_alike::<f64>(&call, draw, one);
            }
        }
    }
    assert_eq!(seen, REPLACING.into());
}

/// Rows that are longer than what is set aside at once.
#[test]
fn one_memory_changes_no_bit_of_long_rows() {
    let (array, row): (&[u64], &[u64]) = (&[5, 1500], &[1500]);
    for (relu, again) in [(false, false), (true, false), (true, true)] {
        let call = call("batch_norm_backward").flag("relu", relu).flag("again", again);
        let call = call.reals(&[array, row, row, row]);
        let call = match (relu, again) {
            (true, true) => call.real(row),
            (true, false) => call.real(array),
            (false, _) => call,
        };
        let call = call.reals(&[array, array, row, row, row, row]);
        let one = replaces(&call).expect("what adds nothing is in place");
        assert_alike::<f32>(&call, &mut Draw::new(5), one);
    }
}

/// The two are a whole operand each, one read and one written: an element that is added to would
/// be lost.
#[test]
fn what_is_replaced_is_read_and_what_replaces_it_written() {
    for name in NAMES {
        for seed in 0..CALLS_PER_KERNEL {
            let call = sample(name, &mut Draw::new(seed));
            let kernel = Kernel::parse(&call).expect("the call is well formed");
            let Some([read, written]) = kernel.replaces() else { continue };
            assert_eq!(kernel.accesses()[read], Access::Read, "{name}");
            assert_eq!(kernel.accesses()[written], Access::Write, "{name}");
            let elements = [read, written].map(|place| call.operands[place].elements());
            assert_eq!(elements[0], elements[1], "{name}");
        }
    }
}

/// The stored bits of what a call writes on a device.
fn device_bits(
    call: &Call,
    start: &[Array<f64>],
    (dtype, placement): (Float, Placement),
    one: Option<[usize; 2]>,
) -> Vec<u64> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let operands = call.operands.iter().zip(start);
    let store = |array, element| Stored::new(array, element, dtype).placed(placement);
    let mut stored: Vec<Stored> =
        operands.map(|(operand, array)| store(array, operand.element)).collect();
    let mut pointers: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    if let Some([read, written]) = one {
        pointers[written] = pointers[read];
    }
    let context = &CONTEXT;
    run_steps(&steps(call, dtype), &Bound { operands: &pointers, context });
    let written = (0..stored.len()).filter(|i| kernel.accesses()[*i] != Access::Read);
    let place = |index| match one {
        Some([read, written]) if written == index => read,
        _ => index,
    };
    written.flat_map(|i| stored[place(i)].values()).map(f64::to_bits).collect()
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
            let Some(one) = replaces(&call) else { continue };
            let elements = one.map(|place| call.operands[place].element);
            assert_eq!(elements[0], elements[1], "{name}");
            let start = contents::<f64>(&call, draw);
            for placement in [Placement::Aligned, Placement::Unaligned] {
                let [apart, together] = [None, Some(one)]
                    .map(|one| device_bits(&call, &start, (dtype, placement), one));
                assert_eq!(apart, together, "{name} {dtype:?} {placement:?}");
            }
        }
    }
}
