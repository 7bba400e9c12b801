//! Whether the host has the memory that a schedule's arenas take, asked before any is touched:
//! a system may promise what it does not have, and end the process that uses it.

use super::CpuError;
use crate::machine::{HostMemory, arena_sizes};
use roundelay_schedule::{Bytes, DeviceId, Schedule};
use std::fmt;

/// What the devices of a schedule take of the host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The device that is told: of the largest arena, or of the one that was refused.
    pub device: String,
    /// Its arena.
    pub arena: Bytes,
    /// All arenas together.
    pub arenas: Bytes,
    /// How many there are.
    pub devices: usize,
    /// Whatever else there will be at one time with them.
    pub beside: Bytes,
}

impl Demand {
    /// What a schedule takes; the largest arena is told.
    fn of(schedule: &Schedule, beside: Bytes) -> Self {
        let sizes = arena_sizes(schedule);
        let largest = sizes.iter().max_by_key(|(device, size)| (**size, **device));
        let (device, arena) = match largest {
            Some((device, arena)) => (name(schedule, *device), *arena),
            None => (String::new(), Bytes(0)),
        };
        let arenas = sizes.values().copied().sum();
        Self { device, arena, arenas, devices: sizes.len(), beside }
    }

    /// What a schedule takes; a device's arena was refused.
    pub(super) fn refused(schedule: &Schedule, device: DeviceId, arena: Bytes) -> Self {
        Self { device: name(schedule, device), arena, ..Self::of(schedule, Bytes(0)) }
    }
}

fn name(schedule: &Schedule, device: DeviceId) -> String {
    schedule.target.devices[device].name.clone()
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, arena, arenas, devices, beside } = self;
        write!(f, "the arena of `{device}` takes {arena}")?;
        if *devices > 1 {
            write!(f, ", those of all {devices} devices together {arenas}")?;
        }
        match beside {
            Bytes(0) => Ok(()),
            beside => {
                write!(f, ", and the parameters that they start from {beside} more")
            }
        }
    }
}

/// The training state that arenas are filled from, in bytes.
fn state(schedule: &Schedule) -> Bytes {
    let job = &schedule.job;
    let each = job.dtype.size() + job.optimizer_width();
    job.parameters.iter().map(|parameter| Bytes(parameter.whole_elements()) * each).sum()
}

/// Looks whether a host with so much memory left has what is wanted.
fn fits(wanted: Demand, left: Bytes) -> Result<(), CpuError> {
    match wanted.arenas + wanted.beside <= left {
        true => Ok(()),
        false => Err(CpuError::Memory { wanted, left }),
    }
}

/// Looks whether this machine can hold all arenas of a schedule.
///
/// # Errors
/// When it says that it has too little memory.
pub(super) fn for_arenas(schedule: &Schedule) -> Result<(), CpuError> {
    look(Demand::of(schedule, Bytes(0)))
}

/// Looks whether this machine can hold all arenas of a schedule and the state that they start from.
///
/// # Errors
/// When it says that it has too little memory.
pub(super) fn for_all(schedule: &Schedule) -> Result<(), CpuError> {
    look(Demand::of(schedule, state(schedule)))
}

fn look(wanted: Demand) -> Result<(), CpuError> {
    let left = HostMemory::read().and_then(|memory| memory.left);
    left.map_or(Ok(()), |left| fits(wanted, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_holds_what_is_not_more_than_it_has_left() {
        let wanted = Demand {
            device: "core.1".to_owned(),
            arena: Bytes(3_000),
            arenas: Bytes(5_000),
            devices: 2,
            beside: Bytes(1_000),
        };
        assert_eq!(fits(wanted.clone(), Bytes(6_000)), Ok(()));
        let said = fits(wanted, Bytes(5_999)).unwrap_err().to_string();
        let expected = "this machine has 6.00 kB of memory left, but the arena of `core.1` takes \
                        3.00 kB, those of all 2 devices together 5.00 kB, and the parameters \
                        that they start from 1.00 kB more; plan with less `memory` for each device \
                        or on fewer devices, or close what else runs here";
        assert_eq!(said, expected);
    }
}
