//! Lowers a program and a plan to a schedule: derivatives, what is kept for backward, routines.
//!
//! This crate must not know: the planner, hardware, which plan is better.

mod lower;
mod stage;

pub use lower::{LowerError, lower};
pub use stage::{
    CrossingValue, Differentiated, NodeCost, PassCost, StageCode, StageError, Stages,
    UpdateForm, node_costs, stages, update,
};
