//! Compiled schedules: golden tables, and sizes that the rules promise.

mod golden;
mod sizes;
mod support;
