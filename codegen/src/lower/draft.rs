//! A schedule under construction: actions with a place in the list that is not yet a number,
//! rows that are not yet slots.

use super::{
    LowerError,
    arrivals::Arrivals,
    calendar::by_time,
    order::Slots,
    site::{Site, Sites},
    state::Update,
};
use crate::{Differentiated, Stages};
use roundelay_schedule::{
    BufferId, Bytes, Collective, Content, Group, GroupId, Id, Job, Levels, LinkId,
    MicroBatch, Pass, Place, Plan, Rest, RingId, Role, Routine, RoutineId, Slice, Stage,
    Subject, Table, Target, Units, ValueId,
};
use std::{collections::BTreeMap, ops::Range, rc::Rc};

/// Everything that the passes of the lowering share.
pub(crate) struct Draft<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) units: Units,
    pub(crate) target: &'a Target,
    pub(crate) levels: Levels<'a>,
    pub(crate) job: &'a Job,
    pub(crate) code: &'a Stages,
    pub(crate) sites: Sites,
    pub(crate) order: Slots,
    pub(crate) routines: Table<RoutineId, Routine>,
    pub(crate) groups: Table<GroupId, Group>,
    pub(crate) buffers: Table<BufferId, DraftBuffer>,
    pub(crate) actions: Vec<DraftAction>,
    /// The rows of all launches, one launch behind the other.
    pub(crate) holds: Vec<Hold>,
    pub(crate) arrivals: Arrivals,
    /// Updates that wait for the norm of all stages, stage by stage.
    pub(crate) bounded: Vec<Update>,
    /// What is on each ring, by subject and number.
    named: Table<RingId, BTreeMap<(Subject, u32), BufferId>>,
    /// The values that cross from each stage to the next one, of slices to the same slice of the
    /// next stage, in order.
    crossing: Table<Stage, Rc<[Crossing]>>,
    /// The passes of each ring in list order, as numbers of slots.
    turns: Table<RingId, Rc<[u32]>>,
    /// What adds up two gradient sums of a stage, in so many shards each.
    pub(super) combinations: BTreeMap<(Stage, u64), RoutineId>,
    /// By the ends of a transfer, as [`Sites::anywhere`] has them.
    links: BTreeMap<(Place, Place), LinkId>,
}

/// A value that crosses from a stage to the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    pub(crate) value: ValueId,
    pub(crate) size: Bytes,
    pub(crate) gradient: Differentiated,
}

/// A place in the list of one period. The list is in order of time if all passes take equal time:
/// what a pass made possible stands where the pass ends, so that no queue is blocked by
/// something that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    time: u64,
    /// What ends at a time stands above what starts; starts are in order of slots, from one.
    start: u32,
    side: Side,
    /// How many turns behind the last pass of the step it would stand.
    overdue: u32,
    sequence: u32,
    /// How far behind the action that has the same place otherwise.
    shift: u32,
}

impl Key {
    /// A number in the same order; times are below 2^37, turns below 8, sequences below 2^30 and
    /// shifts below 2^24.
    fn packed(self) -> u128 {
        let side = self.side as u128;
        let [start, overdue, sequence, shift] =
            [self.start, self.overdue, self.sequence, self.shift].map(u128::from);
        (u128::from(self.time) << 91)
            | (start << 59)
            | (side << 57)
            | (overdue << 54)
            | (sequence << 24)
            | shift
    }

    /// When it is, if passes take the times of the order.
    pub(crate) fn time(self) -> u64 {
        self.time
    }

    /// The same place this many turns behind the last pass of the step.
    pub(crate) fn overdue(self, turns: u32) -> Self {
        Self { overdue: turns, ..self }
    }

    /// Right behind the action at this place.
    pub(crate) fn right_behind(self) -> Self {
        Self { shift: self.shift + 1, ..self }
    }
}

/// Where an action stands beside a compute slot.
///
/// Law: behind the last pass of a device in a step, and without a flush right behind the pass that
/// makes a sum whole, what a pass of the step waits for stands above what only the next step waits
/// for. Ports, and queues of messages, are taken in list order: so the way back through a pipeline
/// waits for no sum of gradients. Sums that another device of the step waits for keep their place:
/// those of two directions, and those that cyclic workers and rings of shared devices hand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// What the slot's pass still needs.
    Before,
    /// The pass itself.
    At,
    /// What the slot's pass made possible.
    After,
    /// What it made possible and no pass of the step waits for: whole sums of gradients, norms that
    /// several stages have, and the updates behind them.
    Closing,
}

/// An instance: a place in the list of one period. The list order of instances is their order
/// in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) period: i64,
    pub(crate) key: Key,
}

impl Moment {
    /// A place in the list, this many periods behind its step.
    pub(crate) fn new(key: Key, lag: u32) -> Self {
        Self { period: lag.into(), key }
    }

    /// The same this many periods later.
    pub(crate) fn later(self, periods: i64) -> Self {
        Self { period: self.period + periods, ..self }
    }

    /// The same below all that a pass of the step waits for.
    pub(crate) fn closing(self) -> Self {
        Self { key: Key { side: Side::Closing, ..self.key }, ..self }
    }

    /// How many periods behind its step.
    pub(crate) fn lag(self) -> u32 {
        u32::try_from(self.period).expect("nothing stands before its step")
    }
}

/// An action whose rows are not yet slots.
#[derive(Clone, Debug)]
pub(crate) struct DraftAction {
    pub(crate) key: Key,
    pub(crate) lag: u32,
    pub(crate) reach: u32,
    pub(crate) work: DraftWork,
}

/// What a draft action does.
#[derive(Clone, Debug)]
pub(crate) enum DraftWork {
    Launch {
        at: Place,
        lane: u32,
        routine: RoutineId,
        micro_batch: Option<MicroBatch>,
        /// Places in [`Draft::holds`].
        rows: Range<u32>,
    },
    Transfer {
        link: LinkId,
        from: End,
        to: End,
        content: Content,
    },
    Collective {
        link: LinkId,
        kind: Collective,
        group: GroupId,
        from: Hold,
        to: Hold,
        content: Content,
    },
    Feed {
        at: Place,
        micro_batch: MicroBatch,
        row: Hold,
    },
    Report {
        at: Place,
        micro_batch: MicroBatch,
        row: Hold,
    },
}

/// An end of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) at: Place,
    pub(crate) hold: Hold,
}

/// Which instance of a buffer's value an action touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) buffer: BufferId,
    pub(crate) instance: Instance,
}

/// Values of a buffer are numbered; a slot holds one of them at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Instance {
    /// That of a micro-batch of the action's step.
    MicroBatch(MicroBatch),
    /// That of the action's step plus this much.
    Step(i32),
}

/// A buffer whose slots and offset are not yet known.
#[derive(Clone, Debug)]
pub(crate) struct DraftBuffer {
    pub(crate) home: RingId,
    pub(crate) subject: Subject,
    pub(crate) size: Bytes,
    pub(crate) slots: Slotting,
    pub(crate) rest: Rest,
}

/// How many slots a buffer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slotting {
    /// As few as list order allows, one value per micro-batch.
    PerMicroBatch,
    /// This many, one value per step.
    PerStep(u32),
    /// One, which several values of a step take in turn. The list keeps their lives apart, and
    /// says how long an address is taken; buffers of an equal number never live at one time.
    InTurn(u32),
}

/// The places of actions in list order.
pub(crate) fn list_order(actions: &[DraftAction]) -> Vec<u32> {
    let times = actions.iter().map(|action| action.key.time);
    by_time(times, |number| actions[number].key.packed())
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        target: &'a Target,
        job: &'a Job,
        code: &'a Stages,
        order: Slots,
    ) -> Self {
        let sites = Sites::new(plan);
        let named = sites.rings.ids().map(|_| BTreeMap::new()).collect();
        Self {
            plan,
            units: Units::of(plan),
            target,
            levels: Levels::new(target),
            job,
            code,
            arrivals: Arrivals::new(&sites.rings),
            turns: turns(&sites, &order),
            combinations: BTreeMap::new(),
            sites,
            order,
            routines: Table::new(),
            groups: Table::new(),
            buffers: Table::new(),
            actions: Vec::new(),
            holds: Vec::new(),
            bounded: Vec::new(),
            named,
            crossing: crossing(code, plan),
            links: BTreeMap::new(),
        }
    }

    /// The buffer of a subject on a ring; `which` tells apart buffers of one subject.
    pub(crate) fn buffer(
        &mut self,
        home: RingId,
        subject: Subject,
        which: u32,
        size: Bytes,
        slots: Slotting,
    ) -> BufferId {
        let key = (subject, which);
        if let Some(known) = self.named[home].get(&key) {
            let row = &mut self.buffers[*known];
            row.size = row.size.max(size);
            return *known;
        }
        let rest = Rest::Transient;
        let id = self.buffers.push(DraftBuffer { home, subject, size, slots, rest });
        self.named[home].insert(key, id);
        id
    }

    /// Places of one period: one for each action.
    pub(crate) fn period(&self) -> i64 {
        self.actions.len() as i64
    }

    /// A place beside a slot, behind all that stands there already.
    pub(crate) fn key(&self, slot: u32, side: Side) -> Key {
        let found = self.order.slot(slot);
        let (time, start) = match side {
            Side::Before => (found.start, 1 + self.order.head(slot)),
            Side::At => (found.start, 1 + slot),
            Side::After | Side::Closing => (found.end, 0),
        };
        self.behind(Key { time, start, side, overdue: 0, sequence: 0, shift: 0 })
    }

    /// The same place, behind all that stands there already.
    pub(crate) fn behind(&self, key: Key) -> Key {
        let sequence = u32::try_from(self.actions.len());
        Key { sequence: sequence.expect("actions are counted in 32 bits"), ..key }
    }

    /// The same moment, behind all that stands there already.
    pub(crate) fn following(&self, moment: Moment) -> Moment {
        Moment { key: self.behind(moment.key), ..moment }
    }

    /// Adds an action.
    pub(crate) fn push(&mut self, moment: Moment, work: DraftWork) {
        self.push_reaching(moment, 0, work);
    }

    /// Adds an action that later steps also need.
    pub(crate) fn push_reaching(&mut self, moment: Moment, reach: u32, work: DraftWork) {
        let (key, lag) = (moment.key, moment.lag());
        self.actions.push(DraftAction { key, lag, reach, work });
    }

    /// Adds a launch.
    pub(crate) fn push_launch(
        &mut self,
        site: Site,
        moment: Moment,
        routine: RoutineId,
        micro_batch: Option<MicroBatch>,
        rows: impl IntoIterator<Item = Hold>,
    ) {
        let Site { at, lane } = site;
        let place = |holds: &[Hold]| u32::try_from(holds.len()).expect("rows are few");
        let first = place(&self.holds);
        self.holds.extend(rows);
        let rows = first..place(&self.holds);
        self.push(moment, DraftWork::Launch { at, lane, routine, micro_batch, rows });
    }

    /// Beside a pass of step 0.
    pub(crate) fn beside(
        &self,
        pass: Pass,
        stage: Stage,
        i: MicroBatch,
        side: Side,
    ) -> Moment {
        let (slot, found) = self.order.find(pass, stage, i);
        Moment::new(self.key(slot, side), found.lag)
    }

    /// Right after a pass of step 0.
    pub(crate) fn after(&self, pass: Pass, stage: Stage, i: MicroBatch) -> Moment {
        self.beside(pass, stage, i, Side::After)
    }

    /// Right after the last pass of a micro-batch of step 0 through a stage.
    pub(crate) fn released(&self, stage: Stage, i: MicroBatch) -> Moment {
        self.after(self.order.closing(stage), stage, i)
    }

    /// Bytes of the whole flat array that a stage's state is, or a part of.
    pub(crate) fn state_size(&self, subject: Subject) -> Bytes {
        self.job.state_bytes(subject).expect("state is part of a flat array")
    }

    /// The rows of a launch.
    pub(crate) fn rows(&self, places: &Range<u32>) -> &[Hold] {
        &self.holds[places.start as usize..places.end as usize]
    }

    /// The stages that have a state, slices left out.
    pub(crate) fn keepers(&self) -> impl Iterator<Item = Stage> + use<> {
        let slices = self.plan.slices as usize;
        self.order.stages().step_by(slices)
    }

    /// The gradients that the sum of a state adds up in one cell, in order.
    pub(crate) fn additions(
        &self,
        state: Stage,
    ) -> impl Iterator<Item = MicroBatch> + use<> {
        (0..self.plan.cell_additions(state) as usize).map(MicroBatch::new)
    }

    /// The last micro-batch of the cell.
    pub(crate) fn last(&self) -> MicroBatch {
        MicroBatch::new(self.sites.micro_batches as usize - 1)
    }

    /// The passes of a ring in list order, as numbers of slots.
    pub(crate) fn turns(&self, ring: RingId) -> Rc<[u32]> {
        Rc::clone(&self.turns[ring])
    }

    /// The values that cross from a stage to the next one, in order.
    pub(crate) fn crossing(&self, stage: Stage) -> Rc<[Crossing]> {
        Rc::clone(&self.crossing[stage])
    }

    /// A transfer, with the link level between its ends.
    pub(crate) fn transfer(
        &mut self,
        [from, to]: [End; 2],
        content: Content,
    ) -> Result<DraftWork, LowerError> {
        let link = self.link(from.at, to.at)?;
        Ok(DraftWork::Transfer { link, from, to, content })
    }

    /// The link level between two places.
    pub(crate) fn link(&mut self, from: Place, to: Place) -> Result<LinkId, LowerError> {
        let ends = (self.sites.anywhere(from), self.sites.anywhere(to));
        if let Some(known) = self.links.get(&ends) {
            return Ok(*known);
        }
        let link = self.sites.link(&self.levels, from, to)?;
        self.links.insert(ends, link);
        Ok(link)
    }

    /// Whole flat parameters, gradients or optimizer state of a stage on a ring.
    pub(crate) fn state_buffer(
        &mut self,
        home: RingId,
        subject: fn(Stage, Slice) -> Subject,
        stage: Stage,
        slots: u32,
    ) -> BufferId {
        let whole = subject(stage, Slice::Whole);
        let size = self.state_size(whole);
        self.buffer(home, whole, 0, size, Slotting::PerStep(slots))
    }

    /// Another row on a ring for the same; `which` counts such rows from one on.
    pub(crate) fn spare_buffer(
        &mut self,
        home: RingId,
        subject: fn(Stage, Slice) -> Subject,
        stage: Stage,
        which: u32,
    ) -> BufferId {
        let whole = subject(stage, Slice::Whole);
        let size = self.state_size(whole);
        self.buffer(home, whole, which, size, Slotting::PerStep(1))
    }

    /// Binds the rows of a routine by role; scratch memory is the lane's.
    pub(crate) fn bind(
        &mut self,
        site: Site,
        routine: RoutineId,
        mut row: impl FnMut(Role) -> Hold,
    ) -> Vec<Hold> {
        let arguments = &self.routines[routine].arguments;
        let wanted: Vec<(Role, Bytes)> =
            arguments.iter().map(|argument| (argument.role, argument.size)).collect();
        let mut bind = |(role, size)| match role {
            Role::Workspace => self.workspace(site.at.ring, site.lane, size),
            _ => row(role),
        };
        wanted.into_iter().map(&mut bind).collect()
    }

    /// Scratch memory of a lane, as large as its largest routine wants.
    pub(crate) fn workspace(&mut self, home: RingId, lane: u32, size: Bytes) -> Hold {
        let buffer =
            self.buffer(home, Subject::Workspace, lane, size, Slotting::PerStep(1));
        Hold { buffer, instance: Instance::Step(0) }
    }
}

/// The passes of each ring.
fn turns(sites: &Sites, order: &Slots) -> Table<RingId, Rc<[u32]>> {
    let mut turns: Table<RingId, Vec<u32>> =
        sites.rings.ids().map(|_| Vec::new()).collect();
    for (number, slot) in order.iter() {
        turns[sites.ring(slot.stage, slot.micro_batch)].push(number);
    }
    turns.values().map(|own| Rc::from(own.as_slice())).collect()
}

fn crossing(code: &Stages, plan: &Plan) -> Table<Stage, Rc<[Crossing]>> {
    let mut all: Table<Stage, Vec<Crossing>> =
        code.stages.ids().map(|_| Vec::new()).collect();
    for (value, row) in code.values.iter() {
        let crossing = Crossing { value, size: row.size, gradient: row.gradient };
        // What only later slices of its stage read stays where it is.
        let last = plan.keeper(row.last).index();
        let stages = (row.producer.index()..last).step_by(plan.slices as usize);
        stages.for_each(|stage| all[Stage::new(stage)].push(crossing));
    }
    all.values().map(|values| values.as_slice().into()).collect()
}
