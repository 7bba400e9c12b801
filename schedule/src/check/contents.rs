//! Rule 4: what every cell holds, followed in list order over whole segments.
//!
//! Once conflicting touches are ordered, every execution equals the one in list order. Segments
//! of 1, 2, … steps start from what rests declare and must leave just that behind, drained, so
//! every chain of segments is covered. From the period on in which all lines execute, what a
//! line writes is a function of its step, or of a chain of updates of the same step, and every
//! cell that is written is written again within `recurrence` periods: after 2 · lag +
//! recurrence periods the state only turns, and longer segments bring nothing new. Where no line
//! lags or reaches, a segment is segments of one step in a row: what the next one finds beside
//! rests nobody expected where there was nothing.

use super::{
    Culprit, Violation,
    faults::Faults,
    held::Held,
    layout::Layout,
    limit,
    sums::{SumId, Sums, Tree, terms_of_runs},
    values::Flows,
};
use crate::{
    Action, ActionId, Content, Instance, Place, Rest, Row, Schedule, Segment, Spot,
    Stage, Subject, Sum, Turned, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a cell holds and who wrote it.
type Cell = (Held<SumId>, Option<ActionId>);

/// Checks contents over all segments; needs a sound structure.
pub(super) fn check(
    schedule: &Schedule,
    layout: &Layout,
    flows: &Flows,
    faults: &mut Faults,
) {
    kept(schedule, faults);
    let (lag, reach) = schedule.span();
    let longest = match lag.max(reach) {
        0 => 1,
        _ => 2 * u64::from(lag) + layout.recurrence + layout.symmetry + 1,
    };
    let lagged = schedule.actions.values().filter(|action| action.lag > 0).count() as u64;
    let periods = longest + u64::from(reach);
    let one = periods * schedule.actions.len() as u64 + longest * u64::from(lag) * lagged;
    let clones = longest.saturating_mul(layout.count() as u64);
    let cost = one.saturating_add(clones).saturating_mul(layout.symmetry);
    let small = cost <= limit::INSTANCES;
    faults.limit(small, Culprit::Header("actions"), || {
        format!("{periods} periods with {lag} of lag are too many to follow")
    });
    let terms = terms_of_runs(moved(schedule).map(|(_, sum)| sum));
    let short = terms <= limit::TERMS;
    faults.limit(short, Culprit::Header("actions"), || {
        format!("sums of {terms} gradients are too many to follow")
    });
    if small && short {
        let mut run = Run::new(schedule, layout, flows, faults);
        for first in 0..layout.symmetry {
            run.segments(first, longest);
        }
    }
}

/// The newest version of all that is trained is kept between segments.
fn kept(schedule: &Schedule, faults: &mut Faults) {
    let mut newest: BTreeSet<Held> = BTreeSet::new();
    for buffer in schedule.buffers.values() {
        let Rest::Carried(ages) = &buffer.rest else { continue };
        if ages.iter().flatten().any(|age| *age == Some(0)) {
            newest.extend(version(buffer.subject, 0));
        }
    }
    let stateful = schedule.job.optimizer_width() > 0;
    for (stage, _) in schedule.job.elements.iter().filter(|(_, elements)| **elements > 0)
    {
        if !newest.contains(&Held::Parameter(stage, 0)) {
            faults.push(Violation::Lost { needed: Held::Parameter(stage, 0) });
        }
        if stateful && !newest.contains(&Held::Optimizer(stage, 0)) {
            faults.push(Violation::Lost { needed: Held::Optimizer(stage, 0) });
        }
    }
}

/// What a carried buffer holds at a version.
fn version<S>(subject: Subject, step: i64) -> Option<Held<S>> {
    match subject {
        Subject::Parameter(stage, _) => Some(Held::Parameter(stage, step)),
        Subject::Optimizer(stage, _) => Some(Held::Optimizer(stage, step)),
        _ => None,
    }
}

/// The symbolic machine.
pub(super) struct Run<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) layout: &'a Layout,
    pub(super) flows: &'a Flows,
    faults: &'a mut Faults,
    pub(super) turned: Turned<'a>,
    pub(super) sums: Sums,
    /// The plan's sum of each stage.
    trees: Vec<Option<std::rc::Rc<Tree>>>,
    /// The sum that a move of gradients carries.
    carried: BTreeMap<ActionId, SumId>,
    cells: Vec<Cell>,
    reported: BTreeSet<(Option<ActionId>, usize)>,
    /// The lines that still execute after the last step of a segment.
    lagged: Vec<ActionId>,
}

/// One executed instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The line.
    pub(super) action: ActionId,
    /// The step that it serves.
    pub(super) t: i64,
}

/// What a row holds between segments.
struct AtRest {
    cell: usize,
    spot: Spot,
    held: Held<SumId>,
}

impl<'a> Run<'a> {
    fn new(
        schedule: &'a Schedule,
        layout: &'a Layout,
        flows: &'a Flows,
        faults: &'a mut Faults,
    ) -> Self {
        let mut sums = Sums::default();
        let trees = trees(schedule, &mut sums);
        let carried = carried(schedule, &mut sums);
        let lines = schedule.actions.iter().filter(|(_, action)| action.lag > 0);
        Self {
            schedule,
            layout,
            flows,
            faults,
            turned: Turned::new(schedule, layout, 0),
            sums,
            trees,
            carried,
            cells: Vec::new(),
            reported: BTreeSet::new(),
            lagged: lines.map(|(id, _)| id).collect(),
        }
    }

    /// Runs the segments [first, first + 1), [first, first + 2), … up to a length.
    fn segments(&mut self, first: u64, longest: u64) {
        let schedule = self.schedule;
        let endless = Segment { first, end: u64::MAX };
        let mut beside = Vec::new();
        self.begin(first);
        let start = Segment { first, end: first + 1 }.periods(schedule).start;
        for period in start..(first + longest) as i64 {
            self.period(endless, period);
            let end = u64::try_from(period + 1).unwrap_or(0);
            if end > first {
                beside.clone_from(&self.cells);
                self.drain(Segment { first, end });
                std::mem::swap(&mut beside, &mut self.cells);
            }
        }
    }

    fn begin(&mut self, first: u64) {
        self.cells.clear();
        self.cells.resize(self.layout.count(), (Held::Nothing, None));
        for rest in self.rests(first as i64) {
            self.cells[rest.cell] = (rest.held, None);
        }
    }

    /// What carried rows hold between segments, before step `t`.
    fn rests(&mut self, t: i64) -> Vec<AtRest> {
        self.turned.turn_to(t);
        let mut all = Vec::new();
        for (id, buffer) in self.schedule.buffers.iter() {
            let Rest::Carried(ages) = &buffer.rest else { continue };
            for (place, slots) in (0..).zip(ages) {
                for (slot, age) in (0..).zip(slots) {
                    let at = Place { ring: buffer.home, place };
                    let row = Row { buffer: id, place: slot };
                    let held =
                        age.and_then(|age| version(buffer.subject, t - i64::from(age)));
                    all.extend(held.map(|held| AtRest {
                        cell: self.turned.cell(at, row),
                        spot: Spot { at, row },
                        held,
                    }));
                }
            }
        }
        all
    }

    fn period(&mut self, segment: Segment, period: i64) {
        self.turned.turn_to(period);
        for (id, action) in self.schedule.actions.iter() {
            if let Instance::Execute(t) = segment.instance(action, period) {
                self.execute(Step { action: id, t }, action);
            }
        }
    }

    /// The periods after the last step, and the rest after them.
    fn drain(&mut self, segment: Segment) {
        let last = segment.periods(self.schedule).end;
        let lagged = std::mem::take(&mut self.lagged);
        for period in segment.end as i64..last {
            self.turned.turn_to(period);
            for id in &lagged {
                let action = &self.schedule.actions[*id];
                if let Instance::Execute(t) = segment.instance(action, period) {
                    self.execute(Step { action: *id, t }, action);
                }
            }
        }
        self.lagged = lagged;
        let end = segment.end as i64;
        for AtRest { cell, spot: Spot { at, row }, held: expected } in self.rests(end) {
            let (found, writer) = self.cells[cell];
            if found != expected && self.reported.insert((None, cell)) {
                let steps = segment.end - segment.first;
                self.faults.push_with(|| {
                    let [expected, found] = [expected, found]
                        .map(|held| held.seen_from(end, |sum| self.sums.spell(sum)));
                    Violation::Rest { at, row, expected, found, writer, steps }
                });
            }
        }
    }

    fn execute(&mut self, step: Step, action: &Action) {
        match &action.work {
            Work::Launch { at, routine, micro_batch, rows, .. } => {
                let (schedule, i) = (self.schedule, *micro_batch);
                let launch = super::launch::Launch {
                    step,
                    at: *at,
                    routine: &schedule.routines[*routine],
                    i,
                    rows,
                };
                self.launch(launch);
            }
            Work::Transfer { from, to, content, .. } => {
                self.transfer(step, *from, *to, content);
            }
            Work::Collective { kind, group, from, to, content, .. } => {
                self.collective(step, (*kind, *group), [*from, *to], content);
            }
            Work::Feed { at, micro_batch, row } => {
                if let Subject::Input(input) = self.schedule.buffers[row.buffer].subject {
                    let held = Held::Input(input, *micro_batch, step.t);
                    self.write(step, Spot { at: *at, row: *row }, held);
                }
            }
            Work::Report { at, micro_batch, row } => {
                let expected = Held::Metric(*micro_batch, step.t);
                self.expect(step, Spot { at: *at, row: *row }, 0, expected);
            }
        }
    }

    /// What a row holds.
    pub(super) fn read(&self, Spot { at, row }: Spot) -> Held<SumId> {
        self.cells[self.turned.cell(at, row)].0
    }

    /// A row now holds something, and what shared its addresses is gone.
    pub(super) fn write(&mut self, step: Step, spot: Spot, held: Held<SumId>) {
        let cell = self.turned.cell(spot.at, spot.row);
        self.cells[cell] = (held, Some(step.action));
        for other in self.layout.shared(cell) {
            self.cells[*other as usize] = (Held::Nothing, Some(step.action));
        }
    }

    /// A row must hold something; `touch` numbers the touches of an action.
    pub(super) fn expect(
        &mut self,
        step: Step,
        spot: Spot,
        touch: usize,
        expected: Held<SumId>,
    ) {
        if self.read(spot) != expected {
            self.refuse(step, spot, touch, expected);
        }
    }

    /// Reports, once per touch, that a row holds something else.
    pub(super) fn refuse(
        &mut self,
        step: Step,
        Spot { at, row }: Spot,
        touch: usize,
        expected: Held<SumId>,
    ) {
        if self.reported.insert((Some(step.action), touch)) {
            let (found, writer) = self.cells[self.turned.cell(at, row)];
            let action = step.action;
            self.faults.push_with(|| {
                let [expected, found] = [expected, found]
                    .map(|held| held.seen_from(step.t, |sum| self.sums.spell(sum)));
                Violation::Content { action, at, row, expected, found, writer }
            });
        }
    }

    /// Reports a sum that is not on the way to the plan's.
    pub(super) fn misplan(
        &mut self,
        step: Step,
        stage: Stage,
        Spot { at, row }: Spot,
        made: SumId,
    ) {
        let Some(tree) = self.tree(stage) else { return };
        if self.reported.insert((Some(step.action), usize::MAX)) {
            self.faults.push_with(|| Violation::Tree {
                action: step.action,
                stage,
                at,
                row,
                made: self.sums.spell(made),
                plan: self.sums.spell(tree.whole),
            });
        }
    }

    /// The plan's sum of a stage; plans with a micro-batch have one.
    pub(super) fn tree(&self, stage: Stage) -> Option<std::rc::Rc<Tree>> {
        self.trees[self.schedule.plan.whole_stage(stage) as usize].clone()
    }

    /// The sum that a move of gradients carries.
    pub(super) fn sum_of(&self, action: ActionId) -> Option<SumId> {
        self.carried.get(&action).copied()
    }
}

fn trees(schedule: &Schedule, sums: &mut Sums) -> Vec<Option<std::rc::Rc<Tree>>> {
    let mut known: BTreeMap<_, std::rc::Rc<Tree>> = BTreeMap::new();
    let mut all = Vec::new();
    let plan = &schedule.plan;
    let ties = plan.state_count() - plan.pass_stages();
    for stage in 0..plan.stages + ties {
        let sum = plan.sum(stage);
        if let Some(tree) = known.get(&sum) {
            all.push(Some(tree.clone()));
            continue;
        }
        let tree = Tree::new(sums, &sum).map(std::rc::Rc::new);
        known.extend(tree.clone().map(|tree| (sum, tree)));
        all.push(tree);
    }
    all
}

/// The moves of gradients, with their sums.
fn moved(schedule: &Schedule) -> impl Iterator<Item = (ActionId, &Sum)> {
    schedule.actions.iter().filter_map(|(id, action)| match &action.work {
        Work::Transfer { content: Content::Gradient(_, sum), .. }
        | Work::Collective { content: Content::Gradient(_, sum), .. } => {
            Some((id, &**sum))
        }
        _ => None,
    })
}

fn carried(schedule: &Schedule, sums: &mut Sums) -> BTreeMap<ActionId, SumId> {
    moved(schedule).filter_map(|(id, sum)| Some((id, sums.of(sum)?))).collect()
}
