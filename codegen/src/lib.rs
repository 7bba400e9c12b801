//! Lowers a program and a plan to a schedule: derivatives, what is kept for backward, routines.
//!
//! This crate must not know: the planner, which plan is better.

mod fit;
mod lower;
mod mean;
mod rewrite;
mod slices;
mod stage;
mod tensor;

#[doc(hidden)]
pub use lower::lower_halved;
pub use lower::{LowerError, Lowerer, device_lists, lower, lower_with, whole_job};
#[doc(hidden)]
pub use rewrite::Everywhere;
pub use rewrite::{ArrayUse, CallPattern, FORMS, LoweringChoice, Neighbour, RewriteForm};
pub use stage::{
    BackwardCode, BackwardForm, CrossingValue, Cut, Differentiated, Needs, NodeCost,
    Normed, PassCost, Piece, Portion, Samples, StageCode, StageError, StageForm, Stages,
    Storage, UpdateForm, combine, needs, node_costs, norm, stages, stages_in, update,
};
pub use tensor::{Divided, Lie, Undivided, divides_classes, undivided};
