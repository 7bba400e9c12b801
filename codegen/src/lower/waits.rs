//! Waits, derived from touches that conflict in list order; what other waits and queues already
//! imply is dropped.
//!
//! A few periods are unrolled and the last one's waits are kept: whether two instances conflict
//! depends on their distance in periods alone, and no conflict reaches further back than a ring
//! of devices or slots turns once.

use roundelay_schedule::{
    Access, ActionId, BufferId, DeviceId, PhysicalQueue, Schedule, Touch, Wait,
};
use std::collections::BTreeMap;

/// An instance: period, then place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    period: i64,
    action: ActionId,
}

/// A slot of a buffer on a device.
type Cell = (DeviceId, BufferId, u32);

/// Who touched a cell since it was last written, and who wrote it.
#[derive(Clone, Debug, Default)]
struct History {
    written: Option<Moment>,
    read: Vec<Moment>,
}

/// Per queue, how many of its instances are known to be done.
type Clock = Vec<u32>;

struct Unrolled<'a> {
    schedule: &'a Schedule,
    overlaps: BTreeMap<BufferId, Vec<BufferId>>,
    histories: BTreeMap<Cell, History>,
    queues: BTreeMap<PhysicalQueue, usize>,
    /// Instances issued on each queue, and the clock after its last one.
    fronts: Vec<(u32, Clock)>,
    /// Queue, number on the queue, and clock of each instance.
    clocks: BTreeMap<Moment, (usize, u32, Clock)>,
}

/// Fills in `Action::after`.
pub(crate) fn derive(schedule: &mut Schedule) {
    let rings = schedule.rings.values().map(|ring| ring.devices.len());
    let slots = schedule.buffers.values().map(|buffer| buffer.slots as usize);
    let last =
        i64::try_from(rings.chain(slots).max().unwrap_or(1)).unwrap_or(i64::MAX) + 1;
    let mut unrolled = Unrolled::new(schedule);
    let mut waits = Vec::new();
    for period in 0..=last {
        let ids: Vec<ActionId> = schedule.actions.ids().collect();
        for action in ids {
            let chosen = unrolled.issue(Moment { period, action });
            if period == last {
                waits.push(chosen);
            }
        }
    }
    for ((_, action), chosen) in schedule.actions.iter_mut().zip(waits) {
        action.after = chosen;
    }
}

impl<'a> Unrolled<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let overlaps = overlaps(schedule);
        Self {
            schedule,
            overlaps,
            histories: BTreeMap::new(),
            queues: BTreeMap::new(),
            fronts: Vec::new(),
            clocks: BTreeMap::new(),
        }
    }

    /// Takes one instance and returns what it must wait for beside its queue.
    fn issue(&mut self, moment: Moment) -> Vec<Wait> {
        let action = &self.schedule.actions[moment.action];
        let queue = self.queue(self.schedule.queue(action, moment.period));
        let mut candidates = Vec::new();
        for touch in self.schedule.touches(action) {
            self.conflicts(touch, moment, &mut candidates);
        }
        candidates.sort_unstable();
        candidates.dedup();
        let (number, mut clock) = self.fronts[queue].clone();
        let mut waits = Vec::new();
        for earlier in candidates.into_iter().rev().filter(|earlier| *earlier != moment) {
            let (on, count, known) = &self.clocks[&earlier];
            if clock.get(*on).is_some_and(|done| done > count) {
                continue;
            }
            join(&mut clock, known);
            let distance = u32::try_from(moment.period - earlier.period);
            let distance = distance.expect("a conflict is a few periods back");
            waits.push(Wait { action: earlier.action, distance });
        }
        clock.resize(clock.len().max(queue + 1), 0);
        clock[queue] = number + 1;
        self.fronts[queue] = (number + 1, clock.clone());
        self.clocks.insert(moment, (queue, number, clock));
        waits.sort_unstable_by_key(|wait| (wait.distance, wait.action));
        waits
    }

    fn queue(&mut self, queue: PhysicalQueue) -> usize {
        let fresh = self.queues.len();
        let number = *self.queues.entry(queue).or_insert(fresh);
        if number == fresh {
            self.fronts.push((0, Clock::new()));
        }
        number
    }

    fn conflicts(&mut self, touch: Touch, moment: Moment, found: &mut Vec<Moment>) {
        let ring = &self.schedule.rings[touch.at.ring];
        let device = ring.device(touch.at.place, moment.period);
        let id = touch.row.buffer;
        let slot = self.schedule.buffers[id].slot(touch.row.place, moment.period);
        let own = self.histories.entry((device, id, slot)).or_default();
        found.extend(own.written);
        if touch.access == Access::Read {
            own.read.push(moment);
            return;
        }
        found.append(&mut own.read);
        own.written = Some(moment);
        for other in self.overlaps.get(&id).into_iter().flatten() {
            if let Some(history) = self.histories.get_mut(&(device, *other, 0)) {
                found.extend(history.written.take());
                found.append(&mut history.read);
            }
        }
    }
}

/// Buffers of one slot that share addresses.
fn overlaps(schedule: &Schedule) -> BTreeMap<BufferId, Vec<BufferId>> {
    let mut overlaps = BTreeMap::<BufferId, Vec<BufferId>>::new();
    let mut rows: Vec<_> = schedule.buffers.iter().collect();
    rows.sort_by_key(|(id, buffer)| (buffer.home, buffer.offset, *id));
    for (number, (id, buffer)) in rows.iter().enumerate() {
        let end = buffer.offset + buffer.total();
        let later = rows[number + 1..].iter();
        let met = later.take_while(|(_, b)| b.home == buffer.home && b.offset < end);
        for (other, _) in met {
            overlaps.entry(*id).or_default().push(*other);
            overlaps.entry(*other).or_default().push(*id);
        }
    }
    overlaps
}

fn join(clock: &mut Clock, other: &Clock) {
    clock.resize(clock.len().max(other.len()), 0);
    for (own, known) in clock.iter_mut().zip(other) {
        *own = (*own).max(*known);
    }
}
