//! The fast bodies: vectorised loops and packed products, file by file beside the plain ones.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod optimizer;
