//! Kernels that are no steps of one device.

use super::{
    draft::Draft,
    form::{Form, Role},
};
use crate::exchange::{AllGather, AllReduce, ReduceScatter};

/// Whose turn it is to make an exchange.
const BY_MACHINE: &str = "an exchange among several devices is made by the machine, which adds \
                          parts up with `cuda::sum`";

macro_rules! refused {
    ($($name:ty),*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                vec![Role::Narrow, Role::Narrow]
            }
            fn write(&self, _: &mut Draft) -> Result<(), String> {
                Err(BY_MACHINE.to_owned())
            }
        }
    )*};
}

refused!(AllReduce, AllGather, ReduceScatter);
