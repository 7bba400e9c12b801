//! Replays on the CPU against the plain recursion, and what is counted, kept and told of them.

mod failures;
mod interrupts;
mod local;
mod measured;
mod resume;
mod rows;
#[allow(dead_code, reason = "crates and programs share it, and each uses its part")]
#[path = "../support/mod.rs"]
mod support;
mod train;
