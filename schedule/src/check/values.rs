//! Which stage makes a value and which stages add to its gradient, from last to first.

use super::{Culprit, action::contributes, faults::Faults};
use crate::{
    Access, ActionId, Argument, Id, Pass, Role, Routine, RoutineId, Schedule, Stage,
    Units, ValueId,
};
use std::collections::BTreeSet;

/// One value.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    producer: Option<Stage>,
    /// From the last stage to the first.
    consumers: Vec<Stage>,
}

/// All values.
#[derive(Debug, Default)]
pub(super) struct Flows(Vec<Flow>);

fn launches(schedule: &Schedule) -> impl Iterator<Item = (ActionId, RoutineId)> {
    schedule.actions.iter().filter_map(|(id, action)| {
        action.work.routine().map(|(routine, _)| (id, routine))
    })
}

/// An argument of the routine that an action launches.
#[derive(Clone, Copy)]
struct Bound<'a> {
    action: ActionId,
    routine: &'a Routine,
    argument: &'a Argument,
}

/// Looks at the arguments of every launch. What is right for one launch is right for all of the
/// same routine; what is wrong is told for each.
fn each_bound(
    schedule: &Schedule,
    faults: &mut Faults,
    mut look: impl FnMut(Bound<'_>, &mut Faults),
) {
    let mut sound = vec![false; schedule.routines.len()];
    for (action, id) in launches(schedule) {
        if !sound[id.index()] {
            let (before, routine) = (faults.total(), &schedule.routines[id]);
            for argument in &routine.arguments {
                look(Bound { action, routine, argument }, faults);
            }
            sound[id.index()] = faults.total() == before;
        }
    }
}

impl Flows {
    /// Derives all flows, and checks that every launch keeps to them.
    pub(super) fn new(schedule: &Schedule, faults: &mut Faults) -> Self {
        let mut flows = Self::default();
        each_bound(schedule, faults, |bound, faults| flows.produce(bound, faults));
        each_bound(schedule, faults, |bound, _| flows.consume(bound));
        let units = Units::of(&schedule.plan);
        each_bound(schedule, faults, |bound, faults| {
            flows.comes(bound, faults);
            flows.in_turn(bound, faults);
            flows.stays(bound, &units, faults);
        });
        flows.hop(schedule, &units, faults);
        flows
    }

    fn flow(&mut self, value: ValueId) -> &mut Flow {
        if value.index() >= self.0.len() {
            self.0.resize_with(value.index() + 1, Flow::default);
        }
        &mut self.0[value.index()]
    }

    fn get(&self, value: ValueId) -> Option<&Flow> {
        self.0.get(value.index())
    }

    fn produce(&mut self, bound: Bound<'_>, faults: &mut Faults) {
        let Bound { action, routine, argument } = bound;
        if let (Pass::Forward, Role::Value(value), Access::Write) =
            (routine.pass, argument.role, argument.access)
        {
            let flow = self.flow(value);
            let producer = *flow.producer.get_or_insert(routine.stage);
            faults.require(producer == routine.stage, Culprit::Action(action), || {
                format!("makes {value}, which {producer} makes already; read it instead")
            });
        }
    }

    fn consume(&mut self, Bound { routine, argument, .. }: Bound<'_>) {
        if let Some(value) = contributes(argument) {
            let flow = self.flow(value);
            let later = flow.consumers.partition_point(|stage| *stage > routine.stage);
            let known = flow.consumers.get(later) == Some(&routine.stage);
            if flow.producer != Some(routine.stage) && !known {
                flow.consumers.insert(later, routine.stage);
            }
        }
    }

    /// Values come from stages before their readers, or are kept from the stage's own forward pass. So
    /// forward passes can run in the order of their stages, as they do on held-out data.
    fn comes(&self, bound: Bound<'_>, faults: &mut Faults) {
        let Bound { action, routine, argument } = bound;
        let (Role::Value(value), Access::Read) = (argument.role, argument.access) else {
            return;
        };
        let Some(producer) = self.get(value).and_then(|flow| flow.producer) else {
            return;
        };
        let own = producer == routine.stage && routine.pass != Pass::Forward;
        faults.require(producer < routine.stage || own, Culprit::Action(action), || {
            format!(
                "reads {value}, which {producer} makes: pass {} of {} reads values of stages \
                 before it",
                routine.pass, routine.stage
            )
        });
    }

    /// The gradient of a value goes from the last stage that reads it to the one that makes it.
    fn in_turn(&self, bound: Bound<'_>, faults: &mut Faults) {
        let Bound { action, routine, argument } = bound;
        let Role::ValueGradient(value) = argument.role else { return };
        let flow = self.get(value);
        let made = flow.is_some_and(|flow| flow.producer == Some(routine.stage));
        let fits = match argument.access {
            Access::Read => made,
            Access::Write => !made && self.before(value, routine.stage) == 0,
            Access::Update => made || self.before(value, routine.stage) > 0,
        };
        faults.require(fits, Culprit::Action(action), || {
            format!(
                "must not {} the gradient of {value}: the last stage that reads the value \
                 writes it, earlier ones update it, the stage that makes the value reads it",
                argument.access
            )
        });
    }

    /// Gradients stay inside of units, but for one that hops back to the unit before: that is for
    /// weights alone, so that nothing of it goes on.
    fn stays(&self, bound: Bound<'_>, units: &Units, faults: &mut Faults) {
        let Bound { action, routine, argument } = bound;
        let Role::ValueGradient(value) = argument.role else { return };
        let Some(Flow { producer: Some(producer), consumers }) = self.get(value) else {
            return;
        };
        let unit = |stage: Stage| units.unit(stage.number());
        let own = unit(*producer);
        let mut others = consumers.iter().filter(|stage| unit(**stage) != own);
        let weights = routine.pass == Pass::WeightGradient;
        let next = |stage: &Stage| units.is_hopping() && unit(*stage).start == own.end;
        let (fits, law) = match others.next() {
            None => (!weights, "gradients of parameters need none of values that cross"),
            Some(stage) if !next(stage) => (false, "none passes between these units"),
            Some(_) => (
                routine.stage != *producer || weights,
                "what hops back is for weights alone",
            ),
        };
        faults.require(fits, Culprit::Action(action), || {
            format!("touches the gradient of {value} in pass {}, but {law}", routine.pass)
        });
    }

    /// Where gradients hop back, the weights of every unit but the last read one to which the next
    /// unit adds.
    fn hop(&self, schedule: &Schedule, units: &Units, faults: &mut Faults) {
        let waiting = (0..units.stages()).filter_map(|stage| {
            let next = units.hop_from(stage)?;
            Some([stage, next].map(Stage::numbered))
        });
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            return;
        }
        let launched: BTreeSet<RoutineId> =
            launches(schedule).map(|(_, routine)| routine).collect();
        for [stage, next] in waiting {
            let comes = launched
                .iter()
                .any(|routine| self.trains(&schedule.routines[*routine], stage, next));
            faults.require(comes, Culprit::Header("plan"), || {
                format!(
                    "{} trains the weights of {stage} by the gradient that {next} hands back, \
                     but no pass {} of {stage} reads it",
                    schedule.plan.rule,
                    Pass::WeightGradient
                )
            });
        }
    }

    /// Whether a routine is the weight half of a stage, and reads a gradient that the next one has
    /// added to.
    fn trains(&self, routine: &Routine, stage: Stage, next: Stage) -> bool {
        let comes = |argument: &Argument| match argument.role {
            Role::ValueGradient(value) => self.get(value).is_some_and(|flow| {
                flow.producer == Some(stage) && flow.consumers.contains(&next)
            }),
            _ => false,
        };
        routine.stage == stage
            && routine.pass == Pass::WeightGradient
            && routine.arguments.iter().any(comes)
    }

    /// How many stages contribute to the gradient of a value before `stage` does or reads it.
    pub(super) fn before(&self, value: ValueId, stage: Stage) -> u32 {
        let Some(flow) = self.get(value) else { return 0 };
        let count = match flow.producer == Some(stage) {
            true => flow.consumers.len(),
            false => flow.consumers.partition_point(|consumer| *consumer > stage),
        };
        count as u32
    }

    /// Whether a stage makes a value.
    pub(super) fn makes(&self, stage: Stage, value: ValueId) -> bool {
        self.get(value).is_some_and(|flow| flow.producer == Some(stage))
    }

    /// How many stages contribute to the gradient of a value.
    pub(super) fn all(&self, value: ValueId) -> u32 {
        self.get(value).map_or(0, |flow| flow.consumers.len() as u32)
    }
}
