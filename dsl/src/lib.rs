//! The language: text to a resolved [`Program`].
//!
//! [`parse`] reads a file and what it imports; [`format()`] writes it in its canonical form;
//! [`ModelBuilder`] makes a model from Rust with the same operators.
//!
//! This crate must not know: cost, what a list of passes makes of memory and messages, kernels.

mod attending;
mod builder;
mod diagnostic;
mod display;
mod encoding;
mod fingerprint;
mod finish;
mod format;
mod graph;
mod held;
mod import;
pub mod limit;
mod lists;
mod local;
mod near;
mod operators;
mod parse;
mod part;
mod pattern;
mod plan_lines;
mod program;
mod quantity;
mod reach;
mod report;
mod resolve;
mod signature;
mod sliced;
mod source;
mod syntax;
mod terms;
mod token;
mod value;

pub use attending::{
    Cap, Heads, Projections, Scale, Sight, Still, Stretch, Turning, Window,
};
pub use builder::ModelBuilder;
pub use diagnostic::{Code, Diagnostic, Diagnostics, Mistake, Severity, SourcePlace};
pub use encoding::{NotUtf8, utf8};
pub use fingerprint::fingerprint;
pub use format::format;
pub use import::{Disk, Files, NoFiles};
pub use lists::{ListMistake, Lists, begins_lists, read_lists, write_lists};
pub use local::{Head, localised};
pub use operators::{METRICS, OPERATORS, Operator};
pub use part::{Chunks, Masked, Motion, Padding, Part, PartShare};
pub use pattern::Pattern;
pub use plan_lines::{PlanLine, PlanLines};
pub use program::{
    Choice, Extent, Learning, Model, ModelInput, ModelInputId, ModelMetric,
    ModelParameter, NanoDollarsPerHour, Node, NodeId, Numbers, Objective, Operation,
    ParameterId, PinnedStages, Program, Search, Source, Train,
};
pub use quantity::{Dimension, Quantity};
pub use resolve::{Refused, SECTIONS, Tables, kind_of, parse, parse_set, parse_with};
pub use signature::{Fallback, Formal};
pub use sliced::Sliced;
pub use source::{SourceFile, Span};
pub use terms::WrongLoss;
pub use token::begins_program;
pub use value::{Measure, TensorValue, Value};
