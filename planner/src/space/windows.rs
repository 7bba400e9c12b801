//! Where plans begin that take fewer devices than the cluster has: the first of their devices, which
//! follow each other in the order of the program.
//!
//! Law: devices of which each is of the same kind as the one at its place among others, is joined to
//! the next one on the same level by the same link, and has one memory with it if that has, do all that
//! those others do. So of windows that are
//! alike in this the first stands for all; where all devices are of one kind and all nodes of one
//! size and link that is device 0.

use crate::space::values::{Fitting, Known};
use roundelay_dsl::{Numbers, Program};
use roundelay_schedule::{Device, DeviceId, Id, Levels, LinkId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// The devices of a cluster, as whoever takes some of them sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    asked: Numbers,
    /// The kind of each device.
    kinds: Vec<usize>,
    /// What joins each device to the next one.
    joints: Vec<Joint>,
    /// Where devices of another kind begin, or others are joined than before; the first device, and
    /// the end of the cluster.
    edges: Vec<u32>,
}

/// The innermost level that joins two devices, and its link; and whether they share a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joint {
    level: Option<(usize, LinkId)>,
    is_shared: bool,
}

impl Windows {
    /// Those of a program's cluster.
    pub(crate) fn new(program: &Program) -> Self {
        let kinds = kinds(program);
        let count = number(kinds.len());
        let others = (1..count).filter(|at| {
            let at = *at as usize;
            kinds[at] != kinds[at - 1]
        });
        let inside = seams(program).into_iter().filter(|at| *at < count);
        let edges: BTreeSet<u32> = others.chain(inside).chain([0, count]).collect();
        let (asked, edges) =
            (program.search.first_device.clone(), edges.into_iter().collect());
        Self { asked, joints: joints(program), kinds, edges }
    }

    /// Whether every plan begins with the first device of the cluster.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.asked, Numbers::Open) && self.edges.len() <= 2
    }

    /// The first devices to try where a plan takes this many, ascending; one at least. Open ones are
    /// those with which the plan begins at an edge or ends at one.
    pub(crate) fn starts(&self, devices: u32) -> Vec<u32> {
        self.known(devices).tried(&self.asked)
    }

    /// What is known of the first devices of plans of this many.
    pub(crate) fn known(&self, devices: u32) -> Known {
        let last = self.kinds.len().saturating_sub(1) as u64;
        Known { within: 0..=last, fitting: Fitting::All, open: self.open(devices) }
    }

    fn open(&self, devices: u32) -> Vec<u32> {
        let count = number(self.kinds.len());
        // All are alike, or there is no choice; no plan takes no devices.
        if self.edges.len() <= 2 || devices >= count || devices == 0 {
            return vec![0];
        }
        let begins = self.edges.iter().copied();
        let ends = self.edges.iter().filter_map(|end| end.checked_sub(devices));
        let known: BTreeSet<u32> =
            begins.chain(ends).filter(|first| *first <= count - devices).collect();
        let mut kept: Vec<u32> = Vec::new();
        for first in known {
            if !kept.iter().any(|other| self.are_alike([*other, first], devices)) {
                kept.push(first);
            }
        }
        kept
    }

    /// Whether windows of this many devices do the same.
    pub(crate) fn are_alike(&self, firsts: [u32; 2], devices: u32) -> bool {
        let [one, other] = firsts.map(|first| first as usize);
        let devices = devices as usize;
        let joints = devices.saturating_sub(1);
        self.kinds[one..one + devices] == self.kinds[other..other + devices]
            && self.joints[one..one + joints] == self.joints[other..other + joints]
    }
}

/// The kind of each device: those of one kind have everything alike but their names.
fn kinds(program: &Program) -> Vec<usize> {
    let target = &program.target;
    let mut users: BTreeMap<PoolId, usize> = BTreeMap::new();
    for device in target.devices.values() {
        *users.entry(device.pool).or_default() += 1;
    }
    let mut seen: Vec<(Device, _)> = Vec::new();
    let each = target.devices.iter().map(|(id, device)| {
        let alike = Device { name: String::new(), pool: Id::new(0), ..device.clone() };
        let pool = (target.pools[device.pool].capacity, users[&device.pool]);
        let profile = program.profiles.get(&id).map(std::sync::Arc::as_ptr);
        let own = (alike, (pool, program.prices.get(&id).copied(), profile));
        let known = seen.iter().position(|other| *other == own);
        known.unwrap_or_else(|| {
            seen.push(own);
            seen.len() - 1
        })
    });
    each.collect()
}

/// Where the domains that begin are not of the sizes and links of those that end: nodes of a size or
/// link of their own lie between such places, and between equal nodes there is none.
fn seams(program: &Program) -> Vec<u32> {
    let mut met: BTreeMap<u32, [Vec<(usize, LinkId)>; 2]> = BTreeMap::new();
    for domain in program.target.domains.iter().filter(|own| !own.devices.is_empty()) {
        let own = (domain.devices.len(), domain.link);
        met.entry(domain.devices.end).or_default()[0].push(own);
        met.entry(domain.devices.start).or_default()[1].push(own);
    }
    let differ = met.into_iter().filter_map(|(at, mut both)| {
        both.iter_mut().for_each(|domains| domains.sort_unstable());
        let [ended, begun] = both;
        (ended != begun).then_some(at)
    });
    differ.collect()
}

fn joints(program: &Program) -> Vec<Joint> {
    let levels = Levels::new(&program.target);
    let devices = &program.target.devices;
    let count = devices.len();
    let joint = |at: usize| {
        let [one, next] = [at, at + 1].map(DeviceId::new);
        let level = levels.level_between(one, next);
        Joint { level, is_shared: devices[one].pool == devices[next].pool }
    };
    (0..count.saturating_sub(1)).map(joint).collect()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::Domain;

    /// A cluster of devices of these speeds in nodes of this many.
    fn windows(speeds: &[u64], node: u32) -> Windows {
        let nodes: Vec<(u32, usize)> = vec![(node, 0); speeds.len() / node as usize];
        joined(speeds, &nodes)
    }

    /// A cluster of devices of these speeds in nodes of such sizes, each joined by one of two equally
    /// fast links; a device that is in no node comes behind them.
    fn joined(speeds: &[u64], nodes: &[(u32, usize)]) -> Windows {
        let mut program = sample::program(speeds.len(), 8);
        for ((_, device), speed) in program.target.devices.iter_mut().zip(speeds) {
            device.compute.0 = *speed;
        }
        let link = program.target.domains[0].link;
        let other = program.target.links[link].clone();
        let links = [link, program.target.links.push(other)];
        let mut end = 0;
        let nodes = nodes.iter().map(|(size, link)| {
            end += size;
            Domain { link: links[*link], devices: end - size..end }
        });
        let whole = program.target.domains.clone();
        program.target.domains = nodes.chain(whole).collect();
        Windows::new(&program)
    }

    #[test]
    fn equal_devices_have_one_window() {
        for node in [1, 2, 4, 8] {
            let all = windows(&[1; 8], node);
            assert!((1..=8).all(|devices| all.starts(devices) == [0]), "{node}");
        }
    }

    #[test]
    fn windows_begin_or_end_where_links_do() {
        let all = joined(&[1; 8], &[(4, 0), (4, 1)]);
        assert_eq!(all.starts(4), [0, 4]);
        assert_eq!(all.starts(2), [0, 4]);
        assert_eq!(all.starts(6), [0, 2]);
        assert_eq!(all.starts(1), [0]);
        let pairs = joined(&[1; 8], &[(2, 0), (2, 0), (2, 1), (2, 1)]);
        assert_eq!(pairs.starts(2), [0, 4]);
        assert_eq!(pairs.starts(4), [0, 4]);
    }

    #[test]
    fn windows_begin_or_end_where_nodes_of_another_size_do() {
        let all = joined(&[1; 6], &[(2, 0), (4, 0)]);
        // Two of either node do the same.
        assert_eq!(all.starts(2), [0]);
        assert_eq!(all.starts(4), [0, 2]);
        let alone = joined(&[1; 4], &[(2, 0)]);
        assert_eq!(alone.starts(2), [0, 2]);
    }

    #[test]
    fn windows_begin_or_end_where_kinds_do() {
        let all = windows(&[1, 1, 1, 1, 9, 9, 9, 9], 4);
        assert_eq!(all.starts(8), [0]);
        assert_eq!(all.starts(4), [0, 4]);
        // The last two of a kind do what the first two do.
        assert_eq!(all.starts(2), [0, 4]);
        assert_eq!(all.starts(6), [0, 2]);
        assert_eq!(all.starts(9), [0], "the reason why there are too few is told once");
    }

    #[test]
    fn windows_that_are_joined_alike_are_one() {
        let all = windows(&[1, 9, 1, 9, 1, 9], 2);
        assert_eq!(all.starts(1), [0, 1]);
        // A node, or the end of one and the begin of the next.
        assert_eq!(all.starts(2), [0, 1]);
        assert_eq!(all.starts(3), [0, 1]);
    }

    #[test]
    fn windows_that_share_other_memories_are_apart() {
        let mut program = sample::program(5, 8);
        let speeds = [1, 1, 1, 1, 9];
        for ((_, device), speed) in program.target.devices.iter_mut().zip(speeds) {
            device.compute.0 = speed;
        }
        let alone = Windows::new(&program);
        assert_eq!(alone.starts(3), [0, 2]);
        // Two and two of the slow ones, so that three of them fill one memory with two.
        let mut pools = program.target.pools.clone();
        let pool = program.target.pools[PoolId::new(0)].clone();
        let [one, other] = [(); 2].map(|()| pools.push(pool.clone()));
        program.target.pools = pools;
        let shared = [one, one, other, other];
        for ((_, device), pool) in program.target.devices.iter_mut().zip(shared) {
            device.pool = pool;
        }
        let pairs = Windows::new(&program);
        assert!(!pairs.are_alike([0, 1], 3));
        assert!(pairs.are_alike([0, 2], 2));
        assert!(alone.are_alike([0, 1], 3));
    }

    #[test]
    fn windows_on_other_links_are_apart() {
        let mut program = sample::program(4, 8);
        let slow = program.target.links[program.target.domains[0].link].clone();
        let slow = program.target.links.push(slow);
        let link = program.target.domains[0].link;
        let node =
            |(first, link): (u32, LinkId)| Domain { link, devices: first..first + 2 };
        let all = program.target.domains.clone();
        let nodes = [(0, link), (2, slow)].map(node);
        program.target.domains = nodes.into_iter().chain(all).collect();
        let windows = Windows::new(&program);
        assert!(!windows.are_alike([0, 2], 2));
        assert!(windows.are_alike([0, 2], 1));
    }

    #[test]
    fn what_is_asked_for_is_tried() {
        let mut all = windows(&[1; 4], 2);
        all.asked = Numbers::Ranges(vec![(1, 2), (9, 9)]);
        assert_eq!(all.starts(2), [1, 2, 9]);
        all.asked = Numbers::Ranges(vec![(0, u64::MAX)]);
        assert_eq!(all.starts(1), [0, 1, 2, 3]);
    }
}
