//! Plans that take longer than can be counted: times are 64-bit nanoseconds, and several training
//! steps are clocked.

use crate::{search::bound::Bound, space::outline::Outline};
use roundelay_dsl::Program;
use roundelay_schedule::{
    BytesPerSecond, Device, FlopsPerSecond, Link, Nanos, Schedule, Simulation, Target,
    Work,
};
use std::fmt;

/// The longest step that is planned. The clock goes through four at least, and through more where
/// devices or slots turn; it stands still where all of them take longer than 64 bits count.
const LONGEST: Nanos = Nanos(u64::MAX / 4);

/// What takes most of a time that cannot be counted.
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

impl Endless {
    fn device(device: &Device) -> Self {
        let Device { name, compute, bandwidth, .. } = device;
        Self::Device { name: name.clone(), compute: *compute, bandwidth: *bandwidth }
    }

    fn link(link: &Link) -> Self {
        Self::Link { name: link.name.clone(), bandwidth: link.bandwidth }
    }

    /// What is to blame where a plan takes too long by its bounds: the slowest link where messages do,
    /// else the slowest device.
    pub(crate) fn of_bound(
        program: &Program,
        outline: &Outline,
        bound: &Bound,
    ) -> Option<Self> {
        if bound.step_time() <= LONGEST {
            return None;
        }
        let Target { devices, links, .. } = &program.target;
        if bound.work.max(bound.path) <= LONGEST {
            return links.values().min_by_key(|link| link.bandwidth).map(Self::link);
        }
        let first = outline.counts.first_device as usize;
        let own = devices.values().skip(first).take(outline.devices as usize);
        let rate = |device: &&Device| device.compute.0.min(device.bandwidth.0);
        own.min_by_key(rate).map(Self::device)
    }

    /// What is to blame where the clock stood still: whatever took longest.
    pub(crate) fn of_clock(schedule: &Schedule, run: &Simulation<'_>) -> Option<Self> {
        if run.step_time() <= LONGEST {
            return None;
        }
        let longest = run.entries().iter().rev().max_by_key(|one| one.end - one.start)?;
        let target = &schedule.target;
        let device = |at: roundelay_schedule::Place| {
            let device = schedule.rings[at.ring].device(at.place, longest.period);
            Self::device(&target.devices[device])
        };
        match &schedule.actions[longest.action].work {
            Work::Launch { at, .. } => Some(device(*at)),
            Work::Transfer { link, .. } | Work::Collective { link, .. } => {
                Some(Self::link(&target.links[*link]))
            }
            Work::Feed { .. } | Work::Report { .. } => {
                target.devices.values().next().map(Self::device)
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
