//! Where rows are in the memory of devices.

use roundelay_schedule::{Bytes, DeviceId, Place, Row, Schedule};
use std::{collections::BTreeMap, ops::Range};

/// The devices of the target in use and the sizes of their arenas.
pub(crate) fn arena_sizes(schedule: &Schedule) -> BTreeMap<DeviceId, Bytes> {
    let mut sizes = BTreeMap::new();
    for coordinate in schedule.coordinates() {
        for device in schedule.rings.values().flat_map(|ring| &ring.devices) {
            let own = schedule.device_at(*device, &coordinate);
            sizes.insert(own, schedule.arena(*device));
        }
    }
    sizes
}

/// A range of a device's arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) device: DeviceId,
    pub(crate) bytes: Range<u64>,
}

impl Span {
    /// Where a row is in one period, at one coordinate of the axes.
    pub(crate) fn of(
        schedule: &Schedule,
        at: Place,
        row: Row,
        period: i64,
        coordinate: &[u32],
    ) -> Self {
        let device = schedule.rings[at.ring].device(at.place, period);
        let buffer = &schedule.buffers[row.buffer];
        let slot = u64::from(buffer.slot(row.place, period));
        let start = buffer.offset.0 + slot * buffer.size.0;
        let bytes = start..start + buffer.size.0;
        Self { device: schedule.device_at(device, coordinate), bytes }
    }

    /// Part of it; `bytes` counts from its first.
    pub(crate) fn part(&self, bytes: Range<u64>) -> Self {
        let (start, end) = (self.bytes.start + bytes.start, self.bytes.start + bytes.end);
        Self { device: self.device, bytes: start..end }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}
