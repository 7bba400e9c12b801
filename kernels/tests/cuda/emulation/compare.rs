//! Runs a call's steps by the emulation and its plain reference on the same stored numbers.

use super::{
    Bound, run_steps,
    stored::{Placement, Stored},
};
pub(crate) use crate::common::sample::tolerance;
use crate::common::{Array, Body, CONTEXT, run, sample::results};
use roundelay_kernels::{
    Context, Kernel,
    cuda::{Step, Steps},
};
use roundelay_schedule::{Access, Call, Element, Float, Operand};

pub(crate) fn steps(call: &Call, dtype: Float) -> Steps {
    Kernel::parse(call)
        .expect("the call is well formed")
        .cuda(dtype)
        .expect("the call is well formed")
}

/// The steps of a call by functions for every device, and by those for some.
pub(crate) fn ways(steps: Steps) -> Vec<Steps> {
    let is_special =
        |step: &Step| matches!(step, Step::Either(either) if either.sm90.is_some());
    if !steps.steps.iter().any(is_special) {
        return vec![steps];
    }
    let special = steps.steps.iter().cloned().flat_map(special).collect();
    let special = Steps { steps: special, scratch: steps.scratch };
    vec![steps, special]
}

fn special(step: Step) -> Vec<Step> {
    match step {
        Step::Either(either) => {
            let made = either.sm90.unwrap_or(either.usual);
            made.into_iter().map(Step::Launch).collect()
        }
        Step::Launch(_)
        | Step::Product(_)
        | Step::Gradients(_)
        | Step::Convolution(_) => vec![step],
    }
}

/// Runs a call in all ways and by its plain reference on the same stored numbers.
pub(crate) fn compare(
    call: &Call,
    start: &[Array<f64>],
    (dtype, placement): (Float, Placement),
    context: &Context,
    tolerance: f64,
) {
    for steps in ways(steps(call, dtype)) {
        compare_steps(&steps, call, start, (dtype, placement), (context, tolerance));
    }
}

/// What steps make of numbers that are stored in a type: all operands, of which those are poisoned before that
/// are written.
pub(crate) fn made(
    steps: &Steps,
    call: &Call,
    start: &[Vec<f64>],
    dtype: Float,
) -> Vec<Vec<f64>> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let operands = call.operands.iter().zip(start).zip(kernel.accesses());
    let mut stored: Vec<Stored> = operands
        .map(|((operand, numbers), access)| {
            let array = Array::Real(numbers.clone());
            let mut stored = Stored::new(&array, operand.element, dtype);
            if *access == Access::Write {
                stored.poison();
            }
            stored
        })
        .collect();
    let operands: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    run_steps(steps, &Bound { operands: &operands, context: &CONTEXT });
    stored.iter().map(Stored::values).collect()
}

fn compare_steps(
    steps: &Steps,
    call: &Call,
    start: &[Array<f64>],
    (dtype, placement): (Float, Placement),
    (context, tolerance): (&Context, f64),
) {
    let operands = call.operands.iter().zip(start);
    let mut stored: Vec<Stored> = operands
        .map(|(operand, array)| {
            Stored::new(array, operand.element, dtype).placed(placement)
        })
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
    run_steps(steps, &Bound { operands: &operands, context });
    for index in results(call) {
        let found = stored[index].values();
        let expected =
            in_range(&expected[index].numbers(), call.operands[index].element, dtype);
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

/// Whether an operand has two statistics of everything, one after the other: means and squares, or sums of which
/// one may be much larger than the other.
fn has_two(operand: &Operand) -> bool {
    operand.element == Element::Wide && operand.shape.first() == Some(&2)
}

/// What is wide is near as in 32 bits, in whatever type other numbers are stored, but where it is made of what is
/// stored on the way.
fn tolerance_of(call: &Call, index: usize, tolerance: f64) -> f64 {
    let is_wide = call.operands[index].element == Element::Wide;
    match is_wide && &*call.kernel != "linear_cross_entropy" {
        true => tolerance.min(self::tolerance(Float::F32)),
        false => tolerance,
    }
}

/// Holds each part of an operand that has a scale of its own to what is expected.
pub(crate) fn near(
    call: &Call,
    index: usize,
    found: &[f64],
    expected: &[f64],
    tolerance: f64,
) {
    let tolerance = tolerance_of(call, index, tolerance);
    let parts = if has_two(&call.operands[index]) { 2 } else { 1 };
    let length = expected.len() / parts;
    let all = found.chunks(length).zip(expected.chunks(length));
    for (part, (found, expected)) in all.enumerate() {
        let sizes = expected.iter().map(|value| value.abs());
        let scale = sizes.filter(|size| size.is_finite()).fold(1.0f64, f64::max);
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let (error, i) = ((found - expected).abs() / scale, part * length + i);
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
}
