//! Routines of stages, run by the plain kernels, and what is declared, saved and counted of them.

mod columns;
mod cuts;
mod derivatives;
mod fusion;
mod hop;
mod layout;
mod local;
mod maps;
mod metrics;
#[allow(dead_code, reason = "other programs use the other models")]
#[path = "../../../tests/support/models.rs"]
mod models;
mod overdecomposed;
mod pixels;
mod recompute;
mod replaced;
mod rewrite_laws;
mod shared;
mod stored;
mod support;
mod tensor;
