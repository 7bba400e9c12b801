//! Rule 2: what must be done in a training step is done by exactly one line.

use super::{Duty, Violation, faults::Faults};
use crate::{ActionId, Id, MicroBatch, Pass, Role, Schedule, Task, Work};
use std::collections::{BTreeMap, BTreeSet};

/// Checks passes, updates and reports; needs sound actions.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let mut done: BTreeMap<Duty, ActionId> = BTreeMap::new();
    for (action, duty) in duties(schedule) {
        let first = *done.entry(duty).or_insert(action);
        if first != action {
            faults.push(Violation::Repeated { action, first, duty });
        }
    }
    for duty in demanded(schedule) {
        if !done.contains_key(&duty) {
            faults.push(Violation::Missing { duty });
        }
    }
}

fn duties(schedule: &Schedule) -> impl Iterator<Item = (ActionId, Duty)> {
    schedule.actions.iter().filter_map(|(id, action)| match &action.work {
        Work::Launch { .. } => {
            let task = schedule.task(action)?;
            (task.pass != Pass::Combine).then_some((id, Duty::Task(task)))
        }
        Work::Report { micro_batch, .. } => Some((id, Duty::Report(*micro_batch))),
        Work::Transfer { .. } | Work::Collective { .. } | Work::Feed { .. } => None,
    })
}

fn demanded(schedule: &Schedule) -> BTreeSet<Duty> {
    let micro_batches =
        || (0..schedule.cell_micro_batches() as usize).map(MicroBatch::new);
    let task = |pass, stage, micro_batch| Duty::Task(Task { pass, stage, micro_batch });
    let mut all: BTreeSet<Duty> = measured(schedule).map(Duty::Report).collect();
    for stage in schedule.job.stages() {
        for i in micro_batches() {
            all.insert(task(Pass::Forward, stage, Some(i)));
            all.insert(task(Pass::Backward, stage, Some(i)));
        }
        if schedule.job.elements[stage] > 0 {
            all.insert(task(Pass::Update, stage, None));
        }
    }
    all
}

/// The micro-batches whose loss some launch writes.
fn measured(schedule: &Schedule) -> impl Iterator<Item = MicroBatch> {
    schedule.actions.values().filter_map(|action| {
        let (routine, micro_batch) = action.work.routine()?;
        let arguments = &schedule.routines[routine].arguments;
        let measures = arguments.iter().any(|argument| argument.role == Role::Metric);
        micro_batch.filter(|_| measures)
    })
}
