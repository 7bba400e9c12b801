//! Rule 2: what must be done in a training step is done by exactly one line. Gradients come
//! from one whole backward pass, or from its two halves: for all micro-batches of a stage alike. They
//! all take the same forward pass too, for held-out data takes it.

use super::{Culprit, Duty, Violation, faults::Faults};
use crate::{
    ActionId, Id, MicroBatch, Pass, Routine, RoutineId, Schedule, Stage, Table, Task,
    Work,
};

/// Checks passes, updates and reports; needs sound actions.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let mut done = Done::new(schedule);
    for (action, duty) in duties(schedule) {
        let first = *done.by(duty).get_or_insert(action);
        if first != action {
            faults.push(Violation::Repeated { action, first, duty });
        }
    }
    check_forward(schedule, faults);
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
    /// One pass, B.
    Whole,
    /// Two passes, I and W.
    Halves,
}

impl Form {
    fn of(pass: Pass) -> Option<Self> {
        match pass {
            Pass::Backward => Some(Form::Whole),
            Pass::InputGradient | Pass::WeightGradient => Some(Form::Halves),
            Pass::Forward | Pass::Combine | Pass::Norm | Pass::Update => None,
        }
    }
    fn passes(self) -> &'static [Pass] {
        match self {
            Form::Whole => &[Pass::Forward, Pass::Backward],
            Form::Halves => &[Pass::Forward, Pass::InputGradient, Pass::WeightGradient],
        }
    }
}

/// The form of each stage, by its first line; lines of the other form are faults. Without a line it
/// is whole.
fn forms(schedule: &Schedule, faults: &mut Faults) -> Table<Stage, Form> {
    let mut firsts: Table<Stage, Option<(ActionId, Task, Form)>> =
        schedule.plan.each_stage().map(|_| None).collect();
    for (action, line) in schedule.actions.iter() {
        let Some(task) = schedule.task(line) else { continue };
        let Some(form) = Form::of(task.pass) else { continue };
        let (first, other, known) =
            *firsts[task.stage].get_or_insert((action, task, form));
        if known != form {
            faults.push(Violation::Mixed { action, task, first, other });
        }
    }
    firsts.values().map(|first| first.map_or(Form::Whole, |(.., form)| form)).collect()
}

/// Every stage has one forward pass, whatever the micro-batch.
fn check_forward(schedule: &Schedule, faults: &mut Faults) {
    let mut firsts: Table<Stage, Option<RoutineId>> =
        schedule.plan.each_stage().map(|_| None).collect();
    for (action, line) in schedule.actions.iter() {
        let Some((routine, _)) = line.work.routine() else { continue };
        let Routine { pass: Pass::Forward, stage, .. } = &schedule.routines[routine]
        else {
            continue;
        };
        let first = *firsts[*stage].get_or_insert(routine);
        faults.require(first == routine, Culprit::Action(action), || {
            format!(
                "launches {routine} as the forward pass of {stage}, but {first} is launched \
                 before: launch the same one for all micro-batches"
            )
        });
    }
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
            let by_need = matches!(task.pass, Pass::Combine | Pass::Norm);
            (!by_need).then_some((id, Duty::Task(task)))
        }
        Work::Report { micro_batch, .. } => Some((id, Duty::Report(*micro_batch))),
        Work::Transfer { .. } | Work::Collective { .. } | Work::Feed { .. } => None,
    })
}

/// All duties, in order.
fn demanded<'a>(
    schedule: &'a Schedule,
    forms: &'a Table<Stage, Form>,
) -> impl Iterator<Item = Duty> + 'a {
    let task = |pass, stage, micro_batch| Duty::Task(Task { pass, stage, micro_batch });
    let micro_batches =
        || (0..schedule.cell_micro_batches() as usize).map(MicroBatch::new);
    let passes = Pass::ON_MICRO_BATCHES.into_iter().flat_map(move |pass| {
        let stages = forms.iter().filter(move |(_, form)| form.passes().contains(&pass));
        stages.flat_map(move |(stage, _)| {
            micro_batches().map(move |i| task(pass, stage, Some(i)))
        })
    });
    let trained = schedule.job.elements.iter().filter(|(_, elements)| **elements > 0);
    let updates = trained.map(move |(stage, _)| task(Pass::Update, stage, None));
    let reports = micro_batches().map(Duty::Report);
    passes.chain(updates).chain(reports)
}
