//! Kernels that are no steps of one device.

use super::{
    draft::Draft,
    form::{Form, Role},
};
use crate::{
    exchange::{AddHalo, AllGather, AllReduce, FetchHalo, ReduceScatter},
    pixel_norm::{
        Outside, PixelNorm, PixelNormBackward, PixelNormMoments, PixelNormParameters,
        PixelNormSlopes, PixelNormStatistics,
    },
};

/// Whose turn it is to make an exchange.
const BY_MACHINE: &str = "an exchange among several devices is made by the machine, which adds \
                          parts up with `cuda::sum`";
/// What only the CPU does so far.
const ON_THE_CPU: &str = "images whose pixels devices divide have no form on CUDA devices: set \
                          `images whole`";

macro_rules! refused {
    ($($name:ty: $operands:expr, $why:expr;)*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                let operands: fn(&Self) -> usize = $operands;
                vec![Role::Narrow; operands(self)]
            }
            fn write(&self, _: &mut Draft) -> Result<(), String> {
                Err($why.to_owned())
            }
        }
    )*};
}

refused! {
    AllReduce: |_| 2, BY_MACHINE;
    AllGather: |_| 2, BY_MACHINE;
    ReduceScatter: |_| 2, BY_MACHINE;
    FetchHalo: |_| 2, ON_THE_CPU;
    AddHalo: |_| 2, ON_THE_CPU;
    PixelNormMoments: |_| 2, ON_THE_CPU;
    PixelNormStatistics: |own| match own.outside {
        Outside::Own => 3,
        Outside::Running => 5,
    }, ON_THE_CPU;
    PixelNorm: |_| 6, ON_THE_CPU;
    PixelNormSlopes: |_| 6, ON_THE_CPU;
    PixelNormBackward: |_| 7, ON_THE_CPU;
    PixelNormParameters: |_| 6, ON_THE_CPU;
}
