//! The gradients of an affine map's weight and of its bias: a product, and sums of what it reads.
//!
//! Both are made of the gradient of the map's result, which a library that does them as one reads once.
//! It writes sums over what is there, in the type of the product's result. So where they are to be
//! added, they go to scratch memory first. Then they are rounded before they are added, as our functions
//! do it.

use super::{
    Array, Gradients, Sums,
    draft::Draft,
    elementwise::moved,
    form::{Form, Role},
    product::product,
};
use crate::{affine::AffineGradients, store::Store};

impl AffineGradients {
    /// The sums as a library may make them.
    fn sums(&self, draft: &mut Draft, bias: Array) -> Sums {
        let Array { place, number } = bias;
        match self.sums.store {
            Store::Write => Sums { place, added: None },
            Store::Add => {
                let columns = self.sums.columns;
                let part = draft.scratch(columns.saturating_mul(number.size()));
                let added = draft.aside(|draft| {
                    let count = (columns, Store::Add);
                    moved(draft, [part, place], [number; 2], count);
                });
                Sums { place: part, added: added.into_iter().next() }
            }
        }
    }
}

impl Form for AffineGradients {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let number = draft.types.either;
        let product = product(draft, &self.product, (2, number));
        let bias = Array { place: draft.place(3), number };
        let sums = self.sums(draft, bias);
        let places = [draft.operand(0), draft.operand(3)];
        let own = draft.aside(|draft| self.sums.written(draft, places));
        draft.gradients(Gradients { product, bias, sums, own });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Kernel,
        cuda::{Argument, CallPlace, Step, Steps},
    };
    use roundelay_schedule::{
        Attribute, Bytes, Call, Element, Float, GradientSums, Operand,
    };

    /// The sums that a library may make of 6 rows of 4 numbers.
    fn sums(dtype: Float, accumulate: bool) -> Sums {
        let operand = |shape: &[u64], element| Operand {
            argument: 0,
            offset: Bytes(0),
            element,
            shape: shape.into(),
        };
        let sum = match dtype {
            Float::Bf16(GradientSums::F32) => Element::Wide,
            _ => Element::Real,
        };
        let call = Call {
            kernel: "affine_gradients".into(),
            attributes: [("accumulate".into(), Attribute::Flag(accumulate))]
                .into_iter()
                .collect(),
            operands: vec![
                operand(&[6, 4], Element::Real),
                operand(&[6, 5], Element::Real),
                operand(&[4, 5], sum),
                operand(&[4], sum),
            ],
        };
        let kernel = Kernel::parse(&call).expect("the call is well formed");
        let Steps { steps, .. } = kernel.cuda(dtype).expect("it has a form");
        let [Step::Gradients(gradients)] = &steps[..] else {
            panic!("it is one step: {steps:?}")
        };
        gradients.sums.clone()
    }

    /// A library writes over what is there, so what is added goes elsewhere first.
    #[test]
    fn sums_of_a_library_are_added_behind_it() {
        let bias = CallPlace::Operand(3, Bytes(0));
        let narrow = (Float::Bf16(GradientSums::Same), "scale_bf16_bf16");
        let wide = (Float::Bf16(GradientSums::F32), "scale_f32_f32");
        for (dtype, symbol) in [narrow, wide, (Float::F32, "scale_f32_f32")] {
            let written = sums(dtype, false);
            assert_eq!(written, Sums { place: bias, added: None });
            let sums = sums(dtype, true);
            assert!(matches!(sums.place, CallPlace::Scratch(_)));
            let added = sums.added.expect("they are added");
            assert_eq!(added.function.symbol, symbol);
            let places = [sums.place, bias].map(Argument::Address);
            assert_eq!(added.arguments[..2], places);
            assert_eq!(added.arguments.last(), Some(&Argument::Unsigned(1)));
        }
    }
}
