//! Runs checked schedules: machines, the oracle, data, checkpoints, the training loop.
//!
//! This crate must not know: the language, how a schedule was found or lowered.

mod feed;
mod state;

pub use feed::Feed;
pub use state::{State, StateError, Tensor};
