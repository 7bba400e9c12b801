//! The memory of every device, at the offsets that the schedule fixed.

use crate::{
    machine::{POISON, Touched, scan, touched},
    memory::{Claim, Memory},
};
use roundelay_schedule::{Bytes, DeviceId, Id, Kind, Schedule};
use std::{collections::BTreeMap, convert::Infallible, ops::Range};

/// One arena per device of the target that is in use.
pub(super) struct Arenas {
    arenas: Vec<Option<Memory>>,
}

impl Arenas {
    /// Arenas of the size that the schedule gives, zeroed.
    pub(super) fn new(schedule: &Schedule) -> Self {
        let mut arenas = Vec::new();
        arenas.resize_with(schedule.target.devices.len(), || None);
        for coordinate in schedule.coordinates() {
            for device in schedule.rings.values().flat_map(|ring| &ring.devices) {
                let own: &mut Option<Memory> =
                    &mut arenas[schedule.device_at(*device, &coordinate).index()];
                own.get_or_insert_with(|| Memory::new(schedule.arena(*device).0));
            }
        }
        Self { arenas }
    }

    /// The arena of a device in use.
    pub(super) fn of(&self, device: DeviceId) -> &Memory {
        self.arenas[device.index()].as_ref().expect("every device of a ring has an arena")
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
        touched::<Infallible>(schedule, |_| true, look)
            .unwrap_or_else(|never| match never {})
    }
}
