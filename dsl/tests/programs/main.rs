//! Programs as text and from Rust: what they mean, what is said about mistakes, and what changes them.

mod builder;
#[path = "../../../tests/support/damage.rs"]
mod damage;
mod devices;
mod fingerprint;
mod fixtures;
mod imports;
mod language;
mod local;
mod metrics;
mod mutations;
mod norms;
#[allow(dead_code, reason = "other crates want other numbers")]
#[path = "../../../tests/support/random.rs"]
mod random;
mod set_trainings;
mod settings;
mod slips;
mod transformers;
