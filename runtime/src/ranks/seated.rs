//! Which device of a schedule is which rank's: every rank has one.

use super::control::Control;
use crate::machine::arena_sizes;
use roundelay_schedule::{DeviceId, Place, Schedule, Work, counted};
use std::{collections::BTreeMap, sync::Arc};

/// A schedule for another number of devices than there are ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the schedule uses {}, but the world has {}; {}",
    counted(*devices as u64, "device"),
    counted((*ranks).into(), "rank"),
    self.hint()
)]
pub struct WorldSize {
    /// Devices of the schedule.
    pub devices: usize,
    /// Processes.
    pub ranks: u32,
}

impl WorldSize {
    /// What would repair it, as the message ends with.
    pub fn hint(&self) -> String {
        let Self { devices, ranks } = self;
        format!(
            "start {devices}, or plan the program for {ranks} (`--set \"devices = {ranks}\"`, for a \
             schedule file at `compile`)"
        )
    }
}

/// The rank of every device of the target that a schedule uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners(BTreeMap<DeviceId, u32>);

/// The device of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seated {
    /// In the target.
    pub(crate) device: DeviceId,
    /// In the cell.
    pub(crate) cell: DeviceId,
    /// Number of its coordinate.
    pub(crate) coordinate: usize,
}

/// This rank among those of a schedule.
#[derive(Clone)]
pub(crate) struct Among {
    /// Its way to the others.
    pub(crate) control: Arc<Control>,
    pub(crate) owners: Owners,
    pub(crate) seated: Seated,
}

impl Among {
    /// Gives each rank a device, in their order.
    ///
    /// # Errors
    /// When there are not as many.
    pub(crate) fn of(
        schedule: &Schedule,
        control: Arc<Control>,
    ) -> Result<Self, WorldSize> {
        let devices = arena_sizes(schedule);
        let ranks = control.seat().size;
        if devices.len() != ranks as usize {
            return Err(WorldSize { devices: devices.len(), ranks });
        }
        let owners = Owners(devices.into_keys().zip(0..).collect());
        let seated = Seated::of(schedule, &owners, control.seat().rank);
        Ok(Self { control, owners, seated })
    }

    /// Whether this is the first rank, which has what all make together.
    pub(crate) fn is_first(&self) -> bool {
        self.control.seat().is_first()
    }
}

impl Owners {
    /// The rank that has a device.
    pub(crate) fn rank(&self, device: DeviceId) -> u32 {
        self.0[&device]
    }
}

impl Seated {
    /// Where a rank sits.
    fn of(schedule: &Schedule, owners: &Owners, rank: u32) -> Self {
        let cells = || schedule.rings.values().flat_map(|ring| ring.devices.clone());
        let coordinates = schedule.coordinates();
        let mut all = coordinates.iter().enumerate().flat_map(|(coordinate, own)| {
            cells().map(move |cell| {
                let device = schedule.device_at(cell, own);
                Self { device, cell, coordinate }
            })
        });
        let own = all.find(|seated| owners.rank(seated.device) == rank);
        own.expect("every owner's device is a device of the cell at a coordinate")
    }

    /// The device of the first of the parts among which this one is.
    pub(crate) fn first_part(&self, schedule: &Schedule) -> DeviceId {
        let coordinates = schedule.coordinates();
        let part = schedule.part_at(&coordinates[self.coordinate]) as usize;
        schedule.device_at(self.cell, &coordinates[self.coordinate - part])
    }

    /// Whether a place is this rank's in a period, at the coordinate that it has.
    pub(crate) fn has(&self, schedule: &Schedule, at: Place, period: i64) -> bool {
        schedule.rings[at.ring].device(at.place, period) == self.cell
    }

    /// Whether an action touches the device of this rank in a period.
    pub(crate) fn takes(&self, schedule: &Schedule, work: &Work, period: i64) -> bool {
        let has = |at: Place| self.has(schedule, at, period);
        match work {
            Work::Launch { at, .. } | Work::Feed { at, .. } | Work::Report { at, .. } => {
                has(*at)
            }
            Work::Transfer { from, to, .. } => has(from.at) || has(to.at),
            Work::Collective { group, .. } => {
                schedule.groups[*group].places.iter().any(|at| has(*at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many devices the cluster has says nothing of how many a plan takes.
    #[test]
    fn another_number_of_ranks_is_told_with_what_helps() {
        let told = WorldSize { devices: 2, ranks: 3 }.to_string();
        assert!(told.contains("(`--set \"devices = 3\"`, for a schedule file"), "{told}");
    }
}
