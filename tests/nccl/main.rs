//! Several processes without a GPU: ranks that speak through a stand-in for NCCL over local sockets
//! (`tests/standins/cuda`), or train on CPUs, started with the variables of launchers.

#[path = "../cuda/bench.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod bench;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod support;

mod agreeing;
mod attending;
mod connecting;
mod convolving;
mod faults;
mod on_cpus;
mod pixels;
#[path = "../support/ports.rs"]
mod ports;
mod self_check;
mod start;
mod training;
mod world;
