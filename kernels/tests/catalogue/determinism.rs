//! A result depends on operand contents and context only: not on the number of threads, not
//! on addresses or alignment, not on how an optimizer's parameters are cut.

use crate::common::{
    Array, Body, Build, CONTEXT, call, run, run_at,
    sample::{Draw, contents, large, results, sample},
};
use roundelay_kernels::{Context, Kernel, NAMES, Real};
use roundelay_schedule::{Attribute, Call};

fn bits<R: Real>(call: &Call, arrays: &[Array<R>]) -> Vec<Vec<u64>> {
    let values = |index: usize| arrays[index].numbers().into_iter();
    results(call)
        .into_iter()
        .map(|index| values(index).map(|value| value.widen().to_bits()).collect())
        .collect()
}

#[test]
fn threads_do_not_change_a_bit() {
    for name in NAMES {
        for seed in 0..4 {
            let draw = &mut Draw::new(seed);
            let call = if seed == 0 { large(name, draw) } else { sample(name, draw) };
            let start = contents::<f32>(&call, draw);
            let with = |threads: usize| {
                let mut arrays = start.clone();
                run(&call, &mut arrays, Body::Fast, &Context { threads, ..CONTEXT });
                bits(&call, &arrays)
            };
            let alone = with(1);
            for threads in [2, 3, 5] {
                assert_eq!(alone, with(threads), "{name} with {threads} threads");
            }
        }
    }
}

/// Of a norm whose square is made beforehand, and of the copy that is stepped where parameters are
/// narrower.
#[test]
fn threads_do_not_change_a_bit_of_a_master_copy() {
    let array: &[u64] = &[150_000];
    for (name, states) in [("sgd", 0), ("sgd", 1), ("adamw", 2)] {
        let call = call(name)
            .number("weight_decay", 0.1)
            .number("clip", 0.5)
            .integer("micro_batches", 2);
        let call = match states {
            2 => call.number("beta1", 0.9).number("beta2", 0.99).number("epsilon", 1e-8),
            _ => call.number("momentum", 0.9 * f64::from(states)),
        };
        let call = call.reals(&vec![array; 4 + states as usize]);
        let mut start = contents::<f32>(&call, &mut Draw::new(5));
        if states == 2 {
            let squares = start[4].values().iter().map(|x| x * x).collect();
            start[4] = Array::Real(squares);
        }
        let with = |threads: usize, body| {
            let mut arrays = start.clone();
            run(&call, &mut arrays, body, &Context { threads, ..CONTEXT });
            assert_eq!(arrays[2].values(), arrays.last().unwrap().values(), "{name}");
            arrays
        };
        let alone = with(1, Body::Fast);
        for threads in [2, 3, 5] {
            assert_eq!(bits(&call, &alone), bits(&call, &with(threads, Body::Fast)));
        }
        let plain = with(1, Body::Plain);
        for (fast, plain) in alone[2].values().iter().zip(plain[2].values()) {
            assert!((fast - plain).abs() <= 1e-6 * plain.abs().max(1.0), "{name}");
        }
    }
}

#[test]
fn addresses_do_not_change_a_bit() {
    for name in NAMES {
        let draw = &mut Draw::new(21);
        let call = sample(name, draw);
        let kernel = Kernel::parse(&call).unwrap();
        let start = contents::<f32>(&call, draw);
        let shifted = |shift: usize| {
            let mut moved: Vec<Array<f32>> =
                start.iter().map(|x| pushed(x, shift)).collect();
            let pointers: Vec<*mut u8> =
                moved.iter_mut().map(|x| x.pointer().wrapping_add(4 * shift)).collect();
            run_at::<f32>(&kernel, &pointers, Body::Fast, &CONTEXT);
            let back: Vec<Array<f32>> = moved.iter().map(|x| pulled(x, shift)).collect();
            bits(&call, &back)
        };
        let expected = shifted(0);
        for shift in [1, 3, 7] {
            assert_eq!(expected, shifted(shift), "{name}");
        }
    }
}

fn pushed(array: &Array<f32>, shift: usize) -> Array<f32> {
    match array {
        Array::Real(values) => Array::Real([vec![0.0; shift], values.clone()].concat()),
        Array::Integer(values) => {
            Array::Integer([vec![0; shift], values.clone()].concat())
        }
    }
}

fn pulled(array: &Array<f32>, shift: usize) -> Array<f32> {
    match array {
        Array::Real(values) => Array::Real(values[shift..].to_vec()),
        Array::Integer(values) => Array::Integer(values[shift..].to_vec()),
    }
}

#[test]
fn slices_do_not_change_a_bit() {
    let count = 103usize;
    let spared = Attribute::Integers(vec![5, 9, 40, 77]);
    let build = |count: usize| {
        call("adamw")
            .number("weight_decay", 0.1)
            .number("clip", 0.0)
            .integer("micro_batches", 3)
            .with("spared", spared.clone())
            .with("averaged", Attribute::Integers(vec![9, 12, 80, 90]))
            .number("average_momentum", 0.1)
            .number("beta1", 0.9)
            .number("beta2", 0.99)
            .number("epsilon", 1e-8)
            .real(&[count as u64])
            .real(&[count as u64])
            .real(&[count as u64])
            .real(&[count as u64])
            .real(&[count as u64])
    };
    let start = contents::<f32>(&build(count), &mut Draw::new(2));
    let mut whole = start.clone();
    run(&build(count), &mut whole, Body::Fast, &CONTEXT);
    for cut in [1, 6, 41, 64, 102] {
        for range in [0..cut, cut..count] {
            let mut part: Vec<Array<f32>> = start
                .iter()
                .map(|array| Array::Real(array.values()[range.clone()].to_vec()))
                .collect();
            let context = Context { slice_offset: range.start as u64, ..CONTEXT };
            run(&build(range.len()), &mut part, Body::Fast, &context);
            assert_eq!(part[2].values(), &whole[2].values()[range], "cut at {cut}");
        }
    }
}
