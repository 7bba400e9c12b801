//! A plan with its costs.

use crate::{
    costs::measured::Origins,
    search::{
        bound::Bound,
        objective::{Goal, Score},
    },
};
use roundelay_schedule::{Bytes, Exactness, Kind, Nanos, Plan};
use std::collections::BTreeMap;

/// A plan that was lowered, checked and clocked.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Every decision.
    pub plan: Plan,
    /// Examples of one training step.
    pub batch: u32,
    /// One training step in the steady state, on the clock.
    pub step_time: Nanos,
    /// Arena of the fullest device.
    pub device_peak: Bytes,
    /// Bytes of each kind on that device, all slots.
    pub memory: BTreeMap<Kind, Bytes>,
    /// Memory by pool, each under its [label](roundelay_schedule::Target::pool_labels).
    pub pools: BTreeMap<String, PoolUse>,
    /// Bytes that a device sends in one training step, on average over the devices in use,
    /// rounded up.
    pub comm_bytes_per_device: Bytes,
    /// Largest number of sequential communication slots between two compute slots.
    pub comm_rounds: u32,
    /// Share of the devices' time in which no kernel runs, in the steady state.
    pub bubble: f64,
    /// Where its devices are of several kinds, the share of the time in which those of each compute
    /// nothing, in the steady state.
    pub idle: BTreeMap<String, f64>,
    /// Where the times of its kernel calls come from.
    pub origins: Origins,
    /// Lower bounds of time and memory.
    pub bound: Bound,
    /// Place in the order of the search.
    pub number: usize,
}

/// What the devices of one pool take of it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Sum over the devices of the most bytes that hold something needed at one time.
    pub live_peak: Bytes,
    /// Sum of the devices' arenas.
    pub arena: Bytes,
}

impl Candidate {
    /// Its score.
    pub(crate) fn score(&self, goal: &Goal) -> Score {
        let standing = goal.standing(&self.plan);
        goal.score(standing, self.step_time, self.device_peak, self.number)
    }

    /// The class of its gradients.
    pub fn exactness(&self) -> Exactness {
        self.plan.exactness()
    }

    /// Examples per second in the steady state.
    pub fn samples_per_s(&self) -> f64 {
        f64::from(self.batch) / seconds(self.step_time)
    }

    /// The largest number of updates that some parameters lag behind.
    pub fn staleness(&self) -> u32 {
        self.plan.delays.max()
    }

    /// The share of all (stage, micro-batch) that is not fresh.
    pub fn stale_share(&self) -> f64 {
        let (stale, all) = self.plan.delays.stale();
        stale as f64 / all.max(1) as f64
    }
}

/// A time in seconds.
pub(crate) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
