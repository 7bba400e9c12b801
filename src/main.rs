//! The command line: parse arguments, call the library, print, exit with the right code.

mod cli;

use clap::Parser;
use mimalloc::MiMalloc;
use std::process::ExitCode;

/// Planning asks for many small pieces of memory on several threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::main(cli::Cli::parse())
}
