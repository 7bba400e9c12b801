//! The law of room, for pipelines whose lists are yet to be found: a stage on each device, which
//! takes its micro-batches there and back in ascending order.
//!
//! A device that has room for k micro-batches between forward and backward takes micro-batch i only
//! when i − k is back. So ⌈N / k⌉ of them go from it to the last device and back one after another.
//! Before the first one come the forward passes of the stages before and their messages, behind the
//! last one their backward passes. Behind its last pass a stage has its sums, its update and the
//! gathering of what was updated before it begins the next step. Where a stage reads nothing of the
//! one before, or gives nothing back, only that is left.

use super::{
    flight,
    lists::{Moves, moves},
    network::Network,
    work::are_linked,
    writes::Writes,
};
use crate::costs::load::StageLoad;
use roundelay_schedule::{Bytes, Nanos, Plan};

/// The least time of a training step where each device of a cell may take its `capacity`.
pub(super) fn step(
    plan: &Plan,
    loads: &[StageLoad],
    capacity: impl Fn(u32) -> Bytes,
    network: &mut Network<'_>,
) -> Nanos {
    let moves = moves(plan, loads, network);
    let stages = || loads.iter().zip(&moves);
    let n = u64::from(plan.micro_batches);
    let writes = Writes::of(plan);
    let alone = |(load, moves): (&StageLoad, &Moves)| {
        load.pass() * n + writes.more_of_all(plan, load) + closing(moves)
    };
    let alone = stages().map(alone).max().unwrap_or_default();
    let (Some(first), true) = (stages().next(), are_linked(loads)) else { return alone };
    let last = first.0.weight + closing(first.1);
    // From a device to the last one and back, and from the first one to a device and back.
    let mut within: Nanos = stages().map(hop).sum();
    let mut around = Nanos(0);
    let mut longest = Nanos(0);
    for (stage, room) in stages().zip(flight::rooms(plan, loads, capacity)) {
        let (load, room) = (stage.0, room.clamp(1, n));
        let turns = load.forward * ((n - 1) % room) + within * n.div_ceil(room);
        let passes = (load.forward + load.turn()) * n;
        longest = longest.max(around + turns.max(passes));
        (around, within) = (around + hop(stage), within - hop(stage));
    }
    alone.max(longest + last)
}

/// A stage there and back, and the messages between it and the next one.
fn hop((load, moves): (&StageLoad, &Moves)) -> Nanos {
    let messages = [moves.down, moves.up].into_iter().flatten().sum();
    load.forward + load.turn() + messages
}

/// Behind the last pass of a stage.
fn closing(moves: &Moves) -> Nanos {
    moves.sums + moves.update + moves.renew
}
