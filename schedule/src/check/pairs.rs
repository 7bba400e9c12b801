//! Rule 1 for pairs: a forward pass, and beside it on another lane of its device a
//! backward pass, whole or both halves. All wait for the same actions, so they start
//! together; that none needs another, and that they share no memory, is found by the
//! rules that follow.

use super::{Culprit, faults::Faults};
use crate::{Action, ActionId, Pass, Schedule, Task, Work};
use std::collections::BTreeMap;

/// Checks all pairs; needs sound actions.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let mut pairs: BTreeMap<ActionId, Vec<ActionId>> = BTreeMap::new();
    for (id, action) in schedule.actions.iter() {
        let Some(head) = action.work.beside() else { continue };
        let above = head < id && schedule.actions.get(head).is_some();
        faults.require(above, Culprit::Action(id), || {
            format!("is beside {head}, which does not stand above")
        });
        if above {
            member(schedule, (head, id), faults);
            pairs.entry(head).or_default().push(id);
        }
    }
    for (head, members) in pairs {
        whole(schedule, head, &members, faults);
    }
}

/// One backward pass beside its forward pass.
fn member(schedule: &Schedule, (head, id): (ActionId, ActionId), faults: &mut Faults) {
    let culprit = Culprit::Action(id);
    let [first, own] = [head, id].map(|id| &schedule.actions[id]);
    let places = [first, own].map(|action| match &action.work {
        Work::Launch { at, lane, beside, .. } => Some((*at, *lane, *beside)),
        _ => None,
    });
    let [Some((at, lane, beside)), Some((own_at, own_lane, _))] = places else {
        return faults
            .malformed(culprit, format!("is beside {head}, which is no launch"));
    };
    let forward = schedule.task(first).is_some_and(|task| task.pass == Pass::Forward);
    faults.require(forward && beside.is_none(), culprit, || {
        format!("is beside {head}, which is no forward pass")
    });
    faults.require(at == own_at && lane != own_lane, culprit, || {
        format!(
            "is beside {head}, which is on lane {lane} of {at}: take another lane there"
        )
    });
    faults.require(first.lag == own.lag, culprit, || {
        format!("is beside {head}, which serves another step: give both one lag")
    });
    let waits = |action: &Action| {
        let mut waits = action.after.to_vec();
        waits.sort_unstable();
        waits
    };
    faults.require(waits(first) == waits(own), culprit, || {
        format!("starts with {head}, but waits for other actions: let both wait for all")
    });
}

/// What stands beside one forward pass is one backward pass.
fn whole(schedule: &Schedule, head: ActionId, members: &[ActionId], faults: &mut Faults) {
    let tasks = members.iter().map(|id| {
        let action = &schedule.actions[*id];
        let lane = match action.work {
            Work::Launch { lane, .. } => lane,
            _ => 0,
        };
        (schedule.task(action), lane)
    });
    let tasks: Vec<_> = tasks.collect();
    let one = tasks.windows(2).all(|pair| {
        let of = |(task, lane): (Option<Task>, u32)| {
            (task.map(|task| (task.stage, task.micro_batch)), lane)
        };
        of(pair[0]) == of(pair[1])
    });
    let passes: Vec<Option<Pass>> =
        tasks.iter().map(|(task, _)| task.map(|task| task.pass)).collect();
    let backward = matches!(
        passes[..],
        [Some(Pass::Backward)] | [Some(Pass::InputGradient), Some(Pass::WeightGradient)]
    );
    faults.require(one && backward, Culprit::Action(head), || {
        "has beside it what is not one backward pass: B, or I and W, of one stage and \
         micro-batch on one lane"
            .into()
    });
}
