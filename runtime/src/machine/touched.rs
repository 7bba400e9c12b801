//! What a run really used of the memory that it was given: arenas start as poison, and whatever
//! is none any more was touched.

use crate::memory::ALIGNMENT;
use roundelay_schedule::{Buffer, Bytes, DeviceId, Kind, Rest, Schedule};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// A pattern that is not a number in any real type, and no token either.
pub(crate) const POISON: u8 = 0xff;

/// What arrays lie in: each starts at a multiple of this many bytes, and whatever is left behind its
/// end belongs to it.
const LINE: u64 = ALIGNMENT as u64;

/// How finely touched memory is told from poison: the size of the smallest element.
const GRAIN: usize = 4;

/// What a run really used of one kind of memory on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// Bytes that were written at least once.
    pub count: Bytes,
    /// What a layout gives for them: of every buffer all from the first to the last of them, in
    /// whole lines of 64 bytes, for an array and what fills up its last line are one.
    pub span: Bytes,
}

/// What was touched while it is gathered. Ranges may overlap: buffers whose lives are disjoint share
/// memory, which counts once.
#[derive(Debug, Default)]
struct Found {
    ranges: Vec<Range<u64>>,
    spans: Vec<Range<u64>>,
}

impl Found {
    /// What was touched of a buffer that takes `all`, in order.
    fn add(&mut self, all: &Range<u64>, ranges: Vec<Range<u64>>) {
        if let [first, .., last] | [first @ last] = &ranges[..] {
            let lines = first.start / LINE * LINE..last.end.next_multiple_of(LINE);
            self.spans.push(lines.start.max(all.start)..lines.end.min(all.end));
        }
        self.ranges.extend(ranges);
    }

    fn touched(self) -> Touched {
        Touched { count: united(self.ranges), span: united(self.spans) }
    }
}

/// Bytes that lie in one of the ranges at least.
fn united(mut ranges: Vec<Range<u64>>) -> Bytes {
    ranges.sort_by_key(|range| range.start);
    let (mut count, mut end) = (0, 0);
    for range in &ranges {
        count += range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
    }
    Bytes(count)
}

/// What was touched of every kind of memory on the devices that are here; `look` says which parts
/// of a range of an arena are no poison, in order. Carried rows count as a whole.
pub(crate) fn touched<E>(
    schedule: &Schedule,
    here: impl Fn(DeviceId) -> bool,
    mut look: impl FnMut(DeviceId, Range<u64>) -> Result<Vec<Range<u64>>, E>,
) -> Result<BTreeMap<(DeviceId, Kind), Touched>, E> {
    let mut kinds: BTreeMap<(DeviceId, Kind), Found> = BTreeMap::new();
    for buffer in schedule.buffers.values() {
        let all = buffer.offset.0..buffer.offset.0 + buffer.total().0;
        let homes = homes(schedule, buffer).into_iter();
        for device in homes.filter(|device| here(*device)) {
            let found = match buffer.rest {
                Rest::Carried(_) => vec![all.clone()],
                Rest::Transient => look(device, all.clone())?,
            };
            let key = (device, buffer.subject.kind());
            kinds.entry(key).or_default().add(&all, found);
        }
    }
    Ok(kinds.into_iter().map(|(key, found)| (key, found.touched())).collect())
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

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        vec![range]
    }

    #[test]
    fn memory_that_buffers_share_counts_once() {
        assert_eq!(united(vec![8..12, 16..24, 4..10, 20..22]), Bytes(16));
        assert_eq!(united(Vec::new()), Bytes(0));
        let mut found = Found::default();
        found.add(&(0..128), one(4..100));
        found.add(&(64..192), vec![70..72, 140..150]);
        assert_eq!(found.touched(), Touched { count: Bytes(106), span: Bytes(192) });
        assert_eq!(Found::default().touched(), Touched::default());
    }

    /// Arrays of 40 bytes fill their lines, but for the last one of a buffer that ends with it; what
    /// lies between buffers is nobody's.
    #[test]
    fn a_span_is_what_the_layout_gives() {
        let mut found = Found::default();
        found.add(&(64..192), vec![64..104, 128..168]);
        found.add(&(320..424), vec![320..360, 384..424]);
        assert_eq!(found.touched().span, Bytes(128 + 104));
        let mut late = Found::default();
        late.add(&(64..192), one(140..150));
        assert_eq!(
            late.touched().span,
            Bytes(64),
            "a buffer that is hardly used is seen"
        );
    }
}
