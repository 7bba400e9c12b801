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

macro_rules! later {
    ($($name:ty),*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                Vec::new()
            }
            fn write(&self, _: &mut Draft) -> Result<(), String> {
                Err("has no form for CUDA devices yet".to_owned())
            }
        }
    )*};
}
use crate::{
    batch_norm::{BatchNorm, BatchNormBackward},
    convolution::{Conv2d, Conv2dBackward, Conv2dWeights},
    group_norm::{GroupNorm, GroupNormBackward},
    pool::{
        AvgPool, AvgPoolBackward, GlobalPool, GlobalPoolBackward, MaxPool,
        MaxPoolBackward,
    },
    rotary::Rotary,
    stored::{Mix, MixBackward, Scores},
};
later!(
    BatchNorm,
    BatchNormBackward,
    GroupNorm,
    GroupNormBackward,
    Scores,
    Mix,
    MixBackward,
    Rotary,
    Conv2d,
    Conv2dBackward,
    Conv2dWeights,
    MaxPool,
    MaxPoolBackward,
    AvgPool,
    AvgPoolBackward,
    GlobalPool,
    GlobalPoolBackward
);
