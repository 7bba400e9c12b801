//! The groups whose collectives must not cross.

use crate::{Group, GroupId, Place, Schedule, Table, Work};
use std::collections::BTreeSet;

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
    let meets =
        if frame(first).is_turning() && frame(first).devices == frame(second).devices {
            first.places.len().min(second.places.len())
        } else {
            members(first).intersection(&members(second)).count()
        };
    let along = first.axes.iter().filter(|axis| second.axes.contains(axis));
    along.map(|axis| u64::from(schedule.axes[*axis].extent)).product::<u64>()
        * meets as u64
}
