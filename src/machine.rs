//! What this machine has: CPU devices as a cluster file, and GPUs.

use roundelay_runtime::{
    Compilation, Cuda, CudaError, DeviceFacts, HostMemory, KernelCheck, KernelRow,
    KernelTrials, NoCuda, Seat, SelfCheck,
};
use roundelay_schedule::Bytes;
use std::{fmt::Write, fs, thread, time::Duration};

/// The GPUs of this machine; a schedule runs with all of its devices on the first.
///
/// # Errors
/// What of CUDA is missing, and what to do.
pub fn gpus() -> Result<Vec<DeviceFacts>, NoCuda> {
    Cuda::devices()
}

/// Lets the GPUs of all ranks that a launcher started reduce and send known numbers, with rows up
/// to `largest`; what came of it is on rank 0.
///
/// # Errors
/// When something is missing or fails on any rank, or nothing moves for `deadline`.
pub fn self_check(
    largest: Bytes,
    deadline: Duration,
) -> Result<Option<SelfCheck>, CudaError> {
    let seat = Seat::of_environment()?;
    roundelay_runtime::self_check(&seat, largest, deadline)
}

/// Computes random calls of every kernel on the first GPU of this machine, and holds them to the
/// plain references; a listener gets every kernel's row when it is there.
///
/// # Errors
/// What is missing, or how the GPU fails; wrong numbers are in the rows.
pub fn check_kernels(
    trials: KernelTrials,
    listener: impl FnMut(&KernelRow),
) -> Result<KernelCheck, CudaError> {
    roundelay_runtime::check_kernels(0, trials, listener)
}

/// Compiles all kernels for the first GPU of this machine, on all cores, and keeps the machine code for
/// later runs.
///
/// # Errors
/// What is missing, or which source is not compiled.
pub fn compile_kernels() -> Result<Compilation, CudaError> {
    roundelay_runtime::compile_kernels(0)
}

/// The devices of this machine as a program file: one `core` per processor, sharing the memory.
///
/// Rates are nominal; `profile` is what measures. GPUs are named in comments.
pub fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory = HostMemory::read().map_or(2_000, |memory| memory.total.0 / 1_000_000);
    let mut text = String::new();
    let _ =
        writeln!(text, "# {}: {cores} processors, {memory} MB of memory", processor());
    match gpus() {
        Ok(gpus) => gpus.iter().for_each(|gpu| describe(gpu, &mut text)),
        Err(absent) => drop(writeln!(text, "# no GPU: {absent}")),
    }
    let _ = writeln!(text, "# rates of cores are nominal, not measured");
    let _ = writeln!(
        text,
        "device core {{ memory {} MB, compute 40 GFLOP/s, bandwidth 10 GB/s }}",
        memory / cores as u64
    );
    let _ = writeln!(text, "link   bus  {{ bandwidth 8 GB/s, latency 2 us }}");
    let sharing = format!("joined by bus sharing {memory} MB");
    let _ = writeln!(text, "cluster machine {{ {cores} x core {sharing} }}");
    text
}

fn describe(gpu: &DeviceFacts, text: &mut String) {
    let DeviceFacts {
        memory,
        multiprocessors,
        driver,
        compiler,
        products,
        convolutions,
        ..
    } = gpu;
    let dotted = |(major, minor): &(u32, u32)| format!("{major}.{minor}");
    let products = match products {
        None => "own matrix products, because there is no cuBLASLt".to_owned(),
        Some(version) => format!("cuBLASLt {version}"),
    };
    let convolutions = match convolutions {
        None => "own convolutions, because there is no cuDNN 8.9 or newer".to_owned(),
        Some(version) => format!("cuDNN {version}"),
    };
    let _ = writeln!(
        text,
        "# {gpu}: {memory} of memory, {multiprocessors} multiprocessors; driver for CUDA {}, \
         NVRTC {}, {products}, {convolutions}",
        dotted(driver),
        dotted(compiler),
    );
}

/// Name of this machine's processor.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split(':').nth(1));
    name.map_or_else(|| "unknown processor".to_owned(), |name| name.trim().to_owned())
}
