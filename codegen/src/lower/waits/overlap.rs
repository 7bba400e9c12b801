//! Cells that share addresses.

use roundelay_schedule::{Buffer, BufferId, Cells, Schedule};
use std::ops::Range;

/// For each cell the others that share addresses with it.
#[derive(Debug)]
pub(super) struct Overlaps {
    /// The part of `others` that belongs to each cell; empty when no cell shares any.
    starts: Vec<u32>,
    others: Vec<Shared>,
}

/// A cell that shares addresses with another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) cell: usize,
    pub(super) part: Part,
}

/// How much of a cell another one shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    All,
    Some,
}

impl Overlaps {
    pub(super) fn new(schedule: &Schedule, cells: &Cells) -> Self {
        let mut pairs = Vec::new();
        for (one, other) in buffers(schedule) {
            meet(schedule, cells, [one, other], &mut pairs);
        }
        if pairs.is_empty() {
            return Self { starts: Vec::new(), others: Vec::new() };
        }
        pairs.sort_unstable();
        let mut starts = vec![0; cells.count() + 1];
        for (cell, ..) in &pairs {
            starts[*cell as usize + 1] += 1;
        }
        for cell in 0..cells.count() {
            starts[cell + 1] += starts[cell];
        }
        let others = pairs.into_iter().map(|(_, cell, part)| Shared { cell, part });
        Self { starts, others: others.collect() }
    }

    /// The cells that share addresses with a cell, itself left out.
    pub(super) fn of(&self, cell: usize) -> &[Shared] {
        if self.starts.is_empty() {
            return &[];
        }
        &self.others[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }
}

/// Pairs of buffers of one ring that share addresses.
fn buffers(schedule: &Schedule) -> Vec<(BufferId, BufferId)> {
    let mut rows: Vec<_> = schedule.buffers.iter().collect();
    rows.sort_by_key(|(id, buffer)| (buffer.home, buffer.offset, *id));
    let mut pairs = Vec::new();
    for (number, (id, buffer)) in rows.iter().enumerate() {
        let end = buffer.offset + buffer.total();
        let later = rows[number + 1..].iter();
        let met = later.take_while(|(_, b)| b.home == buffer.home && b.offset < end);
        pairs.extend(met.map(|(other, _)| (*id, *other)));
    }
    pairs
}

/// Adds the cells of two buffers that share addresses, on every device, both ways.
fn meet(
    schedule: &Schedule,
    cells: &Cells,
    pair: [BufferId; 2],
    found: &mut Vec<(u32, usize, Part)>,
) {
    let [one, other] = pair.map(|id| &schedule.buffers[id]);
    let devices = schedule.rings[one.home].devices.len();
    let [first, second] = pair.map(|id| cells.of(id).start);
    for slot in 0..one.slots {
        for beside in 0..other.slots {
            let (own, its) = (range(one, slot), range(other, beside));
            if own.start.max(its.start) >= own.end.min(its.end) {
                continue;
            }
            for device in 0..devices {
                let cell = first + device * one.slots as usize + slot as usize;
                let shared = second + device * other.slots as usize + beside as usize;
                found.push((cell as u32, shared, part(&its, &own)));
                found.push((shared as u32, cell, part(&own, &its)));
            }
        }
    }
}

/// How much of a range another one that meets it shares.
fn part(whole: &Range<u64>, other: &Range<u64>) -> Part {
    let covers = other.start <= whole.start && whole.end <= other.end;
    if covers { Part::All } else { Part::Some }
}

fn range(buffer: &Buffer, slot: u32) -> Range<u64> {
    let start = buffer.offset.0 + u64::from(slot) * buffer.size.0;
    start..start + buffer.size.0
}
