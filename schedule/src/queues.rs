//! The queues of a machine, numbered densely.

use crate::{Action, DeviceId, Id, PhysicalQueue, Place, Queue, Ring, Schedule, Turned};
use std::collections::BTreeMap;

/// No action stands in it.
const UNUSED: u32 = u32::MAX;

/// All queues in which some action stands in some period, numbered from zero.
///
/// A device has a row of queues, one for arrivals, one of the host, and one per lane; a ring knows where the rows
/// of its devices start, so that finding a queue takes no search.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Per ring where the row of each of its devices starts.
    rows: Vec<Vec<u32>>,
    /// Where the queues of groups start.
    groups: usize,
    numbers: Vec<u32>,
    used: Vec<PhysicalQueue>,
}

impl Queues {
    /// As many as a schedule may have. The checker keeps a count of every queue for every queue.
    pub const MOST: usize = 1 << 12;

    /// Numbers the queues of a schedule; every place must be one of its rings'.
    pub fn new(schedule: &Schedule) -> Self {
        let (starts, groups) = rows(schedule);
        let row =
            |ring: &Ring| ring.devices.iter().map(|device| starts[device]).collect();
        let rows = schedule.rings.values().map(row).collect();
        let numbers = vec![UNUSED; groups + schedule.groups.len()];
        let mut all = Self { rows, groups, numbers, used: Vec::new() };
        for action in schedule.actions.values() {
            all.count(schedule, action.queue());
        }
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// The number of an action's queue in a period.
    #[inline]
    pub fn of(&self, action: &Action, turned: &Turned<'_>) -> u32 {
        let queue = action.queue();
        let index = match queue {
            Queue::Lane(at, _) | Queue::Arrival(at) | Queue::Host(at) => turned.index(at),
            Queue::Group(_) => 0,
        };
        self.numbers[self.key(queue, index as usize)]
    }

    /// The number of an action's queue in a period, without positions at hand.
    pub fn in_period(&self, schedule: &Schedule, action: &Action, period: i64) -> u32 {
        let queue = action.queue();
        let index = match queue {
            Queue::Lane(at, _) | Queue::Arrival(at) | Queue::Host(at) => {
                schedule.rings[at.ring].index(at.place, period)
            }
            Queue::Group(_) => 0,
        };
        self.numbers[self.key(queue, index as usize)]
    }

    /// The queue of a number.
    pub fn physical(&self, number: u32) -> PhysicalQueue {
        self.used[number as usize]
    }

    /// Where a queue stands in `numbers`, given the index of its device in the ring.
    #[inline]
    fn key(&self, queue: Queue, index: usize) -> usize {
        let row = |at: Place| self.rows[at.ring.index()][index] as usize;
        match queue {
            Queue::Arrival(at) => row(at),
            Queue::Host(at) => row(at) + 1,
            Queue::Lane(at, lane) => row(at) + 2 + lane as usize,
            Queue::Group(group) => self.groups + group.index(),
        }
    }

    /// Numbers a queue, on every device that its place means in some period.
    fn count(&mut self, schedule: &Schedule, queue: Queue) {
        match queue {
            Queue::Lane(at, _) | Queue::Arrival(at) | Queue::Host(at) => {
                let ring = &schedule.rings[at.ring];
                let first = self.key(queue, at.place as usize);
                if self.numbers[first] != UNUSED {
                    return;
                }
                for index in indices(ring, at.place) {
                    let device = ring.devices[index];
                    self.number(self.key(queue, index), physical(queue, device));
                }
            }
            Queue::Group(group) => {
                self.number(self.key(queue, 0), PhysicalQueue::Group(group));
            }
        }
    }

    fn number(&mut self, key: usize, queue: PhysicalQueue) {
        if self.numbers[key] == UNUSED {
            self.numbers[key] = self.used.len() as u32;
            self.used.push(queue);
        }
    }
}

/// Where the row of queues of each device starts, and where all rows end. A device has as many
/// lanes as the ring that wants most of it.
fn rows(schedule: &Schedule) -> (BTreeMap<DeviceId, u32>, usize) {
    let mut lanes: BTreeMap<DeviceId, u32> = BTreeMap::new();
    for ring in schedule.rings.values() {
        for device in &ring.devices {
            let known = lanes.entry(*device).or_default();
            *known = ring.lanes.max(*known);
        }
    }
    let mut end = 0;
    let start = |(device, lanes)| {
        let start = end;
        end += lanes + 2;
        (device, start)
    };
    let starts = lanes.into_iter().map(start).collect();
    (starts, end as usize)
}

/// The devices that a place means in some period, as indices of the ring.
fn indices(ring: &Ring, place: u32) -> impl Iterator<Item = usize> + use<> {
    let place = place as usize;
    if ring.is_turning() { 0..ring.devices.len() } else { place..place + 1 }
}

fn physical(queue: Queue, device: DeviceId) -> PhysicalQueue {
    match queue {
        Queue::Lane(_, lane) => PhysicalQueue::Lane(device, lane),
        Queue::Arrival(_) => PhysicalQueue::Arrival(device),
        Queue::Group(group) => PhysicalQueue::Group(group),
        Queue::Host(_) => PhysicalQueue::Host(device),
    }
}
