//! Compiled schedules: golden tables, and sizes that the rules promise.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod closing;
mod common;
mod gathers;
mod golden;
mod hop;
mod local;
mod lowerer;
#[allow(dead_code, reason = "other programs use the other models")]
#[path = "../../../tests/support/models.rs"]
mod models;
mod orders;
mod pairs;
#[path = "../../../tests/support/plans.rs"]
mod plans;
mod sizes;
mod slices;
mod support;
