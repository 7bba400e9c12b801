//! What the machine offers: pools, devices, link levels, and which level joins two devices.

use crate::{
    Bytes, BytesPerSecond, DeviceId, FlopsPerSecond, Id, Link, LinkId, Nanos, PoolId,
    Table, Thousandths,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

/// The devices of one cluster, numbered as the program lists them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the cluster.
    pub name: String,
    /// Memories from which devices allocate.
    pub pools: Table<PoolId, Pool>,
    /// Compute devices, in the order of the program.
    pub devices: Table<DeviceId, Device>,
    /// Kinds of links between devices.
    pub links: Table<LinkId, Link>,
    /// Nested groups of devices, innermost first; the first that holds two devices joins them.
    pub domains: Vec<Domain>,
    /// What the machine takes besides kernels and copies.
    #[serde(default, skip_serializing_if = "Host::is_free")]
    pub host: Host,
}

/// What a machine takes besides kernels and copies; nothing unless it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// From the end of what a queue waits for on another queue until it goes on.
    pub wake: Nanos,
    /// What filling each input of one micro-batch takes, in the order of the inputs.
    #[serde(default)]
    pub feeds: Vec<Nanos>,
}

impl Host {
    /// Whether it takes nothing.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

/// A memory that one or more devices allocate from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Name in messages.
    pub name: String,
    /// What all devices of the pool may take together.
    pub capacity: Bytes,
}

/// A compute device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name in messages.
    pub name: String,
    /// The memory it allocates from.
    pub pool: PoolId,
    /// What this device alone may take, where its pool has as much.
    pub memory: Bytes,
    /// Rate of arithmetic that kernels reach.
    pub compute: FlopsPerSecond,
    /// Rate of its memory.
    pub bandwidth: BytesPerSecond,
    /// Rate of its memory in updates of parameters, as a share of `bandwidth`.
    #[serde(default = "all", skip_serializing_if = "Thousandths::is_all")]
    pub updates: Thousandths,
    /// Rate of its memory in losses over classes, as a share of `bandwidth`.
    #[serde(default = "all", skip_serializing_if = "Thousandths::is_all")]
    pub losses: Thousandths,
    /// CPU threads that a kernel may use; results do not depend on it.
    pub threads: u32,
    /// Launch overhead of one kernel call.
    pub overhead: Nanos,
    /// What the host takes to issue a call, while calls that were issued before run.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub issue: Nanos,
    /// What products lose against `compute`.
    #[serde(default, skip_serializing_if = "Products::is_ideal")]
    pub products: Products,
    /// What its memory holds besides schedules: context, communication buffers, slack. `memory`
    /// is what is left.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub reserved: Bytes,
    /// Of two passes that run side by side, the share of the shorter one that hides behind the
    /// other.
    #[serde(default, skip_serializing_if = "Thousandths::is_none")]
    pub overlap: Thousandths,
}

/// What products lose against the rate of large ones; nothing unless the device says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    /// What each takes besides its arithmetic while it starts and ends; one whose arithmetic takes
    /// this long reaches half of the rate.
    pub ramp: Nanos,
    /// Share of the rate that attention reaches.
    pub attention: Thousandths,
    /// Share of the rate that products reach where a row of a matrix is no whole number of 16
    /// bytes.
    #[serde(default = "all", skip_serializing_if = "Thousandths::is_all")]
    pub unaligned: Thousandths,
}

impl Default for Products {
    fn default() -> Self {
        Self { ramp: Nanos(0), attention: all(), unaligned: all() }
    }
}

impl Products {
    /// Whether products of any size reach the rate.
    pub fn is_ideal(&self) -> bool {
        *self == Self::default()
    }
}

/// What a share is that a file does not name.
fn all() -> Thousandths {
    Thousandths::ALL
}

fn is_no_time(time: &Nanos) -> bool {
    *time == Nanos(0)
}

fn is_nothing(bytes: &Bytes) -> bool {
    *bytes == Bytes(0)
}

/// Devices with consecutive numbers that one link level joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// The level of links that joins them.
    pub link: LinkId,
    /// First device and one past the last.
    pub devices: Range<u32>,
}

impl Target {
    /// What documents call each pool: by its name, and with a number where several have that one, as
    /// those of a tier that a cluster repeats.
    pub fn pool_labels(&self) -> Table<PoolId, String> {
        let mut numbers: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for pool in self.pools.values() {
            numbers.entry(&pool.name).or_default().0 += 1;
        }
        let mut label = |pool: &Pool| match numbers.get_mut(&*pool.name) {
            Some((2.., number)) => {
                *number += 1;
                format!("{}.{}", pool.name, *number - 1)
            }
            Some(_) | None => pool.name.clone(),
        };
        let labels = self.pools.values().map(&mut label);
        labels.collect()
    }

    /// The innermost link level that joins two devices; none when nothing does.
    pub fn link_between(&self, one: DeviceId, other: DeviceId) -> Option<LinkId> {
        let holds = |domain: &&Domain| {
            [one, other].iter().all(|device| domain.devices.contains(&device.number()))
        };
        self.domains.iter().find(holds).map(|domain| domain.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_one_name_are_numbered() {
        let pool = |name: &str| Pool { name: name.to_owned(), capacity: Bytes(1) };
        let pools = ["node", "core.0", "node"].map(pool).into_iter().collect();
        let target = Target { pools, ..Target::default() };
        let labels: Vec<String> = target.pool_labels().values().cloned().collect();
        assert_eq!(labels, ["node.0", "core.0", "node.1"]);
    }
}
