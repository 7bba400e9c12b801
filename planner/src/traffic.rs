//! What the collectives of replicas and workers take at least, whatever algorithm they use.
//!
//! In an all-gather of Ψ bytes over m members, those g of them that lie inside some domain must
//! let in the (1 − g/m) Ψ that the others hold, and each has one port; a reduce-scatter lets as
//! much out, an all-reduce is both. Each takes a link's latency once at least; rounds and rings
//! only add to that.

use crate::load::StageLoad;
use roundelay_schedule::{DeviceId, Id, Nanos, Placement, Plan, Rule, States, Target};

/// The least time that the ports of the busiest device of the cell are taken in a training step.
pub(crate) fn traffic(plan: &Plan, loads: &[StageLoad], target: &Target) -> Nanos {
    let members = u64::from(plan.members());
    let turns = matches!(plan.placement, Placement::Data | Placement::Shared);
    if members <= 1 || (turns && plan.rule != Rule::Sync) {
        return Nanos(0);
    }
    let cell = u64::from(plan.device_count()) / members;
    let spread = matches!(plan.placement, Placement::Shared | Placement::Pipeline);
    let parts = exchanges(plan).into_iter().map(|exchange| {
        let time = |(stage, load): (usize, &StageLoad)| {
            let device = match plan.placement {
                Placement::Pipeline => seat(plan, stage),
                Placement::Shared => stage,
                _ => 0,
            };
            let rows = plan.tensor.rows as usize;
            exchange.time(target, plan.devices[device * rows], cell, load.parameters.0)
        };
        let each = loads.iter().enumerate().map(time);
        if spread { each.max().unwrap_or_default() } else { each.sum() }
    });
    parts.max().unwrap_or_default()
}

fn seat(plan: &Plan, stage: usize) -> usize {
    let seat = u32::try_from(stage).ok().and_then(|stage| plan.seat(stage));
    seat.map_or(0, |seat| seat as usize)
}

/// Collectives of one kind of group, in a step.
struct Exchange {
    /// Members, and how many cells they stand apart.
    members: u64,
    stride: u64,
    /// How many they are.
    count: u64,
    /// In units of one all-gather of a stage's parameters.
    volume: u64,
    /// Which part of the parameters they are about.
    parts: u64,
}

fn exchanges(plan: &Plan) -> Vec<Exchange> {
    let (members, n) = (u64::from(plan.members()), u64::from(plan.cell_micro_batches()));
    let all =
        |count, volume| vec![Exchange { members, stride: 1, count, volume, parts: 1 }];
    match plan.states {
        States::Replicated => all(1, 2),
        States::Zero1 => all(2, 2),
        States::Zero2 => all(1 + n, 1 + n),
        States::Zero3 => all(3 * n, 3 * n),
        States::Hsdp => {
            let shards = u64::from(plan.shards).max(1);
            vec![
                Exchange {
                    members: shards,
                    stride: 1,
                    count: 3 * n,
                    volume: 3 * n,
                    parts: 1,
                },
                Exchange {
                    members: members / shards,
                    stride: shards,
                    count: 1,
                    volume: 2,
                    parts: shards,
                },
            ]
        }
        States::Handoff => Vec::new(),
    }
}

impl Exchange {
    /// The least time for a stage with so many bytes of parameters, whose first member is `first`.
    fn time(&self, target: &Target, first: DeviceId, cell: u64, bytes: u64) -> Nanos {
        if bytes == 0 {
            return Nanos(0);
        }
        let first = first.index() as u64;
        let holds = |device: u64, range: &std::ops::Range<u32>| {
            (u64::from(range.start)..u64::from(range.end)).contains(&device)
        };
        let chain: Vec<_> =
            target.domains.iter().filter(|d| holds(first, &d.devices)).collect();
        let mut least = Nanos(0);
        for inner in 0..chain.len() {
            let inside = match inner.checked_sub(1) {
                None => 1,
                Some(domain) => {
                    let device = |k| first + k * self.stride * cell;
                    let range = &chain[domain].devices;
                    (0..self.members).filter(|k| holds(device(*k), range)).count() as u64
                }
            };
            if inside >= self.members {
                break;
            }
            let links = || chain[inner..].iter().map(|domain| &target.links[domain.link]);
            let rate = links().map(|link| link.fastest().0).max().unwrap_or(u64::MAX);
            let latency = links().map(|link| link.latency).min().unwrap_or_default();
            let entering = self.entering(inside, rate, bytes);
            least = least.max(latency * self.count + entering);
        }
        least
    }

    /// The time in which what others hold passes so many ports.
    fn entering(&self, inside: u64, rate: u64, bytes: u64) -> Nanos {
        let outside = u128::from(self.members.saturating_sub(inside));
        let moved = u128::from(bytes) * u128::from(self.volume) * outside;
        let ports =
            [self.members, self.parts, inside, rate].map(|n| u128::from(n.max(1)));
        let time = moved * 1_000_000_000 / ports.iter().product::<u128>().max(1);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Bytes, BytesPerSecond, Domain, Link, Order};

    /// Nodes of two devices with 8 bytes per nanosecond, joined by 1 byte per nanosecond.
    fn target() -> Target {
        let mut target = sample::target(8);
        let link = |name, rate| Link::plain(name, BytesPerSecond(rate), Nanos(0));
        target.links = [link("bus", 8_000_000_000), link("net", 1_000_000_000)]
            .into_iter()
            .collect();
        let domain = |link, devices| Domain { link: Id::new(link), devices };
        let nodes = (0..4).map(|node| domain(0, 2 * node..2 * node + 2));
        target.domains = nodes.chain([domain(1, 0..8)]).collect();
        target
    }

    #[test]
    fn what_leaves_a_node_takes_its_ports() {
        let load = StageLoad {
            forward: Nanos(0),
            backward: Nanos(0),
            parameters: Bytes(8_000),
            optimizer: Bytes(0),
            activation: Bytes(0),
        };
        let loads = vec![load; 2];
        let least = |states, replicas, shards| {
            let plan = Plan::new(
                Rule::Sync,
                Placement::Accumulate,
                Order::Sequential,
                states,
                2,
                vec![2],
            );
            traffic(&plan.replicated(replicas, shards), &loads, &target())
        };
        // 2 stages · 2Ψ · (1 − 2/8) through two ports of 1 byte per nanosecond.
        assert_eq!(least(States::Replicated, 8, 1), Nanos(2 * 2 * 8_000 * 6 / 8 / 2));
        assert_eq!(least(States::Zero3, 8, 1), Nanos(2 * 6 * 8_000 * 6 / 8 / 2));
        // Inside a node 6Ψ · 1/2 at 8 bytes per nanosecond; across, 2 · Ψ/2 · 3/4 at 1.
        assert_eq!(least(States::Hsdp, 8, 2), Nanos(2 * 2 * 4_000 * 3 / 4));
        assert_eq!(least(States::Replicated, 1, 1), Nanos(0));
    }
}
