//! Runs checked schedules: machines, the oracle, data, checkpoints, weights, the training loop.
//!
//! This crate must not know: the language, how a schedule was found or lowered.

#[cfg(not(unix))]
compile_error!("Roundelay runs on Unix alone: it needs its files, links and signals");

mod any_machine;
mod awake;
mod blocks;
mod checkpoint;
mod code;
mod container;
mod cpu;
mod cuda;
mod data;
mod digest;
mod evaluate;
mod exchange;
mod feed;
mod helpers;
mod initial;
mod interrupt;
mod listed;
mod lock;
mod machine;
mod memory;
mod native;
mod oracle;
mod output;
mod plain;
mod profile;
mod ranks;
mod regular;
#[cfg(test)]
mod scratch;
mod shares;
mod shown;
mod state;
mod train;
mod weights;

pub use any_machine::{AnyMachine, MachineError, SaveError};
pub use checkpoint::{
    Checkpoint, CheckpointError, Checkpoints, Latest, OptimizerState, Provenance,
    Resumed, Resumption, Saved,
};
pub use code::CodeError;
pub use cpu::{ArenaDemand, Cpu, CpuError, CpuOptions, Demand, Kept, Recording, Timing};
pub use cuda::{
    Came, Compilation, Cuda, CudaError, CudaOptions, DeviceFacts, DriverError, Exercise,
    Graphs, KernelCheck, KernelRow, KernelTrials, LibrarySteps, NoCuda, RankFacts,
    SelfCheck, SelfCheckRow, Times, TriedKernel, TriedProducts, Ungraphed, Untried,
    check_kernels, compile_kernels, gpu_copies, self_check,
};
pub use data::{
    Coverage, DataError, Dataset, HeldOut, ImageFacts, Written, data_files,
    refuse_among_data, unless_lost,
};
pub use evaluate::{EvaluateError, Evaluated, Evaluator, Measures, OnGpu};
pub use feed::Feed;
pub use interrupt::{Interrupt, Met};
pub use machine::{
    AttentionCounts, Fill, HostMemory, Loss, Makers, Measured, MemoryBound, OnGpus, Ran,
    Record, Touched, Unready,
};
pub use native::{NotNative, check_native};
pub use oracle::{Oracle, OracleError};
pub use output::{OutputError, OutputFile};
pub use profile::{Collection, Sample, Settling, copies, sample};
pub use ranks::{
    Control, Ended, LaunchError, MeetingError, Position, Seat, Seen, Trouble, WorldSize,
};
pub use state::{ArrayNumbers, ArraySource, ParameterState, State, StateError};
pub use train::{
    Checkpointing, Evaluating, Every, Progress, Report, Rests, TrainError, TrainObserver,
    Trainer,
};
pub use weights::{
    NotFinite, Translation, TranslationError, Twin, TwinLayout, TwinParameter, Weights,
    WeightsError, WeightsFiles, WeightsMistake, WeightsNames,
};
