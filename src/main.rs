//! The command line: parse arguments, call the library, print, exit with the right code.

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(cli::Cli::parse())
}
