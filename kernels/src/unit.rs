//! What the arithmetic of each kernel runs on, for cost models.

use roundelay_schedule::{Float, Unit};

/// Kernels that are products of the matrices that they are given, row by row.
const MATRICES: [&str; 9] = [
    "matmul",
    "affine",
    "affine_relu",
    "affine_gelu",
    "affine_gelu_tanh",
    "affine_add",
    "matmul_gelu_tanh_backward",
    "affine_gradients",
    "linear_cross_entropy",
];

/// Kernels whose products are of something else: windows of an image, heads.
const PRODUCTS: [&str; 6] =
    ["conv2d", "conv2d_backward", "conv2d_weights", "scores", "mix", "mix_backward"];

/// Kernels whose products stay on the chip.
const ATTENTION: [&str; 2] = ["attention", "attention_backward"];

/// Kernels that pass once over long arrays of parameters and their states.
const UPDATES: [&str; 3] = ["squares", "sgd", "adamw"];

/// Kernels that pass over the logits of a loss.
const LOSSES: [&str; 6] = [
    "cross_entropy",
    "cross_entropy_backward",
    "masked_cross_entropy",
    "masked_cross_entropy_backward",
    "cross_entropy_part",
    "cross_entropy_part_backward",
];

/// What tensor cores load at once, in bytes.
const LOADED: u64 = 16;

/// The unit of a kernel, where its matrices are aligned.
pub fn unit_of(kernel: &str) -> Unit {
    if MATRICES.contains(&kernel) || PRODUCTS.contains(&kernel) {
        Unit::Product
    } else if ATTENTION.contains(&kernel) {
        Unit::Attention
    } else if UPDATES.contains(&kernel) {
        Unit::Update
    } else if LOSSES.contains(&kernel) {
        Unit::Loss
    } else {
        Unit::Vector
    }
}

/// Whether a kernel multiplies matrices whose rows may be unaligned.
pub(crate) fn multiplies_rows(kernel: &str) -> bool {
    MATRICES.contains(&kernel)
}

/// The unit of a product of matrices with rows of so many bytes. Where elements do not have 16
/// bits, no tensor core is asked.
pub(crate) fn unit_of_rows(dtype: Float, mut rows: impl Iterator<Item = u64>) -> Unit {
    let whole = |bytes: u64| bytes.is_multiple_of(LOADED);
    match dtype {
        Float::Bf16(_) | Float::F16(_) if !rows.all(whole) => Unit::Unaligned,
        Float::Bf16(_) | Float::F16(_) | Float::F32 | Float::F64 => Unit::Product,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, NAMES};
    use roundelay_schedule::{Attribute, Bytes, Call, Element, GradientSums, Operand};

    #[test]
    fn every_name_is_a_kernel() {
        let products = MATRICES.iter().chain(&PRODUCTS).chain(&ATTENTION);
        for name in products.chain(&UPDATES).chain(&LOSSES) {
            assert!(NAMES.contains(name), "{name}");
        }
        assert_eq!(unit_of("layer_norm"), Unit::Vector);
        assert_eq!(unit_of("adamw"), Unit::Update);
        assert_eq!(unit_of("cross_entropy_backward"), Unit::Loss);
    }

    fn operand(element: Element, shape: &[u64]) -> Operand {
        Operand { argument: 0, offset: Bytes(0), element, shape: shape.into() }
    }

    fn unit(dtype: Float, classes: u64) -> Unit {
        let flags = ["transpose_a", "transpose_b"];
        let flag =
            |name: &'static str| (name.into(), Attribute::Flag(name == "transpose_b"));
        let shapes = [[3, 64], [classes, 64], [3, classes]];
        let call = Call {
            kernel: "matmul".into(),
            attributes: flags.into_iter().map(flag).collect(),
            operands: shapes.map(|shape| operand(Element::Real, &shape)).to_vec(),
        };
        Kernel::parse(&call).unwrap().footprint(dtype).unit
    }

    /// The number of rows of a matrix says nothing, the length of its rows does.
    #[test]
    fn rows_of_whole_16_bytes_are_aligned() {
        let narrow = Float::Bf16(GradientSums::Same);
        assert_eq!(unit(narrow, 50_256), Unit::Product);
        for classes in [50_257, 50_258, 50_260] {
            assert_eq!(unit(narrow, classes), Unit::Unaligned);
            assert_eq!(unit(Float::F32, classes), Unit::Product);
        }
    }

    /// The unit of a loss that makes its logits, in rows of so many elements, from rows of `depth`.
    fn unit_of_loss(dtype: Float, [classes, room, depth]: [u64; 3]) -> Unit {
        use Element::{I32, Real, Wide};
        let (x, weight): (&[u64], &[u64]) = (&[7, depth], &[classes, depth]);
        let logits: &[u64] = &[3, room];
        let operands = [
            operand(Real, x),
            operand(Real, weight),
            operand(I32, &[7]),
            operand(Real, logits),
            operand(Wide, &[7]),
            operand(Wide, &[1]),
            operand(Real, x),
            operand(Wide, weight),
        ];
        let call = Call {
            kernel: "linear_cross_entropy".into(),
            attributes: [("gradients".into(), Attribute::Flag(true))]
                .into_iter()
                .collect(),
            operands: operands.to_vec(),
        };
        Kernel::parse(&call).unwrap().footprint(dtype).unit
    }

    /// Of a loss that makes its logits, their rows count, however many classes there are; targets and
    /// statistics are no factors.
    #[test]
    fn classes_with_room_behind_them_are_aligned() {
        let narrow = Float::Bf16(GradientSums::Same);
        for room in [50_264, 50_304] {
            assert_eq!(unit_of_loss(narrow, [50_257, room, 768]), Unit::Product);
        }
        assert_eq!(unit_of_loss(narrow, [50_257, 50_257, 768]), Unit::Unaligned);
        assert_eq!(unit_of_loss(narrow, [50_257, 50_264, 770]), Unit::Unaligned);
        assert_eq!(unit_of_loss(Float::F32, [50_257, 50_257, 770]), Unit::Product);
    }
}
