//! The plain references: each formula written down once, one loop per sum, no cleverness.

pub(crate) mod activation;
pub(crate) mod affine;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod convolution;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod embedding;
pub(crate) mod group_norm;
pub(crate) mod linear_loss;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod metric;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod part;
pub(crate) mod part_norm;
pub(crate) mod pixel_norm;
pub(crate) mod pool;
pub(crate) mod rms_norm;
pub(crate) mod rotary;
pub(crate) mod rows;
pub(crate) mod stored;
pub(crate) mod tanh;
