//! Time of attention, forward and backward, and the scratch memory that it takes, at several
//! shapes: `cargo bench -p roundelay-kernels --bench attention -- THREADS`.
#![allow(unsafe_code, reason = "kernels take addresses")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{
    Array, Body, Build, CONTEXT, call, run_at,
    sample::{Draw, contents},
};
use roundelay_kernels::{Context, Kernel};
use roundelay_schedule::Call;
use std::time::Instant;

/// Examples, positions, heads, key heads, depth of a head, window.
const SHAPES: [(u64, u64, i64, i64, u64, i64); 6] = [
    (8, 128, 4, 4, 64, 1 << 20),
    (8, 197, 12, 12, 64, 1 << 20),
    (1, 1024, 12, 12, 64, 1 << 20),
    (1, 1024, 9, 3, 64, 1 << 20),
    (1, 4096, 4, 4, 64, 1 << 20),
    (1, 4096, 4, 4, 64, 256),
];

/// Both calls of causal attention.
fn calls(
    (batch, sequence, heads, key_heads, depth, window): (u64, u64, i64, i64, u64, i64),
) -> [Call; 2] {
    let x: &[u64] = &[batch, sequence, heads as u64 * depth];
    let keys: &[u64] = &[batch, sequence, key_heads as u64 * depth];
    let lse: &[u64] = &[batch, heads as u64, sequence];
    ["attention", "attention_backward"].map(|name| {
        let call = call(name).integer("heads", heads).integer("key_heads", key_heads);
        let call = call.flag("causal", true).integer("window", window);
        let call = call.reals(&[x, keys, keys, x, lse]);
        match name {
            "attention" => call,
            _ => call.reals(&[x, x, keys, keys]),
        }
    })
}

/// Least seconds of several repeats.
fn seconds(call: &Call, context: &Context) -> f64 {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let mut arrays: Vec<Array<f32>> = contents(call, &mut Draw::new(1));
    if let Array::Real(lse) = &mut arrays[4] {
        lse.fill(8.0);
    }
    let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    kernel.prepare::<f32>(context.threads);
    let time = || {
        let start = Instant::now();
        run_at::<f32>(&kernel, &pointers, Body::Fast, context);
        start.elapsed().as_secs_f64()
    };
    (0..40).map(|_| time()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let given = std::env::args().nth(1).and_then(|threads| threads.parse().ok());
    let context = Context { threads: given.unwrap_or(1), ..CONTEXT };
    println!("{:>44} {:>12} {:>12}", "shape", "forward us", "backward us");
    for shape in SHAPES {
        let [forward, backward] = calls(shape).map(|call| seconds(&call, &context) * 1e6);
        println!("{:>44} {forward:>12.0} {backward:>12.0}", format!("{shape:?}"));
    }
}
