//! Calls that are large enough to be split over threads.

use super::{Build, Draw, call, calls, images, norms, parts, sample};
use roundelay_schedule::{Attribute, Call};

/// A matrix, its rows and its columns in numbers, and a wider one.
const ROWS: &[u64] = &[300, 130];
const COLUMNS: &[u64] = &[130];
const COUNT: &[u64] = &[300];
const WIDE: &[u64] = &[300, 500];
const ROW: &[u64] = &[500];

/// A call that is large enough to be split over threads, where a kernel is.
///
/// # Panics
/// As [`sample`].
pub fn large(name: &str, draw: &mut Draw) -> Call {
    let groups = [products, arrays, slopes, of_rows, losses, attention, images];
    let found = groups.iter().find_map(|group| group(name, call(name)));
    found.unwrap_or_else(|| sample(name, draw))
}

/// Matrix products, and what is made on their way.
fn products(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "matmul" => call.reals(&[&[700, 130], &[130, 150], &[700, 150]]),
        "affine" | "affine_relu" | "affine_gelu" | "affine_gelu_tanh" | "affine_add" => {
            calls::sample_affine(call, [700, 150, 130])
        }
        "matmul_gelu_tanh_backward" => calls::product_back(call, [700, 150, 130]),
        "affine_gradients" => calls::gradients(call, [700, 150, 130]),
        _ => return None,
    })
}

/// Number by number, sums over rows, and steps of optimizers.
fn arrays(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "gelu" | "gelu_tanh" | "silu" | "relu" | "softmax" | "accumulate" | "copy" => {
            call.reals(&[WIDE; 2])
        }
        "soft_cap" => call.number("cap", 2.0).reals(&[WIDE; 2]),
        "add" | "multiply" => call.reals(&[WIDE, ROW, WIDE]),
        "add_rows" => call.reals(&[ROW, WIDE]),
        "zero" => call.real(WIDE),
        "scale" => call.number("factor", 0.7).reals(&[WIDE; 2]),
        "sum_rows" => call.reals(&[WIDE, ROW]),
        "multiply_sum_rows" => call.reals(&[WIDE, WIDE, ROW]),
        "dropout" => call.number("rate", 0.3).integer("operator", 5).reals(&[WIDE; 2]),
        "rotary" => {
            let call = call.integer("heads", 5).number("base", 1e4);
            call.reals(&[&[2, 150, 500], WIDE])
        }
        "squares" | "sgd" | "adamw" => update(call),
        _ => return None,
    })
}

/// Gradients of what works number by number, and of a look-up.
fn slopes(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "gelu_backward" | "gelu_tanh_backward" | "silu_backward" => {
            call.reals(&[ROWS; 3])
        }
        "relu_backward" | "softmax_backward" => call.reals(&[WIDE; 3]),
        "soft_cap_backward" => call.number("cap", 2.0).reals(&[WIDE; 3]),
        "mse_backward" => call.integer("sign", 1).reals(&[WIDE; 3]),
        "embedding_backward" => call.integers(&[40]).reals(&[&[40, 500], WIDE]),
        _ => return None,
    })
}

/// Norms, and what one of several devices does.
fn of_rows(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "layer_norm" => call.reals(&[ROWS, COLUMNS, COLUMNS, ROWS, COUNT, COUNT]),
        "layer_norm_backward" => {
            call.reals(&[ROWS, COLUMNS, COUNT, COUNT, ROWS, ROWS, COLUMNS, COLUMNS])
        }
        "layer_norm_parameters" => {
            call.reals(&[ROWS, COUNT, COUNT, ROWS, COLUMNS, COLUMNS])
        }
        _ if name.starts_with("pixel_norm") => norms::large_of_pixels(call),
        _ if parts::has_large(name) => parts::large(call),
        _ if norms::has(name) => norms::large(call),
        _ => return None,
    })
}

fn losses(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "cross_entropy" => call.real(ROWS).integers(COUNT).reals(&[COUNT, &[1]]),
        "masked_cross_entropy" => {
            call.real(ROWS).integers(COUNT).reals(&[&[1], COUNT, &[1]])
        }
        "cross_entropy_backward" => call.real(ROWS).integers(COUNT).reals(&[COUNT, ROWS]),
        "masked_cross_entropy_backward" => {
            call.real(ROWS).integers(COUNT).reals(&[&[1], COUNT, ROWS])
        }
        "linear_cross_entropy" => call
            .flag("gradients", true)
            .reals(&[ROWS, &[299, 130]])
            .integers(COUNT)
            .reals(&[&[77, 304], COUNT, &[1], ROWS, &[299, 130]]),
        "mse" => call.reals(&[WIDE, WIDE, &[1]]),
        _ => return None,
    })
}

fn attention(name: &str, call: Call) -> Option<Call> {
    let (x, lse): (&[u64], &[u64]) = (&[2, 150, 64], &[2, 2, 150]);
    let grid: &[u64] = &[2, 2, 150, 150];
    let call = call.integer("heads", 2).integer("key_heads", 2);
    Some(match name {
        "scores" => call.flag("causal", true).reals(&[x, x, grid]),
        "mix" | "mix_backward" => call.reals(&[grid, x, x]),
        "attention" => call.flag("causal", true).reals(&[x, x, x, x, lse]),
        "attention_backward" => {
            call.flag("causal", true).reals(&[x, x, x, x, lse, x, x, x, x])
        }
        _ => return None,
    })
}

fn images(name: &str, call: Call) -> Option<Call> {
    Some(match name {
        "conv2d"
        | "conv2d_backward"
        | "conv2d_weights"
        | "max_pool"
        | "max_pool_backward"
        | "avg_pool"
        | "avg_pool_backward"
        | "global_pool"
        | "global_pool_backward" => images::large(call),
        _ => return None,
    })
}

/// The norm of a gradient, of which something counts less, or a step that it bounds.
fn update(call: Call) -> Call {
    let array: &[u64] = &[150_000];
    let call = call.integer("micro_batches", 2);
    if &*call.kernel == "squares" {
        let copied = Attribute::Integers(vec![100, 70_000, 2, 90_000, 91_000, 0]);
        return call.with("copied", copied).reals(&[array, &[1]]);
    }
    let averaged = Attribute::Integers(vec![60_000, 80_000]);
    let call = call.number("weight_decay", 0.1).number("clip", 0.5);
    let call = call.with("averaged", averaged).number("average_momentum", 0.1);
    match &*call.kernel {
        "sgd" => call.number("momentum", 0.9).reals(&[array; 4]),
        _ => call
            .number("beta1", 0.9)
            .number("beta2", 0.99)
            .number("epsilon", 1e-8)
            .reals(&[array; 5]),
    }
}
