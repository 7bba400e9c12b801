//! The checker: turns a [`Schedule`] into [`Checked`], a proof that carries facts.

use crate::{Bytes, DeviceId, Kind, LinkId, PoolId, Schedule};
use std::{collections::BTreeMap, ops::Deref};

/// A schedule that cannot deadlock, race, read what was not written, use a wrong weight version,
/// lose a gradient, or exceed memory. Machines accept nothing else.
#[derive(Clone, Debug)]
pub struct Checked {
    schedule: Schedule,
    facts: Facts,
}

/// What the checker learned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Per device: bytes of each kind, all slots.
    pub kinds: BTreeMap<(DeviceId, Kind), Bytes>,
    /// Per device and kind: the most bytes that hold something needed at one time, in list order.
    pub live_peak: BTreeMap<(DeviceId, Kind), Bytes>,
    /// Per device: the most bytes of all kinds together that hold something needed at one time.
    pub device_live_peak: BTreeMap<DeviceId, Bytes>,
    /// Per device: bytes of its arena.
    pub device_arena: BTreeMap<DeviceId, Bytes>,
    /// Per pool: bytes of the arenas of its devices.
    pub pool_arena: BTreeMap<PoolId, Bytes>,
    /// Bytes that cross each link level in one training step, summed over senders and coordinates.
    pub link_bytes: BTreeMap<LinkId, Bytes>,
    /// Bytes that each device sends in one training step.
    pub sent: BTreeMap<DeviceId, Bytes>,
    /// Messages in one training step: transfers between devices, and collectives.
    pub messages: u64,
    /// Largest number of sequential communication slots between two compute slots.
    pub comm_rounds: u32,
}

impl Checked {
    /// What the checker learned.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
    /// Tests of machines make their own small schedules.
    #[cfg(test)]
    pub(crate) fn unproven_for_tests(schedule: Schedule) -> Self {
        Self { schedule, facts: Facts::default() }
    }
    /// The schedule, to change and check again.
    pub fn into_inner(self) -> Schedule {
        self.schedule
    }
}

impl Deref for Checked {
    type Target = Schedule;
    fn deref(&self) -> &Schedule {
        &self.schedule
    }
}
