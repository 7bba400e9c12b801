//! How wide the operands of a call are, and how near numbers of a type come.

use roundelay_schedule::{Call, Element, Float};

/// Operands that a job in 16 bits keeps wide: statistics, losses, states; of a call with this many.
fn statistics(name: &str, operands: usize) -> &'static [usize] {
    match name {
        "norm_part_sums" | "norm_part_gain" => &[1],
        "norm_part_squares" => &[1, 2],
        "norm_part" if operands == 8 => &[3, 4, 6, 7],
        "norm_part" => &[2, 4],
        "norm_part_slopes" if operands == 6 => &[2, 3, 5],
        "norm_part_slopes" => &[2, 4],
        "norm_part_backward" if operands == 7 => &[2, 3, 5],
        "norm_part_backward" => &[2, 4],
        "layer_norm" => &[4, 5],
        "layer_norm_backward" => &[2, 3],
        "layer_norm_parameters" => &[1, 2],
        "batch_norm_backward" => &[2, 3],
        "batch_norm_again" | "relu_backward_again" => &[3, 4],
        "group_norm" => &[4, 5],
        "group_norm_backward" => &[2, 3],
        "pixel_norm_moments" => &[1],
        "pixel_norm_statistics" if operands == 3 => &[0, 1, 2],
        "pixel_norm_statistics" => &[0, 3, 4],
        "pixel_norm" => &[3, 4],
        "pixel_norm_slopes" | "pixel_norm_backward" => &[2, 3, 5],
        "pixel_norm_parameters" => &[1, 2],
        "rms_norm" => &[3],
        "rms_norm_backward" => &[2],
        "attention" if operands == 3 => &[2],
        "attention_backward" if operands == 5 => &[2],
        "attention" | "attention_backward" => &[4],
        "cross_entropy" => &[2, 3],
        "masked_cross_entropy" => &[2, 3, 4],
        "cross_entropy_backward" => &[2],
        "masked_cross_entropy_backward" => &[2, 3],
        "cross_entropy_part" => &[2],
        "cross_entropy_join" if operands == 5 => &[0, 2, 3, 4],
        "cross_entropy_join" => &[0, 2, 3],
        "cross_entropy_part_backward" if operands == 5 => &[2, 3],
        "cross_entropy_part_backward" => &[2],
        "linear_cross_entropy" if !operands.is_multiple_of(2) => &[3, 5, 6, 8],
        "linear_cross_entropy" => &[4, 5, 7],
        "accuracy" if operands == 4 => &[2, 3],
        "mse" | "accuracy" => &[2],
        "squares" => &[1],
        // Behind the states, a master copy of the parameters and the square of a norm.
        "sgd" => &[3, 4, 5],
        "adamw" => &[3, 4, 5, 6],
        _ => &[],
    }
}

/// Operands that are sums of a parameter's gradients in the usual programs, of a call with this many.
fn gradients(name: &str, operands: usize) -> &'static [usize] {
    match name {
        "matmul" | "multiply_sum_rows" | "embedding_backward" | "conv2d_weights" => &[2],
        "embedding_part_backward" => &[2],
        "zero" => &[0],
        "accumulate" | "sum_rows" | "scale" => &[1],
        "affine_gradients" => &[2, 3],
        "layer_norm_backward" | "group_norm_backward" => &[6, 7],
        "batch_norm_backward" if operands == 10 => &[6, 7, 8, 9],
        "batch_norm_backward" if operands == 11 => &[7, 8, 9, 10],
        "batch_norm_backward" => &[8, 9, 10, 11],
        "layer_norm_parameters" => &[4, 5],
        "rms_norm_backward" => &[5],
        "norm_part_gain" => &[3],
        "pixel_norm_parameters" => &[4, 5],
        "squares" | "sgd" | "adamw" => &[0],
        _ => &[],
    }
}

/// How wide operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Nothing is.
    Narrow,
    /// Statistics are.
    Statistics,
    /// Sums of gradients are too.
    Gradients,
}

/// The same call in a mix.
pub fn mixed(mut call: Call, mix: Mix) -> Call {
    let name = call.kernel.clone();
    let wide = match mix {
        Mix::Narrow => vec![],
        Mix::Statistics => statistics(&name, call.operands.len()).to_vec(),
        Mix::Gradients => {
            let operands = call.operands.len();
            [statistics(&name, operands), gradients(&name, operands)].concat()
        }
    };
    if name == "batch_norm" && mix != Mix::Narrow {
        let last = call.operands.len() - 1;
        call.operands[last - 1].element = Element::Wide;
        call.operands[last].element = Element::Wide;
    }
    for operand in wide {
        if let Some(operand) = call.operands.get_mut(operand) {
            operand.element = Element::Wide;
        }
    }
    call
}

/// Largest error for a largest value of one: a rounding or two of what is stored, and of sums.
pub fn tolerance(dtype: Float) -> f64 {
    match dtype {
        Float::F64 => 1e-10,
        Float::F32 => 3e-5,
        Float::Bf16(_) => 1.2e-2,
        Float::F16(_) => 2e-3,
    }
}
