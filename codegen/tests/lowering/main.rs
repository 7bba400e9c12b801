//! Compiled schedules: golden tables, and sizes that the rules promise.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod golden;
mod sizes;
mod support;
