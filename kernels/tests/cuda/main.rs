//! Kernels for CUDA devices, run by the emulation of `kernels/cuda/host`, against plain references
//! and against what the CPU makes bit for bit.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod emulation;
mod in_place;
mod packed;
mod pixels;
mod products;
mod rectified;
mod rectifiers;
mod sanitizers;
mod sixteen_bits;
mod small;
mod summed;
mod vision;
