//! The contract between compiler and runtime: which schedules the checker accepts and refuses, and
//! what files say of them.

mod check_accepts;
mod check_calls;
mod check_evaluated;
mod check_halves;
mod check_header;
mod check_in_place;
mod check_lookups;
mod check_mutants;
mod check_refuses;
mod check_rows;
mod check_words;
mod file_mistakes;
mod file_mutations;
mod file_round_trip;
mod plan_faults;
#[allow(dead_code, reason = "other crates want other numbers")]
#[path = "../../../tests/support/random.rs"]
mod random;
mod sample;
mod tiny;
