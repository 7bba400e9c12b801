//! What a run really used of the memory that it was given: arenas start as poison, and whatever
//! is none any more was touched.

use roundelay_schedule::{Buffer, Bytes, DeviceId, Kind, Rest, Schedule};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// A pattern that is not a number in any real type, and no token either.
pub(crate) const POISON: u8 = 0xff;

/// How finely touched memory is told from poison: the size of the smallest element.
const GRAIN: usize = 4;

/// What a run really used of one kind of memory on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// What was touched of every kind of memory on the devices that are here; `look` says which parts
/// of a range of an arena are no poison, in order. Carried rows count as a whole.
pub(crate) fn touched<E>(
    schedule: &Schedule,
    here: impl Fn(DeviceId) -> bool,
    mut look: impl FnMut(DeviceId, Range<u64>) -> Result<Vec<Range<u64>>, E>,
) -> Result<BTreeMap<(DeviceId, Kind), Touched>, E> {
    let mut ranges: BTreeMap<(DeviceId, Kind), Vec<Range<u64>>> = BTreeMap::new();
    for buffer in schedule.buffers.values() {
        let all = buffer.offset.0..buffer.offset.0 + buffer.total().0;
        let homes = homes(schedule, buffer).into_iter();
        for device in homes.filter(|device| here(*device)) {
            let found = match buffer.rest {
                Rest::Carried(_) => vec![all.clone()],
                Rest::Transient => look(device, all.clone())?,
            };
            let key = (device, buffer.subject.kind());
            ranges.entry(key).or_default().extend(found);
        }
    }
    Ok(ranges.into_iter().map(|(key, ranges)| (key, Touched::of(ranges))).collect())
}

/// The devices of the target that have a buffer.
fn homes(schedule: &Schedule, buffer: &Buffer) -> Vec<DeviceId> {
    let devices = &schedule.rings[buffer.home].devices;
    let at = |coordinate: &Vec<u32>| -> Vec<DeviceId> {
        devices.iter().map(|device| schedule.device_at(*device, coordinate)).collect()
    };
    schedule.coordinates().iter().flat_map(at).collect()
}

/// The ranges that are not poisoned, in order; `start` is the number of the first byte.
pub(crate) fn scan(bytes: &[u8], start: u64) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    for (first, grain) in (start..).step_by(GRAIN).zip(bytes.chunks(GRAIN)) {
        if grain.iter().any(|byte| *byte != POISON) {
            append(&mut found, first..first + grain.len() as u64);
        }
    }
    found
}

/// Adds a range behind all others; two that meet are one.
pub(crate) fn append(found: &mut Vec<Range<u64>>, next: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => found.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_count_and_span_of_what_is_not_poison() {
        let mut arena = [POISON; 32];
        assert_eq!(scan(&arena[8..24], 8), []);
        arena[0] = 0;
        arena[13] = 1;
        arena[19] = 2;
        arena[23] = 2;
        let all = Range { start: 12, end: 24 };
        assert_eq!(scan(&arena[8..24], 8), [all]);
        arena[13] = POISON;
        arena[9] = 0;
        assert_eq!(scan(&arena[8..24], 8), [8..12, 16..24]);
    }

    #[test]
    fn memory_that_buffers_share_counts_once() {
        let touched = Touched::of(vec![8..12, 16..24, 4..10, 20..22]);
        assert_eq!(touched, Touched { count: Bytes(16), span: Bytes(20) });
        assert_eq!(Touched::of(Vec::new()), Touched::default());
    }
}
