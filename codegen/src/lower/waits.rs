//! Waits, derived from touches that conflict in list order; what other waits and queues already
//! imply is dropped.
//!
//! A few periods are unrolled and the last one's waits are kept. Whether two instances conflict
//! depends on their distance in periods alone; every cell that is written is written again within
//! its recurrence, so no conflict reaches further back; and what leads from one instance to
//! another stands between them in the list. So unrolling begins at the horizon of the last period.

mod clocks;
mod history;
mod overlap;
#[cfg(test)]
mod tests;

use clocks::Clocks;
use history::{Earlier, Histories};
use overlap::{Overlaps, Part};
use roundelay_schedule::{
    Access, Action, ActionId, Cells, Horizon, Id, Queues, Schedule, Turned, Wait, Writes,
};
use std::cmp::Reverse;

/// Why the periods that are followed, and those between two touches, can be counted.
const SOON: &str = "a cell recurs soon";

/// Fills in `Action::after`.
pub(crate) fn derive(schedule: &mut Schedule, (cells, writes): (&Cells, &Writes)) {
    let mut unrolled = Unrolled::new(schedule, cells);
    let recurrence = writes.recurrence;
    let horizon = Horizon::before(recurrence, schedule, (cells, writes));
    let mut actions = std::mem::take(&mut schedule.actions);
    let mut turned = Turned::new(schedule, cells, 0);
    for period in horizon.period..recurrence {
        turned.turn_to(i64::try_from(period).expect(SOON));
        for (id, action) in actions.iter().skip(horizon.lines_above(period)) {
            unrolled.issue(period, id, action, &turned);
        }
    }
    turned.turn_to(i64::try_from(recurrence).expect(SOON));
    for (id, action) in actions.iter_mut() {
        unrolled.issue(recurrence, id, action, &turned);
        action.after = unrolled.waits.as_slice().into();
    }
    schedule.actions = actions;
}

struct Unrolled {
    queues: Queues,
    overlaps: Overlaps,
    histories: Histories,
    clocks: Clocks,
    /// Instances of one period.
    lines: u64,
    /// Cells that the instance touches.
    touches: Vec<(Access, usize)>,
    /// Instances that it conflicts with.
    conflicts: Vec<Earlier>,
    /// Those that it must wait for beside its queue, and the periods between.
    waits: Vec<Wait>,
}

impl Unrolled {
    fn new(schedule: &Schedule, cells: &Cells) -> Self {
        let queues = Queues::new(schedule);
        Self {
            overlaps: Overlaps::new(schedule, cells),
            histories: Histories::new(cells.count()),
            clocks: Clocks::new(queues.len()),
            lines: schedule.actions.len() as u64,
            queues,
            touches: Vec::new(),
            conflicts: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// Takes the next instance in list order, and finds its waits.
    fn issue(&mut self, period: u64, id: ActionId, action: &Action, turned: &Turned<'_>) {
        self.touches.clear();
        turned.each_cell(action, |access, cell| self.touches.push((access, cell)));
        self.collect();
        let queue = self.queues.of(action, turned);
        self.choose(queue, period);
        let number = period * self.lines + id.index() as u64;
        let me = self.histories.add(number, self.clocks.issue(queue));
        for (access, cell) in &self.touches {
            match access {
                Access::Read => self.histories.read(*cell, me, &mut self.clocks),
                Access::Write | Access::Update => {
                    for other in self.overlaps.of(*cell) {
                        // Who conflicts with what is gone conflicts with this write too.
                        if other.part == Part::All {
                            self.histories.clear(other.cell, &mut self.clocks);
                        }
                    }
                    self.histories.write(*cell, me, &mut self.clocks);
                }
            }
        }
        self.histories.release(me, &mut self.clocks);
    }

    /// Finds all conflicts, the latest first.
    fn collect(&mut self) {
        self.conflicts.clear();
        for (access, cell) in &self.touches {
            self.histories.conflicts(*access, *cell, &mut self.conflicts);
            for other in self.overlaps.of(*cell) {
                self.histories.conflicts(*access, other.cell, &mut self.conflicts);
            }
        }
        self.conflicts.sort_unstable_by_key(|earlier| Reverse(earlier.number));
    }

    /// Waits for conflicts until all are implied. An instance is implied only by later ones, so
    /// from the last to the first no wait is chosen in vain.
    fn choose(&mut self, queue: u32, period: u64) {
        self.waits.clear();
        for earlier in &self.conflicts {
            if self.clocks.wait(queue, earlier.stamp) {
                let distance = period - earlier.number / self.lines;
                let line = usize::try_from(earlier.number % self.lines);
                self.waits.push(Wait {
                    action: ActionId::new(line.expect("lines are counted in 32 bits")),
                    distance: u32::try_from(distance).expect(SOON),
                });
            }
        }
        self.waits.sort_unstable_by_key(|wait| (wait.distance, wait.action));
    }
}
