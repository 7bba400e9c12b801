//! What the tests of stages share: a builder of small models, and a machine with plain memory
//! that runs routines by the plain kernels.

pub(crate) mod blocks;
pub(crate) mod build;
pub(crate) mod lockstep;
pub(crate) mod machine;
pub(crate) mod random;
pub(crate) mod residual;
pub(crate) mod split;
pub(crate) mod units;
