//! Programs as text and from Rust: what they mean, what is said about mistakes, and what changes them.

mod builder;
mod devices;
mod fingerprint;
mod fixtures;
mod imports;
mod language;
mod local;
mod long_texts;
mod metrics;
mod norms;
mod set_trainings;
mod settings;
mod slips;
mod together;
mod transformers;
