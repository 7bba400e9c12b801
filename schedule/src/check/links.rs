//! Rule 1 for links: every move goes over the level that joins its devices, in every period and
//! at every coordinate.

use super::{Culprit, faults::Faults, limit};
use crate::{
    ActionId, DeviceId, Group, GroupId, Id, Levels, LinkId, Place, Schedule, Work, lcm,
    turned::Wheel,
};
use std::collections::BTreeSet;

/// Checks the link of every move; needs sound actions.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let levels = Levels::new(&schedule.target);
    let (known, groups) = (BTreeSet::new(), BTreeSet::new());
    let shifts = schedule.shifts();
    let mut links = Links { schedule, faults, levels, shifts, known, groups, work: 0 };
    for (id, action) in schedule.actions.iter() {
        match &action.work {
            Work::Transfer { link, from, to, .. } => {
                links.transfer(id, *link, [from.at, to.at]);
            }
            Work::Collective { link, group, .. } => {
                links.collective(id, *link, *group);
            }
            Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => {}
        }
        if links.work > limit::INSTANCES {
            return links.faults.beyond(
                Culprit::Action(id),
                "too many devices take turns in moves; use fewer coordinates",
            );
        }
    }
}

struct Links<'a> {
    schedule: &'a Schedule,
    faults: &'a mut Faults,
    levels: Levels<'a>,
    /// From the devices of the cell to those that repeat them.
    shifts: Vec<u32>,
    /// Moves that were found right.
    known: BTreeSet<(LinkId, [Place; 2])>,
    groups: BTreeSet<(LinkId, GroupId)>,
    work: u64,
}

impl Links<'_> {
    fn transfer(&mut self, id: ActionId, link: LinkId, ends: [Place; 2]) {
        if !self.known.insert((link, ends)) {
            return;
        }
        let schedule = self.schedule;
        let rings = ends.map(|end| &schedule.rings[end.ring]);
        let looked = self.shifts.len() * self.levels.each().len().max(1);
        let [one, other] = rings.map(|ring| Wheel::of_ring(ring).cycle());
        for period in 0..lcm(one, other) {
            let pair =
                [0, 1].map(|e: usize| rings[e].device(ends[e].place, period as i64));
            self.work += looked as u64;
            if pair[0] == pair[1] || self.work > limit::INSTANCES {
                continue;
            }
            for shift in &self.shifts {
                let real = pair.map(|device: DeviceId| device.shifted(*shift));
                let right = self.levels.link_between(real[0], real[1]);
                if right != Some(link) {
                    self.known.remove(&(link, ends));
                    return self.refuse(id, link, right, real);
                }
            }
        }
    }

    fn collective(&mut self, id: ActionId, link: LinkId, group: GroupId) {
        if !self.groups.insert((link, group)) {
            return;
        }
        let schedule = self.schedule;
        let members = &schedule.groups[group];
        let ring = &schedule.rings[members.places[0].ring];
        let looked = members.places.len() + self.levels.each().len();
        let others = others(schedule, members);
        for period in 0..Wheel::of_ring(ring).cycle() {
            for coordinate in &others {
                self.work += looked as u64;
                let ends = ends(schedule, members, period as i64, coordinate);
                let right = self.levels.link_between(ends[0], ends[1]);
                if ends[0] != ends[1] && right != Some(link) {
                    self.groups.remove(&(link, group));
                    return self.refuse(id, link, right, ends);
                }
            }
        }
    }

    fn refuse(
        &mut self,
        id: ActionId,
        link: LinkId,
        right: Option<LinkId>,
        [one, other]: [DeviceId; 2],
    ) {
        let problem = match right {
            Some(right) => {
                format!("goes over {link}, but {one} and {other} are joined by {right}")
            }
            None => format!("goes from {one} to {other}, which no link joins"),
        };
        self.faults.malformed(Culprit::Action(id), problem);
    }
}

/// The coordinates at which instances of a group's collectives run: zero along its own axes.
fn others(schedule: &Schedule, group: &Group) -> Vec<Vec<u32>> {
    let zero = |coordinate: &Vec<u32>| {
        group.axes.iter().all(|axis| coordinate[axis.index()] == 0)
    };
    let mut all = schedule.coordinates();
    all.retain(zero);
    all
}

/// The first and the last device of a group.
fn ends(
    schedule: &Schedule,
    group: &Group,
    period: i64,
    coordinate: &[u32],
) -> [DeviceId; 2] {
    let far: Vec<u32> = (schedule.axes.iter())
        .map(|(id, axis)| match group.axes.contains(&id) {
            true => axis.extent - 1,
            false => coordinate[id.index()],
        })
        .collect();
    let devices =
        || group.places.iter().map(|at| schedule.rings[at.ring].device(at.place, period));
    let (least, most) = (devices().min(), devices().max());
    let zero = DeviceId::new(0);
    [
        schedule.device_at(least.unwrap_or(zero), coordinate),
        schedule.device_at(most.unwrap_or(zero), &far),
    ]
}
