//! The memory of every device, at the offsets that the schedule fixed; poisoned and scanned to
//! see what was really used.

use crate::memory::{Claim, Memory};
use roundelay_schedule::{Buffer, Bytes, DeviceId, Id, Kind, Place, Rest, Row, Schedule};
use std::{collections::BTreeMap, ops::Range};

/// A pattern that is not a number in any real type, and no token either.
const POISON: u8 = 0xff;

/// How finely touched memory is told from poison: the size of the smallest element.
const GRAIN: usize = 4;

/// One arena per device of the target that is in use.
pub(super) struct Arenas {
    arenas: Vec<Option<Memory>>,
}

/// A range of a device's arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) device: DeviceId,
    pub(super) bytes: Range<u64>,
}

/// What a run really used of one kind of memory on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Bytes that were written at least once.
    pub count: Bytes,
    /// From the first to the last of them.
    pub span: Bytes,
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
        let mut ranges: BTreeMap<(DeviceId, Kind), Vec<Range<u64>>> = BTreeMap::new();
        for buffer in schedule.buffers.values() {
            for device in homes(schedule, buffer) {
                let arena = self.of(device);
                let found = scan(arena.read(claim, 0..arena.len()), buffer);
                let key = (device, buffer.subject.kind());
                ranges.entry(key).or_default().extend(found);
            }
        }
        ranges.into_iter().map(|(key, ranges)| (key, Touched::of(ranges))).collect()
    }
}

impl Touched {
    /// Ranges may overlap: buffers whose lives are disjoint share memory.
    fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_by_key(|range| range.start);
        let (mut count, mut end) = (0, 0);
        for range in &ranges {
            count += range.end.saturating_sub(range.start.max(end));
            end = end.max(range.end);
        }
        let start = ranges.first().map_or(end, |range| range.start);
        Self { count: Bytes(count), span: Bytes(end - start) }
    }
}

impl Span {
    /// Where a row is in one period, at one coordinate of the axes.
    pub(super) fn of(
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
    pub(super) fn part(&self, bytes: Range<u64>) -> Self {
        let (start, end) = (self.bytes.start + bytes.start, self.bytes.start + bytes.end);
        Self { device: self.device, bytes: start..end }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// The devices of the target that have a buffer.
fn homes(schedule: &Schedule, buffer: &Buffer) -> Vec<DeviceId> {
    let devices = &schedule.rings[buffer.home].devices;
    let at = |coordinate: &Vec<u32>| -> Vec<DeviceId> {
        devices.iter().map(|device| schedule.device_at(*device, coordinate)).collect()
    };
    schedule.coordinates().iter().flat_map(at).collect()
}

/// The ranges of a buffer that are not poisoned, in order.
fn scan(arena: &[u8], buffer: &Buffer) -> Vec<Range<u64>> {
    let start = buffer.offset.0;
    let all = start..start + buffer.total().0;
    if matches!(buffer.rest, Rest::Carried(_)) {
        return vec![all];
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    let grains = arena[all.start as usize..all.end as usize].chunks(GRAIN);
    for (first, grain) in (all.start..).step_by(GRAIN).zip(grains) {
        let end = first + grain.len() as u64;
        match found.last_mut() {
            _ if grain.iter().all(|byte| *byte == POISON) => {}
            Some(last) if last.end == first => last.end = end,
            _ => found.push(first..end),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{RingId, Stage, Subject};

    #[test]
    fn a_scan_finds_count_and_span_of_what_is_not_poison() {
        let buffer = Buffer {
            home: RingId::new(0),
            subject: Subject::Activation(Stage::new(0)),
            offset: Bytes(8),
            size: Bytes(8),
            slots: 2,
            turn: 0,
            rest: Rest::Transient,
        };
        let mut arena = [POISON; 32];
        assert_eq!(scan(&arena, &buffer), []);
        arena[0] = 0;
        arena[13] = 1;
        arena[19] = 2;
        arena[23] = 2;
        let all = Range { start: 12, end: 24 };
        assert_eq!(scan(&arena, &buffer), [all]);
        arena[13] = POISON;
        arena[9] = 0;
        assert_eq!(scan(&arena, &buffer), [8..12, 16..24]);
    }

    #[test]
    fn memory_that_buffers_share_counts_once() {
        let touched = Touched::of(vec![8..12, 16..24, 4..10, 20..22]);
        assert_eq!(touched, Touched { count: Bytes(16), span: Bytes(20) });
        assert_eq!(Touched::of(Vec::new()), Touched::default());
    }
}
