//! Who touched each cell since it was last written, and who wrote it; nobody else is remembered.

use super::clocks::{Clocks, Stamp};
use roundelay_schedule::Access;

/// No entry of a list.
const NONE: u32 = u32::MAX;

/// An earlier instance: its number in list order, and what it means to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) number: u64,
    pub(super) stamp: Stamp,
}

/// An instance in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(u32);

/// One cell: who wrote it, and the first of a list of those who read it since.
#[derive(Clone, Copy, Debug)]
struct History {
    written: u32,
    readers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    record: Record,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    instance: Earlier,
    /// Entries of histories that name it, and one more until all are made.
    users: u32,
}

/// The histories of all cells, and the instances in them.
#[derive(Debug)]
pub(super) struct Histories {
    cells: Vec<History>,
    readers: Vec<Reader>,
    free_readers: Vec<u32>,
    held: Vec<Held>,
    free_records: Vec<Record>,
}

impl Histories {
    /// Cells that nobody touched yet.
    pub(super) fn new(cells: usize) -> Self {
        Self {
            cells: vec![History { written: NONE, readers: NONE }; cells],
            readers: Vec::new(),
            free_readers: Vec::new(),
            held: Vec::new(),
            free_records: Vec::new(),
        }
    }

    /// The instances that a touch of a cell conflicts with.
    pub(super) fn conflicts(
        &self,
        access: Access,
        cell: usize,
        found: &mut Vec<Earlier>,
    ) {
        let History { written, mut readers } = self.cells[cell];
        if written != NONE {
            found.push(self.held[written as usize].instance);
        }
        while access != Access::Read && readers != NONE {
            let Reader { record, next } = self.readers[readers as usize];
            found.push(self.held[record.0 as usize].instance);
            readers = next;
        }
    }

    /// Takes an instance that is about to touch cells; [`Histories::release`] follows.
    pub(super) fn add(&mut self, number: u64, stamp: Stamp) -> Record {
        let held = Held { instance: Earlier { number, stamp }, users: 1 };
        match self.free_records.pop() {
            Some(record) => {
                self.held[record.0 as usize] = held;
                record
            }
            None => {
                self.held.push(held);
                Record(self.held.len() as u32 - 1)
            }
        }
    }

    /// An instance has one user less: an entry is gone, or all of its touches are made.
    pub(super) fn release(&mut self, record: Record, clocks: &mut Clocks) {
        let held = &mut self.held[record.0 as usize];
        held.users -= 1;
        if held.users == 0 {
            clocks.release(held.instance.stamp);
            self.free_records.push(record);
        }
    }

    fn hold(&mut self, record: Record) {
        self.held[record.0 as usize].users += 1;
    }

    /// An instance reads a cell. An earlier read of its queue is implied by it.
    pub(super) fn read(&mut self, cell: usize, me: Record, clocks: &mut Clocks) {
        let queue = self.held[me.0 as usize].instance.stamp.queue;
        self.hold(me);
        let mut place = self.cells[cell].readers;
        while place != NONE {
            let Reader { record, next } = self.readers[place as usize];
            if self.held[record.0 as usize].instance.stamp.queue == queue {
                self.readers[place as usize].record = me;
                return self.release(record, clocks);
            }
            place = next;
        }
        let reader = Reader { record: me, next: self.cells[cell].readers };
        self.cells[cell].readers = self.place(reader);
    }

    fn place(&mut self, reader: Reader) -> u32 {
        match self.free_readers.pop() {
            Some(place) => {
                self.readers[place as usize] = reader;
                place
            }
            None => {
                self.readers.push(reader);
                self.readers.len() as u32 - 1
            }
        }
    }

    /// An instance writes a cell: later ones conflict with it, and through it with those before.
    pub(super) fn write(&mut self, cell: usize, me: Record, clocks: &mut Clocks) {
        self.hold(me);
        self.clear(cell, clocks);
        self.cells[cell].written = me.0;
    }

    /// Forgets who touched a cell.
    pub(super) fn clear(&mut self, cell: usize, clocks: &mut Clocks) {
        let empty = History { written: NONE, readers: NONE };
        let History { written, mut readers } =
            std::mem::replace(&mut self.cells[cell], empty);
        if written != NONE {
            self.release(Record(written), clocks);
        }
        while readers != NONE {
            let Reader { record, next } = self.readers[readers as usize];
            self.release(record, clocks);
            self.free_readers.push(readers);
            readers = next;
        }
    }
}
