//! Which stage makes a value and which stages add to its gradient, from last to first.

use super::{Culprit, action::contributes, faults::Faults};
use crate::{Access, ActionId, Argument, Pass, Role, Routine, Schedule, Stage, ValueId};
use std::{cmp::Reverse, collections::BTreeMap, collections::BTreeSet};

/// One value.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    producer: Option<Stage>,
    consumers: BTreeSet<Reverse<Stage>>,
}

/// All values.
#[derive(Debug)]
pub(super) struct Flows(BTreeMap<ValueId, Flow>);

fn launches(
    schedule: &Schedule,
) -> impl Iterator<Item = (ActionId, &Routine, &Argument)> {
    schedule.actions.iter().flat_map(|(id, action)| {
        let called =
            action.work.routine().map(|(routine, _)| &schedule.routines[routine]);
        called.into_iter().flat_map(move |routine| {
            routine.arguments.iter().map(move |argument| (id, routine, argument))
        })
    })
}

impl Flows {
    /// Derives all flows, and checks that every launch keeps to them.
    pub(super) fn new(schedule: &Schedule, faults: &mut Faults) -> Self {
        let mut flows = Self(BTreeMap::new());
        for (id, routine, argument) in launches(schedule) {
            flows.produce(id, routine, argument, faults);
        }
        for (_, routine, argument) in launches(schedule) {
            flows.consume(routine, argument);
        }
        for (id, routine, argument) in launches(schedule) {
            flows.check(id, routine, argument, faults);
        }
        flows
    }

    fn produce(
        &mut self,
        id: ActionId,
        routine: &Routine,
        argument: &Argument,
        faults: &mut Faults,
    ) {
        if let (Pass::Forward, Role::Value(value), Access::Write) =
            (routine.pass, argument.role, argument.access)
        {
            let flow = self.0.entry(value).or_default();
            let producer = *flow.producer.get_or_insert(routine.stage);
            faults.require(producer == routine.stage, Culprit::Action(id), || {
                format!("makes {value}, which {producer} makes already; read it instead")
            });
        }
    }

    fn consume(&mut self, routine: &Routine, argument: &Argument) {
        if let Some(value) = contributes(argument) {
            let flow = self.0.entry(value).or_default();
            if flow.producer != Some(routine.stage) {
                flow.consumers.insert(Reverse(routine.stage));
            }
        }
    }

    fn check(
        &self,
        id: ActionId,
        routine: &Routine,
        argument: &Argument,
        faults: &mut Faults,
    ) {
        let Role::ValueGradient(value) = argument.role else { return };
        let flow = &self.0.get(&value);
        let made = flow.is_some_and(|flow| flow.producer == Some(routine.stage));
        let fits = match argument.access {
            Access::Read => made,
            Access::Write => !made && self.before(value, routine.stage) == 0,
            Access::Update => made || self.before(value, routine.stage) > 0,
        };
        faults.require(fits, Culprit::Action(id), || {
            format!(
                "must not {:?} the gradient of {value}: the last stage that reads the value \
                 writes it, earlier ones update it, the stage that makes the value reads it",
                argument.access
            )
        });
    }

    /// How many stages contribute to the gradient of a value before `stage` does or reads it.
    pub(super) fn before(&self, value: ValueId, stage: Stage) -> u32 {
        let Some(flow) = self.0.get(&value) else { return 0 };
        let count = match flow.producer == Some(stage) {
            true => flow.consumers.len(),
            false => flow.consumers.range(..Reverse(stage)).count(),
        };
        count as u32
    }

    /// Whether a stage makes a value.
    pub(super) fn makes(&self, stage: Stage, value: ValueId) -> bool {
        self.0.get(&value).is_some_and(|flow| flow.producer == Some(stage))
    }

    /// How many stages contribute to the gradient of a value.
    pub(super) fn all(&self, value: ValueId) -> u32 {
        self.0.get(&value).map_or(0, |flow| flow.consumers.len() as u32)
    }
}
