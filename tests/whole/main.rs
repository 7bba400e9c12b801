//! Whole schedules against the plain recursion, closed forms and the memory of the machine.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod averages;
mod checkpoints;
mod classifier;
mod clipped;
mod columns;
mod depth;
mod dimensions;
mod halves;
mod images;
mod masked;
mod memory;
mod metrics;
#[path = "../support/models.rs"]
mod models;
mod networks;
mod oracle;
mod overdecomposed;
mod pixels;
#[path = "../support/plans.rs"]
mod plans;
#[path = "../support/ports.rs"]
mod ports;
mod ranks;
mod rectified;
mod replicas;
mod rows;
mod slices;
mod support;
mod tied;
mod traffic;
mod updates;
mod volume;
mod weights;
