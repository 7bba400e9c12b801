//! The command line: parse arguments, call the library, print, exit with the right code.

mod cli;

use signal_hook::{consts::SIGXFSZ, flag};
use std::{env, process::ExitCode, sync::Arc};

/// How many queues CUDA keeps on a GPU, which it reads when it is started: with its usual eight, streams
/// share queues, and one that waits holds up others.
const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

fn main() -> ExitCode {
    ask_for_queues();
    take_limits_for_errors();
    cli::main()
}

/// What would make a file larger than a process may write fails with a reason then, instead of ending the
/// process without a word. Where that cannot be asked for, all stays as the system has it.
fn take_limits_for_errors() {
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Asks for as many queues as there are, unless the user says how many.
#[expect(unsafe_code, reason = "CUDA takes this from the environment alone")]
fn ask_for_queues() {
    let (name, most) = QUEUES;
    if env::var_os(name).is_none() {
        // SAFETY: this is the first that the only thread does.
        unsafe { env::set_var(name, most) }
    }
}
