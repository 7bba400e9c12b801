//! Activations of every number of 16 bits by the emulation, against functions in 64 bits, and the
//! rounding of numbers of 32 bits to 16, two at once and one by one.

use crate::{
    common::{Array, Build, CONTEXT, call},
    emulation::{
        Bound, can_compile,
        compare::steps,
        run_steps,
        stored::{Placement, Stored, half_value},
    },
};
use roundelay_kernels::cuda::{
    Addend, CallPlace, Epilogue, Matrix, Number, Product, Step, Steps,
};
use roundelay_schedule::{Bytes, Call, Element, Float, GradientSums};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

const BF16: Float = Float::Bf16(GradientSums::Same);
const F16: Float = Float::F16(GradientSums::Same);

/// Largest error in 32 bits of an activation of some size, or of a slope whose larger term has it. A
/// hundredth of what rounding changes is 4.9 · 10⁻⁶ for f16, where less than 2⁻²⁵ becomes zero, and
/// 3.9 · 10⁻⁵ for bf16.
fn error(size: f64) -> f64 {
    size * if size < 2f64.powi(-25) { 1e-5 } else { 3e-6 }
}

/// The least normal number of 32 bits, below which powers and reciprocals are zero.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

fn every_number(dtype: Float) -> Vec<f64> {
    let words = (0..=u16::MAX).map(|bits| {
        let high = f64::from(f32::from_bits(u32::from(bits) << 16));
        if dtype == BF16 { high } else { half_value(bits) }
    });
    words.collect()
}

/// The nearest number of 16 bits, ties to even: a multiple of the distance of its neighbours.
fn rounded(x: f64, dtype: Float) -> f64 {
    let (digits, least, end) = match dtype {
        Float::Bf16(_) => (7, -133, 2f64.powi(128)),
        Float::F16(_) | Float::F32 | Float::F64 => (10, -24, 65536.0),
    };
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let unit = 2f64.powi((x.abs().log2().floor() as i32 - digits).max(least));
    let near = (x / unit).round_ties_even() * unit;
    if near.abs() >= end { near.signum() * f64::INFINITY } else { near }
}

/// The last operand after a call on others.
fn result(
    call: &Call,
    given: &[Vec<f64>],
    (dtype, placement): (Float, Placement),
) -> Vec<f64> {
    let last = vec![0.0; given[0].len()];
    let arrays = given.iter().chain([&last]);
    let mut stored: Vec<Stored> = arrays
        .zip(&call.operands)
        .map(|(values, operand)| {
            let array = Array::Real(values.clone());
            Stored::new(&array, operand.element, dtype).placed(placement)
        })
        .collect();
    let operands: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    run_steps(&steps(call, dtype), &Bound { operands: &operands, context: &CONTEXT });
    stored[given.len()].values()
}

/// f(x), the terms of f'(x), and how large an f(x) and an f'(x) may be zero, because a power or a
/// reciprocal is.
struct Activation {
    name: &'static str,
    value: fn(f64) -> f64,
    slope: fn(f64) -> [f64; 2],
    lost: fn(f64) -> [f64; 2],
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// 2u of the GELU by tanh, and its slope.
fn bent(x: f64) -> [f64; 2] {
    let (x, factor) = (x.clamp(-30.0, 30.0), (8.0 / PI).sqrt());
    [factor * (x + 0.044715 * x.powi(3)), factor * (1.0 + 3.0 * 0.044715 * x * x)]
}

fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

const ACTIVATIONS: [Activation; 3] = [
    Activation {
        name: "gelu",
        value: |x| x * normal(x),
        slope: |x| [normal(x), x * (libm::exp(-0.5 * x * x) / (2.0 * PI).sqrt())],
        lost: |x| [LEAST / 2.0, LEAST * x.abs() / 2.0],
    },
    Activation {
        name: "gelu_tanh",
        value: |x| x * sigmoid(bent(x)[0]),
        slope: |x| {
            let [u, steepness] = bent(x);
            [sigmoid(u), x * (sigmoid(u) * sigmoid(-u) * steepness)]
        },
        lost: |x| [LEAST * x.abs(), LEAST * x.abs() * bent(x)[1]],
    },
    Activation {
        name: "silu",
        value: |x| x * sigmoid(x),
        slope: |x| [sigmoid(x), x * (sigmoid(x) * sigmoid(-x))],
        lost: |x| [LEAST * x.abs(), LEAST * x.abs()],
    },
];

/// Holds results to exact ones: within an error that grows with `sizes`.
fn hold(what: &str, x: &[f64], found: &[f64], exact: impl Fn(f64) -> [f64; 2]) {
    for (x, found) in x.iter().zip(found) {
        let [expected, allowed] = exact(*x);
        let same = found == &expected || (found.is_nan() && expected.is_nan());
        let near = (found - expected).abs() <= allowed;
        assert!(same || near, "{what}({x:e}) is {found:e} for {expected:e}");
    }
}

fn each_activation(check: impl Fn(&Activation, Float, &[f64])) {
    if !can_compile() {
        return;
    }
    for dtype in [BF16, F16] {
        let x = every_number(dtype);
        ACTIVATIONS.iter().for_each(|activation| check(activation, dtype, &x));
    }
}

fn forward(activation: &Activation, element: Element, count: u64) -> Call {
    call(activation.name).real(&[count]).operand(element, &[count])
}

/// In 32 bits, errors of all are far below the rounding to 16.
#[test]
fn activations_of_every_number() {
    each_activation(|activation, dtype, x| {
        let call = forward(activation, Element::Wide, x.len() as u64);
        let found = result(&call, &[x.to_vec()], (dtype, Placement::Aligned));
        hold(activation.name, x, &found, |x| {
            let exact = (activation.value)(x);
            [exact, error(exact.abs()) + (activation.lost)(x)[0]]
        });
    });
}

/// Slopes have a zero, where their terms cancel each other.
#[test]
fn slopes_of_every_number() {
    each_activation(|activation, dtype, x| {
        let count: &[u64] = &[x.len() as u64];
        let call = call(&format!("{}_backward", activation.name)).reals(&[count, count]);
        let call = call.operand(Element::Wide, count);
        let given = [x.to_vec(), vec![1.5; x.len()]];
        let found = result(&call, &given, (dtype, Placement::Aligned));
        hold(activation.name, x, &found, |x| {
            let terms = (activation.slope)(x);
            let size = terms[0].abs().max(terms[1].abs());
            [1.5 * (terms[0] + terms[1]), 1.5 * (error(size) + (activation.lost)(x)[1])]
        });
    });
}

/// What is stored is the nearest number of 16 bits, or a neighbour where another is as near but for
/// the error in 32 bits.
#[test]
fn activations_are_stored_as_the_nearest_number() {
    each_activation(|activation, dtype, x| {
        let call = forward(activation, Element::Real, x.len() as u64);
        for placement in [Placement::Aligned, Placement::Unaligned] {
            let found = result(&call, &[x.to_vec()], (dtype, placement));
            hold(activation.name, x, &found, |x| {
                let exact = (activation.value)(x);
                let nearest = rounded(exact, dtype);
                let more = error(exact.abs()) + (activation.lost)(x)[0];
                [exact, (nearest - exact).abs() + 2.0 * more]
            });
        }
    });
}

/// A product whose sums are what is added to zeros, 256 × 256 numbers: operands 0 to 5 are its
/// factors, what comes out, the bias, what stands before the activation, what is added.
fn product_of_zeros(number: Number) -> Product {
    let place = |index| CallPlace::Operand(index, Bytes(0));
    let matrix = |index, row| Matrix {
        place: place(index),
        number,
        transposed: false,
        row,
        batch: 0,
    };
    Product {
        m: 256,
        n: 256,
        k: 8,
        batches: 1,
        a: matrix(0, 8),
        b: matrix(1, 256),
        out: matrix(2, 256),
        scale: 1.0,
        addend: Addend::Other(place(5)),
        epilogue: Epilogue::Plain,
    }
}

/// What our own products make of a sum is what becomes of it on its own.
#[test]
fn gelus_of_products() {
    if !can_compile() {
        return;
    }
    let [bias, before] = [3, 4].map(|index| CallPlace::Operand(index, Bytes(0)));
    let exact = (Epilogue::BiasGelu { bias, before }, &ACTIVATIONS[0]);
    let by_tanh = (Epilogue::BiasGeluTanh { bias, before }, &ACTIVATIONS[1]);
    let numbers = [(BF16, Number::Bf16), (F16, Number::F16)];
    for ((epilogue, activation), (dtype, number)) in
        [exact, by_tanh].into_iter().flat_map(|one| numbers.map(|number| (one, number)))
    {
        let x = every_number(dtype);
        let zeros =
            [256 * 8, 8 * 256, x.len(), 256, x.len()].map(|length| vec![0.0; length]);
        let arrays = zeros.into_iter().chain([x.clone()]).map(Array::Real);
        let mut stored: Vec<Stored> =
            arrays.map(|array| Stored::new(&array, Element::Real, dtype)).collect();
        let operands: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
        let product = Product { epilogue, ..product_of_zeros(number) };
        let product = Step::Product(product);
        let steps = Steps { steps: vec![product], scratch: Bytes(0) };
        run_steps(&steps, &Bound { operands: &operands, context: &CONTEXT });
        hold("before", &x, &stored[4].values(), |x| [x, 0.0]);
        let alone = forward(activation, Element::Real, x.len() as u64);
        let alone = result(&alone, &[x], (dtype, Placement::Aligned));
        hold(activation.name, &alone, &stored[2].values(), |alone| [alone, 0.0]);
    }
}

/// Numbers of 32 bits before, at and behind ties, in all signs and exponents: subnormal ones,
/// those that become infinite, infinite ones, no numbers.
fn interesting() -> Vec<f64> {
    let low =
        [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff];
    let bits = (0..=u16::MAX).flat_map(|high| low.map(|low| u32::from(high) << 16 | low));
    bits.map(|bits| f64::from(f32::from_bits(bits))).collect()
}

/// Neighbours in one instruction become what each of them becomes alone, which is the nearest.
#[test]
fn neighbours_are_rounded_like_single_numbers() {
    if !can_compile() {
        return;
    }
    let x = interesting();
    let count: &[u64] = &[x.len() as u64];
    let call = call("copy").operand(Element::Wide, count).real(count);
    for dtype in [BF16, F16] {
        for placement in [Placement::Aligned, Placement::Unaligned] {
            let found = result(&call, std::slice::from_ref(&x), (dtype, placement));
            hold("copy", &x, &found, |x| [rounded(x, dtype), 0.0]);
        }
    }
}
