//! Kernels that are no steps of one device.

use super::{
    draft::Draft,
    form::{Form, Role},
};
use crate::exchange::{AllGather, AllReduce, ReduceScatter};

macro_rules! refused {
    ($($name:ty)*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                vec![Role::Narrow; 2]
            }
            fn write(&self, _: &mut Draft) -> Result<(), String> {
                Err("an exchange among several devices is made by the machine, which adds \
                     parts up with `cuda::sum`"
                    .to_owned())
            }
        }
    )*};
}

refused!(AllReduce AllGather ReduceScatter);
