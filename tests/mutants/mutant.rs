//! One schedule with one thing changed at random, and what a report about it must name.

use crate::random::Random;
use roundelay_schedule::{ActionId, Schedule, Violations};
use std::{collections::BTreeSet, fmt};

/// Changes one thing; none when there is nothing of its kind.
pub(crate) type Change = fn(&mut Schedule, &mut Random) -> Option<Fault>;

/// What was changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault {
    /// Actions whose timing shows it best.
    pub(crate) focus: Vec<ActionId>,
    /// The action that was changed, or those that were.
    actions: BTreeSet<String>,
    /// Other things whose names are as good: the duty or the memory that lacks what the action
    /// did.
    things: BTreeSet<String>,
}

/// How a report names what was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// It names the action, or the table row, itself.
    Itself,
    /// It names what lacks something through it.
    Through,
    /// It does not.
    Missed,
}

impl Fault {
    /// At one action.
    pub(crate) fn of(schedule: &Schedule, action: ActionId) -> Self {
        Self::default().at(action).lacking(schedule, action)
    }

    /// Something that a report should name.
    pub(crate) fn at(mut self, thing: impl fmt::Display) -> Self {
        self.actions.insert(thing.to_string());
        self
    }

    /// Something whose name in a report is as good.
    pub(crate) fn through(mut self, thing: impl fmt::Display) -> Self {
        self.things.insert(thing.to_string());
        self
    }

    /// What an action touches lacks something when it is not done.
    pub(crate) fn lacking(mut self, schedule: &Schedule, action: ActionId) -> Self {
        self.focus.push(action);
        for touch in schedule.touches(&schedule.actions[action]) {
            self.things.insert(touch.row.buffer.to_string());
        }
        self
    }

    /// Another action's timing may show it too.
    pub(crate) fn beside(mut self, action: ActionId) -> Self {
        self.focus.push(action);
        self
    }

    /// Whether a report names what was changed.
    pub(crate) fn named(&self, report: &Violations) -> Naming {
        let text = report.to_string();
        let words: BTreeSet<&str> =
            text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let any = |names: &BTreeSet<String>| {
            names.iter().any(|name| words.contains(name.as_str()))
        };
        match (any(&self.actions), any(&self.things)) {
            (true, _) => Naming::Itself,
            (false, true) => Naming::Through,
            (false, false) if self.actions.is_empty() && self.things.is_empty() => {
                Naming::Itself
            }
            (false, false) => Naming::Missed,
        }
    }
}
