//! Rule 1 for actions: handles in range, rows that fit what they are bound to, waits that point
//! back.

use super::{Culprit, faults::Faults, limit, side_by_side};
use crate::{
    Access, Action, ActionId, Argument, Buffer, Collective, Content, GroupId, Id,
    MicroBatch, Pass, Place, Role, Routine, RoutineId, Row, Schedule, Slice, Spot, Stage,
    Subject, Wait, Work,
};
use std::ops::Range;

/// Checks every action on its own; needs all tables sound.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let half = schedule.actions.len() / 2;
    let (((), second), ()) = side_by_side(
        schedule,
        || Faults::collect(|faults| lines(schedule, half..usize::MAX, faults)),
        || lines(schedule, 0..half, faults),
    );
    faults.append(second);
    marks(schedule, faults);
}

fn lines(schedule: &Schedule, range: Range<usize>, faults: &mut Faults) {
    let mut line = Line { schedule, id: ActionId::new(0), faults, bound: Vec::new() };
    for (id, action) in schedule.actions.iter().take(range.end).skip(range.start) {
        line.id = id;
        line.check(action);
    }
}

/// Marks of all waits fit the memory of a machine.
fn marks(schedule: &Schedule, faults: &mut Faults) {
    let waits = schedule.actions.values().flat_map(|action| &action.after);
    let depth = 1 + u64::from(waits.map(|wait| wait.distance).max().unwrap_or(0));
    let marks = depth * schedule.actions.len() as u64;
    faults.limit(marks < limit::CELLS * 8, Culprit::Header("actions"), || {
        format!("{depth} periods of {} actions wait at once", schedule.actions.len())
    });
}

struct Line<'a> {
    schedule: &'a Schedule,
    id: ActionId,
    faults: &'a mut Faults,
    /// Slices that a launch binds; the list is not made anew for each.
    bound: Vec<Slice>,
}

impl Line<'_> {
    fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        self.faults.require(holds, Culprit::Action(self.id), problem);
    }

    fn limit(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        self.faults.limit(holds, Culprit::Action(self.id), problem);
    }

    fn malformed(&mut self, problem: String) {
        self.faults.malformed(Culprit::Action(self.id), problem);
    }

    fn check(&mut self, action: &Action) {
        self.timing(action);
        match &action.work {
            Work::Launch { at, lane, routine, micro_batch, rows, beside: _ } => {
                self.lane(*at, *lane);
                self.launch(*at, *routine, *micro_batch, rows);
            }
            Work::Transfer { link, from, to, content } => {
                self.content(content);
                self.link(*link);
                let (source, target) = (self.spot(*from), self.spot(*to));
                if let (Some(source), Some(target)) = (source, target) {
                    self.transfer(source, target, content);
                }
            }
            Work::Collective { link, kind, group, from, to, content } => {
                self.content(content);
                self.link(*link);
                self.collective(*kind, *group, [*from, *to], content);
            }
            Work::Feed { at, micro_batch, row } => {
                self.micro_batch(*micro_batch);
                let buffer = self.spot(Spot { at: *at, row: *row });
                let fits = buffer.is_none_or(|b| matches!(b.subject, Subject::Input(_)));
                self.require(fits, || format!("feeds {row}, which holds no input"));
            }
            Work::Report { at, micro_batch, row } => {
                self.micro_batch(*micro_batch);
                let buffer = self.spot(Spot { at: *at, row: *row });
                let fits = buffer.is_none_or(|b| b.subject == Subject::Metric);
                self.require(fits, || format!("reports {row}, which holds no loss"));
            }
        }
    }

    fn timing(&mut self, action: &Action) {
        for periods in [action.lag, action.reach] {
            self.limit(u64::from(periods) < limit::LAG, || {
                format!(
                    "has a lag or reach of {periods}; it must be less than {}",
                    limit::LAG
                )
            });
        }
        let moves = match &action.work {
            Work::Transfer { content, .. } | Work::Collective { content, .. } => {
                matches!(content, Content::Parameter(_))
            }
            Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => false,
        };
        self.require(action.reach == 0 || moves, || {
            "has a reach; only moves of parameters serve later steps".into()
        });
        let (own, lines) = (self.id, self.schedule.actions.len());
        for Wait { action, distance } in &action.after {
            self.require(action.index() < lines, || {
                format!("waits for {action}, which does not exist")
            });
            self.limit(u64::from(*distance) < limit::PERIODS, || {
                format!(
                    "waits over {distance} periods; it must wait over fewer than {}",
                    limit::PERIODS
                )
            });
            self.require(*distance > 0 || *action < own, || {
                format!("waits for {action}, which does not stand above; add a distance")
            });
        }
    }

    fn place(&mut self, at: Place) -> bool {
        let ring = self.schedule.rings.get(at.ring);
        let inside = ring.is_some_and(|ring| (at.place as usize) < ring.devices.len());
        self.require(inside, || format!("is at {at}, which does not exist"));
        inside
    }

    fn lane(&mut self, at: Place, lane: u32) {
        if self.place(at) {
            let lanes = self.schedule.rings[at.ring].lanes;
            self.require(lane < lanes, || {
                format!("takes lane {lane} of {lanes} on {at}")
            });
        }
    }

    fn link(&mut self, link: crate::LinkId) {
        let known = self.schedule.target.links.get(link).is_some();
        self.require(known, || format!("goes over {link}, which does not exist"));
    }

    fn micro_batch(&mut self, i: MicroBatch) {
        let all = self.schedule.cell_micro_batches() as usize;
        self.require(i.index() < all, || format!("is for {i}, but a cell takes {all}"));
    }

    fn stage(&mut self, stage: Stage) {
        let stages = self.schedule.job.elements.len();
        self.require(stage.index() < stages, || format!("moves {stage} of {stages}"));
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::Parameter(stage) | Content::Optimizer(stage) => self.stage(*stage),
            Content::Squares(first, last) => {
                self.stage(*first);
                self.stage(*last);
            }
            Content::Gradient(stage, sum) => {
                self.stage(*stage);
                let plan = &self.schedule.plan;
                let each = plan.additions_each(*stage);
                let most = u64::from(plan.all_micro_batches()) * u64::from(each);
                let known = sum.largest().is_none_or(|i| u64::from(i.number()) < most);
                let few = known && sum.count() <= most;
                self.require(few && !sum.has_gaps() && !sum.repeats(), || {
                    "carries a sum that is empty, repeats, or exceeds the micro-batches"
                        .into()
                });
            }
            Content::Value(_, i) | Content::ValueGradient(_, i) => self.micro_batch(*i),
        }
    }

    fn row(&mut self, row: Row) -> Option<&'static str> {
        let Some(buffer) = self.schedule.buffers.get(row.buffer) else {
            return Some("names a buffer that does not exist");
        };
        (row.place >= buffer.slots)
            .then_some("names a slot that its buffer does not have")
    }
}

impl<'a> Line<'a> {
    /// The buffer of a row on a device, if both are sound.
    fn spot(&mut self, Spot { at, row }: Spot) -> Option<&'a Buffer> {
        let schedule = self.schedule;
        if let Some(problem) = self.row(row) {
            self.malformed(format!("{problem}: {row}"));
            return None;
        }
        if !self.place(at) {
            return None;
        }
        let buffer = &schedule.buffers[row.buffer];
        self.require(buffer.home == at.ring, || {
            format!("touches {row} on {at}, but its home is {}", buffer.home)
        });
        (buffer.home == at.ring).then_some(buffer)
    }

    fn launch(
        &mut self,
        at: Place,
        routine: RoutineId,
        micro_batch: Option<MicroBatch>,
        rows: &[Row],
    ) {
        let schedule = self.schedule;
        let Some(called) = schedule.routines.get(routine) else {
            return self.malformed(format!("runs {routine}, which does not exist"));
        };
        if let Some(i) = micro_batch {
            self.micro_batch(i);
        }
        let pass = called.pass;
        let either = pass == Pass::Combine;
        let fits = either || pass.is_on_micro_batch() == micro_batch.is_some();
        self.require(fits, || {
            format!("pass {pass} needs a micro-batch, or must not have one")
        });
        let arguments = &called.arguments;
        self.require(arguments.len() == rows.len(), || {
            format!("binds {} rows to {} arguments", rows.len(), arguments.len())
        });
        let mut slices = std::mem::take(&mut self.bound);
        slices.clear();
        for (argument, row) in arguments.iter().zip(rows) {
            if let Some(buffer) = self.spot(Spot { at, row: *row }) {
                self.argument(called, argument, *row, buffer);
                let own = self.stepped(pass, buffer.subject);
                slices.extend(own.filter(|own| !slices.contains(own)));
            }
        }
        self.slices(pass, &slices);
        self.bound = slices;
    }

    /// The slice of a flat array that a pass binds; an update has the norm of all slices beside it.
    fn stepped(&mut self, pass: Pass, subject: Subject) -> Option<Slice> {
        match (pass, subject) {
            (Pass::Update, Subject::Squares(own)) => {
                self.require(own == Slice::Whole, || {
                    "updates by the norm of a part; add up those of all parts first"
                        .into()
                });
                None
            }
            _ => subject.slice(),
        }
    }

    fn argument(
        &mut self,
        routine: &Routine,
        argument: &Argument,
        row: Row,
        buffer: &Buffer,
    ) {
        let Argument { role, access: _, size } = argument;
        let stage = match role.is_state() {
            true => self.schedule.plan.keeper(routine.stage),
            false => routine.stage,
        };
        self.require(buffer.subject.fits(*role, stage), || {
            let (stage, subject) = (routine.stage, buffer.subject);
            format!("binds {row}, which holds {subject}, as {role} of {stage}")
        });
        self.require(*size <= buffer.size, || {
            format!("binds {row} of {} bytes where {} are touched", buffer.size.0, size.0)
        });
        let whole = self.whole(buffer.subject, routine.pass);
        self.require(whole.is_none_or(|whole| size.0 >= whole), || {
            format!("touches {} bytes of {row}, not all that it holds", size.0)
        });
    }

    /// Bytes of what is stepped or added as a whole.
    fn whole(&self, subject: Subject, pass: Pass) -> Option<u64> {
        let job = &self.schedule.job;
        let stepped = match subject {
            Subject::Squares(_) => return Some(job.dtype.wide_size()),
            Subject::Gradient(..) => true,
            Subject::Parameter(..) => pass == Pass::Update,
            // Of the optimizer's state some take what others leave.
            Subject::Optimizer(..)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Input(_)
            | Subject::Metric
            | Subject::Workspace => false,
        };
        let whole = job.state_bytes(subject).filter(|_| stepped)?;
        let parts =
            subject.shard().map_or(1, |(_, axis)| self.schedule.axes[axis].extent);
        Some(whole.0 / u64::from(parts))
    }

    /// Passes over micro-batches see whole arrays; the others one slice of all.
    fn slices(&mut self, pass: Pass, slices: &[Slice]) {
        let consistent = match pass.is_on_micro_batch() {
            true => slices.iter().all(|slice| *slice == Slice::Whole),
            false => slices.len() <= 1,
        };
        self.require(consistent, || {
            let slices: Vec<String> = slices.iter().map(Slice::to_string).collect();
            let slices = slices.join(", ");
            format!("pass {pass} binds the slices {slices}; gather or scatter first")
        });
    }

    fn transfer(&mut self, source: &Buffer, target: &Buffer, content: &Content) {
        let carries = source.subject == target.subject && holds(source.subject, content);
        self.require(carries, || {
            let (from, to) = (source.subject, target.subject);
            format!("moves {content} from {from} to {to}; all must be the same")
        });
        self.require(source.size == target.size, || {
            format!("moves {} bytes to {}", source.size.0, target.size.0)
        });
    }

    fn collective(
        &mut self,
        kind: Collective,
        group: GroupId,
        [from, to]: [Row; 2],
        content: &Content,
    ) {
        let schedule = self.schedule;
        let Some(members) = schedule.groups.get(group) else {
            return self.malformed(format!("is of {group}, which does not exist"));
        };
        let at = members.places[0];
        let source = self.spot(Spot { at, row: from });
        let target = self.spot(Spot { at, row: to });
        let (Some(source), Some(target)) = (source, target) else { return };
        let fits = holds(source.subject, content) && holds(target.subject, content);
        self.require(fits, || {
            format!("moves {content} between rows that hold something else")
        });
        let moves = match content {
            Content::Gradient(..) => true,
            Content::Parameter(_) => kind == Collective::AllGather,
            Content::Squares(..) => kind == Collective::AllReduce,
            Content::Optimizer(_) | Content::Value(..) | Content::ValueGradient(..) => {
                false
            }
        };
        self.require(moves, || format!("{kind} of {content} has no meaning"));
        let shaped = self.is_shaped(kind, group, content, [source, target].map(End::new));
        self.require(shaped, || {
            format!("{kind} from {from} to {to}: slices and sizes must fit {group}")
        });
    }

    /// Whether the ends of a collective fit each other and the group.
    fn is_shaped(
        &self,
        kind: Collective,
        group: GroupId,
        content: &Content,
        [source, target]: [End; 2],
    ) -> bool {
        match (kind, content) {
            // The norm of the whole is one number, as that of a part is.
            (Collective::AllReduce, Content::Squares(..)) => {
                let parts = self.parts_of(group, target.slice, source.slice);
                parts.is_some() && source.bytes == target.bytes
            }
            (Collective::AllReduce, _) => source == target,
            (Collective::ReduceScatter, _) => self.sharded(group, source, target),
            (Collective::AllGather, _) => self.sharded(group, target, source),
        }
    }

    /// Whether the members of a group hold the parts of a whole, in order.
    fn sharded(&self, group: GroupId, whole: End, part: End) -> bool {
        let parts = self.parts_of(group, whole.slice, part.slice);
        parts.is_some_and(|parts| whole.bytes == part.bytes * parts)
    }

    /// How many parts of the whole the members of a group hold, if each holds another one.
    fn parts_of(
        &self,
        group: GroupId,
        whole: Option<Slice>,
        part: Option<Slice>,
    ) -> Option<u64> {
        let (Some(Slice::Whole), Some(Slice::Shard(axis))) = (whole, part) else {
            return None;
        };
        let members = &self.schedule.groups[group];
        let apart = members.places.len() == 1 && members.axes == [axis];
        apart.then(|| u64::from(self.schedule.axes[axis].extent))
    }
}

/// What a collective takes, or what it makes, on one member.
#[derive(Clone, Copy, PartialEq, Eq)]
struct End {
    slice: Option<Slice>,
    bytes: u64,
}

impl End {
    fn new(buffer: &Buffer) -> Self {
        Self { slice: buffer.subject.slice(), bytes: buffer.size.0 }
    }
}

/// Whether a buffer of this subject can hold what a move carries.
fn holds(subject: Subject, content: &Content) -> bool {
    match (subject, content) {
        (Subject::Parameter(own, _), Content::Parameter(stage))
        | (Subject::Optimizer(own, _), Content::Optimizer(stage))
        | (Subject::Gradient(own, _), Content::Gradient(stage, _)) => own == *stage,
        (Subject::Value(own), Content::Value(value, _))
        | (Subject::ValueGradient(own), Content::ValueGradient(value, _)) => {
            own == *value
        }
        (Subject::Squares(_), Content::Squares(..)) => true,
        _ => false,
    }
}

/// Whether a role is the gradient of a value that a backward pass adds to.
pub(super) fn contributes(argument: &Argument) -> Option<crate::ValueId> {
    match (argument.role, argument.access) {
        (Role::ValueGradient(value), Access::Write | Access::Update) => Some(value),
        _ => None,
    }
}
