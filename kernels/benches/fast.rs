//! Time of every plain kernel over the time of its fast one, one thread, on operands of a
//! small GPT, and of the latter over its time on two threads:
//! `cargo bench -p roundelay-kernels --bench fast`, with a part of a name for some kernels alone.
#![allow(unsafe_code, reason = "kernels take addresses")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{
    Array, Body, Build, CONTEXT, call, run_at,
    sample::{Draw, contents, large, sample},
};
use roundelay_kernels::{Context, Kernel, NAMES};
use roundelay_schedule::{Call, Float};
use std::{env, time::Instant};

/// The kernel at 1024 rows of 128 (512 for activations, 256 classes), or a call of its samples.
fn typical(name: &str) -> Call {
    let (rows, wide, row, count): (&[u64], &[u64], &[u64], &[u64]) =
        (&[1024, 128], &[1024, 512], &[128], &[1024]);
    let (x, lse): (&[u64], &[u64]) = (&[8, 128, 128], &[8, 4, 128]);
    let loss = || call(name).real(&[1024, 256]).integers(count);
    let heads = || call(name).integer("heads", 4).integer("key_heads", 4);
    match name {
        "matmul" => call(name).reals(&[rows, &[128, 128], rows]),
        "affine" | "affine_relu" => call(name).reals(&[rows, &[512, 128], &[512], wide]),
        "affine_gelu" | "affine_gelu_tanh" | "affine_add" => {
            call(name).reals(&[rows, &[512, 128], &[512], wide, wide])
        }
        "matmul_gelu_tanh_backward" => call(name).reals(&[rows, &[128, 512], wide, wide]),
        "affine_gradients" => call(name).reals(&[wide, rows, &[512, 128], &[512]]),
        "add" | "multiply" => call(name).reals(&[rows; 3]),
        "add_rows" => call(name).reals(&[&[512], wide]),
        "accumulate" | "copy" | "softmax" => call(name).reals(&[rows; 2]),
        "sum_rows" => call(name).reals(&[wide, &[512]]),
        "multiply_sum_rows" => call(name).reals(&[rows, rows, row]),
        "scale" => call(name).number("factor", 2.0).reals(&[rows; 2]),
        "relu" | "gelu" | "gelu_tanh" | "silu" => call(name).reals(&[wide; 2]),
        "relu_backward" | "gelu_backward" | "gelu_tanh_backward" | "silu_backward"
        | "softmax_backward" => call(name).reals(&[wide; 3]),
        "soft_cap" => call(name).number("cap", 30.0).reals(&[wide; 2]),
        "soft_cap_backward" => call(name).number("cap", 30.0).reals(&[wide; 3]),
        "dropout" | "dropout_backward" => {
            call(name).number("rate", 0.1).integer("operator", 1).reals(&[rows; 2])
        }
        "layer_norm" => call(name).reals(&[rows, row, row, rows, count, count]),
        "layer_norm_backward" => {
            call(name).reals(&[rows, row, count, count, rows, rows, row, row])
        }
        "layer_norm_parameters" => {
            call(name).reals(&[rows, count, count, rows, row, row])
        }
        "batch_norm"
        | "batch_norm_again"
        | "batch_norm_backward"
        | "relu_backward_again"
        | "group_norm"
        | "group_norm_backward"
        | "rms_norm"
        | "rms_norm_backward" => large(name, &mut Draw::new(0)),
        "embedding" => call(name).integers(count).reals(&[&[256, 128], rows]),
        "embedding_backward" => call(name).integers(count).reals(&[rows, &[256, 128]]),
        "attention" => heads().flag("causal", true).reals(&[x, x, x, x, lse]),
        "attention_backward" => {
            heads().flag("causal", true).reals(&[x, x, x, x, lse, x, x, x, x])
        }
        "scores" => heads().flag("causal", true).reals(&[x, x, &[8, 4, 128, 128]]),
        "mix" | "mix_backward" => heads().reals(&[&[8, 4, 128, 128], x, x]),
        "rotary" => call(name).integer("heads", 4).number("base", 1e4).reals(&[x, x]),
        "slice" => call(name).integer("first", 0).reals(&[x, &[8, 64, 128]]),
        "slice_backward" => call(name).integer("first", 0).reals(&[&[8, 64, 128], x]),
        "prepend" => call(name).reals(&[x, row, &[8, 129, 128]]),
        "cross_entropy" => loss().reals(&[count, &[1]]),
        "masked_cross_entropy" => loss().reals(&[&[8], count, &[1]]),
        "cross_entropy_backward" => loss().reals(&[count, &[1024, 256]]),
        "masked_cross_entropy_backward" => loss().reals(&[&[8], count, &[1024, 256]]),
        "mse" => call(name).reals(&[rows, rows, &[1]]),
        "mse_backward" => call(name).integer("sign", 1).reals(&[rows; 3]),
        other => long(other),
    }
}

/// A random call on long vectors, or a large one where its operands have to be matrices.
fn long(name: &str) -> Call {
    let mut call = sample(name, &mut Draw::new(1));
    call.operands.iter_mut().for_each(|operand| operand.shape = [200_000][..].into());
    let fits = Kernel::parse(&call).is_ok();
    if fits { call } else { large(name, &mut Draw::new(1)) }
}

/// Least seconds of several repeats.
fn seconds(repeats: u32, work: impl Fn()) -> f64 {
    let time = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..repeats).map(|_| time()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let part = env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let part = part.unwrap_or_default();
    println!(
        "{:>24} {:>8} {:>10} {:>8} {:>14}",
        "kernel", "ratio", "fast us", "GB/s", "threads 1 : 2"
    );
    for name in NAMES.iter().filter(|name| name.contains(&part)) {
        let call = typical(name);
        let mut arrays = contents::<f32>(&call, &mut Draw::new(1));
        let kernel = Kernel::parse(&call).expect("the call is well formed");
        let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
        let run = |body, threads| {
            run_at::<f32>(&kernel, &pointers, body, &Context { threads, ..CONTEXT });
        };
        let [fast, both] =
            [1, 2].map(|threads| seconds(100, || run(Body::Fast, threads)));
        let plain = seconds(5, || run(Body::Plain, 1));
        let rate = kernel.footprint(Float::F32).bytes.0 as f64 / fast / 1e9;
        let (ratio, gain, fast) = (plain / fast, fast / both, fast * 1e6);
        println!("{name:>24} {ratio:>8.1} {fast:>10.1} {rate:>8.1} {gain:>14.2}");
    }
}
