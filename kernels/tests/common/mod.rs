//! Runs of sample calls.
#![allow(dead_code, reason = "every program uses another part")]
#![allow(unsafe_code, reason = "a kernel is run on addresses")]

use roundelay_kernels::{Context, Kernel, Mode, Real};
use roundelay_schedule::Call;

#[allow(unused_imports, reason = "every program uses another part")]
pub(crate) use roundelay_kernels::samples::{self as sample, Array, Build, call};

/// Which body of a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Fast,
    Plain,
}

pub(crate) const CONTEXT: Context = Context {
    step: 3,
    updates: 2,
    micro_batch: 1,
    seed: 11,
    mode: Mode::Training,
    rate: 0.05,
    slice_offset: 0,
    part: 0,
    threads: 1,
};

/// Runs a call on its own memory.
pub(crate) fn run<R: Real>(
    call: &Call,
    arrays: &mut [Array<R>],
    body: Body,
    context: &Context,
) {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    run_at::<R>(&kernel, &pointers, body, context);
}

/// Runs a call on addresses of arrays that have the right lengths.
pub(crate) fn run_at<R: Real>(
    kernel: &Kernel,
    pointers: &[*mut u8],
    body: Body,
    context: &Context,
) {
    // SAFETY: the callers pass vectors of the operands' lengths, which do not overlap.
    match body {
        Body::Fast => unsafe { kernel.run::<R>(pointers, context) },
        Body::Plain => unsafe { kernel.run_plain::<R>(pointers, context) },
    }
}

/// Some numbers, all different.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + seed * 101) as f64 * 0.61).sin()).collect()
}

/// One array of three: for every position and key head its queries, its key and its value, of this many
/// numbers.
pub(crate) fn packed(depth: usize, [q, k, v]: [&[f64]; 3]) -> Vec<f64> {
    let key_heads = k.len() / depth;
    let keys = k.chunks(depth).zip(v.chunks(depth));
    let all = q.chunks(q.len() / key_heads).zip(keys);
    all.flat_map(|(queries, (key, value))| [queries, key, value].concat()).collect()
}

/// A call on these inputs, then zeros; all its arrays.
pub(crate) fn results(call: &Call, inputs: &[&[f64]], body: Body) -> Vec<Vec<f64>> {
    let sizes = call
        .operands
        .iter()
        .map(|operand| operand.elements().expect("it is small") as usize);
    let mut arrays: Vec<Array<f64>> =
        sizes.map(|size| Array::Real(vec![0.0; size])).collect();
    for (array, input) in arrays.iter_mut().zip(inputs) {
        *array = Array::Real(input.to_vec());
    }
    run(call, &mut arrays, body, &CONTEXT);
    arrays.iter().map(|array| array.values().to_vec()).collect()
}

/// Real arrays of f64, the plain body, all operands back.
pub(crate) fn evaluate(call: &Call, arrays: Vec<Array<f64>>) -> Vec<Array<f64>> {
    let mut arrays = arrays;
    run(call, &mut arrays, Body::Plain, &CONTEXT);
    arrays
}
