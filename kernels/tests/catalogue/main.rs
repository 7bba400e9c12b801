//! Kernels of the catalogue on the CPU: fast ones against plain ones, plain ones against definitions
//! and derivatives, and calls that are refused.

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod determinism;
mod exchanges;
mod fast_matches_plain;
mod fusion;
mod gradients;
mod halos;
mod linear_losses;
mod long_sums;
mod malformed;
mod metrics;
mod norms;
mod optimizers;
mod packed;
mod part_norms;
mod parted;
mod pixel_norms;
mod rotary;
mod slices;
