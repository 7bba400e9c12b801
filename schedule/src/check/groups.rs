//! The groups whose collectives must not cross.

use crate::{
    Axis, AxisId, DeviceId, Group, GroupId, Ring, RingId, Schedule, Table, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// For each group the others in use that share two devices with it.
pub(super) fn crossing(schedule: &Schedule) -> Table<GroupId, Vec<GroupId>> {
    let used: BTreeSet<GroupId> = (schedule.actions.values())
        .filter_map(|action| match action.work {
            Work::Collective { group, .. } => Some(group),
            _ => None,
        })
        .collect();
    let Schedule { axes, rings, groups, .. } = schedule;
    let meetings = Meetings::new((axes, rings), groups, &used);
    let others = |group| match used.contains(&group) {
        true => meetings.crossing(group),
        false => Vec::new(),
    };
    groups.ids().map(others).collect()
}

/// The groups in use by the devices that they have: of thousands few meet.
struct Meetings<'a> {
    axes: &'a Table<AxisId, Axis>,
    rings: &'a Table<RingId, Ring>,
    groups: &'a Table<GroupId, Group>,
    at_device: BTreeMap<DeviceId, Vec<GroupId>>,
    /// By all devices of their ring.
    on_ring: BTreeMap<&'a [DeviceId], Vec<GroupId>>,
}

impl<'a> Meetings<'a> {
    fn new(
        (axes, rings): (&'a Table<AxisId, Axis>, &'a Table<RingId, Ring>),
        groups: &'a Table<GroupId, Group>,
        used: &BTreeSet<GroupId>,
    ) -> Self {
        let (at_device, on_ring) = (BTreeMap::new(), BTreeMap::new());
        let mut all = Self { axes, rings, groups, at_device, on_ring };
        for group in used {
            for device in all.members(*group) {
                all.at_device.entry(device).or_default().push(*group);
            }
            let ring = &all.ring(*group).devices;
            all.on_ring.entry(ring).or_default().push(*group);
        }
        all
    }

    fn ring(&self, group: GroupId) -> &'a Ring {
        &self.rings[self.groups[group].places[0].ring]
    }

    /// The devices of its places in period 0.
    fn members(&self, group: GroupId) -> BTreeSet<DeviceId> {
        let places = self.groups[group].places.iter();
        places.map(|at| self.rings[at.ring].devices[at.place as usize]).collect()
    }

    /// The others with which an instance of a group has two devices in common.
    fn crossing(&self, group: GroupId) -> Vec<GroupId> {
        let mut met: BTreeMap<GroupId, usize> = BTreeMap::new();
        for device in self.members(group) {
            for other in &self.at_device[&device] {
                *met.entry(*other).or_default() += 1;
            }
        }
        let ring = self.ring(group);
        if ring.is_turning() {
            // In some periods one has all devices that the other one has, or the other way round.
            let places = |group: GroupId| self.groups[group].places.len();
            for other in &self.on_ring[&*ring.devices] {
                met.insert(*other, places(group).min(places(*other)));
            }
        }
        let crosses = |(other, meets): &(GroupId, usize)| {
            *other != group && self.coordinates([group, *other]) * *meets as u64 >= 2
        };
        met.into_iter().filter(crosses).map(|(other, _)| other).collect()
    }

    /// Coordinates that an instance of one group has in common with one of the other.
    fn coordinates(&self, both: [GroupId; 2]) -> u64 {
        let [one, other] = both.map(|group| &self.groups[group].axes);
        let along = one.iter().filter(|axis| other.contains(axis));
        along.map(|axis| u64::from(self.axes[*axis].extent)).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Id, Place, Splits};

    /// The most devices that an instance of one group has in common with one of the other.
    fn shared(all: &Meetings<'_>, one: GroupId, other: GroupId) -> u64 {
        let rings = [one, other].map(|group| all.ring(group));
        let meets = match rings[0].is_turning() && rings[0].devices == rings[1].devices {
            true => all.groups[one].places.len().min(all.groups[other].places.len()),
            false => all.members(one).intersection(&all.members(other)).count(),
        };
        all.coordinates([one, other]) * meets as u64
    }

    #[test]
    fn groups_that_cross_are_all_pairs_that_share_two_devices() {
        let axes = [2, 3].map(|extent| Axis {
            name: "replica".to_owned(),
            extent,
            stride: 8,
            splits: Splits::Batch,
        });
        let axes: Table<AxisId, Axis> = axes.into_iter().collect();
        let rings = [(0..1, 0), (0..3, 0), (0..3, 1), (0..3, 3), (1..3, 1), (2..4, 1)];
        let rings: Table<RingId, Ring> = (rings.into_iter())
            .map(|(devices, turn)| Ring {
                devices: devices.map(DeviceId::new).collect(),
                turn,
                lanes: 1,
            })
            .collect();
        let mut groups: Table<GroupId, Group> = Table::new();
        for (ring, Ring { devices, .. }) in rings.iter() {
            for (places, along) in
                (1..1 << devices.len()).flat_map(|set| (0..4).map(move |own| (set, own)))
            {
                let in_set = |set: u32| (0..3).filter(move |bit| set >> bit & 1 == 1);
                groups.push(Group {
                    places: in_set(places).map(|place| Place { ring, place }).collect(),
                    axes: in_set(along).map(AxisId::numbered).collect(),
                });
            }
        }
        let used: BTreeSet<GroupId> =
            groups.ids().filter(|group| group.index() % 5 != 0).collect();
        let all = Meetings::new((&axes, &rings), &groups, &used);
        let mut crossed = 0;
        for group in &used {
            let crosses =
                |other: &GroupId| other != group && shared(&all, *group, *other) >= 2;
            let expected: Vec<GroupId> = used.iter().copied().filter(crosses).collect();
            crossed += expected.len();
            assert_eq!(all.crossing(*group), expected, "{group}");
        }
        assert!(crossed > 100, "only {crossed} pairs cross");
    }
}
