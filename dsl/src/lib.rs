//! The language: text to a resolved [`Program`].
//!
//! This crate must not know: cost, order of execution, memory, kernels.

mod program;

pub use program::{
    Choice, Extent, Model, ModelInput, ModelInputId, ModelParameter, Node, NodeId,
    Numbers, Objective, Operation, ParameterId, Program, Search, Source, Train,
};
