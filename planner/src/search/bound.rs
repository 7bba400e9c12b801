//! Admissible lower bounds: no legal schedule of a plan is faster or smaller.
//!
//! They come in three steps, each of which takes more work and is never looser: from the costs of
//! single nodes (work, flush, path, ports and rest), from the exact routines of the stages, and from following the lists of the
//! devices pass by pass. Laws:
//!
//! | law | says |
//! | --- | --- |
//! | work | the busiest device does its share of all passes, its updates, and adds up its shards of sums |
//! | writes | of a stage's backward passes on a device the first writes the gradient and the others add to it; all write where it is split up at once |
//! | flush | a device of a synchronous pipeline begins after the forward passes of the stages before it, and what is left when it ends are their backward passes |
//! | path | a micro-batch that sees fresh parameters is followed, after its passes, by the update that makes the next ones |
//! | relay | cyclic workers add to a sum of gradients one after another, and hand it on |
//! | pairs | two passes side by side take at least what is left of both when half of the hidden share is taken off each |
//! | lists | passes follow each other as lists, messages and the moves of states demand |
//! | ports | a message or a collective holds the ports of its devices all the time that it takes |
//! | rest | a device holds its share of parameters and optimizer state, and what a forward pass kept |
//! | owner | of a state that travels one worker keeps the versions, the optimizer's part and the sum |
//! | flight | as the device takes its list, it holds what is forward and not yet back, and sums of gradients |
//! | room | where lists are yet to be found, as many micro-batches as a device has room for are on their way, and the others go there and back behind them |
//! | segments | each kind of memory, and what each stage keeps, has its own addresses, so the most of each adds up |
//!
//! Times are those of the steady state: a law about the way from a pass of a device to the same
//! pass of the next step bounds the step.

mod flight;
mod lists;
mod network;
mod pairs;
mod path;
mod ports;
mod rest;
mod room;
mod work;
mod writes;

pub(crate) use lists::{Lists, lists_of};
pub(crate) use network::Network;

use crate::{costs::load::StageLoad, space::cutting::Cutting};
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, Fold, Kind, Nanos, Plan, Rule};

/// Lower bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of the busiest device: the work that the placement puts there.
    pub work: Nanos,
    /// Of the longest chain of dependences, per training step that it spans.
    pub path: Nanos,
    /// Of the ports of the busiest device: what messages and collectives take of them.
    pub traffic: Nanos,
    /// Of the fullest device: what it must hold at one time.
    pub memory: Bytes,
    /// The kind that takes most of it.
    pub kind: Kind,
}

impl Bound {
    /// By the costs of single nodes, for a plan without cuts.
    pub(crate) fn of_nodes(
        program: &Program,
        plan: &Plan,
        cutting: &Cutting,
        network: &mut Network<'_>,
    ) -> Self {
        let most = rest::most(plan, cutting);
        let (memory, kind) = rest::of_nodes(program, plan, most);
        let (work, path) = work::of_nodes(plan, cutting);
        let relieved = |time| pairs::relieved(plan, &program.target, time);
        let traffic = ports::of_nodes(program, plan, most, network);
        Self { work: relieved(work), path: relieved(path), traffic, memory, kind }
    }

    /// By what the stages take.
    pub(crate) fn of_stages(
        plan: &Plan,
        loads: &[StageLoad],
        network: &mut Network<'_>,
    ) -> Self {
        let rest = rest::of_stages(plan, loads);
        let (memory, kind) = fuller(rest, flight::of_last(plan, loads));
        let path = path::of_stages(plan, loads).max(work::flush(plan, loads));
        let path = path.max(path::relay(plan, loads, network));
        Self {
            work: pairs::relieved(plan, network.target(), work::of_stages(plan, loads)),
            path: pairs::relieved(plan, network.target(), path),
            traffic: ports::traffic(plan, loads, network),
            memory,
            kind,
        }
    }

    /// With what follows of a synchronous pipeline whose lists are yet to be found where each device
    /// of the cell may take its `capacity`.
    pub(crate) fn in_room(
        self,
        plan: &Plan,
        loads: &[StageLoad],
        capacity: impl Fn(u32) -> Bytes,
        network: &mut Network<'_>,
    ) -> Self {
        if !plan.order.is_found() || !plan.lists.is_empty() {
            return self;
        }
        let path = self.path.max(room::step(plan, loads, capacity, network));
        Self { path, ..self }
    }

    /// What holds of slices too: all that is computed, moved and held of whole sequences is so of
    /// their slices together, but a device need not wait for all of a sequence. By the law of the
    /// roofline slices never take less than the whole; a table may say so.
    pub(crate) fn of_slices(self, program: &Program) -> Self {
        let work = if program.profiles.is_empty() { self.work } else { Nanos(0) };
        Self { path: Nanos(0), work, ..self }
    }

    /// By following the lists of the devices as well.
    pub(crate) fn following(
        self,
        plan: &Plan,
        loads: &[StageLoad],
        lists: &Lists,
        network: &mut Network<'_>,
    ) -> Self {
        let followed = lists::step(plan, loads, lists, network);
        let path = self.path.max(pairs::relieved(plan, network.target(), followed));
        let fullest = flight::fullest(plan, loads, &lists.passes);
        let (memory, kind) = fuller((self.memory, self.kind), fullest);
        Self { path, memory, kind, ..self }
    }

    /// Both bounds together.
    pub(crate) fn and(self, other: Self) -> Self {
        let (memory, kind) = fuller((self.memory, self.kind), (other.memory, other.kind));
        Self {
            work: self.work.max(other.work),
            path: self.path.max(other.path),
            traffic: self.traffic.max(other.traffic),
            memory,
            kind,
        }
    }

    /// Of the time of one training step.
    pub fn step_time(&self) -> Nanos {
        self.work.max(self.path).max(self.traffic)
    }
}

/// The larger of two numbers of bytes, with its kind; of equal ones the first.
fn fuller(one: (Bytes, Kind), other: (Bytes, Kind)) -> (Bytes, Kind) {
    if other.0 > one.0 { other } else { one }
}

/// What a device of a pipeline holds at least at rest of one stage with this many elements.
pub(crate) fn held_by_elements(program: &Program, plan: &Plan, elements: u64) -> Bytes {
    rest::of_nodes(program, plan, rest::Most::one(elements)).0
}

/// What each device of a cell holds at least by the costs of nodes; one that stands for all where all
/// hold as much.
pub(crate) fn held_by_nodes(
    program: &Program,
    plan: &Plan,
    cutting: &Cutting,
) -> Vec<(Bytes, Kind)> {
    let each = rest::each_most(plan, cutting).into_iter();
    each.map(|most| rest::of_nodes(program, plan, most)).collect()
}

/// The same by what the stages take: at rest, and in flight as far as that is known.
pub(crate) fn held_by_stages(
    plan: &Plan,
    loads: &[StageLoad],
) -> [Vec<(Bytes, Kind)>; 2] {
    let rest = rest::each(plan, loads).into_iter();
    let rest = rest.map(|held| (Bytes(held.total()), held.kind())).collect();
    [rest, flight::each_of_last(plan, loads)]
}

/// The same by following lists.
pub(crate) fn held_by_lists(
    plan: &Plan,
    loads: &[StageLoad],
    lists: &Lists,
) -> Vec<(Bytes, Kind)> {
    flight::each(plan, loads, &lists.passes)
}

/// Devices of a pipeline that have the same stage.
fn holders(plan: &Plan) -> u64 {
    if plan.is_mirrored() { 2 } else { 1 }
}

/// The stages of each device of a pipeline; of two pipelines in opposite directions, both.
fn seated(plan: &Plan) -> Vec<Vec<usize>> {
    let mut devices = vec![Vec::new(); plan.pipeline_devices() as usize];
    let last = devices.len().saturating_sub(1);
    for stage in 0..plan.stages {
        let seat = plan.seat(stage).map_or(0, |seat| seat as usize);
        devices[seat].push(stage as usize);
        if holders(plan) == 2 {
            devices[last - seat].push(stage as usize);
        }
    }
    devices
}

/// What each device of a pipeline has of all its stages together; `own` says it of each stage. Times
/// among them may end at never, so sums do too.
fn sums(plan: &Plan, own: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0u64; plan.pipeline_devices() as usize];
    let (fold, mut own) = (plan.order.fold(), own.fuse());
    if fold == Fold::Lists {
        for (stage, own) in (0..plan.stages).zip(own) {
            let sum = &mut sums[plan.seat(stage).map_or(0, |seat| seat as usize)];
            *sum = sum.saturating_add(own);
        }
        return sums;
    }
    let add = |(sum, own): (&mut u64, u64)| *sum = sum.saturating_add(own);
    for row in 0..plan.chunks.max(1) {
        match fold == Fold::Snake && row % 2 == 1 {
            true => sums.iter_mut().rev().zip(&mut own).for_each(add),
            false => sums.iter_mut().zip(&mut own).for_each(add),
        }
    }
    if fold == Fold::Mirror {
        let opposite: Vec<u64> = sums.iter().rev().copied().collect();
        sums.iter_mut().zip(opposite).for_each(add);
    }
    sums
}

/// How often the devices of one ring of a plan take a stage together while one micro-batch
/// passes: this many devices share the stage's passes.
fn ring(plan: &Plan, stage: u32) -> u64 {
    match plan.rule {
        Rule::Sync | Rule::Local { .. } => u64::from(plan.micro_batches),
        Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => {
            let Plan { placement, rule, micro_batches, stages, .. } = *plan;
            u64::from(placement.ring(rule, micro_batches, stages, stage))
        }
    }
}

#[cfg(test)]
mod tests;
