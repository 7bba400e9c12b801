//! Rule 1 for pairs: a forward pass, and beside it on another lane of its device a
//! backward pass, whole or both halves. All wait for the same actions, so they start
//! together; a launch that stood between them in the lane of the one beside would start
//! behind it and stand before it. That none needs another, and that they share no memory,
//! is found by the rules that follow.

use super::{Culprit, faults::Faults};
use crate::{Action, ActionId, DeviceId, Pass, Place, RingId, Schedule, Task, Work};
use std::collections::{BTreeMap, BTreeSet};

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
            member(schedule, head, id, faults);
            pairs.entry(head).or_default().push(id);
        }
    }
    let lanes = match pairs.is_empty() {
        true => Lanes::default(),
        false => Lanes::new(schedule),
    };
    for (head, members) in pairs {
        whole(schedule, head, &members, faults);
        lanes.free(schedule, head, &members, faults);
    }
}

/// What one lane of a device takes in list order. Rings that share devices may meet in any period:
/// for a pair all their places are one.
#[derive(Default)]
struct Lanes {
    sharing: BTreeSet<RingId>,
    launches: BTreeMap<(Option<Place>, u32), Vec<ActionId>>,
}

impl Lanes {
    fn new(schedule: &Schedule) -> Self {
        let mut lanes = Self { sharing: sharing(schedule), ..Self::default() };
        for (id, action) in schedule.actions.iter() {
            if let Work::Launch { at, lane, .. } = action.work {
                lanes.launches.entry(lanes.key(at, lane)).or_default().push(id);
            }
        }
        lanes
    }

    fn key(&self, at: Place, lane: u32) -> (Option<Place>, u32) {
        ((!self.sharing.contains(&at.ring)).then_some(at), lane)
    }

    /// Nothing else stands between a forward pass and the last that is beside it, in the lane there.
    fn free(
        &self,
        schedule: &Schedule,
        head: ActionId,
        members: &[ActionId],
        faults: &mut Faults,
    ) {
        let Some(last) = members.last() else { return };
        let Work::Launch { at, lane, .. } = schedule.actions[*last].work else { return };
        let Some(launches) = self.launches.get(&self.key(at, lane)) else { return };
        let between = launches.partition_point(|id| *id <= head);
        let between = launches[between..].iter().take_while(|id| *id < last);
        if let Some(other) = between.zip(members).find(|(id, own)| id != own) {
            let id = *other.0;
            faults.malformed(
                Culprit::Action(id),
                format!(
                    "stands between {head} and {last}, which starts with it on lane {lane}: move \
                     it above or below both"
                ),
            );
        }
    }
}

/// The rings that have a device of another one.
fn sharing(schedule: &Schedule) -> BTreeSet<RingId> {
    let mut first: BTreeMap<DeviceId, RingId> = BTreeMap::new();
    let mut sharing = BTreeSet::new();
    for (id, ring) in schedule.rings.iter() {
        for device in &ring.devices {
            let other = *first.entry(*device).or_insert(id);
            if other != id {
                sharing.extend([id, other]);
            }
        }
    }
    sharing
}

/// One backward pass beside its forward pass.
fn member(schedule: &Schedule, head: ActionId, id: ActionId, faults: &mut Faults) {
    let culprit = Culprit::Action(id);
    let [first, own] = [head, id].map(|id| &schedule.actions[id]);
    let places = [first, own].map(|action| match &action.work {
        Work::Launch { at, lane, beside, .. } => Some((*at, *lane, *beside)),
        _ => None,
    });
    let [Some((at, lane, beside)), Some((own_at, own_lane, _))] = places else {
        return faults
            .malformed(culprit, format!("is beside {head}, which is not a launch"));
    };
    let forward = schedule.task(first).is_some_and(|task| task.pass == Pass::Forward);
    faults.require(forward && beside.is_none(), culprit, || {
        format!("is beside {head}, which is not a forward pass")
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
