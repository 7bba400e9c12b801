//! The law of ports: a message holds the sender's outgoing and the receiver's incoming port all
//! the time that it takes, and a collective both ports of every member. So what the messages of a
//! step take of one port is no more than the step.

use super::{
    holders,
    network::{Members, Network},
    rest::Most,
};
use crate::costs::load::StageLoad;
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, Collective, Id, Nanos, Placement, Plan, States};

/// The least time that the state of the fullest device takes of its ports: all its stages at once
/// take no longer than one after another, but for the nanosecond to which each of the messages to
/// other members is rounded up, twice around at most.
pub(super) fn of_nodes(
    program: &Program,
    plan: &Plan,
    most: Most,
    network: &mut Network<'_>,
) -> Nanos {
    let dtype = program.train.dtype;
    let state = State {
        parameters: Bytes(most.all) * dtype.size(),
        gradient: Bytes(most.all) * dtype.gradient().size(dtype),
        passes: if most.reads { 2 } else { 1 },
    };
    let all = exchanges(plan, state, place(plan, most.device));
    let least = |one: &Exchange| {
        let rounding = Nanos(2 * u64::from(one.members.number));
        (one.time(network) - rounding) * one.count
    };
    all.iter().map(least).sum()
}

/// The least time that the ports of the busiest device of the cell are taken in a training step.
pub(super) fn traffic(
    plan: &Plan,
    loads: &[StageLoad],
    network: &mut Network<'_>,
) -> Nanos {
    let mut devices: Vec<[Nanos; 2]> = Vec::new();
    let mut known: Option<(&StageLoad, Nanos)> = None;
    let below = alike_below(plan, network);
    for (stage, load) in loads.iter().enumerate() {
        let device = device(plan, stage);
        let first = place(plan, device);
        let repeats = first < below;
        let alike = known.filter(|(other, _)| {
            repeats && (other.parameters, other.reads) == (load.parameters, load.reads)
        });
        let time = match alike {
            Some((_, time)) => time,
            None => {
                let exchanges = exchanges(plan, State::of(load), first);
                let each =
                    exchanges.map(|exchange| exchange.time(network) * exchange.count);
                each.into_iter().sum()
            }
        };
        known = repeats.then_some((load, time));
        let device = device as usize;
        devices.resize(devices.len().max(device + 1), [Nanos(0); 2]);
        devices[device].iter_mut().for_each(|port| *port += time);
    }
    messages(plan, loads, network, &mut devices);
    devices.into_iter().flatten().max().unwrap_or_default()
}

/// Where a device of a cell is: the first of its parts, at the first coordinate. A plan that is bounded
/// may name its first device alone.
pub(super) fn place(plan: &Plan, device: u32) -> u32 {
    let number = device * plan.tensor.parts();
    let named = plan.devices.get(number as usize);
    named.map_or(plan.first_device() + number, |id| id.number())
}

/// Below which first member those that hold a stage are joined like all others: then what they take
/// follows from what they hold.
pub(super) fn alike_below(plan: &Plan, network: &Network<'_>) -> u32 {
    let number = plan.members();
    if number <= 1 {
        return u32::MAX;
    }
    let cell = plan.device_count() / number;
    let strides = match plan.states {
        States::Hsdp => [cell, cell.saturating_mul(plan.shards)],
        _ => [cell; 2],
    };
    let repeats = |stride| network.repeats(Members { first: 0, stride, number });
    if strides.into_iter().all(repeats) { cell } else { 0 }
}

/// The device of a cell that has a stage; where several do, the first.
pub(super) fn device(plan: &Plan, stage: usize) -> u32 {
    let number = u32::try_from(stage).unwrap_or(u32::MAX);
    match plan.placement {
        Placement::Pipeline => plan.seat(number).unwrap_or(0),
        Placement::Shared => number,
        Placement::Accumulate | Placement::Concurrent | Placement::Data => 0,
    }
}

/// Adds the messages between the stages of a pipeline to the ports of its devices.
fn messages(
    plan: &Plan,
    loads: &[StageLoad],
    network: &Network<'_>,
    devices: &mut [[Nanos; 2]],
) {
    if plan.placement != Placement::Pipeline || holders(plan) > 1 {
        return;
    }
    let n = u64::from(plan.micro_batches);
    for (stage, load) in loads.iter().enumerate().take(loads.len().saturating_sub(1)) {
        let [own, next] = [stage, stage + 1].map(|stage| device(plan, stage));
        let time = |from, to, bytes: Option<Bytes>| {
            bytes.map_or(Nanos(0), |bytes| network.transfer(from, to, bytes)) * n
        };
        let [first, second] = [own, next].map(|device| place(plan, device));
        let (down, up) = (time(first, second, load.down), time(second, first, load.up));
        let [own, next] = [own, next].map(|device| device as usize);
        devices[own][0] += down;
        devices[next][1] += down;
        devices[next][0] += up;
        devices[own][1] += up;
    }
}

/// Collectives of one kind over the state of a stage, in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    members: Members,
    kind: Collective,
    whole: Bytes,
    /// How many they are.
    count: u64,
}

impl Exchange {
    /// What one takes.
    pub(super) fn time(&self, network: &mut Network<'_>) -> Nanos {
        network.collective(self.members, self.kind, self.whole)
    }
}

/// What of a stage goes round among those that share its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    parameters: Bytes,
    gradient: Bytes,
    /// Passes of a micro-batch that read parameters, before each of which they are gathered.
    passes: u64,
}

impl State {
    pub(super) fn of(load: &StageLoad) -> Self {
        let passes = load.reads.iter().filter(|reads| **reads).count() as u64;
        Self { parameters: load.parameters, gradient: load.gradient, passes }
    }
}

/// The collectives over the state of a stage: gathering parameters, scattering sums of gradients,
/// adding sums of those that hold the same part.
pub(super) fn exchanges(plan: &Plan, state: State, device: u32) -> [Exchange; 3] {
    let State { parameters, gradient, passes } = state;
    let members = plan.members();
    let turns = matches!(plan.placement, Placement::Data | Placement::Shared);
    let alone =
        members <= 1 || (turns && !plan.rule.is_synchronous()) || holders(plan) > 1;
    let cell = plan.device_count() / members.max(1);
    let n = u64::from(plan.cell_micro_batches());
    let inside = match plan.states {
        States::Hsdp => plan.shards,
        _ => members,
    };
    let all = Members { first: device, stride: cell, number: inside };
    let across = Members {
        first: device,
        stride: cell.saturating_mul(inside),
        number: members / inside.max(1),
    };
    let (gathers, scatters, sums) = match plan.states {
        _ if alone => (0, 0, 0),
        States::Replicated => (0, 0, 1),
        States::Zero1 => (1, 1, 0),
        States::Zero2 => (1, n, 0),
        States::Zero3 => (passes * n, n, 0),
        States::Hsdp => (passes * n, n, 1),
        States::Handoff => (0, 0, 0),
    };
    let (along, part) = match plan.states {
        States::Hsdp => (across, Bytes(gradient.0 / u64::from(inside.max(1)))),
        _ => (all, gradient),
    };
    let exchange = |members, kind, whole, count| {
        let whole = if count == 0 { Bytes(0) } else { whole };
        Exchange { members, kind, whole, count }
    };
    [
        exchange(all, Collective::AllGather, parameters, gathers),
        exchange(all, Collective::ReduceScatter, gradient, scatters),
        exchange(along, Collective::AllReduce, part, sums),
    ]
}
