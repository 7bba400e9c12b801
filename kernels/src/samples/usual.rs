//! Calls as usual models make them: heads of 32 to 128, rows of 768, vocabularies, images.

use super::{Build, call};
use roundelay_schedule::Call;

/// A call of a kernel with the extents of usual models; none where there are no more of them.
pub fn usual(name: &str, number: usize) -> Option<Call> {
    let (rows, row, count): (&[u64], &[u64], &[u64]) = (&[96, 768], &[768], &[96]);
    let (logits, targets): (&[u64], &[u64]) = (&[12, 50_304], &[12]);
    let only = |call: Call| (number == 0).then_some(call);
    match name {
        "attention" | "attention_backward" => attention(name, number),
        "matmul" => only(call(name).reals(&[&[256, 320], &[320, 384], &[256, 384]])),
        "affine" | "affine_relu" => {
            only(call(name).reals(&[&[256, 320], &[384, 320], &[384], &[256, 384]]))
        }
        "affine_gelu" | "affine_gelu_tanh" | "affine_add" => only(
            call(name)
                .reals(&[&[256, 320], &[384, 320], &[384]])
                .reals(&[&[256, 384], &[256, 384]]),
        ),
        "matmul_gelu_tanh_backward" => {
            only(call(name).reals(&[&[256, 320], &[320, 384], &[256, 384], &[256, 384]]))
        }
        "affine_gradients" => {
            only(call(name).reals(&[&[320, 256], &[320, 384], &[256, 384]]).real(&[256]))
        }
        "layer_norm" => only(call(name).reals(&[rows, row, row, rows, count, count])),
        "layer_norm_backward" => {
            only(call(name).reals(&[rows, row, count, count, rows, rows, row, row]))
        }
        "layer_norm_parameters" => {
            only(call(name).reals(&[rows, count, count, rows, row, row]))
        }
        "cross_entropy" => {
            only(call(name).real(logits).integers(targets).reals(&[targets, &[1]]))
        }
        "cross_entropy_backward" => {
            only(call(name).real(logits).integers(targets).reals(&[targets, logits]))
        }
        "linear_cross_entropy" => only(
            call(name)
                .flag("gradients", true)
                .reals(&[&[12, 128], &[50_257, 128]])
                .integers(targets)
                .reals(&[&[5, 50_304], targets, &[1], &[12, 128], &[50_257, 128]]),
        ),
        "conv2d" | "conv2d_backward" | "conv2d_weights" => convolution(name, number),
        _ => None,
    }
}

/// Heads of 64 and of 128, causal and not, then with caps on the scores and heads that share their
/// keys, in a window and behind keys of before, and of other sizes that tensor cores take; at last all in one
/// array.
fn attention(name: &str, number: usize) -> Option<Call> {
    let shapes = [
        (64, true, 2, 0),
        (64, false, 2, 0),
        (128, true, 2, 0),
        (64, true, 1, 0),
        (128, true, 1, 70),
        (32, false, 2, 0),
        (80, false, 2, 0),
        (96, true, 2, 0),
    ];
    if let Some(number) = number.checked_sub(shapes.len()) {
        return packed_attention(name, number);
    }
    let (depth, causal, key_heads, before) = *shapes.get(number)?;
    let (wide, lse): (&[u64], &[u64]) = (&[1, 200, 2 * depth], &[1, 2, 200]);
    let keys: &[u64] = &[1, before + 200, key_heads * depth];
    let call = call(name).integer("heads", 2).integer("key_heads", key_heads as i64);
    let call = call.flag("causal", causal);
    let call = match (key_heads, before) {
        (1, 0) => call.number("cap", 1.5).integer("window", 100),
        (1, _) => call.number("cap", 1.5),
        _ => call,
    };
    let call = call.reals(&[wide, keys, keys, wide]).reals(&[lse]);
    Some(match name {
        "attention" => call,
        _ => call.reals(&[wide, wide, keys, keys]),
    })
}

fn packed_attention(name: &str, number: usize) -> Option<Call> {
    let shapes = [(64, true, 2), (128, false, 2), (64, true, 1)];
    let (depth, causal, key_heads) = *shapes.get(number)?;
    let (wide, lse): (&[u64], &[u64]) = (&[1, 200, 2 * depth], &[1, 2, 200]);
    let packed: &[u64] = &[1, 200, (2 + 2 * key_heads) * depth];
    let call = call(name).integer("heads", 2).integer("key_heads", key_heads as i64);
    let call = call.flag("causal", causal).flag("packed", true);
    let call = call.reals(&[packed, wide, lse]);
    Some(match name {
        "attention" => call,
        _ => call.reals(&[wide, packed]),
    })
}

/// Kernels of 3, 1 and 7, the last two with a stride.
fn convolution(name: &str, number: usize) -> Option<Call> {
    let shapes = [(64, 64, 3, 1, 14), (64, 128, 1, 2, 14), (3, 64, 7, 2, 28)];
    let (channels, filters, kernel, stride, side) = *shapes.get(number)?;
    let padding = kernel / 2;
    let own = (side + 2 * padding - kernel) / stride + 1;
    let (x, y): (&[u64], &[u64]) = (&[2, side, side, channels], &[2, own, own, filters]);
    let weight: &[u64] = &[filters, kernel, kernel, channels];
    let call = call(name).integer("stride", stride as i64);
    let call = call.integer("padding", padding as i64).integer("groups", 1);
    Some(match name {
        "conv2d" => call.reals(&[x, weight, y]),
        "conv2d_backward" => call.reals(&[y, weight, x]),
        _ => call.reals(&[x, y, weight]),
    })
}
