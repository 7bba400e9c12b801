//! The law of lists: the passes of a synchronous plan, followed as their devices take them.
//!
//! A device takes the passes of its list one after another; a pass waits for the message of the
//! stage before or behind, a message for the pass that makes it. Parameters that are split come
//! together before each pass that reads them, and not before the pass but one before, whose place
//! in memory they take. Behind the last pass of a stage come its sums, its update, and the gathering
//! of what was updated; the device begins its next step behind all its updates. What is found is the
//! longest way from the first pass of device 0 to its first pass in the next step. Ports only add to it.

use super::{
    holders,
    network::Network,
    ports::{self, device, exchanges},
    work::closing,
    writes::Writes,
};
use crate::costs::load::StageLoad;
use roundelay_codegen::device_lists;
use roundelay_schedule::{
    DeviceList, Id, Item, Listed, Nanos, Pass, Placement, Plan, Rule, States, Units,
    item_times, listed_in,
};
use std::collections::BTreeSet;

/// Passes with their devices, in an order in which each device takes its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Passes {
    pub(super) each: Vec<(Listed, u32)>,
    /// How many devices there are.
    pub(super) devices: usize,
}

/// The passes of one step in an order in which they can be followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(super) passes: Passes,
    micro_batches: usize,
}

impl Lists {
    /// Number of passes.
    pub(crate) fn len(&self) -> usize {
        self.passes.each.len()
    }

    /// The stages of a device.
    fn stages_of(&self, device: u32) -> Vec<usize> {
        let of = |(listed, owner): &(Listed, u32)| {
            (*owner == device).then_some(listed.stage.index())
        };
        let all: BTreeSet<usize> = self.passes.each.iter().filter_map(of).collect();
        all.into_iter().collect()
    }
}

/// The lists of a synchronous plan whose devices take one pass after another, those of a pair too;
/// none where it is not one, or where the lists are yet to be found. Cuts do not matter.
pub(crate) fn lists_of(plan: &Plan) -> Option<Lists> {
    let unknown = plan.order.is_found() && plan.lists.is_empty();
    if plan.rule != Rule::Sync || unknown {
        return None;
    }
    let micro_batches = plan.cell_micro_batches() as usize;
    let lists = match plan.placement {
        Placement::Concurrent => return None,
        Placement::Pipeline => device_lists(plan),
        Placement::Accumulate | Placement::Data => vec![one_device(plan)],
        Placement::Shared => (0..plan.stages).map(one_stage).collect(),
    };
    let mut owners = Owners::new(&lists, plan.stages as usize, micro_batches);
    let times = item_times(&lists, &Units::one(plan.stages)).ok()?;
    let items: Vec<Item> = times.iter().map(|time| time.item).collect();
    let each = listed_in(&items).map(|listed| (listed, owners.of(listed))).collect();
    let passes = Passes { each, devices: lists.len() };
    Some(Lists { passes, micro_batches })
}

/// Whose list a pass stands in.
struct Owners {
    micro_batches: usize,
    devices: Vec<u32>,
}

impl Owners {
    fn new(lists: &[DeviceList], stages: usize, micro_batches: usize) -> Self {
        let mut owners = Self { micro_batches, devices: vec![0; stages * micro_batches] };
        for (device, list) in (0..).zip(lists) {
            for listed in listed_in(list) {
                *owners.at(listed) = device;
            }
        }
        owners
    }

    fn at(&mut self, listed: Listed) -> &mut u32 {
        let row = listed.stage.index() * self.micro_batches;
        &mut self.devices[row + listed.micro_batch.index()]
    }

    fn of(&mut self, listed: Listed) -> u32 {
        *self.at(listed)
    }
}

/// All stages on one device, one micro-batch after another.
fn one_device(plan: &Plan) -> DeviceList {
    let there = (0..plan.stages).map(|stage| (Pass::Forward, stage));
    let back = (0..plan.stages).rev().map(|stage| (Pass::Backward, stage));
    let way: Vec<(Pass, u32)> = there.chain(back).collect();
    let all = |i| way.iter().map(move |(pass, stage)| Item::new(*pass, *stage, i));
    (0..plan.cell_micro_batches()).flat_map(all).collect()
}

/// One micro-batch through one stage.
fn one_stage(stage: u32) -> DeviceList {
    [Pass::Forward, Pass::Backward].map(|pass| Item::new(pass, stage, 0)).into()
}

/// What moves of a stage take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moves {
    /// The message to the next stage, and the one that comes back; none where nothing waits.
    pub(super) down: Option<Nanos>,
    pub(super) up: Option<Nanos>,
    /// Gathering parameters before each pass.
    gather: Nanos,
    /// Behind the last pass: sums of gradients.
    pub(super) sums: Nanos,
    /// The update, and what of the sum is yet to be added up.
    pub(super) update: Nanos,
    /// Gathering what was updated.
    pub(super) renew: Nanos,
}

/// The moves of each stage.
pub(super) fn moves(
    plan: &Plan,
    loads: &[StageLoad],
    network: &mut Network<'_>,
) -> Vec<Moves> {
    let mut all: Vec<Moves> = Vec::with_capacity(loads.len());
    let last = loads.len().saturating_sub(1);
    let place = |stage| ports::place(plan, device(plan, stage));
    let below = ports::alike_below(plan, network);
    let mut repeated = false;
    for (stage, load) in loads.iter().enumerate() {
        let [own, next] = [stage, (stage + 1).min(last)].map(place);
        // The devices of a pipeline in the other direction may be nearer.
        let apart = |bytes| match holders(plan) {
            1 => network.transfer(own, next, bytes),
            _ => Nanos(0),
        };
        let (down, up) = (load.down.map(apart), load.up.map(apart));
        let repeats = own < below;
        let known = stage.checked_sub(1).map(|before| (&loads[before], all[before]));
        let alike = |(other, _): &(&StageLoad, Moves)| {
            repeats && repeated && other.parameters == load.parameters
        };
        let Moves { gather, sums, renew, .. } = match known.filter(alike) {
            Some((_, known)) => known,
            None => state_moves(plan, load, own, network),
        };
        let update = closing(plan, load);
        all.push(Moves { down, up, gather, sums, update, renew });
        repeated = repeats;
    }
    all
}

fn state_moves(
    plan: &Plan,
    load: &StageLoad,
    device: u32,
    network: &mut Network<'_>,
) -> Moves {
    let [gather, scatter, reduce] =
        exchanges(plan, ports::State::of(load), device).map(|one| one.time(network));
    let each = matches!(plan.states, States::Zero3 | States::Hsdp);
    Moves {
        gather: if each { gather } else { Nanos(0) },
        sums: scatter + reduce,
        renew: gather,
        ..Moves::default()
    }
}

/// A pass as it was followed: nothing where device 0's first pass need not come before it.
type Reached = Option<Nanos>;

/// The way of one device so far.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// End of the last pass.
    end: Reached,
    /// End of the last gathering.
    gathered: Reached,
    /// Ends of the last pass and of the one before, where they read parameters.
    read: [Reached; 2],
}

/// The least time of a training step by this law.
pub(super) fn step(
    plan: &Plan,
    loads: &[StageLoad],
    lists: &Lists,
    network: &mut Network<'_>,
) -> Nanos {
    let moves = moves(plan, loads, network);
    let mut walk = Walk {
        loads,
        moves: &moves,
        writes: Writes::of(plan),
        micro_batches: lists.micro_batches,
        ways: vec![Way::default(); lists.passes.devices],
        ends: [(); 2].map(|()| vec![None; loads.len() * lists.micro_batches]),
        last: vec![None; loads.len()],
    };
    let Some(((first, _), passes)) = lists.passes.each.split_first() else {
        return Nanos(0);
    };
    let source = lists.passes.each[0].1;
    walk.take(*first, source, Some(Nanos(0)));
    for (listed, device) in passes {
        let start = walk.start(*listed, *device);
        walk.take(*listed, *device, start);
    }
    let own = match holders(plan) {
        1 => lists.stages_of(source),
        _ => vec![first.stage.index()],
    };
    walk.close(*first, source, &own)
}

/// The devices on their way through their lists.
struct Walk<'a> {
    loads: &'a [StageLoad],
    moves: &'a [Moves],
    writes: Writes,
    micro_batches: usize,
    ways: Vec<Way>,
    /// Ends of the passes of each stage and micro-batch that others wait for: there and back.
    ends: [Vec<Reached>; 2],
    /// End of the last pass of each stage that adds to its gradient.
    last: Vec<Reached>,
}

impl Walk<'_> {
    fn cell(&self, stage: usize, listed: Listed) -> usize {
        stage * self.micro_batches + listed.micro_batch.index()
    }

    /// When a pass can start.
    fn start(&self, listed: Listed, device: u32) -> Reached {
        let way = &self.ways[device as usize];
        let stage = listed.stage.index();
        let reads = self.loads[stage].reads(listed.pass);
        let gathered = if reads { self.gathering(way, stage) } else { None };
        let message = match listed.pass {
            Pass::Forward => stage.checked_sub(1).and_then(|before| {
                let end = self.ends[0][self.cell(before, listed)]?;
                Some(end + self.moves[before].down?)
            }),
            Pass::Backward | Pass::InputGradient if stage + 1 < self.loads.len() => {
                let end = self.ends[1][self.cell(stage + 1, listed)];
                end.and_then(|end| Some(end + self.moves[stage].up?))
            }
            _ => None,
        };
        way.end.max(message).max(gathered)
    }

    /// When the parameters of a pass are together: they take the place of those of the last pass but
    /// one, which are there until it has read them.
    fn gathering(&self, way: &Way, stage: usize) -> Reached {
        let gather = self.moves[stage].gather;
        let begun = way.gathered.max(way.read[1]);
        begun.filter(|_| gather > Nanos(0)).map(|begun| begun + gather)
    }

    fn take(&mut self, listed: Listed, device: u32, start: Reached) {
        let stage = listed.stage.index();
        let load = &self.loads[stage];
        let more = self.writes.more(load, listed.micro_batch.index());
        let (time, turned) = match listed.pass {
            Pass::Forward => (load.forward, Some(0)),
            Pass::Backward => (load.backward + more, Some(1)),
            Pass::InputGradient => (load.turn(), Some(1)),
            Pass::WeightGradient => (load.weight + more, None),
            Pass::Combine | Pass::Norm | Pass::Update => (Nanos(0), None),
        };
        let end = start.map(|start| start + time);
        let reads = load.reads(listed.pass);
        let gathered = self.gathering(&self.ways[device as usize], stage);
        let way = &mut self.ways[device as usize];
        way.gathered = if reads { gathered } else { way.gathered };
        way.end = end;
        way.read = [end.filter(|_| reads), way.read[0]];
        if let Some(turned) = turned {
            let cell = self.cell(stage, listed);
            self.ends[turned][cell] = end;
        }
        if matches!(listed.pass, Pass::Backward | Pass::WeightGradient) {
            self.last[stage] = self.last[stage].max(end);
        }
    }

    /// When the source device can begin its next step: behind the updates of its own stages, all
    /// but one of which may have found time before the last pass.
    fn close(&self, first: Listed, source: u32, own: &[usize]) -> Nanos {
        let end = self.ways[source as usize].end.unwrap_or_default();
        let updated = own.iter().filter_map(|stage| {
            let Moves { sums, update, renew, .. } = self.moves[*stage];
            let renew = if *stage == first.stage.index() { renew } else { Nanos(0) };
            Some(self.last[*stage]? + sums + update + renew)
        });
        updated.fold(end, Nanos::max)
    }
}
