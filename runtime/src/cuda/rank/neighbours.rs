//! With which ranks this one exchanges messages at any time: NCCL takes memory for each rank that it
//! connects with, so it is connected with these alone.
//!
//! All ranks derive that from the schedule, and it goes both ways: one is another's neighbour if that
//! one is its own.

use super::super::ready::Code;
use crate::{
    cuda::{exchange::Meeting, ready::Work as Call},
    machine::{Member, members},
    ranks::{Owners, Seated},
};
use roundelay_schedule::{
    DeviceId, GroupId, Place, RingId, RoutineId, Schedule, Work, gcd, lcm,
};
use std::collections::BTreeSet;

/// The neighbours of a rank, by their numbers.
pub(super) fn neighbours(
    schedule: &Schedule,
    code: &Code,
    seated: Seated,
    owners: &Owners,
) -> BTreeSet<u32> {
    let moves = Moves::of(schedule);
    let coordinates = schedule.coordinates();
    let own = Own { schedule, coordinates: &coordinates, seated };
    let mut found = own.transfers(&moves.transfers);
    found.extend(own.collectives(&moves.groups));
    let meetings = |(at, routine): &(Place, RoutineId)| {
        let calls = code.routines[*routine].calls.iter();
        let met = calls.filter_map(|call| match &call.work {
            Call::Together(meeting) => Some(*meeting),
            Call::Alone(_) => None,
        });
        own.parts(*at, met)
    };
    found.extend(moves.launches.iter().flat_map(meetings));
    found.remove(&seated.device);
    found.iter().map(|device| owners.rank(*device)).collect()
}

/// All that moves, each once.
#[derive(Default)]
struct Moves {
    transfers: BTreeSet<(Place, Place)>,
    groups: BTreeSet<GroupId>,
    launches: BTreeSet<(Place, RoutineId)>,
}

impl Moves {
    fn of(schedule: &Schedule) -> Self {
        let mut moves = Self::default();
        for action in schedule.actions.values() {
            match &action.work {
                Work::Transfer { from, to, .. } => {
                    moves.transfers.insert((from.at, to.at));
                }
                Work::Collective { group, .. } => {
                    moves.groups.insert(*group);
                }
                Work::Launch { at, routine, .. } => {
                    moves.launches.insert((*at, *routine));
                }
                Work::Feed { .. } | Work::Report { .. } => {}
            }
        }
        moves
    }
}

/// The device of this rank in the schedule.
struct Own<'a> {
    schedule: &'a Schedule,
    coordinates: &'a [Vec<u32>],
    seated: Seated,
}

impl Own<'_> {
    /// Periods after which some rings stand as before.
    fn cycle(&self, rings: impl Iterator<Item = RingId>) -> i64 {
        let lengths = rings.map(|ring| {
            let ring = &self.schedule.rings[ring];
            let length = ring.devices.len().max(1) as u64;
            length / gcd(length, u64::from(ring.turn))
        });
        let all = lengths.fold(1, lcm);
        i64::try_from(all).unwrap_or(i64::MAX)
    }

    fn cell(&self, at: Place, period: i64) -> DeviceId {
        self.schedule.rings[at.ring].device(at.place, period)
    }

    /// Devices to which transfers go from this one, or from which they come.
    fn transfers(&self, all: &BTreeSet<(Place, Place)>) -> BTreeSet<DeviceId> {
        let own = self.seated.cell;
        let others = all.iter().flat_map(|(from, to)| {
            let ends = [*from, *to];
            (0..self.cycle(ends.iter().map(|at| at.ring))).filter_map(move |period| {
                match ends.map(|at| self.cell(at, period)) {
                    [from, to] if from == own => Some(to),
                    [from, to] if to == own => Some(from),
                    [_, _] => None,
                }
            })
        });
        let cells: BTreeSet<DeviceId> = others.collect();
        let coordinate = &self.coordinates[self.seated.coordinate];
        cells.into_iter().map(|cell| self.schedule.device_at(cell, coordinate)).collect()
    }

    /// Devices that are in a collective together with this one.
    fn collectives(&self, all: &BTreeSet<GroupId>) -> BTreeSet<DeviceId> {
        let mut found = BTreeSet::new();
        for group in all {
            let group = &self.schedule.groups[*group];
            let cycle = self.cycle(group.places.iter().map(|at| at.ring));
            for instance in members(self.schedule, group) {
                for period in 0..cycle {
                    let device = |&Member { coordinate, place }: &Member| {
                        let cell = self.cell(place, period);
                        self.schedule.device_at(cell, &self.coordinates[coordinate])
                    };
                    let devices: Vec<DeviceId> = instance.iter().map(device).collect();
                    if devices.contains(&self.seated.device) {
                        found.extend(devices);
                    }
                }
            }
        }
        found
    }

    /// Devices of the parts that meet this one in a launch.
    fn parts(
        &self,
        at: Place,
        meetings: impl Iterator<Item = Meeting>,
    ) -> BTreeSet<DeviceId> {
        let Seated { cell, coordinate, .. } = self.seated;
        if !self.schedule.rings[at.ring].devices.contains(&cell) {
            return BTreeSet::new();
        }
        let parts = self.schedule.tensor_parts() as usize;
        let own = self.schedule.part_at(&self.coordinates[coordinate]) as usize;
        let first = coordinate - own;
        let mut found = BTreeSet::new();
        for meeting in meetings {
            for mut line in meeting.lines(parts) {
                if line.clone().any(|part| part == own) {
                    found.extend(line.by_ref().map(|part| {
                        let coordinate = &self.coordinates[first + part];
                        self.schedule.device_at(cell, coordinate)
                    }));
                }
            }
        }
        found
    }
}
