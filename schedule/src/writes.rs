//! Which cells are ever written, and how long it takes until they are written again.

use crate::{Access, Cells, Schedule, Turned, turned::Wheels};

/// The writes of a schedule, cell by cell.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Per cell whether it is written in some period.
    pub(crate) ever: Vec<bool>,
    /// The most periods between two writes of a cell that follow each other, over all cells that
    /// are ever written; at least one.
    ///
    /// No value outlives it, and no touch conflicts with one further back unless a write stands
    /// between them.
    pub recurrence: u64,
}

impl Writes {
    /// Finds all cells that are ever written. A cell is written when it meets a place that some
    /// action writes, so the gaps between such places along their way round count.
    pub fn new(schedule: &Schedule, cells: &Cells) -> Self {
        let written = written(schedule, cells);
        let mut writes = Self { ever: vec![false; cells.count()], recurrence: 1 };
        for buffer in schedule.buffers.ids() {
            let (wheels, own) = (Wheels::of(schedule, buffer), cells.of(buffer));
            let next = |cell| cells.next(wheels, own.start, cell);
            for start in own.clone() {
                if written[start] && !writes.ever[start] {
                    writes.follow(start, next, &written);
                }
            }
        }
        writes
    }

    /// Goes round from a written place.
    fn follow(&mut self, start: usize, next: impl Fn(usize) -> usize, written: &[bool]) {
        let (mut cell, mut gap) = (start, 0);
        loop {
            cell = next(cell);
            gap += 1;
            self.ever[cell] = true;
            if written[cell] {
                self.recurrence = self.recurrence.max(gap);
                gap = 0;
            }
            if cell == start {
                return;
            }
        }
    }
}

/// The places that some action writes, as the cells that they are in period 0.
fn written(schedule: &Schedule, cells: &Cells) -> Vec<bool> {
    let mut written = vec![false; cells.count()];
    let start = Turned::new(schedule, cells, 0);
    for action in schedule.actions.values() {
        start.each_cell(action, |access, cell| written[cell] |= access != Access::Read);
    }
    written
}
