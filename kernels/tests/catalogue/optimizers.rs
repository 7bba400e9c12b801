//! SGD and AdamW over several steps against the formulas of PyTorch's documentation, written
//! for one element in f64.

use crate::common::{Array, Body, Build, CONTEXT, call, run, sample::Draw};
use roundelay_kernels::Context;
use roundelay_schedule::{Attribute, Call};

const COUNT: usize = 37;
const STEPS: u64 = 5;
const MICRO_BATCHES: f64 = 4.0;
const DECAY: f64 = 0.1;
/// Elements 10 to 19 do not decay.
const SPARED: std::ops::Range<usize> = 10..20;
/// Elements 20 to 24 and 30 to 32 are running averages.
const AVERAGED: [std::ops::Range<usize>; 2] = [20..25, 30..33];
const AVERAGE_MOMENTUM: f64 = 0.2;

fn rate(step: u64) -> f64 {
    0.1 / (1.0 + step as f64)
}

fn with_common(kernel: &str, clip: f64) -> Call {
    call(kernel)
        .number("weight_decay", DECAY)
        .number("clip", clip)
        .integer("micro_batches", MICRO_BATCHES as i64)
        .with("spared", Attribute::Integers(vec![10, 20]))
        .with("averaged", Attribute::Integers(vec![20, 25, 30, 33]))
        .number("average_momentum", AVERAGE_MOMENTUM)
}

/// The parameters after all steps, updated in place, and the gradient sums of every step.
fn trained(call: &Call, body: Body) -> (Vec<f64>, Vec<Vec<f64>>, Vec<f64>) {
    let draw = &mut Draw::new(3);
    let start: Vec<f64> = draw.normals(COUNT);
    let gradients: Vec<Vec<f64>> = (0..STEPS).map(|_| draw.normals(COUNT)).collect();
    let states = call.operands.len() - 3;
    let mut arrays = vec![Array::Real(vec![0.0; COUNT]); 3 + states];
    arrays[2] = Array::Real(start.clone());
    for (step, gradient) in gradients.iter().enumerate() {
        arrays[0] = Array::Real(gradient.clone());
        arrays[1] = arrays[2].clone();
        let step = step as u64;
        // State may have begun at zero long after the first step.
        let (updates, rate) = (step + 1, rate(step));
        let context = Context { step: step + 3000, updates, rate, ..CONTEXT };
        run(call, &mut arrays, body, &context);
    }
    (start, gradients, arrays[2].values().to_vec())
}

fn is_average(i: usize) -> bool {
    AVERAGED.iter().any(|range| range.contains(&i))
}

/// Element `i` of the clipped mean gradient; averages are no part of its norm.
fn mean_gradient(sum: &[f64], clip: f64, i: usize) -> f64 {
    let trained = (0..COUNT).filter(|i| !is_average(*i));
    let norm = trained.map(|i| (sum[i] / MICRO_BATCHES).powi(2)).sum::<f64>().sqrt();
    let cut = if clip > 0.0 { (clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
    sum[i] / MICRO_BATCHES * cut
}

fn decay(i: usize) -> f64 {
    if SPARED.contains(&i) { 0.0 } else { DECAY }
}

fn assert_trained(call: &Call, expected: impl Fn(f64, &[Vec<f64>], usize) -> f64) {
    for body in [Body::Fast, Body::Plain] {
        let (start, gradients, found) = trained(call, body);
        for i in 0..COUNT {
            let expected = match is_average(i) {
                true => averaged(start[i], &gradients, i),
                false => expected(start[i], &gradients, i),
            };
            assert!(
                (found[i] - expected).abs() < 1e-12,
                "{i}: {} for {expected}",
                found[i]
            );
        }
    }
}

/// next = (1 − momentum) θ + momentum · mean, whatever the rate, the decay and the norm.
fn averaged(start: f64, gradients: &[Vec<f64>], i: usize) -> f64 {
    gradients.iter().fold(start, |p, sum| {
        (1.0 - AVERAGE_MOMENTUM) * p + AVERAGE_MOMENTUM * sum[i] / MICRO_BATCHES
    })
}

fn vectors(call: Call, count: usize) -> Call {
    (0..count).fold(call, |call, _| call.real(&[COUNT as u64]))
}

#[test]
fn sgd_without_momentum() {
    let call = vectors(with_common("sgd", 0.0).number("momentum", 0.0), 3);
    assert_trained(&call, |start, gradients, i| {
        let steps = gradients.iter().enumerate();
        steps.fold(start, |p, (step, sum)| {
            p - rate(step as u64) * (mean_gradient(sum, 0.0, i) + decay(i) * p)
        })
    });
}

#[test]
fn sgd_with_momentum_and_nesterov() {
    for (nesterov, clip) in [(false, 0.0), (true, 0.0), (true, 0.3)] {
        let call = with_common("sgd", clip).number("momentum", 0.9);
        let call = vectors(call.flag("nesterov", nesterov), 4);
        assert_trained(&call, |start, gradients, i| {
            let (mut p, mut buffer) = (start, None);
            for (step, sum) in gradients.iter().enumerate() {
                let g = mean_gradient(sum, clip, i) + decay(i) * p;
                let next = buffer.map_or(g, |buffer: f64| 0.9 * buffer + g);
                buffer = Some(next);
                p -= rate(step as u64) * if nesterov { g + 0.9 * next } else { next };
            }
            p
        });
    }
}

#[test]
fn adamw() {
    for clip in [0.0, 0.3] {
        let call = with_common("adamw", clip).number("beta1", 0.9).number("beta2", 0.99);
        let call = vectors(call.number("epsilon", 1e-8), 5);
        assert_trained(&call, |start, gradients, i| {
            let (mut p, mut mean, mut square) = (start, 0.0, 0.0);
            for (step, sum) in gradients.iter().enumerate() {
                let g = mean_gradient(sum, clip, i);
                let count = step as i32 + 1;
                p *= 1.0 - rate(step as u64) * decay(i);
                mean = 0.9 * mean + 0.1 * g;
                square = 0.99 * square + 0.01 * g * g;
                let mean_hat = mean / (1.0 - 0.9f64.powi(count));
                let square_hat: f64 = square / (1.0 - 0.99f64.powi(count));
                p -= rate(step as u64) * mean_hat / (square_hat.sqrt() + 1e-8);
            }
            p
        });
    }
}

#[test]
fn averages_leave_the_states_alone() {
    let sgd = with_common("sgd", 0.5).number("momentum", 0.9);
    let adamw = with_common("adamw", 0.5).number("beta1", 0.9).number("beta2", 0.99);
    for call in [vectors(sgd, 4), vectors(adamw.number("epsilon", 1e-8), 5)] {
        for body in [Body::Fast, Body::Plain] {
            let before = crate::common::sample::contents::<f32>(&call, &mut Draw::new(8));
            let mut after = before.clone();
            run(&call, &mut after, body, &CONTEXT);
            for (before, after) in before.iter().zip(&after).skip(3) {
                for i in 0..COUNT {
                    let kept =
                        before.values()[i].to_bits() == after.values()[i].to_bits();
                    assert_eq!(kept, is_average(i), "{} state {i}", call.kernel);
                }
            }
        }
    }
}

#[test]
fn in_place_equals_next_version() {
    let call = vectors(with_common("sgd", 0.0).number("momentum", 0.9), 4);
    let kernel = roundelay_kernels::Kernel::parse(&call).unwrap();
    let mut arrays = crate::common::sample::contents::<f32>(&call, &mut Draw::new(1));
    let mut separate = arrays.clone();
    run(&call, &mut separate, Body::Fast, &CONTEXT);
    let [gradient, parameter, _, momentum] = arrays.each_mut_pointer();
    let pointers = [gradient, parameter, parameter, momentum];
    crate::common::run_at::<f32>(&kernel, &pointers, Body::Fast, &CONTEXT);
    assert_eq!(arrays[1], separate[2]);
    assert_eq!(arrays[3], separate[3]);
}

/// The addresses of four arrays.
trait Pointers {
    fn each_mut_pointer(&mut self) -> [*mut u8; 4];
}

impl Pointers for Vec<Array<f32>> {
    fn each_mut_pointer(&mut self) -> [*mut u8; 4] {
        let mut arrays = self.iter_mut().map(Array::pointer);
        [(); 4].map(|()| arrays.next().expect("there are four"))
    }
}

#[test]
fn a_master_is_stepped_whatever_the_parameters_say() {
    let adamw = with_common("adamw", 0.3).number("beta1", 0.9).number("beta2", 0.99);
    let sgd = with_common("sgd", 0.3).number("momentum", 0.9);
    for (call, count) in [(adamw.number("epsilon", 1e-8), 5), (sgd, 4)] {
        for body in [Body::Fast, Body::Plain] {
            let (start, gradients, expected) =
                trained(&vectors(call.clone(), count), body);
            let with_master = vectors(call.clone(), count + 1);
            let mut arrays = vec![Array::Real(vec![0.0; COUNT]); count + 1];
            arrays[count] = Array::Real(start);
            for (step, gradient) in gradients.iter().enumerate() {
                arrays[0] = Array::Real(gradient.clone());
                arrays[1] = Array::Real(vec![f64::NAN; COUNT]);
                let step = step as u64;
                let (updates, rate) = (step + 1, rate(step));
                let context = Context { step, updates, rate, ..CONTEXT };
                run(&with_master, &mut arrays, body, &context);
                assert_eq!(
                    arrays[2], arrays[count],
                    "the next parameters are the master"
                );
            }
            assert_eq!(arrays[count].values(), expected, "{}", call.kernel);
        }
    }
}

/// Σ over thirds of (g / 4)² with weights 1, 1/3 and none, whatever slice a part has; parts make up
/// the whole. Where others have found 9 before, it is added to that.
#[test]
fn squares_count_what_so_many_hold_once() {
    let copied = Attribute::Integers(vec![12, 24, 3, 24, 30, 0]);
    let call = call("squares").integer("micro_batches", MICRO_BATCHES as i64);
    let call = call.with("copied", copied);
    let gradient: Vec<f64> = Draw::new(7).normals(COUNT);
    let weight = |i: usize| match i {
        12..24 => 1.0 / 3.0,
        24..30 => 0.0,
        _ => 1.0,
    };
    let of = |range: std::ops::Range<usize>| -> f64 {
        range.map(|i| weight(i) * (gradient[i] / MICRO_BATCHES).powi(2)).sum()
    };
    for body in [Body::Fast, Body::Plain] {
        let ranges = [0..COUNT, 0..13, 13..COUNT, 25..29];
        for (range, added) in
            ranges.into_iter().flat_map(|own| [(own.clone(), false), (own, true)])
        {
            let own = call.clone().flag("accumulate", added);
            let own = own.real(&[range.len() as u64]).real(&[1]);
            let brought = gradient[range.clone()].to_vec();
            let mut arrays = [Array::Real(brought), Array::Real(vec![9.0])];
            let context = Context { slice_offset: range.start as u64, ..CONTEXT };
            run(&own, &mut arrays, body, &context);
            let before = if added { 9.0 } else { 0.0 };
            let (found, expected) = (arrays[1].values()[0], before + of(range.clone()));
            assert!((found - expected).abs() < 1e-12, "{range:?}: {found}, {expected}");
        }
    }
}

/// Who has a part of a gradient and the square of the whole norm steps it as whoever has the whole.
#[test]
fn parts_with_a_given_norm_step_as_the_whole_does() {
    for (name, states) in [("sgd", 1), ("adamw", 2)] {
        let rule = |call: Call| match name {
            "sgd" => call.number("momentum", 0.9),
            _ => call.number("beta1", 0.9).number("beta2", 0.99).number("epsilon", 1e-8),
        };
        let whole = vectors(rule(with_common(name, 0.3)), 3 + states);
        let draw = &mut Draw::new(5);
        let arrays: Vec<Vec<f64>> = (0..3 + states)
            .map(|_| draw.normals::<f64>(COUNT).iter().map(|x| x * x).collect())
            .collect();
        let norm: f64 = (0..COUNT)
            .filter(|i| !is_average(*i))
            .map(|i| (arrays[0][i] / MICRO_BATCHES).powi(2))
            .sum();
        for body in [Body::Fast, Body::Plain] {
            let mut all: Vec<_> = arrays.iter().cloned().map(Array::Real).collect();
            run(&whole, &mut all, body, &CONTEXT);
            for range in [0..13, 13..COUNT] {
                let own = rule(with_common(name, 0.3)).flag("squares", true);
                let length = range.len() as u64;
                let own = (0..3 + states).fold(own, |call, _| call.real(&[length]));
                let piece = |array: &Vec<f64>| Array::Real(array[range.clone()].to_vec());
                let mut parts: Vec<_> = arrays.iter().map(piece).collect();
                parts.push(Array::Real(vec![norm]));
                let slice_offset = range.start as u64;
                run(
                    &own.real(&[1]),
                    &mut parts,
                    body,
                    &Context { slice_offset, ..CONTEXT },
                );
                for (part, whole) in parts.iter().zip(&all) {
                    let pairs = part.values().iter().zip(&whole.values()[range.clone()]);
                    for (part, whole) in pairs {
                        assert!((part - whole).abs() < 1e-12, "{name}: {part}, {whole}");
                    }
                }
            }
        }
    }
}

/// A norm that is none cuts nothing to a number: every parameter that is trained shows it, whatever its own
/// gradient is.
#[test]
fn clipping_spreads_what_is_no_number() {
    let sgd = with_common("sgd", 0.3).number("momentum", 0.9);
    let adamw = with_common("adamw", 0.3).number("beta1", 0.9).number("beta2", 0.99);
    let adamw = adamw.number("epsilon", 1e-8);
    for (call, operands) in [(sgd, 4), (adamw, 5)] {
        let call = vectors(call, operands);
        for body in [Body::Fast, Body::Plain] {
            let mut arrays = vec![Array::Real(vec![0.5; COUNT]); operands];
            let mut gradient = vec![1.0; COUNT];
            gradient[3] = f64::NAN;
            arrays[0] = Array::Real(gradient);
            run(&call, &mut arrays, body, &CONTEXT);
            for (i, next) in arrays[2].values().iter().enumerate() {
                assert_eq!(next.is_nan(), !is_average(i), "{} {body:?} {i}", call.kernel);
            }
        }
    }
}
