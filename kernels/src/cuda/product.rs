//! Matrix products, and our own kernel for them where there is no library.

use super::{
    Addend, Argument, CallPlace, Epilogue, Function, Launch, Matrix, Number, Product,
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::{ACTIVATION, PRODUCT},
    tile::Tile,
};
use crate::{
    affine::{
        Affine, AffineAdd, AffineGelu, AffineGeluTanh, AffineRelu, MatmulGeluTanhBackward,
    },
    matmul::Matmul,
    store::Store,
};
use Role::{Either, Narrow};

impl Product {
    /// Our own kernel for this product: its functions take the same places, so it stands wherever
    /// a library's product would. Blocks along z are the batch.
    pub fn launch(&self) -> Launch {
        let (symbol, tile, tags) = self.function();
        let Shape { grid, block, shared } =
            tile.shape([self.m, self.n, self.batches], self.k);
        let function = Function { source: PRODUCT, symbol };
        let mut arguments = self.arguments();
        arguments.extend(tags);
        Launch { function, grid, block, shared, arguments }
    }

    /// The same product without its GELU or the slope of one, and our own function that does that
    /// behind it; none where there is neither.
    ///
    /// # Panics
    /// When such a product has room between the rows or batches of `out`, or is added to
    /// something.
    pub fn apart(&self) -> Option<(Self, Launch)> {
        let (epilogue, place, function, before) = match self.epilogue {
            Epilogue::Plain | Epilogue::Bias(_) | Epilogue::BiasRelu(_) => return None,
            Epilogue::BiasGelu { bias, before } => {
                (Epilogue::Bias(bias), before, "gelu", before)
            }
            Epilogue::BiasGeluTanh { bias, before } => {
                (Epilogue::Bias(bias), before, "gelu_tanh", before)
            }
            Epilogue::GeluTanhSlope { before } => {
                (Epilogue::Plain, self.out.place, "gelu_tanh_backward", before)
            }
        };
        let out = Matrix { place, ..self.out };
        Some((Self { out, epilogue, ..*self }, self.pass(function, before)))
    }

    /// An activation of `before` into `out`, or its slope there times `out`.
    fn pass(&self, function: &str, before: CallPlace) -> Launch {
        let Matrix { row, batch, place, number, .. } = self.out;
        let dense = row == self.n && (self.batches == 1 || batch == self.m * row);
        assert!(
            dense && self.addend == Addend::Nothing,
            "a pass of its own replaces arrays without gaps"
        );
        let elements = self.batches * self.m * self.n;
        let Shape { grid, block, shared } = Shape::each(elements, 16 / number.size());
        let symbol = format!("{function}_{0}_{0}", number.name());
        let function = Function { source: ACTIVATION, symbol };
        let [before, out] = [before, place].map(Argument::Address);
        let arguments = match self.epilogue {
            Epilogue::GeluTanhSlope { .. } => {
                vec![before, out, out, count(elements), adding(Store::Write)]
            }
            Epilogue::Plain
            | Epilogue::Bias(_)
            | Epilogue::BiasRelu(_)
            | Epilogue::BiasGelu { .. }
            | Epilogue::BiasGeluTanh { .. } => vec![before, out, count(elements)],
        };
        Launch { function, grid, block, shared, arguments }
    }

    fn function(&self) -> (String, Tile, Vec<Argument>) {
        use Number::{Bf16, F16, F32, F64};
        let (a, b, out) = (self.a.number, self.b.number, self.out.number);
        let tile = Tile::of(a, self.n);
        let symbol =
            || format!("{}_{}_{}", tile.function("product"), a.name(), out.name());
        match (a, b, out) {
            (Bf16, Bf16, Bf16 | F32)
            | (F16, F16, F16 | F32)
            | (F32, F32, F32)
            | (F64, F64, F64) => (symbol(), tile, Vec::new()),
            (Bf16 | F16 | F32 | F64, ..) => {
                let tags = [a, b, out].map(|number| Argument::Unsigned(number as u32));
                ("product_mixed".to_owned(), Tile::by_threads(), tags.to_vec())
            }
        }
    }

    fn arguments(&self) -> Vec<Argument> {
        let address = |matrix: Matrix| Argument::Address(matrix.place);
        let (tail, bias, before) = match self.epilogue {
            Epilogue::Plain => (0, NOWHERE, NOWHERE),
            Epilogue::Bias(bias) => (1, Argument::Address(bias), NOWHERE),
            Epilogue::BiasRelu(bias) => (2, Argument::Address(bias), NOWHERE),
            Epilogue::BiasGelu { bias, before } => {
                (3, Argument::Address(bias), Argument::Address(before))
            }
            Epilogue::BiasGeluTanh { bias, before } => {
                (4, Argument::Address(bias), Argument::Address(before))
            }
            Epilogue::GeluTanhSlope { before } => (5, NOWHERE, Argument::Address(before)),
        };
        let added = match self.addend {
            Addend::Nothing => NOWHERE,
            Addend::Out => address(self.out),
            Addend::Other(place) => Argument::Address(place),
        };
        let stored = |matrix: Matrix| {
            let turned = Argument::Unsigned(matrix.transposed.into());
            [turned, count(matrix.row), count(matrix.batch)]
        };
        let mut arguments = vec![
            address(self.a),
            address(self.b),
            address(self.out),
            bias,
            before,
            added,
        ];
        arguments.extend([self.m, self.n, self.k].map(count));
        arguments.extend(stored(self.a));
        arguments.extend(stored(self.b));
        arguments.extend([count(self.out.row), count(self.out.batch)]);
        arguments.extend([Argument::Single(self.scale), Argument::Unsigned(tail)]);
        arguments.push(Tile::stages_for(self.k));
        arguments
    }
}

/// A matrix that stands alone, stored with `columns` in a row.
fn dense(place: CallPlace, number: Number, columns: usize) -> Matrix {
    Matrix { place, number, transposed: false, row: columns, batch: 0 }
}

/// out (m, n) = a (m, k) · b (k, n), one product, as the call stores them, in these places.
pub(crate) fn between(
    map: &Matmul,
    narrow: Number,
    [a, b]: [CallPlace; 2],
    (out, number): (CallPlace, Number),
) -> Product {
    let Matmul { m, n, k, transpose_a, transpose_b, store } = *map;
    let (a_row, b_row) =
        (if transpose_a { m } else { k }, if transpose_b { k } else { n });
    Product {
        m,
        n,
        k,
        batches: 1,
        a: Matrix { transposed: transpose_a, ..dense(a, narrow, a_row) },
        b: Matrix { transposed: transpose_b, ..dense(b, narrow, b_row) },
        out: dense(out, number, n),
        scale: 1.0,
        addend: Addend::of(store),
        epilogue: Epilogue::Plain,
    }
}

/// The same of operands 0, 1 and `out`.
pub(super) fn product(
    draft: &Draft,
    map: &Matmul,
    (out, number): (usize, Number),
) -> Product {
    let factors = [0, 1].map(|operand| draft.place(operand));
    between(map, draft.types.narrow, factors, (draft.place(out), number))
}

impl Form for Matmul {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        draft.product(product(draft, self, (2, draft.types.either)));
        Ok(())
    }
}

/// A product into operand `out`, with what follows.
fn affine(
    draft: &mut Draft,
    map: &Matmul,
    out: usize,
    epilogue: Epilogue,
    addend: Addend,
) {
    let product = product(draft, map, (out, draft.types.narrow));
    draft.product(Product { epilogue, addend, ..product });
}

impl Form for Affine {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 4]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let bias = draft.place(2);
        affine(draft, &self.0, 3, Epilogue::Bias(bias), Addend::Nothing);
        Ok(())
    }
}

impl Form for AffineRelu {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 4]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let bias = draft.place(2);
        affine(draft, &self.0, 3, Epilogue::BiasRelu(bias), Addend::Nothing);
        Ok(())
    }
}

impl Form for AffineGelu {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 5]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (bias, before) = (draft.place(2), draft.place(3));
        affine(draft, &self.0, 4, Epilogue::BiasGelu { bias, before }, Addend::Nothing);
        Ok(())
    }
}

impl Form for AffineGeluTanh {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 5]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (bias, before) = (draft.place(2), draft.place(3));
        let epilogue = Epilogue::BiasGeluTanh { bias, before };
        affine(draft, &self.0, 4, epilogue, Addend::Nothing);
        Ok(())
    }
}

impl Form for MatmulGeluTanhBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 4]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let epilogue = Epilogue::GeluTanhSlope { before: draft.place(2) };
        affine(draft, &self.0, 3, epilogue, Addend::Nothing);
        Ok(())
    }
}

impl Form for AffineAdd {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 5]
    }
    /// The sum is rounded once.
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [bias, a] = [2, 3].map(|operand| draft.place(operand));
        affine(draft, &self.0, 4, Epilogue::Bias(bias), Addend::Other(a));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::Bytes;

    #[test]
    fn mixed_types_have_a_kernel_too() {
        let matrix =
            |index, number| dense(CallPlace::Operand(index, Bytes(0)), number, 3);
        let product = Product {
            m: 2,
            n: 3,
            k: 3,
            batches: 1,
            a: matrix(0, Number::F32),
            b: matrix(1, Number::Bf16),
            out: matrix(2, Number::F64),
            scale: 1.0,
            addend: Addend::Nothing,
            epilogue: Epilogue::Plain,
        };
        let launch = product.launch();
        assert_eq!(launch.function.symbol, "product_mixed");
        let tags = [Number::F32, Number::Bf16, Number::F64].map(|tag| tag as u32);
        let tags = tags.map(Argument::Unsigned);
        assert_eq!(launch.arguments[launch.arguments.len() - 3..], tags);
    }
}
