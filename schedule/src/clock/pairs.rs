//! Pairs of passes: when each began, and what they take together.

use super::Busy;
use crate::{ActionId, DeviceId, Nanos, Schedule, Thousandths};
use std::collections::BTreeMap;

/// The pairs of a schedule, by their forward passes.
#[derive(Debug)]
pub(super) struct Pairs {
    members: BTreeMap<ActionId, Vec<ActionId>>,
    /// The latest instance of each.
    latest: BTreeMap<ActionId, Busy>,
}

/// What a pass beside a forward pass has of the time of their pair.
pub(super) struct Part {
    pub(super) own: Busy,
    /// When the pair is done.
    pub(super) end: Nanos,
}

impl Pairs {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let mut members: BTreeMap<ActionId, Vec<ActionId>> = BTreeMap::new();
        for (id, action) in schedule.actions.iter() {
            if let Some(head) = action.work.beside() {
                members.entry(head).or_default().push(id);
            }
        }
        Self { members, latest: BTreeMap::new() }
    }

    /// What a launch takes of its device, and all beside it: F + B − `overlap` · min(F,
    /// B).
    pub(super) fn time(
        &self,
        schedule: &Schedule,
        id: ActionId,
        device: DeviceId,
    ) -> Nanos {
        let forward = predicted(schedule, id);
        let Some(members) = self.members.get(&id) else { return forward };
        let backward: Nanos = members.iter().map(|id| predicted(schedule, *id)).sum();
        let share = schedule.target.devices[device].overlap;
        forward + backward - hidden(forward, backward, share)
    }

    /// Remembers when a launch runs, if something is beside it.
    pub(super) fn began(&mut self, id: ActionId, busy: Busy) {
        if self.members.contains_key(&id) {
            self.latest.insert(id, busy);
        }
    }

    /// The part of a pass beside a forward pass: they share the time as their lengths say.
    pub(super) fn part(&self, schedule: &Schedule, head: ActionId, id: ActionId) -> Part {
        let pair = self.latest[&head];
        let members = &self.members[&head];
        let length = |upto: Option<ActionId>| -> u128 {
            let counted =
                members.iter().filter(|other| upto.is_none_or(|id| **other < id));
            counted.map(|other| u128::from(predicted(schedule, *other).0)).sum()
        };
        let (whole, before) = (length(None), length(Some(id)));
        let own = u128::from(predicted(schedule, id).0);
        let at = |length: u128| {
            let time = u128::from(pair.time().0);
            let passed = (time * length).checked_div(whole).unwrap_or(0);
            pair.start + Nanos(u64::try_from(passed).unwrap_or(u64::MAX))
        };
        Part { own: Busy { start: at(before), end: at(before + own) }, end: pair.end }
    }
}

/// How much of the shorter of two passes hides behind the other one; never more than all of it.
fn hidden(forward: Nanos, backward: Nanos, share: Thousandths) -> Nanos {
    Nanos(share.min(Thousandths::ALL).of(forward.min(backward).0))
}

fn predicted(schedule: &Schedule, id: ActionId) -> Nanos {
    let routine = schedule.actions[id].work.routine();
    routine.map_or(Nanos(0), |(routine, _)| schedule.routines[routine].predicted)
}
