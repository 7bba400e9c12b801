//! Runs that take longer than can be counted, and what takes most of the time.

use super::Simulation;
use crate::{BytesPerSecond, Device, FlopsPerSecond, Link, Nanos, Place, Schedule, Work};
use std::fmt;

/// What takes most of a time that cannot be counted: times are 64-bit nanoseconds, and several
/// training steps are clocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endless {
    /// Work on a device.
    Device {
        /// Its name.
        name: String,
        /// What it computes.
        compute: FlopsPerSecond,
        /// What its memory moves.
        bandwidth: BytesPerSecond,
    },
    /// A message.
    Link {
        /// The link's name.
        name: String,
        /// What it moves.
        bandwidth: BytesPerSecond,
    },
}

impl From<&Device> for Endless {
    fn from(device: &Device) -> Self {
        let Device { name, compute, bandwidth, .. } = device;
        Self::Device { name: name.clone(), compute: *compute, bandwidth: *bandwidth }
    }
}

impl From<&Link> for Endless {
    fn from(link: &Link) -> Self {
        Self::Link { name: link.name.clone(), bandwidth: link.bandwidth }
    }
}

impl Simulation<'_> {
    /// What is to blame where the clock stood still, so that its times are none: whatever took longest.
    pub fn endless(&self) -> Option<Endless> {
        if self.makespan < Nanos::NEVER {
            return None;
        }
        let longest = self.entries.iter().rev().max_by_key(|one| one.end - one.start)?;
        let Schedule { target, rings, actions, .. } = self.schedule;
        let device = |at: Place| {
            let device = rings[at.ring].device(at.place, longest.period);
            Endless::from(&target.devices[device])
        };
        match &actions[longest.action].work {
            Work::Launch { at, .. } => Some(device(*at)),
            Work::Transfer { link, .. } | Work::Collective { link, .. } => {
                Some(Endless::from(&target.links[*link]))
            }
            Work::Feed { .. } | Work::Report { .. } => {
                target.devices.values().next().map(Endless::from)
            }
        }
    }
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the training steps that are clocked take longer than the 584 years that are \
             counted: ",
        )?;
        match self {
            Self::Device { name, compute, bandwidth } => {
                write!(f, "device {name} computes at {compute} and moves {bandwidth}")
            }
            Self::Link { name, bandwidth } => write!(f, "link {name} moves {bandwidth}"),
        }
    }
}
