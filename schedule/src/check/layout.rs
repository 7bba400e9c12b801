//! Where rows lie in each period: cells (one slot of one buffer on one device of the cell), which
//! cells share addresses, and after how many periods everything is back where it was.

use super::{Culprit, faults::Faults, limit};
use crate::{BufferId, DeviceId, Id, Place, Row, Schedule};
use std::ops::Range;

/// Cells, and which of them share addresses.
#[derive(Debug)]
pub(super) struct Layout {
    /// First cell of each buffer, and the number of all cells.
    bases: Vec<u32>,
    /// For each cell the part of `shared` that lists the cells that share addresses with it.
    starts: Vec<u32>,
    shared: Vec<u32>,
    /// Periods within which whatever touches a cell touches it again.
    pub(super) recurrence: u64,
    /// Periods after which the same buffers share addresses again.
    pub(super) symmetry: u64,
}

/// How a ring or a buffer turns.
#[derive(Clone, Copy, Debug)]
struct Wheel {
    length: u64,
    turn: u64,
}

impl Wheel {
    fn new(length: usize, turn: u32) -> Self {
        let length = length as u64;
        Self { length, turn: u64::from(turn) % length }
    }
    fn cycle(self) -> u64 {
        self.length / greatest_divisor(self.length, self.turn)
    }
    fn next(self, place: u64) -> u64 {
        (place + self.turn) % self.length
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

/// The least common multiple; the inputs are at most 2^16 · 2^12 here, so it does not overflow.
fn least_multiple(one: u64, other: u64) -> u64 {
    (one / greatest_divisor(one, other)).saturating_mul(other)
}

fn wheels(schedule: &Schedule, buffer: BufferId) -> (Wheel, Wheel) {
    let buffer = &schedule.buffers[buffer];
    let ring = &schedule.rings[buffer.home];
    (
        Wheel::new(ring.devices.len(), ring.turn),
        Wheel::new(buffer.slots as usize, buffer.turn),
    )
}

fn cycle(schedule: &Schedule, buffer: BufferId) -> u64 {
    let (ring, slots) = wheels(schedule, buffer);
    least_multiple(ring.cycle(), slots.cycle())
}

impl Layout {
    /// Lays out all cells; needs a sound structure.
    pub(super) fn new(schedule: &Schedule, faults: &mut Faults) -> Self {
        let mut bases = vec![0];
        for buffer in schedule.buffers.values() {
            let devices = schedule.rings[buffer.home].devices.len() as u32;
            bases.push(bases[bases.len() - 1] + devices * buffer.slots);
        }
        let mut layout = Self {
            bases,
            starts: Vec::new(),
            shared: Vec::new(),
            recurrence: 1,
            symmetry: 1,
        };
        layout.share(&layout.pairs(schedule, faults));
        for buffer in schedule.buffers.ids() {
            layout.recurrence = layout.recurrence.max(cycle(schedule, buffer));
        }
        layout.close(schedule, faults);
        layout
    }

    /// Number of cells.
    pub(super) fn cells(&self) -> usize {
        self.bases[self.bases.len() - 1] as usize
    }

    /// The cells that share addresses with `cell`, itself left out.
    pub(super) fn shared(&self, cell: usize) -> &[u32] {
        &self.shared[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }

    /// The buffer that a cell belongs to.
    pub(super) fn buffer(&self, cell: usize) -> BufferId {
        BufferId::new(self.bases.partition_point(|base| *base as usize <= cell) - 1)
    }

    /// The cells of a buffer.
    pub(super) fn cells_of(&self, buffer: BufferId) -> Range<usize> {
        self.bases[buffer.index()] as usize..self.bases[buffer.index() + 1] as usize
    }

    fn ranges(&self, schedule: &Schedule) -> Vec<(DeviceId, u64, u64, u32)> {
        let mut ranges = Vec::with_capacity(self.cells());
        for (id, buffer) in schedule.buffers.iter().filter(|(_, b)| b.size.0 > 0) {
            let mut cell = self.bases[id.index()];
            for device in &schedule.rings[buffer.home].devices {
                for slot in 0..u64::from(buffer.slots) {
                    let start = buffer.offset.0 + slot * buffer.size.0;
                    ranges.push((*device, start, start + buffer.size.0, cell));
                    cell += 1;
                }
            }
        }
        ranges.sort_unstable();
        ranges
    }

    fn pairs(&self, schedule: &Schedule, faults: &mut Faults) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        let mut open: Vec<(DeviceId, u64, u32)> = Vec::new();
        for (device, start, end, cell) in self.ranges(schedule) {
            open.retain(|(other, until, _)| *other == device && *until > start);
            if (pairs.len() + 2 * open.len()) as u64 > limit::CELLS {
                faults.require(false, Culprit::Header("buffers"), || {
                    "too many slots share addresses; lay them side by side".into()
                });
                return Vec::new();
            }
            pairs.extend(open.iter().flat_map(|(_, _, o)| [(*o, cell), (cell, *o)]));
            open.push((device, end, cell));
        }
        pairs.sort_unstable();
        pairs
    }

    fn share(&mut self, pairs: &[(u32, u32)]) {
        self.starts = vec![0; self.cells() + 1];
        for (cell, _) in pairs {
            self.starts[*cell as usize + 1] += 1;
        }
        for cell in 0..self.cells() {
            self.starts[cell + 1] += self.starts[cell];
        }
        self.shared = pairs.iter().map(|(_, other)| *other).collect();
    }

    /// The cell that holds, one period later, what this place holds.
    fn turned(&self, schedule: &Schedule, cell: usize) -> u32 {
        let buffer = self.buffer(cell);
        let (ring, slots) = wheels(schedule, buffer);
        let base = self.bases[buffer.index()];
        let inside = cell as u64 - u64::from(base);
        let device = ring.next(inside / slots.length);
        base + (device * slots.length + slots.next(inside % slots.length)) as u32
    }

    /// Finds `symmetry`: buffers that share addresses but turn differently meet again only when
    /// both are back where they were.
    fn close(&mut self, schedule: &Schedule, faults: &mut Faults) {
        for cell in 0..self.cells() {
            for place in self.starts[cell]..self.starts[cell + 1] {
                let other = self.shared[place as usize] as usize;
                let [next, beside] = [cell, other].map(|c| self.turned(schedule, c));
                if self.shared(next as usize).binary_search(&beside).is_err() {
                    let pair = [cell, other].map(|c| self.buffer(c));
                    for cycle in pair.map(|buffer| cycle(schedule, buffer)) {
                        self.symmetry = least_multiple(self.symmetry, cycle);
                    }
                    if self.symmetry > limit::PERIODS {
                        let problem = || {
                            format!(
                                "shares addresses with {}, which turns otherwise: they meet \
                                 alike only after {} periods; lay them side by side",
                                pair[1], self.symmetry
                            )
                        };
                        return faults.require(false, Culprit::Buffer(pair[0]), problem);
                    }
                }
            }
        }
        faults.require(
            self.recurrence <= limit::PERIODS,
            Culprit::Header("buffers"),
            || format!("slots are back only after {} periods", self.recurrence),
        );
    }
}

/// One period: how far every ring and buffer has turned.
#[derive(Debug)]
pub(super) struct Turned<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    rings: Vec<u32>,
    slots: Vec<u32>,
}

impl<'a> Turned<'a> {
    /// The positions in a period.
    pub(super) fn new(schedule: &'a Schedule, layout: &'a Layout, period: i64) -> Self {
        let mut turned = Self { schedule, layout, rings: Vec::new(), slots: Vec::new() };
        turned.turn_to(period);
        turned
    }

    /// Goes to another period; allocates nothing the second time.
    pub(super) fn turn_to(&mut self, period: i64) {
        self.rings.clear();
        self.rings.extend(self.schedule.rings.values().map(|ring| ring.index(0, period)));
        self.slots.clear();
        self.slots.extend(self.schedule.buffers.values().map(|b| b.slot(0, period)));
    }

    /// The index of the device that a place means.
    pub(super) fn index(&self, at: Place) -> u32 {
        let length = self.schedule.rings[at.ring].devices.len() as u32;
        wrapped(at.place + self.rings[at.ring.index()], length)
    }

    /// The device that a place means, at coordinate zero.
    pub(super) fn device(&self, at: Place) -> DeviceId {
        self.schedule.rings[at.ring].devices[self.index(at) as usize]
    }

    /// The cell that a row on a place means.
    pub(super) fn cell(&self, at: Place, row: Row) -> usize {
        let slots = self.schedule.buffers[row.buffer].slots;
        let slot = wrapped(row.place + self.slots[row.buffer.index()], slots);
        let base = self.layout.bases[row.buffer.index()];
        (base + self.index(at) * slots + slot) as usize
    }
}

/// `sum` mod `length`, for sums of two numbers below `length`.
fn wrapped(sum: u32, length: u32) -> u32 {
    if sum >= length { sum - length } else { sum }
}
