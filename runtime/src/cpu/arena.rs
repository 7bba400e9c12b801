//! The memory of every device, at the offsets that the schedule fixed.

use super::{
    CpuError,
    room::{self, Asker, Demand},
};
use crate::{
    machine::{POISON, Touched, arena_sizes, scan, touched},
    memory::{Claim, Memory},
};
use roundelay_schedule::{Bytes, DeviceId, Id, Kind, Schedule};
use std::{collections::BTreeMap, convert::Infallible, ops::Range};

/// One arena per device of the target that is in use.
pub(super) struct Arenas {
    arenas: Vec<Option<Memory>>,
}

impl Arenas {
    /// Arenas of the size that the schedule gives, zeroed, of the devices that are here.
    ///
    /// # Errors
    /// When the host has too little memory.
    pub(super) fn new(schedule: &Schedule, asker: Asker) -> Result<Self, CpuError> {
        room::for_arenas(schedule, asker)?;
        Self::allocate(schedule, |device| asker.has(device))
    }

    /// The same, however much there is.
    ///
    /// # Errors
    /// When the system does not hand out an arena.
    fn allocate(
        schedule: &Schedule,
        here: impl Fn(DeviceId) -> bool,
    ) -> Result<Self, CpuError> {
        let mut arenas = Vec::new();
        arenas.resize_with(schedule.target.devices.len(), || None);
        let sizes = arena_sizes(schedule).into_iter();
        for (device, size) in sizes.filter(|(device, _)| here(*device)) {
            let made = Memory::try_new(size.0).map_err(|reason| CpuError::Refused {
                wanted: Demand::refused(schedule, (device, size), &here),
                reason: reason.to_string(),
            });
            arenas[device.index()] = Some(made?);
        }
        Ok(Self { arenas })
    }

    /// The arena of a device that is here and in use.
    pub(super) fn of(&self, device: DeviceId) -> &Memory {
        let arena = self.arenas[device.index()].as_ref();
        arena.expect("every device of a ring that is here has an arena")
    }

    /// Whether a device has an arena here.
    pub(super) fn has(&self, device: DeviceId) -> bool {
        self.arenas[device.index()].is_some()
    }

    /// Bytes allocated per device.
    pub(super) fn sizes(&self) -> BTreeMap<DeviceId, Bytes> {
        let used = self.arenas.iter().enumerate();
        used.filter_map(|(index, arena)| {
            Some((DeviceId::new(index), Bytes(arena.as_ref()?.len())))
        })
        .collect()
    }
}

impl Arenas {
    /// Fills everything with a pattern that is not a number.
    pub(super) fn poison(&self, claim: &mut Claim) {
        for arena in self.arenas.iter().flatten() {
            arena.write(claim, 0..arena.len()).fill(POISON);
        }
    }

    /// Copies a device's bytes from a place on.
    pub(super) fn copy(
        &self,
        claim: &Claim,
        device: DeviceId,
        start: u64,
        bytes: &mut [u8],
    ) {
        let range = start..start + bytes.len() as u64;
        bytes.copy_from_slice(self.of(device).read(claim, range));
    }

    /// Which bytes are no longer poisoned, by device and kind. Carried rows count as a whole.
    pub(super) fn touched(
        &self,
        claim: &Claim,
        schedule: &Schedule,
    ) -> BTreeMap<(DeviceId, Kind), Touched> {
        let look = |device, range: Range<u64>| {
            let start = range.start;
            Ok(scan(self.of(device).read(claim, range), start))
        };
        touched::<Infallible>(schedule, |device| self.has(device), look)
            .unwrap_or_else(|never| match never {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::adjoints::workers;
    use roundelay_schedule::States;

    #[test]
    fn an_arena_that_the_system_does_not_hand_out_is_an_error() {
        let mut schedule = workers(2, States::Replicated, 2).into_inner();
        let last = schedule.buffers.ids().last().expect("there are buffers");
        schedule.buffers[last].offset = Bytes(1 << 60);
        let Err(refused) = Arenas::allocate(&schedule, |_| true) else {
            panic!("no machine has so much")
        };
        assert!(matches!(refused, CpuError::Refused { .. }), "{refused:?}");
        let said = refused.to_string();
        for expected in
            ["the system refuses memory (", "the arena of `core.0` takes 1152921.50 TB"]
        {
            assert!(said.contains(expected), "{said}");
        }
    }
}
