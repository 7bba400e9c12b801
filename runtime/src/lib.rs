//! Runs checked schedules: machines, the oracle, data, checkpoints, the training loop.
//!
//! This crate must not know: the language, how a schedule was found or lowered.

mod code;
mod cpu;
mod evaluate;
mod feed;
mod memory;
mod oracle;
mod plain;
mod state;

pub use code::CodeError;
pub use cpu::{Cpu, CpuError, CpuOptions, Fill, Loss, Measured, Timing, Touched};
pub use evaluate::Evaluator;
pub use feed::Feed;
pub use oracle::{Oracle, OracleError};
pub use state::{State, StateError, Tensor};
