//! Activations and their derivatives.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count},
    form::{Form, Role},
    source::ACTIVATION,
};
use crate::{
    activation::{
        Gelu, GeluBackward, GeluTanh, GeluTanhBackward, Relu, ReluBackward, Silu,
        SiluBackward,
    },
    tanh::{SoftCap, SoftCapBackward},
};

macro_rules! forward {
    ($($name:ident is $symbol:literal),*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                vec![Role::Narrow, Role::Either]
            }
            fn write(&self, draft: &mut Draft) -> Result<(), String> {
                let shape = Shape::each(self.count, draft.at_once());
                let [x, y] = draft.operands(0);
                draft.pair((ACTIVATION, $symbol), shape, vec![x, y, count(self.count)]);
                Ok(())
            }
        }
    )*};
}

macro_rules! backward {
    ($($name:ident is $symbol:literal),*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                vec![Role::Narrow, Role::Narrow, Role::Either]
            }
            fn write(&self, draft: &mut Draft) -> Result<(), String> {
                let shape = Shape::each(self.count, draft.at_once());
                let [kept, dy, dx] = draft.operands(0);
                let arguments = vec![kept, dy, dx, count(self.count), adding(self.store)];
                draft.pair((ACTIVATION, $symbol), shape, arguments);
                Ok(())
            }
        }
    )*};
}

forward!(Relu is "relu", Gelu is "gelu", GeluTanh is "gelu_tanh", Silu is "silu");
backward!(
    ReluBackward is "relu_backward",
    GeluBackward is "gelu_backward",
    GeluTanhBackward is "gelu_tanh_backward",
    SiluBackward is "silu_backward"
);

impl Form for SoftCap {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = Shape::each(self.count, draft.at_once());
        let [x, y] = draft.operands(0);
        let arguments = vec![x, y, count(self.count), Argument::Double(self.cap)];
        draft.pair((ACTIVATION, "soft_cap"), shape, arguments);
        Ok(())
    }
}

impl Form for SoftCapBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = Shape::each(self.count, draft.at_once());
        let [y, dy, dx] = draft.operands(0);
        let (elements, cap) = (count(self.count), Argument::Double(self.cap));
        let arguments = vec![y, dy, dx, elements, cap, adding(self.store)];
        draft.pair((ACTIVATION, "soft_cap_backward"), shape, arguments);
        Ok(())
    }
}
