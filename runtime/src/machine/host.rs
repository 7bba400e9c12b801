//! What memory the host has, and what of it can still be had.

use roundelay_schedule::Bytes;
use std::fs;

/// Memory of the host. A system that promises more memory than it has kills whoever uses what was
/// promised, so a run asks what there is before it takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// All of it, without swap.
    pub total: Bytes,
    /// What a process can have without taking it from others: free memory, caches that can be
    /// dropped, and free swap; nothing where the system does not say it.
    pub left: Option<Bytes>,
    /// Free swap.
    pub swap: Bytes,
}

impl HostMemory {
    /// Asks the system; nothing where there is no `/proc/meminfo`.
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let swap = kibibytes(text, "SwapFree:").unwrap_or_default();
        let left = kibibytes(text, "MemAvailable:").map(|available| available + swap);
        Some(Self { total: kibibytes(text, "MemTotal:")?, left, swap })
    }
}

/// A number of kibibytes behind a name at the start of a line, as the files of `/proc` have them.
pub(super) fn kibibytes(text: &str, name: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kibibytes) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_can_be_had_and_swap() {
        let text = "MemTotal:       16 kB\nMemFree:         2 kB\nMemAvailable:    9 kB\n\
                    SwapTotal:       8 kB\nSwapFree:        3 kB\n";
        let memory = HostMemory {
            total: Bytes(16 * 1024),
            left: Some(Bytes(12 * 1024)),
            swap: Bytes(3 * 1024),
        };
        assert_eq!(HostMemory::parse(text), Some(memory));
        let untold = HostMemory { left: None, swap: Bytes(0), ..memory };
        assert_eq!(HostMemory::parse("MemTotal:       16 kB\n"), Some(untold));
        assert_eq!(HostMemory::parse("MemTotal: many\nMemAvailable: 9 kB\n"), None);
    }
}
