//! Operators that people try and that do not exist: what exists instead.

use crate::{Code, Mistake};

/// Names, and the hint for whoever writes one of them.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &["moe", "mixture_of_experts", "experts", "switch"],
        "mixture of experts is not supported; `gated(x, hidden)` is the dense block",
    ),
    (
        &["swiglu", "glu", "geglu", "mlp", "ffn", "feed_forward"],
        "`gated(x, hidden)` is the block of Llama, \
         `gated(x, hidden, activation = \"gelu_tanh\")` that of Gemma, \
         `linear(gelu(linear(x, 4 * width)), width)` that of GPT-2",
    ),
    (
        &["flash_attention", "sdpa", "scaled_dot_product_attention"],
        "`attention(x, heads)` never makes the matrix of scores",
    ),
    (
        &["self_attention", "multi_head_attention", "multihead_attention", "mha"],
        "write `attention(x, heads)`, which has the four affine maps",
    ),
    (
        &["gqa", "mqa", "grouped_query_attention", "multi_query_attention"],
        "write `attention(x, heads, key_heads = …)`",
    ),
    (
        &["sliding_window_attention", "local_attention", "swa"],
        "write `attention(x, heads, window = …)`",
    ),
    (
        &["cross_attention", "decoder", "encoder"],
        "`attention(x, heads)` reads one sequence; a second one is not supported",
    ),
    (
        &["rope", "rotary", "rotary_embedding"],
        "positions turn inside of attention: `attention(x, heads, rotary = 10000)`",
    ),
    (
        &["alibi"],
        "biases of scores by distance are not supported; another model, with rotary positions, \
         is `attention(x, heads, rotary = 10000)`",
    ),
    (
        &["positional_embedding", "position_embedding", "wpe"],
        "add `positions(seq, width)`",
    ),
    (&["wte", "lookup", "token_embedding"], "write `embedding(tokens, vocab, width)`"),
    (
        &["lstm", "gru", "rnn", "mamba", "ssm"],
        "recurrence over positions is not supported; `attention(x, heads, causal = true)` \
         sees what came before",
    ),
    (&["conv", "convolution"], "write `conv2d(x, filters)`"),
    (
        &["conv1d", "conv3d"],
        "`conv2d(x, filters)` convolves images; other extents are not supported",
    ),
    (
        &["depthwise_conv", "depthwise_conv2d", "separable_conv", "separable_conv2d"],
        "`conv2d(x, channels, groups = channels)` gives each channel a filter of its own, and \
         `conv2d(x, filters, kernel = 1)` behind it mixes them",
    ),
    (
        &["adaptive_avg_pool", "adaptive_avg_pool2d", "mean_pool"],
        "write `global_pool(x)` for one mean per channel",
    ),
    (
        &["max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"],
        "there are `max_pool(x, size)` and `avg_pool(x, size)`",
    ),
    (
        &["interpolate", "upsample_nearest", "conv_transpose2d", "pixel_shuffle"],
        "`upsample(x)` repeats every pixel; `conv2d` behind it smooths",
    ),
    (&["patch_embedding", "patchify"], "write `patches(x, size, width)`"),
    (&["swish"], "write `silu(x)`"),
    (&["gelu_new", "gelu_fast", "gelu_pytorch_tanh"], "write `gelu_tanh(x)`"),
    (&["softcap", "logit_softcapping"], "write `soft_cap(x, 30)`"),
    (
        &["sigmoid", "elu", "leaky_relu", "selu", "mish"],
        "there are `relu`, `gelu`, `gelu_tanh`, `silu` and `tanh`",
    ),
    (
        &["exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "pow", "square", "clamp"],
        "of single elements there are `relu`, `gelu`, `gelu_tanh`, `silu`, `tanh` and \
         `soft_cap`, besides sums, differences and products",
    ),
    (&["dense", "fc", "fully_connected", "matmul", "mm"], "write `linear(x, width)`"),
    (&["flatten", "view", "unsqueeze", "squeeze"], "write `reshape(x, [batch, …])`"),
    (
        &["concat", "concatenate", "cat", "stack", "hstack"],
        "tensors are not joined; a map of what would be joined is a map of each operand, added: \
         `linear(a, width) + linear(b, width, bias = false)`",
    ),
    (
        &["split", "chunk", "unbind"],
        "tensors are not split; make each part by a map of its own: `linear(x, width)`",
    ),
    (
        &["transpose", "permute", "rearrange"],
        "tensors keep their order of elements; `reshape` gives them another shape and moves none",
    ),
    (&["cls_token", "cls"], "write `class_token(x)`, and `select(x, 0)` to read it"),
    (
        &["bce", "binary_cross_entropy", "nll", "nll_loss", "kl_divergence"],
        "there are `cross_entropy` and `mse`",
    ),
];

/// The mistake of whoever writes such a name.
pub(crate) fn absent(name: &str) -> Option<Mistake> {
    let (_, hint) = ABSENT.iter().find(|(names, _)| names.contains(&name))?;
    let message = format!("there is no operator `{name}`");
    Some(Mistake::new(Code::UnknownName, message).hint(*hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::OPERATORS;

    #[test]
    fn hints_name_operators_that_exist_and_names_that_do_not() {
        let exists = |name: &str| OPERATORS.iter().any(|known| known.name == name);
        for (names, hint) in ABSENT {
            for name in *names {
                assert!(!exists(name), "{name} exists");
            }
            let quoted = hint.split('`').skip(1).step_by(2);
            for call in quoted.filter(|call| !call.is_empty()) {
                let name = call.split('(').next().unwrap_or(call);
                assert!(exists(name), "{hint} names {name}");
            }
        }
    }
}
