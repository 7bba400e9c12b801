//! What the arithmetic of each kernel runs on, for cost models.

use roundelay_schedule::{Float, Unit};

/// What the arithmetic of a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Products of the matrices that it is given, row by row; rows may be unaligned.
    Rows,
    /// Products of something else: windows of an image, heads.
    Products,
    /// Products that stay on the chip.
    Attention,
    /// One pass over long arrays of parameters and their states.
    Update,
    /// A pass over the logits of a loss.
    Loss,
    /// Anything else, number by number.
    Vector,
}

/// What tensor cores load at once, in bytes.
const LOADED: u64 = 16;

impl Arithmetic {
    /// What it runs on, where its matrices are aligned.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Arithmetic::Rows | Arithmetic::Products => Unit::Product,
            Arithmetic::Attention => Unit::Attention,
            Arithmetic::Update => Unit::Update,
            Arithmetic::Loss => Unit::Loss,
            Arithmetic::Vector => Unit::Vector,
        }
    }

    /// What it runs on where the rows of its matrices have this many bytes. Where elements do not
    /// have 16 bits, no tensor core is asked.
    pub(crate) fn unit_of_rows(
        self,
        dtype: Float,
        mut rows: impl Iterator<Item = u64>,
    ) -> Unit {
        let whole = |bytes: u64| bytes.is_multiple_of(LOADED);
        match (self, dtype) {
            (Arithmetic::Rows, Float::Bf16(_) | Float::F16(_)) if !rows.all(whole) => {
                Unit::Unaligned
            }
            _ => self.unit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;
    use roundelay_schedule::{Attribute, Bytes, Call, Element, GradientSums, Operand};

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

    /// The unit of a loss that makes its logits, in rows of this many elements, from rows of `depth`.
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
