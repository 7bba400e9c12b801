//! The queues of a machine, numbered, and the groups whose collectives must not cross.

use super::layout::Turned;
use crate::{
    Action, Group, GroupId, PhysicalQueue, Place, Queue, Ring, Schedule, Table, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// All queues in use, numbered.
#[derive(Debug)]
pub(super) struct Queues(BTreeMap<PhysicalQueue, u32>);

impl Queues {
    /// Numbers the queues in which some action stands in some period.
    pub(super) fn new(schedule: &Schedule) -> Self {
        let logical: BTreeSet<Queue> =
            schedule.actions.values().map(Action::queue).collect();
        let mut all = BTreeSet::new();
        for queue in logical {
            match queue {
                Queue::Lane(place, lane) => {
                    let device = |device| PhysicalQueue::Lane(device, lane);
                    all.extend(devices(schedule, place).map(device));
                }
                Queue::Arrival(place) => {
                    all.extend(devices(schedule, place).map(PhysicalQueue::Arrival));
                }
                Queue::Group(group) => drop(all.insert(PhysicalQueue::Group(group))),
                Queue::Host(place) => {
                    all.extend(devices(schedule, place).map(PhysicalQueue::Host));
                }
            }
        }
        Self(all.into_iter().zip(0..).collect())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The queue of an action in one period.
    pub(super) fn of(&self, action: &Action, turned: &Turned<'_>) -> u32 {
        self.0[&match action.queue() {
            Queue::Lane(place, lane) => PhysicalQueue::Lane(turned.device(place), lane),
            Queue::Arrival(place) => PhysicalQueue::Arrival(turned.device(place)),
            Queue::Group(group) => PhysicalQueue::Group(group),
            Queue::Host(place) => PhysicalQueue::Host(turned.device(place)),
        }]
    }
}

fn devices(schedule: &Schedule, at: Place) -> impl Iterator<Item = crate::DeviceId> {
    let ring = &schedule.rings[at.ring];
    let all = if turns(ring) {
        &ring.devices[..]
    } else {
        std::slice::from_ref(&ring.devices[at.place as usize])
    };
    all.iter().copied()
}

fn turns(ring: &Ring) -> bool {
    !(ring.turn as usize).is_multiple_of(ring.devices.len())
}

/// For each group the others in use that share two devices with it.
pub(super) fn crossing(schedule: &Schedule) -> Table<GroupId, Vec<GroupId>> {
    let used: BTreeSet<GroupId> = (schedule.actions.values())
        .filter_map(|action| match action.work {
            Work::Collective { group, .. } => Some(group),
            _ => None,
        })
        .collect();
    let others = |group: GroupId| {
        let crosses =
            |other: &GroupId| *other != group && shared(schedule, group, *other) >= 2;
        used.iter().copied().filter(crosses).collect()
    };
    let all = schedule.groups.ids();
    all.map(|group| if used.contains(&group) { others(group) } else { Vec::new() })
        .collect()
}

/// The most devices that an instance of one group has in common with one of the other.
fn shared(schedule: &Schedule, one: GroupId, other: GroupId) -> u64 {
    let [first, second] = [one, other].map(|group| &schedule.groups[group]);
    let members = |group: &Group| -> BTreeSet<_> {
        let device = |at: &Place| schedule.rings[at.ring].devices[at.place as usize];
        group.places.iter().map(device).collect()
    };
    let frame = |group: &Group| &schedule.rings[group.places[0].ring];
    let meets = if turns(frame(first)) && frame(first).devices == frame(second).devices {
        first.places.len().min(second.places.len())
    } else {
        members(first).intersection(&members(second)).count()
    };
    let along = first.axes.iter().filter(|axis| second.axes.contains(axis));
    along.map(|axis| u64::from(schedule.axes[*axis].extent)).product::<u64>()
        * meets as u64
}
