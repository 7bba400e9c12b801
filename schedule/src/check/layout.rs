//! Which cells share addresses, and after how many periods that and all that is written recurs.

use super::{Culprit, faults::Faults, limit};
use crate::{Cells, DeviceId, Schedule, Writes, lcm, turned::Wheels};
use std::ops::Deref;

/// Cells, and which of them share addresses.
#[derive(Debug)]
pub(super) struct Layout {
    cells: Cells,
    /// For each cell the part of `shared` that lists the cells that share addresses with it.
    starts: Vec<u32>,
    shared: Vec<u32>,
    /// Which cells are ever written.
    pub(super) writes: Writes,
    /// Periods within which a cell that is ever written is written again.
    pub(super) recurrence: u64,
    /// Periods after which the same buffers share addresses again.
    pub(super) symmetry: u64,
}

impl Deref for Layout {
    type Target = Cells;
    fn deref(&self) -> &Cells {
        &self.cells
    }
}

impl Layout {
    /// Lays out all cells; needs a sound structure.
    pub(super) fn new(schedule: &Schedule, faults: &mut Faults) -> Self {
        let cells = Cells::new(schedule);
        let writes = Writes::new(schedule, &cells);
        let (starts, shared, recurrence) = (Vec::new(), Vec::new(), writes.recurrence);
        let mut layout = Self { cells, starts, shared, writes, recurrence, symmetry: 1 };
        layout.share(&layout.pairs(schedule, faults));
        layout.close(schedule, faults);
        layout
    }

    /// The cells that share addresses with `cell`, itself left out.
    pub(super) fn shared(&self, cell: usize) -> &[u32] {
        &self.shared[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }

    fn ranges(&self, schedule: &Schedule) -> Vec<(DeviceId, u64, u64, u32)> {
        let mut ranges = Vec::with_capacity(self.count());
        for (id, buffer) in schedule.buffers.iter().filter(|(_, b)| b.size.0 > 0) {
            let mut cell = self.of(id).start as u32;
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
                faults.beyond(
                    Culprit::Header("buffers"),
                    "too many slots share addresses; lay them side by side",
                );
                return Vec::new();
            }
            pairs.extend(open.iter().flat_map(|(_, _, o)| [(*o, cell), (cell, *o)]));
            open.push((device, end, cell));
        }
        pairs.sort_unstable();
        pairs
    }

    fn share(&mut self, pairs: &[(u32, u32)]) {
        self.starts = vec![0; self.count() + 1];
        for (cell, _) in pairs {
            self.starts[*cell as usize + 1] += 1;
        }
        for cell in 0..self.count() {
            self.starts[cell + 1] += self.starts[cell];
        }
        self.shared = pairs.iter().map(|(_, other)| *other).collect();
    }

    /// Finds `symmetry`: buffers that share addresses but turn differently meet again only when
    /// both are back where they were.
    fn close(&mut self, schedule: &Schedule, faults: &mut Faults) {
        for cell in 0..self.count() {
            for place in self.starts[cell]..self.starts[cell + 1] {
                let other = self.shared[place as usize] as usize;
                let [next, beside] = [cell, other].map(|c| self.turned(schedule, c));
                if self.shared(next).binary_search(&(beside as u32)).is_err() {
                    let pair = [cell, other].map(|c| self.buffer(c));
                    for wheels in pair.map(|buffer| Wheels::of(schedule, buffer)) {
                        self.symmetry = lcm(self.symmetry, wheels.cycle());
                    }
                    if self.symmetry > limit::PERIODS {
                        let problem = format!(
                            "shares addresses with {}, which turns otherwise: they meet alike \
                             only after {} periods; lay them side by side",
                            pair[1], self.symmetry
                        );
                        return faults.beyond(Culprit::Buffer(pair[0]), problem);
                    }
                }
            }
        }
        faults.limit(
            self.recurrence <= limit::PERIODS,
            Culprit::Header("buffers"),
            || format!("a slot is written again only after {} periods", self.recurrence),
        );
    }
}
