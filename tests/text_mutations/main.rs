//! Damaged texts of programs and of schedule files: whatever the text, it ends with what it
//! says or with mistakes that have a place, soon, and within bounded memory.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod damage;
mod memory;
mod programs;
#[allow(dead_code, reason = "other tests want other numbers")]
#[path = "../support/random.rs"]
mod random;
#[path = "../../schedule/tests/contract/said.rs"]
mod said;
#[allow(dead_code, reason = "other tests want other parts of it")]
#[path = "../../schedule/tests/contract/sample/mod.rs"]
mod sample;
mod schedules;
