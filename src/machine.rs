//! What this machine has, as a cluster file.

use std::{fmt::Write, fs, thread};

/// The devices of this machine as a program file: one `core` per processor, sharing the memory.
///
/// Rates are nominal; `profile` is what measures. CUDA devices are not looked for.
pub fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory = memory_megabytes().unwrap_or(2_000);
    let mut text = String::new();
    let _ =
        writeln!(text, "# {}: {cores} processors, {memory} MB of memory", processor());
    let _ = writeln!(
        text,
        "# rates are nominal, not measured; this build runs on CPU devices only"
    );
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

fn memory_megabytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024 / 1_000_000)
}

/// Name of this machine's processor.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split(':').nth(1));
    name.map_or_else(|| "unknown processor".to_owned(), |name| name.trim().to_owned())
}
