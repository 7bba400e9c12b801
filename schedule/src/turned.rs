//! Where rows lie in each period, as dense numbers: cells (one slot of one buffer on one device
//! of the cell), and how far rings and buffers have turned.

use crate::{
    Access, Action, Buffer, BufferId, DeviceId, Id, Place, Ring, Row, Schedule, gcd, lcm,
};
use std::ops::Range;

/// The cells of a schedule, numbered buffer by buffer, device by device, slot by slot.
#[derive(Clone, Debug)]
pub struct Cells {
    /// First cell of each buffer, and the number of all cells.
    bases: Vec<u32>,
}

/// How a ring of devices or of slots turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheel {
    pub(crate) length: u64,
    turn: u64,
}

impl Wheel {
    fn new(length: usize, turn: u32) -> Self {
        let length = (length as u64).max(1);
        Self { length, turn: u64::from(turn) % length }
    }

    /// The wheel of a ring of devices.
    pub(crate) fn of_ring(ring: &Ring) -> Self {
        Self::new(ring.devices.len(), ring.turn)
    }

    /// The wheel of a buffer's slots.
    pub(crate) fn of_slots(buffer: &Buffer) -> Self {
        Self::new(buffer.slots as usize, buffer.turn)
    }

    /// Periods after which it is back where it was.
    pub(crate) fn cycle(self) -> u64 {
        self.length / gcd(self.length, self.turn)
    }

    /// The index that a place means one period after it means `place`.
    pub(crate) fn next(self, place: u64) -> u64 {
        (place + self.turn) % self.length
    }
}

impl Schedule {
    /// Periods after which every place and every slot means what it meant before.
    pub fn cycle(&self) -> u64 {
        let rings = self.rings.values().map(Wheel::of_ring);
        let wheels = rings.chain(self.buffers.values().map(Wheel::of_slots));
        wheels.map(Wheel::cycle).fold(1, lcm)
    }
}

/// How the devices and the slots of a buffer turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheels {
    ring: Wheel,
    slots: Wheel,
}

impl Wheels {
    /// Those of a buffer.
    pub(crate) fn of(schedule: &Schedule, buffer: BufferId) -> Self {
        let buffer = &schedule.buffers[buffer];
        let ring = Wheel::of_ring(&schedule.rings[buffer.home]);
        Self { ring, slots: Wheel::of_slots(buffer) }
    }

    /// Periods after which both are back where they were.
    pub(crate) fn cycle(self) -> u64 {
        lcm(self.ring.cycle(), self.slots.cycle())
    }
}

impl Cells {
    /// Numbers all cells; every buffer's home must be a ring of the schedule.
    pub fn new(schedule: &Schedule) -> Self {
        let mut bases = vec![0];
        for buffer in schedule.buffers.values() {
            let devices = schedule.rings[buffer.home].devices.len() as u32;
            bases.push(bases[bases.len() - 1] + devices * buffer.slots);
        }
        Self { bases }
    }

    /// Number of cells.
    pub fn count(&self) -> usize {
        self.bases[self.bases.len() - 1] as usize
    }

    /// The buffer that a cell belongs to.
    pub fn buffer(&self, cell: usize) -> BufferId {
        BufferId::new(self.bases.partition_point(|base| *base as usize <= cell) - 1)
    }

    /// The cells of a buffer.
    pub fn of(&self, buffer: BufferId) -> Range<usize> {
        self.bases[buffer.index()] as usize..self.bases[buffer.index() + 1] as usize
    }

    /// The cell that holds, one period later, what the place of this cell holds.
    pub(crate) fn turned(&self, schedule: &Schedule, cell: usize) -> usize {
        let buffer = self.buffer(cell);
        self.next(Wheels::of(schedule, buffer), self.of(buffer).start, cell)
    }

    /// The same, given the wheels of the cell's buffer and its first cell.
    pub(crate) fn next(
        &self,
        Wheels { ring, slots }: Wheels,
        base: usize,
        cell: usize,
    ) -> usize {
        let inside = (cell - base) as u64;
        let device = ring.next(inside / slots.length);
        base + (device * slots.length + slots.next(inside % slots.length)) as usize
    }
}

/// One period: how far every ring and buffer has turned.
#[derive(Clone, Debug)]
pub struct Turned<'a> {
    schedule: &'a Schedule,
    cells: &'a Cells,
    rings: Vec<Position>,
    buffers: Vec<Position>,
}

/// How far a wheel has turned.
#[derive(Clone, Copy, Debug)]
struct Position {
    length: u32,
    turned: u32,
}

impl Position {
    /// The index that a place means. A place is below the length, so one subtraction will do.
    #[inline]
    fn index(self, place: u32) -> u32 {
        let sum = place + self.turned;
        if sum >= self.length { sum - self.length } else { sum }
    }
}

impl<'a> Turned<'a> {
    /// The positions in a period.
    pub fn new(schedule: &'a Schedule, cells: &'a Cells, period: i64) -> Self {
        let (rings, buffers) = (Vec::new(), Vec::new());
        let mut turned = Self { schedule, cells, rings, buffers };
        turned.turn_to(period);
        turned
    }

    /// Goes to another period; allocates nothing the second time.
    pub fn turn_to(&mut self, period: i64) {
        let ring = |ring: &Ring| Position {
            length: ring.devices.len() as u32,
            turned: ring.index(0, period),
        };
        let slots = |buffer: &Buffer| Position {
            length: buffer.slots,
            turned: buffer.slot(0, period),
        };
        self.rings.clear();
        self.rings.extend(self.schedule.rings.values().map(ring));
        self.buffers.clear();
        self.buffers.extend(self.schedule.buffers.values().map(slots));
    }

    /// The index of the device that a place means.
    #[inline]
    pub fn index(&self, at: Place) -> u32 {
        self.rings[at.ring.index()].index(at.place)
    }

    /// The device that a place means, at coordinate zero.
    pub fn device(&self, at: Place) -> DeviceId {
        self.schedule.rings[at.ring].devices[self.index(at) as usize]
    }

    /// The cell that a row on a place means.
    #[inline]
    pub fn cell(&self, at: Place, row: Row) -> usize {
        let slots = self.buffers[row.buffer.index()];
        let base = self.cells.bases[row.buffer.index()];
        (base + self.index(at) * slots.length + slots.index(row.place)) as usize
    }

    /// Calls `visit` with every touch of an action, in order, and the cell that it means.
    pub fn each_cell(&self, action: &Action, mut visit: impl FnMut(Access, usize)) {
        self.schedule.each_touch(&action.work, |touch| {
            visit(touch.access, self.cell(touch.at, touch.row));
        });
    }
}
