//! Makes routines ready for one GPU: compiles their functions, plans what libraries make, and chooses among
//! ways that may differ in bits, by trials that are kept on disk.

mod attender;
mod attentions;
mod cache;
mod choices;
mod code;
mod compile;
mod convolutions;
mod convolver;
mod cudnn;
mod drawn;
mod functions;
mod library_steps;
mod multiplier;
mod precompile;
mod products;
mod tools;
mod tuning;

pub(super) use cache::{KEEP, unkept};
pub(super) use code::{Binding, Code, Ready, ReadyCall, Step, Work, number_of};
pub use library_steps::LibrarySteps;
pub use precompile::{Came, Compilation, compile_kernels};
pub(super) use tuning::Trials;
