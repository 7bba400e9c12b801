//! Writes every CUDA source, with all that it includes, to a folder: what NVRTC compiles on a device,
//! for tools that look at the machine code.
//!
//! ```text
//! cargo run -p roundelay-kernels --example cuda_sources -- FOLDER
//! ```

use roundelay_kernels::cuda::SOURCES;
use std::{env, fs, io, path::Path, process::ExitCode};

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    SOURCES.iter().try_for_each(|source| fs::write(folder.join(source.name), source.text))
}

#[allow(clippy::print_stderr, reason = "a command says what is wrong")]
fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("takes a folder");
        return ExitCode::from(2);
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write to {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}
