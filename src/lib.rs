//! Roundelay: a compiler for parallel training.
//!
//! Describe a model and a cluster in a small language; the planner searches synchronous and
//! cyclic ways to train the one on the other, says why, and the answer becomes a schedule that is
//! proven safe and replayed on devices.
//!
//! ```
//! use roundelay::{SearchOptions, SourceFile};
//!
//! let source = SourceFile::new("line.rdl", r#"
//!     model line {
//!         input x: real[batch, 4]
//!         input y: real[batch, 1]
//!         loss mse(linear(x, 1), y)
//!     }
//!     train { data synthetic, batch 8, optimizer sgd(lr = 0.1), steps 3 }
//! "#);
//! let program = roundelay::parse(&source)?;
//! let ranking = roundelay::plan(&program, &SearchOptions::default())?;
//! let schedule = roundelay::compile(&program, ranking.best())?;
//! let mut losses = Vec::new();
//! roundelay::run(&schedule, &roundelay::RunOptions::default(), |event| {
//!     if let roundelay::RunEvent::Step { loss, .. } = event {
//!         losses.push(loss);
//!     }
//! })?;
//! assert!(losses.len() == 3 && losses[2] < losses[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate must not know: any algorithm; it joins the phases.

mod compile;
mod data;
mod import;
mod machine;
mod profile;
mod run;
mod schedule_file;

pub use compile::{CompileError, compile};
pub use data::{Examples, ExamplesError, ExamplesFile, write_examples};
pub use import::{ImportCluster, ImportDtype, ImportOptions, Imported, families, import};
pub use machine::{check_kernels, compile_kernels, gpus, machine, self_check};
pub use profile::{Measuring, ProfileError, ProfileEvent, ProfileOptions, profile};
pub use run::{
    Assessment, DataFrom, EvaluateOptions, Folder, Given, Learned, On, OpenData, Outcome,
    RunError, RunEvent, RunOptions, Start, TokenFacts, evaluate, run,
};
pub use schedule_file::{
    ReadError, Unnameable, WriteError, read_as, read_file, write_file,
};

pub use roundelay_dsl::{
    Diagnostic, Diagnostics, Disk, Extent, Mistake, Model, ModelBuilder, Program, Search,
    SourceFile, TensorValue, Train, Value, fingerprint, format,
};
pub use roundelay_kernels::Kernels;
pub use roundelay_planner::{
    Candidate, Compare, Explanation, Options as SearchOptions, PlanMistakes, Ranking,
    Refusal, Repair, explain, plan, read_plan, table, write_plan,
};
pub use roundelay_runtime::{
    Came, Compilation, Coverage, CudaError, DeviceFacts, Every, Graphs, HeldOut,
    ImageFacts, Interrupt, KernelCheck, KernelRow, KernelTrials, LaunchError, Measures,
    Met, NoCuda, OptimizerState, OutputError, OutputFile, Report, Resumed, Seat,
    SelfCheck, Settling, State, Touched, Translation, TranslationError, TriedKernel,
    TriedProducts, Twin, TwinLayout, TwinParameter, Untried, Weights, WeightsError,
    WeightsFiles, WeightsMistake, WeightsNames,
};
pub use roundelay_schedule::{
    Bytes, Catalogue, Checked, DeviceId, Element, FileErrors, Initial, Kind, Lines,
    Nanos, Plan, Profile, Schedule, Simulation, Target, Trace, Violation, Violations,
    check, grid, page, read, read_profile, seal, simulate, simulate_steady, trace, write,
    write_profile,
};

#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Documented;

/// The crates behind the façade.
pub mod parts {
    pub use roundelay_codegen as codegen;
    pub use roundelay_dsl as dsl;
    pub use roundelay_kernels as kernels;
    pub use roundelay_planner as planner;
    pub use roundelay_runtime as runtime;
    pub use roundelay_schedule as schedule;
}

/// Parses and resolves a program, with imports from the file system; warnings are dropped.
///
/// # Errors
/// Every mistake of the program.
pub fn parse(source: &SourceFile) -> Result<Program, Diagnostics> {
    roundelay_dsl::parse(source, &Disk).map(|(program, _)| program)
}
