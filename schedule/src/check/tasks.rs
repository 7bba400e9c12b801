//! Rule 2: what must be done in a training step is done by exactly one line. Gradients come
//! from one whole backward pass, or from its two halves: for all micro-batches of a stage alike.

use super::{Duty, Violation, faults::Faults};
use crate::{ActionId, Id, MicroBatch, Pass, Role, Routine, Schedule, Stage, Task, Work};
use std::collections::BTreeMap;

/// Checks passes, updates and reports; needs sound actions.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let mut done = Done::new(schedule);
    for (action, duty) in duties(schedule) {
        let first = *done.by(duty).get_or_insert(action);
        if first != action {
            faults.push(Violation::Repeated { action, first, duty });
        }
    }
    let forms = forms(schedule, faults);
    for duty in demanded(schedule, &forms) {
        if done.by(duty).is_none() {
            faults.push(Violation::Missing { duty });
        }
    }
}

/// How a stage takes its gradients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// B.
    Whole,
    /// I and W.
    Halves,
}

impl Form {
    fn of(pass: Pass) -> Option<Self> {
        match pass {
            Pass::Backward => Some(Form::Whole),
            Pass::InputGradient | Pass::WeightGradient => Some(Form::Halves),
            Pass::Forward | Pass::Combine | Pass::Update => None,
        }
    }
    fn passes(self) -> &'static [Pass] {
        match self {
            Form::Whole => &[Pass::Forward, Pass::Backward],
            Form::Halves => &[Pass::Forward, Pass::InputGradient, Pass::WeightGradient],
        }
    }
}

/// The form of each stage that has one, by its first line; lines of the other form are faults.
fn forms(schedule: &Schedule, faults: &mut Faults) -> BTreeMap<Stage, Form> {
    let mut firsts: BTreeMap<Stage, (ActionId, Task, Form)> = BTreeMap::new();
    for (action, line) in schedule.actions.iter() {
        let Some(task) = schedule.task(line) else { continue };
        let Some(form) = Form::of(task.pass) else { continue };
        let known = *firsts.entry(task.stage).or_insert((action, task, form));
        if known.2 != form {
            let (first, other, _) = known;
            faults.push(Violation::Mixed { action, task, first, other });
        }
    }
    firsts.into_iter().map(|(stage, (_, _, form))| (stage, form)).collect()
}

/// The first line that does each duty: a row per pass and stage, and one for reports.
struct Done {
    lines: Vec<Option<ActionId>>,
    stages: usize,
    micro_batches: usize,
}

impl Done {
    fn new(schedule: &Schedule) -> Self {
        let stages = schedule.job.elements.len();
        let micro_batches = schedule.cell_micro_batches() as usize;
        Self { lines: Vec::new(), stages, micro_batches }
    }

    /// Who does a duty; what is not done for a micro-batch stands behind those that are.
    fn by(&mut self, duty: Duty) -> &mut Option<ActionId> {
        let (row, micro_batch) = match duty {
            Duty::Report(i) => (0, Some(i)),
            Duty::Task(Task { pass, stage, micro_batch }) => {
                (1 + pass as usize * self.stages + stage.index(), micro_batch)
            }
        };
        let width = self.micro_batches + 1;
        let place = row * width + micro_batch.map_or(self.micro_batches, Id::index);
        if place >= self.lines.len() {
            self.lines.resize((row + 1) * width, None);
        }
        &mut self.lines[place]
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

fn demanded(schedule: &Schedule, forms: &BTreeMap<Stage, Form>) -> Vec<Duty> {
    let micro_batches =
        || (0..schedule.cell_micro_batches() as usize).map(MicroBatch::new);
    let task = |pass, stage, micro_batch| Duty::Task(Task { pass, stage, micro_batch });
    let mut all: Vec<Duty> = measured(schedule).map(Duty::Report).collect();
    for stage in schedule.job.stages() {
        let form = forms.get(&stage).copied().unwrap_or(Form::Whole);
        for i in micro_batches() {
            all.extend(form.passes().iter().map(|pass| task(*pass, stage, Some(i))));
        }
        if schedule.job.elements[stage] > 0 {
            all.push(task(Pass::Update, stage, None));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The micro-batches whose loss some launch writes.
fn measured(schedule: &Schedule) -> impl Iterator<Item = MicroBatch> {
    schedule.actions.values().filter_map(|action| {
        let (routine, micro_batch) = action.work.routine()?;
        let Routine { arguments, stage, .. } = &schedule.routines[routine];
        let measures = arguments.iter().any(|argument| argument.role == Role::Metric);
        micro_batch.filter(|_| measures && schedule.ends(*stage))
    })
}
