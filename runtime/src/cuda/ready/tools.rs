//! What ways of making something are made ready and tried with.

use super::{
    super::driver::Device,
    cudnn::Cudnn,
    functions::Functions,
    tuning::{Trials, Tuner},
};

/// Functions of ours, the library of graphs, and who compares them; for one GPU.
pub(super) struct Tools {
    pub(super) functions: Functions,
    pub(super) cudnn: Cudnn,
    pub(super) tuner: Tuner,
}

impl Tools {
    /// For rows that start at multiples of `alignment`; without it nobody wants the library.
    pub(super) fn new(device: &Device, alignment: Option<u64>, trials: Trials) -> Self {
        Self {
            functions: Functions::new(device.facts()),
            cudnn: Cudnn::new(device, alignment),
            tuner: Tuner::new(device.facts(), trials),
        }
    }
}
