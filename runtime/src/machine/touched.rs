//! What a run really used of the memory that it was given: arenas start as poison, and whatever
//! is none any more was touched.

use roundelay_schedule::{Buffer, Bytes, DeviceId, Kind, Rest, Schedule};
use std::{collections::BTreeMap, ops::Range};

/// A pattern that is not a number in any real type, and no token either.
pub(crate) const POISON: u8 = 0xff;

/// How finely touched memory is told from poison: the size of the smallest element.
const GRAIN: usize = 4;

/// What a run really used of one kind of memory on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Bytes that were written at least once.
    pub count: Bytes,
    /// From the first to the last of them.
    pub span: Bytes,
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

/// What was touched of every kind of memory on every device, whose arenas `read` gives.
pub(crate) fn touched<'a>(
    schedule: &Schedule,
    read: impl Fn(DeviceId) -> &'a [u8],
) -> BTreeMap<(DeviceId, Kind), Touched> {
    let mut ranges: BTreeMap<(DeviceId, Kind), Vec<Range<u64>>> = BTreeMap::new();
    for buffer in schedule.buffers.values() {
        for device in homes(schedule, buffer) {
            let key = (device, buffer.subject.kind());
            ranges.entry(key).or_default().extend(scan(read(device), buffer));
        }
    }
    ranges.into_iter().map(|(key, ranges)| (key, Touched::of(ranges))).collect()
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
    use roundelay_schedule::{Id, RingId, Stage, Subject};

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
