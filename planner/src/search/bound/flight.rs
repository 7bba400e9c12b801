//! The law of flight: what a device holds while it takes its list. A forward pass keeps its
//! activations until its backward pass, or the halves of it, are done; a sum of gradients is held
//! from the first pass that adds to it to the last one, whole or in a shard: the update may follow at
//! once, and leave its place to the next sum. Parameters that are split are whole while a pass that
//! reads them runs and while the one before it does, and sums that are split while the pass behind
//! theirs runs.
//!
//! The law of segments: an arena has a segment for each kind of memory, and what passes keep of each
//! class has a row of slots for each stage, or one for all stages where that is smaller. So what a
//! device takes is not the most at one time, but the sum of the most of each, whenever that is.

use super::{
    lists::Passes,
    rest::{Held, share},
};
use crate::costs::load::StageLoad;
use roundelay_schedule::{Bytes, Id, Kind, Listed, Pass, Placement, Plan, States};

/// What a device whose list is yet to be found, or whose micro-batches come from others, holds at
/// least while it takes its last micro-batch back.
pub(super) fn of_last(plan: &Plan, loads: &[StageLoad]) -> (Bytes, Kind) {
    fullest(plan, loads, &last_passes(plan))
}

/// How many micro-batches each device whose list is yet to be found has room for between forward
/// and backward, where it may take `capacity`; one at least.
pub(super) fn rooms(
    plan: &Plan,
    loads: &[StageLoad],
    capacity: impl Fn(u32) -> Bytes,
) -> Vec<u64> {
    let one = taken(plan, loads, &last_passes(plan));
    let room = |(number, (device, load)): (u32, (&Device, &StageLoad))| {
        let left = capacity(number) - Bytes(device.held(plan.states).1);
        left.0.checked_div(load.kept().0).map_or(u64::MAX, |more| more.saturating_add(1))
    };
    (0..).zip(one.iter().zip(loads)).map(room).collect()
}

/// The passes of a micro-batch whose way is known without lists.
fn last_passes(plan: &Plan) -> Passes {
    let stages = 0..plan.stages;
    let listed = |pass, stage| Listed::new(pass, stage, 0);
    match plan.placement {
        Placement::Pipeline if plan.order.is_found() && plan.chunks == 1 => {
            let halves = [Pass::Forward, Pass::InputGradient, Pass::WeightGradient];
            let own = |stage| halves.map(|pass| (listed(pass, stage), stage));
            let each = stages.flat_map(own).collect();
            Passes { each, devices: plan.stages as usize }
        }
        Placement::Data if !plan.rule.is_synchronous() => {
            let there = stages.clone().map(|stage| listed(Pass::Forward, stage));
            let back = stages.rev().map(|stage| listed(Pass::Backward, stage));
            let each = there.chain(back).map(|listed| (listed, 0)).collect();
            Passes { each, devices: 1 }
        }
        _ => Passes::default(),
    }
}

/// What each device of a cell holds while it takes its last micro-batch back, where that is known.
pub(super) fn each_of_last(plan: &Plan, loads: &[StageLoad]) -> Vec<(Bytes, Kind)> {
    each(plan, loads, &last_passes(plan))
}

/// What each device of a cell takes at least, and the kind that takes most of it.
pub(super) fn each(
    plan: &Plan,
    loads: &[StageLoad],
    passes: &Passes,
) -> Vec<(Bytes, Kind)> {
    let devices = taken(plan, loads, passes).into_iter();
    let held = devices.map(|device| device.held(plan.states));
    held.map(|(held, all)| (Bytes(all), held.kind())).collect()
}

/// What the fullest device takes at least, and the kind that takes most of it.
pub(super) fn fullest(
    plan: &Plan,
    loads: &[StageLoad],
    passes: &Passes,
) -> (Bytes, Kind) {
    let held = each(plan, loads, passes).into_iter().max_by_key(|(all, _)| *all);
    held.unwrap_or((Bytes(0), Kind::Parameter))
}

/// The devices behind their passes.
fn taken(plan: &Plan, loads: &[StageLoad], passes: &Passes) -> Vec<Device> {
    let mut devices = vec![Device::default(); passes.devices];
    let mut seats = Seats::new(loads.len());
    for (listed, device) in &passes.each {
        let seat = seats.of(listed.stage.index(), *device);
        if adds(listed.pass) {
            seat.left += 1;
        }
    }
    for (listed, device) in &passes.each {
        let stage = listed.stage.index();
        let seat = seats.of(stage, *device);
        devices[*device as usize].take(plan, &loads[stage], listed.pass, seat);
    }
    for (load, seat) in seats.all(loads) {
        let own = Held { activation: 0, ..Held::all(load) };
        let device = &mut devices[seat.device as usize];
        device.rest = device.rest + share(plan, own);
        device.keep(load, seat);
    }
    devices
}

/// Whether a pass adds to a sum of gradients.
fn adds(pass: Pass) -> bool {
    matches!(pass, Pass::Backward | Pass::WeightGradient)
}

/// A stage on one of its devices.
#[derive(Clone, Copy, Debug)]
struct Seat {
    device: u32,
    /// Micro-batches in flight and the most of them: activations, what is retained, adjoints.
    flying: [Count; 3],
    /// Passes that have yet to add to the sum of gradients.
    left: u32,
    /// Whether one has.
    summed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u64,
    most: u64,
}

impl Count {
    fn begin(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    fn end(&mut self) {
        self.now = self.now.saturating_sub(1);
    }
}

impl Seat {
    fn new(device: u32) -> Self {
        Self { device, flying: [Count::default(); 3], left: 0, summed: false }
    }
}

/// Micro-batches that begin to be kept with a pass, and those that end.
fn fly([activation, retained, adjoint]: [&mut Count; 3], pass: Pass) {
    match pass {
        Pass::Forward => {
            activation.begin();
            retained.begin();
        }
        Pass::Backward => {
            activation.end();
            retained.end();
        }
        Pass::InputGradient => {
            adjoint.begin();
            activation.end();
        }
        Pass::WeightGradient => {
            retained.end();
            adjoint.end();
        }
        Pass::Combine | Pass::Norm | Pass::Update => {}
    }
}

/// What the passes of all stages of a device keep of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    /// Of all stages together.
    flying: Count,
    /// What slots take if each stage has its own.
    apart: u64,
    /// One that is large enough for every stage.
    largest: u64,
}

impl Slots {
    fn add(&mut self, bytes: Bytes, most: u64) {
        self.apart += bytes.0 * most;
        self.largest = self.largest.max(bytes.0);
    }

    fn least(&self) -> u64 {
        self.apart.min(self.largest * self.flying.most)
    }
}

/// The devices of each stage: one, or two in opposite directions.
struct Seats(Vec<Vec<Seat>>);

impl Seats {
    fn new(stages: usize) -> Self {
        Self(vec![Vec::new(); stages])
    }

    fn of(&mut self, stage: usize, device: u32) -> &mut Seat {
        let seats = &mut self.0[stage];
        let known = seats.iter().position(|seat| seat.device == device);
        let number = known.unwrap_or_else(|| {
            seats.push(Seat::new(device));
            seats.len() - 1
        });
        &mut seats[number]
    }

    fn all<'l>(
        &self,
        loads: &'l [StageLoad],
    ) -> impl Iterator<Item = (&'l StageLoad, &Seat)> {
        let each = loads.iter().zip(&self.0);
        each.flat_map(|(load, seats)| seats.iter().map(move |seat| (load, seat)))
    }
}

/// One device on its way through its list.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    /// What it holds at rest.
    rest: Held,
    /// Slots of what passes keep, of each class.
    kept: [Slots; 3],
    /// Parameters that are whole for the last pass, and the most of this pass and the next.
    whole: u64,
    most_whole: u64,
    /// Sums of gradients, the whole one that the last pass made of a split sum, and the most of
    /// both.
    sums: u64,
    leaving: u64,
    most_sums: u64,
    /// Scratch memory of the pass that needs most.
    scratch: u64,
}

impl Device {
    fn take(&mut self, plan: &Plan, load: &StageLoad, pass: Pass, seat: &mut Seat) {
        fly(seat.flying.each_mut(), pass);
        fly(self.kept.each_mut().map(|slots| &mut slots.flying), pass);
        let scratch = match pass {
            Pass::Forward => load.scratch[0],
            Pass::Backward | Pass::InputGradient => load.scratch[1],
            Pass::WeightGradient => load.scratch[2],
            Pass::Combine | Pass::Norm | Pass::Update => Bytes(0),
        };
        let read = if load.reads(pass) { load.parameters } else { Bytes(0) };
        self.take_parameters(plan, read);
        self.take_gradient(plan, load, adds(pass).then_some(seat));
        self.scratch = self.scratch.max(scratch.0);
    }

    /// What the passes of a stage keep, when all are done.
    fn keep(&mut self, load: &StageLoad, seat: &Seat) {
        let each = [load.activation, load.retained, load.adjoint];
        for ((slots, bytes), count) in self.kept.iter_mut().zip(each).zip(&seat.flying) {
            slots.add(bytes, count.most);
        }
    }

    fn take_parameters(&mut self, plan: &Plan, read: Bytes) {
        let (whole, before) = match plan.states {
            States::Zero3 | States::Hsdp => (read.0, self.whole),
            States::Handoff => (read.0, 0),
            States::Replicated | States::Zero1 | States::Zero2 => (0, 0),
        };
        self.most_whole = self.most_whole.max(whole + before);
        self.whole = whole;
    }

    /// What a pass does to the sums, if it adds to one.
    fn take_gradient(&mut self, plan: &Plan, load: &StageLoad, seat: Option<&mut Seat>) {
        let Some(seat) = seat else {
            self.most_sums = self.most_sums.max(self.sums + self.leaving);
            self.leaving = 0;
            return;
        };
        let first = !std::mem::replace(&mut seat.summed, true);
        seat.left -= 1;
        let part = load.gradient.0 / u64::from(plan.parts()).max(1);
        let whole = load.gradient.0;
        let (own, sum, leaving) = match plan.states {
            States::Replicated | States::Handoff => (0, whole, 0),
            States::Zero1 => (0, whole, if seat.left == 0 { whole } else { 0 }),
            States::Zero2 | States::Zero3 | States::Hsdp => (whole, part, whole),
        };
        if first && own == 0 {
            self.sums += sum;
        }
        self.most_sums = self.most_sums.max(self.sums + self.leaving + own);
        if first && own > 0 {
            self.sums += sum;
        }
        if seat.left == 0 {
            self.sums -= sum;
        }
        self.leaving = if plan.has_pairs() { 0 } else { leaving };
    }

    /// What it holds by kinds, and all of it with scratch memory.
    fn held(&self, states: States) -> (Held, u64) {
        let parameter = match states {
            // A state that travels is whole where a pass of its stage runs.
            States::Handoff => self.rest.parameter.max(self.most_whole),
            States::Replicated
            | States::Zero1
            | States::Zero2
            | States::Zero3
            | States::Hsdp => self.rest.parameter + self.most_whole,
        };
        let optimizer = self.rest.optimizer;
        let activation = self.kept.iter().map(Slots::least).sum();
        let gradient = self.most_sums;
        let held = Held { parameter, optimizer, activation, gradient };
        (held, held.total() + self.scratch)
    }
}
