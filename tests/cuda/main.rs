//! The CUDA machine without a GPU: whole trainings against stand-ins for the driver, NVRTC, cuBLASLt
//! and cuDNN (`tests/standins/cuda`), held to the CPU machine.
//!
//! Kernels are compiled by the system's C++ compiler. Where there is none, the tests that need it
//! say so and are left out, unless `ROUNDELAY_REQUIRE_CXX` is set.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod support;

mod absent;
mod ahead;
mod attended;
mod attending;
mod bench;
mod biases;
mod cache;
mod convolving;
mod faults;
mod gelus;
mod looking;
mod measuring;
mod pixels;
mod precision;
mod profiling;
mod rectifying;
mod rules;
mod several;
mod timing;
mod tuning;
