//! Sequential communication slots between two compute slots, along happens-before.
//!
//! Let every launch take one slot and every move none, each as early as order allows, but no
//! launch before one that is listed above it: list order is order of time. Then a chain of moves
//! from the slot of one launch to that of another may spread over the slots in between; the
//! rounds are the most that any one slot must take.

use super::limit;
use crate::{
    Action, ActionId, Cells, Id, Queue, Queues, RingId, Schedule, Turned, Work,
    turned::Wheel,
};
use std::collections::BTreeSet;

/// Slots of launches that are over, and moves since.
type Depth = (u32, u32);

/// Instances after which early and late queues have found their distance, where it is not seen
/// earlier that periods repeat.
const SETTLING: u64 = 1 << 20;

/// Counts the rounds in steady state; where devices turn for longer than can be followed, those of
/// the first periods.
pub(super) fn count(schedule: &Schedule, cells: &Cells) -> u32 {
    let lines = schedule.actions.len().max(1) as u64;
    let settling = (SETTLING / lines).clamp(2, 64);
    let cycle = cycle(schedule).min(limit::INSTANCES / lines).max(1);
    let queues = Queues::new(schedule);
    let mut rounds = Rounds::new(schedule, queues.len());
    let mut turned = Turned::new(schedule, cells, 0);
    for period in 0..settling + cycle {
        turned.turn_to(period as i64);
        if period <= settling {
            rounds.most = 0;
        }
        rounds.begin(period as usize);
        for (id, action) in schedule.actions.iter() {
            let queue = queues.of(action, &turned) as usize;
            rounds.take(id, action, queue);
        }
        if cycle == 1 && rounds.repeats() {
            break;
        }
    }
    rounds.most
}

/// Periods after which the devices that take something are back where they were.
fn cycle(schedule: &Schedule) -> u64 {
    let rings = schedule.actions.values().filter_map(|action| match action.queue() {
        Queue::Lane(at, _) | Queue::Arrival(at) | Queue::Host(at) => Some(at.ring),
        Queue::Group(_) => None,
    });
    let rings: BTreeSet<RingId> = rings.collect();
    let cycles = rings.iter().map(|ring| Wheel::of_ring(&schedule.rings[*ring]).cycle());
    cycles.max().unwrap_or(1)
}

struct Rounds {
    heads: Vec<Depth>,
    /// Depth of every line in the last `kept` periods: this one, and all that it looks back to.
    marks: Vec<Depth>,
    lines: usize,
    kept: usize,
    period: usize,
    /// The latest slot, when this period and the one before began, and now.
    bases: [u32; 2],
    latest: u32,
    most: u32,
    /// Whether the period so far looks like the one before, and how many did in a row.
    alike: bool,
    repeated: usize,
}

impl Rounds {
    fn new(schedule: &Schedule, queues: usize) -> Self {
        let lines = schedule.actions.len();
        let waits = schedule.actions.values().flat_map(|action| &action.after);
        let kept = 1 + waits.map(|wait| wait.distance as usize).max().unwrap_or(0).max(1);
        Self {
            heads: vec![(0, 0); queues],
            marks: vec![(0, 0); lines * kept],
            lines,
            kept,
            period: 0,
            bases: [0; 2],
            latest: 0,
            most: 0,
            alike: false,
            repeated: 0,
        }
    }

    fn begin(&mut self, period: usize) {
        self.period = period;
        self.bases = [self.bases[1], self.latest];
        self.alike = period > 0;
    }

    /// Whether all that later periods can ask for repeats from period to period: what stands in
    /// the periods that the next one looks back to.
    fn repeats(&mut self) -> bool {
        self.repeated = if self.alike { self.repeated + 1 } else { 0 };
        self.repeated + 1 >= self.kept
    }

    fn take(&mut self, id: ActionId, action: &Action, queue: usize) {
        let depth = self.instance(action, queue);
        self.heads[queue] = depth;
        let before = self.marks[self.row(1).unwrap_or(0) + id.index()];
        self.alike &= since(before, self.bases[0]) == since(depth, self.bases[1]);
        let row = self.row(0).unwrap_or(0);
        self.marks[row + id.index()] = depth;
    }

    /// Where the marks of a period start that lies so far back.
    fn row(&self, distance: u32) -> Option<usize> {
        let period = self.period.checked_sub(distance as usize)?;
        Some(period % self.kept * self.lines)
    }

    fn instance(&mut self, action: &Action, queue: usize) -> Depth {
        let awaited = || {
            action.after.iter().filter_map(|wait| {
                Some(self.marks[self.row(wait.distance)? + wait.action.index()])
            })
        };
        let before = match action.work {
            Work::Launch { .. } => self.heads[queue],
            _ => (0, 0),
        };
        let deepest = awaited().fold(before, Depth::max);
        match action.work {
            Work::Launch { .. } => {
                let slot = self.latest.max(deepest.0 + 1);
                let share = |(from, moves): Depth| moves.div_ceil(slot - from);
                let most = awaited().map(share).max().unwrap_or(0);
                (self.latest, self.most) = (slot, self.most.max(most));
                (slot, 0)
            }
            Work::Transfer { .. } | Work::Collective { .. } => (deepest.0, deepest.1 + 1),
            Work::Feed { .. } | Work::Report { .. } => deepest,
        }
    }
}

/// A depth counted from a slot; what waits for no launch stays at the start of the run.
fn since((slots, moves): Depth, base: u32) -> (Option<i64>, u32) {
    ((slots > 0).then(|| i64::from(slots) - i64::from(base)), moves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceId, Ring, read, seal};

    /// A file may list a ring that turns for long and that no action names.
    #[test]
    fn rings_that_nothing_uses_add_no_periods() {
        let whole = include_str!("../../../tests/fixtures/schedule/whole.schedule");
        let mut schedule = read(&seal(whole).unwrap()).unwrap();
        let before = cycle(&schedule);
        let devices = vec![DeviceId::new(0); 4096];
        schedule.rings.push(Ring { devices, turn: 1, lanes: 1 });
        assert_eq!(cycle(&schedule), before);
    }
}
