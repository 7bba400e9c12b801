//! Pairs of passes: a backward pass is beside a forward pass, on another lane of its
//! device, and all of a pair wait for the same actions, so that they start together.

use super::order::Slots;
use roundelay_schedule::{
    Action, ActionId, MicroBatch, Pass, Schedule, Stage, Table, Wait, Waits, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// Says of each launch which one it is beside.
pub(super) fn join(schedule: &mut Schedule, order: &Slots) {
    if order.iter().all(|(_, slot)| slot.beside.is_none()) {
        return;
    }
    let mut launches: BTreeMap<(Pass, Stage, MicroBatch), ActionId> = BTreeMap::new();
    for (id, action) in schedule.actions.iter() {
        let task = schedule.task(action);
        let of = task.and_then(|task| Some((task.pass, task.stage, task.micro_batch?)));
        launches.extend(of.map(|of| (of, id)));
    }
    for (_, slot) in order.iter() {
        let Some((stage, i)) = slot.beside else { continue };
        let head = launches[&(Pass::Forward, stage, i)];
        let own = launches[&(slot.pass, slot.stage, slot.micro_batch)];
        if let Work::Launch { beside, .. } = &mut schedule.actions[own].work {
            *beside = Some(head);
        }
    }
}

/// Lets all launches of a pair wait for what any of them waits for. That stands above the
/// first of them: what a pair needs stands before its forward pass.
pub(super) fn start_together(schedule: &mut Schedule) {
    let mut pairs: BTreeMap<ActionId, Vec<ActionId>> = BTreeMap::new();
    for (id, action) in schedule.actions.iter() {
        if let Some(head) = action.work.beside() {
            pairs.entry(head).or_insert_with(|| vec![head]).push(id);
        }
    }
    for members in pairs.into_values() {
        let waits = all_waits(&schedule.actions, &members);
        for member in members {
            schedule.actions[member].after.clone_from(&waits);
        }
    }
}

fn all_waits(actions: &Table<ActionId, Action>, members: &[ActionId]) -> Waits {
    let each = members.iter().flat_map(|id| &actions[*id].after);
    let all: BTreeSet<(u32, ActionId)> =
        each.map(|wait| (wait.distance, wait.action)).collect();
    all.into_iter().map(|(distance, action)| Wait { action, distance }).collect()
}
