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
mod file_round_trip;
mod file_texts;
mod plan_faults;
mod said;
mod sample;
mod tiny;
