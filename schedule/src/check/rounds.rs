//! Sequential communication slots between two compute slots, along happens-before.
//!
//! Let every launch take one slot and every move none, each as early as order allows, but no
//! launch before one that is listed above it: list order is order of time. Then a chain of moves
//! from the slot of one launch to that of another may spread over the slots in between; the
//! rounds are the most that any one slot must take.

use super::{
    layout::{Layout, Turned},
    queues::Queues,
};
use crate::{Action, Id, Schedule, Work};

/// Slots of launches that are over, and moves since.
type Depth = (u32, u32);

/// Counts the rounds in steady state.
pub(super) fn count(schedule: &Schedule, layout: &Layout) -> u32 {
    let lines = schedule.actions.len();
    let settling = (SETTLING / lines.max(1) as u64).clamp(2, 64);
    let queues = Queues::new(schedule);
    let waits = schedule.actions.values().flat_map(|action| &action.after);
    let kept = 1 + waits.map(|wait| wait.distance as usize).max().unwrap_or(0);
    let mut rounds = Rounds {
        heads: vec![(0, 0); queues.len()],
        marks: vec![(0, 0); lines * kept],
        lines,
        kept,
        latest: 0,
        most: 0,
    };
    let mut turned = Turned::new(schedule, layout, 0);
    for period in 0..settling + layout.recurrence {
        turned.turn_to(period as i64);
        if period <= settling {
            rounds.most = 0;
        }
        for (id, action) in schedule.actions.iter() {
            let queue = queues.of(action, &turned) as usize;
            let depth = rounds.instance(action, queue, period as usize);
            rounds.heads[queue] = depth;
            rounds.marks[period as usize % kept * lines + id.index()] = depth;
        }
    }
    rounds.most
}

/// Instances after which early and late queues have found their distance.
const SETTLING: u64 = 1 << 20;

struct Rounds {
    heads: Vec<Depth>,
    marks: Vec<Depth>,
    lines: usize,
    kept: usize,
    latest: u32,
    most: u32,
}

impl Rounds {
    fn instance(&mut self, action: &Action, queue: usize, period: usize) -> Depth {
        let before = |distance: u32| period.checked_sub(distance as usize);
        let awaited = || {
            action.after.iter().filter_map(|wait| {
                let row = before(wait.distance)? % self.kept;
                Some(self.marks[row * self.lines + wait.action.index()])
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
                self.latest = slot;
                let share = |(from, moves): Depth| moves.div_ceil(slot - from);
                let most = awaited().map(share).max().unwrap_or(0);
                self.most = self.most.max(most);
                (slot, 0)
            }
            Work::Transfer { .. } | Work::Collective { .. } => (deepest.0, deepest.1 + 1),
            Work::Feed { .. } | Work::Report { .. } => deepest,
        }
    }
}
