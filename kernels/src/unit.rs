//! What the arithmetic of each kernel runs on, for cost models.

use roundelay_schedule::Unit;

/// Kernels that are products of matrices.
const PRODUCTS: [&str; 11] = [
    "matmul",
    "affine",
    "affine_relu",
    "affine_gelu",
    "affine_add",
    "conv2d",
    "conv2d_backward",
    "conv2d_weights",
    "scores",
    "mix",
    "mix_backward",
];

/// Kernels whose products stay on the chip.
const ATTENTION: [&str; 2] = ["attention", "attention_backward"];

/// The unit of a kernel.
pub fn unit_of(kernel: &str) -> Unit {
    if PRODUCTS.contains(&kernel) {
        Unit::Product
    } else if ATTENTION.contains(&kernel) {
        Unit::Attention
    } else {
        Unit::Vector
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NAMES;

    #[test]
    fn every_name_is_a_kernel() {
        for name in PRODUCTS.iter().chain(&ATTENTION) {
            assert!(NAMES.contains(name), "{name}");
        }
        assert_eq!(unit_of("layer_norm"), Unit::Vector);
    }
}
