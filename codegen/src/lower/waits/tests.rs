//! Derived waits against the plain definition, on small random schedules: an instance waits for
//! another exactly when they conflict and nothing in between leads from one to the other.

use super::*;
use roundelay_dsl::{Disk, SourceFile, parse};
use roundelay_schedule::{
    Argument, Buffer, BufferId, Bytes, Collective, Content, DeviceId, Group, GroupId,
    LinkId, MicroBatch, Nanos, Order, Pass, PhysicalQueue, Place, Placement, Plan, Rest,
    Ring, RingId, Role, Routine, RoutineId, Row, Rule, Shared, Slice, Spot, Stage,
    States, Subject, Touch, Waits, Work,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Periods that the definition looks at; no ring of the generator takes longer to turn.
const PERIODS: i64 = 14;

/// A linear congruential generator (Knuth's MMIX constants).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

/// A schedule whose tables and lines are about to be drawn.
fn empty() -> Schedule {
    let text = "model line {
            input x: real[batch, 4]
            input y: real[batch, 1]
            loss mse(linear(x, 1), y)
        }
        train { data synthetic, batch 1, optimizer sgd(lr = 0.1), steps 1 }";
    let (program, _) = parse(&SourceFile::new("line.rdl", text), &Disk).unwrap();
    let (placement, order) = (Placement::Accumulate, Order::Sequential);
    let plan = Plan::new(Rule::Sync, placement, order, States::Replicated, 1, Vec::new());
    crate::lower(&program, &plan).unwrap()
}

fn drawn(base: &Schedule, random: &mut Random) -> Schedule {
    let mut schedule = base.clone();
    let mut devices = 0;
    let rings = (0..1 + random.below(3)).map(|_| {
        let first = devices;
        devices += 1 + random.below(3);
        let devices = (first..devices).map(|device| DeviceId::new(device as usize));
        Ring { devices: devices.collect(), turn: random.below(4), lanes: 2 }
    });
    schedule.rings = rings.collect();
    schedule.buffers = (0..3 + random.below(4))
        .map(|number| buffer(&schedule, number, random))
        .collect();
    schedule.groups = schedule.rings.iter().map(|(ring, row)| group(ring, row)).collect();
    schedule.routines = (0..4).map(|_| routine(random)).collect();
    let actions: Vec<Action> =
        (0..2 + random.below(7)).map(|_| action(&schedule, random)).collect();
    schedule.actions = actions.into_iter().collect();
    schedule
}

fn group(ring: RingId, row: &Ring) -> Group {
    let places = (0..row.devices.len() as u32).map(|place| Place { ring, place });
    Group { places: places.collect(), axes: Vec::new() }
}

/// Buffers with one slot may share addresses; others lie far apart.
fn buffer(schedule: &Schedule, number: u32, random: &mut Random) -> Buffer {
    let slots = 1 + random.below(3);
    let offset = match slots {
        1 => u64::from(random.below(4)),
        _ => u64::from(number + 1) * 1000,
    };
    Buffer {
        home: RingId::new(random.below(schedule.rings.len() as u32) as usize),
        subject: Subject::Gradient(Stage::new(0), Slice::Whole),
        offset: Bytes(offset),
        size: Bytes(u64::from(random.below(3))),
        slots,
        turn: random.below(slots + 1),
        rest: Rest::Transient,
    }
}

fn routine(random: &mut Random) -> Routine {
    let access = [Access::Read, Access::Read, Access::Write, Access::Update];
    let argument = |_| Argument {
        role: Role::Workspace,
        access: access[random.below(4) as usize],
        size: Bytes(0),
    };
    Routine {
        name: "drawn".into(),
        pass: Pass::Forward,
        stage: Stage::new(0),
        arguments: (0..3).map(argument).collect(),
        calls: Shared::default(),
        predicted: Nanos(0),
    }
}

fn row(schedule: &Schedule, random: &mut Random) -> (BufferId, Row) {
    let id = BufferId::new(random.below(schedule.buffers.len() as u32) as usize);
    let place = random.below(schedule.buffers[id].slots);
    (id, Row { buffer: id, place })
}

fn spot(schedule: &Schedule, random: &mut Random) -> Spot {
    let (id, row) = row(schedule, random);
    let ring = schedule.buffers[id].home;
    let places = schedule.rings[ring].devices.len() as u32;
    Spot { at: Place { ring, place: random.below(places) }, row }
}

fn action(schedule: &Schedule, random: &mut Random) -> Action {
    let Spot { at, row: first } = spot(schedule, random);
    let near = |id: BufferId| schedule.buffers[id].home == at.ring;
    let rows: Vec<Row> = std::iter::repeat_with(|| row(schedule, random).1)
        .filter(|row| near(row.buffer))
        .take(2)
        .collect();
    let content = Content::Parameter(Stage::new(0));
    let link = LinkId::new(0);
    let micro_batch = MicroBatch::new(0);
    let work = match random.below(8) {
        0 => Work::Feed { at, micro_batch, row: first },
        1 => Work::Report { at, micro_batch, row: first },
        2 => {
            let (kind, group) = (Collective::AllReduce, at.ring.index());
            let group = GroupId::new(group);
            Work::Collective { link, kind, group, from: first, to: rows[0], content }
        }
        3 | 4 => {
            let (from, to) = (Spot { at, row: first }, spot(schedule, random));
            Work::Transfer { link, from, to, content }
        }
        _ => Work::Launch {
            at,
            lane: random.below(2),
            routine: RoutineId::new(random.below(4) as usize),
            micro_batch: Some(micro_batch),
            rows: [first, rows[0], rows[1]].into(),
            beside: None,
        },
    };
    Action { lag: random.below(2), reach: 0, after: Waits::default(), work }
}

/// One touch of an instance.
struct Touched {
    access: Access,
    device: DeviceId,
    slot: (BufferId, u32),
    bytes: Range<u64>,
}

/// One instance of the unrolled list.
struct Unfolded {
    period: i64,
    action: ActionId,
    queue: PhysicalQueue,
    touches: Vec<Touched>,
}

fn unfolded(schedule: &Schedule) -> Vec<Unfolded> {
    let of = |period| {
        schedule.actions.iter().map(move |(id, action)| Unfolded {
            period,
            action: id,
            queue: schedule.queue(action, period),
            touches: touches(schedule, action, period),
        })
    };
    (0..PERIODS).flat_map(of).collect()
}

fn touches(schedule: &Schedule, action: &Action, period: i64) -> Vec<Touched> {
    let of = |touch: Touch| {
        let buffer = &schedule.buffers[touch.row.buffer];
        let slot = buffer.slot(touch.row.place, period);
        let start = buffer.offset.0 + u64::from(slot) * buffer.size.0;
        Touched {
            access: touch.access,
            device: schedule.rings[touch.at.ring].device(touch.at.place, period),
            slot: (touch.row.buffer, slot),
            bytes: start..start + buffer.size.0,
        }
    };
    schedule.touches(action).into_iter().map(of).collect()
}

fn conflict(one: &Unfolded, other: &Unfolded) -> bool {
    let clash = |a: &Touched, b: &Touched| {
        let shared = a.bytes.start.max(b.bytes.start) < a.bytes.end.min(b.bytes.end);
        let same = a.device == b.device && (a.slot == b.slot || shared);
        same && (a.access, b.access) != (Access::Read, Access::Read)
    };
    one.touches.iter().any(|a| other.touches.iter().any(|b| clash(a, b)))
}

/// The waits of every line, by the definition.
fn defined(schedule: &Schedule) -> Vec<Vec<Wait>> {
    let all = unfolded(schedule);
    // What leads to each instance: directly, and over others.
    let mut before: Vec<BTreeSet<usize>> = Vec::new();
    let mut waits = Vec::new();
    for (number, me) in all.iter().enumerate() {
        let queued = |earlier: &usize| all[*earlier].queue == me.queue;
        let direct: Vec<usize> = (0..number)
            .filter(|earlier| queued(earlier) || conflict(&all[*earlier], me))
            .collect();
        let over: BTreeSet<usize> =
            direct.iter().flat_map(|next| before[*next].iter().copied()).collect();
        if me.period == PERIODS - 1 {
            let kept = direct.iter().filter(|one| !queued(one) && !over.contains(one));
            let mut kept: Vec<Wait> = kept.map(|one| wait(&all[*one], me)).collect();
            kept.sort_by_key(|wait| (wait.distance, wait.action));
            waits.push(kept);
        }
        before.push(over.into_iter().chain(direct).collect());
    }
    waits
}

fn wait(earlier: &Unfolded, me: &Unfolded) -> Wait {
    let distance = u32::try_from(me.period - earlier.period).unwrap();
    Wait { action: earlier.action, distance }
}

#[test]
fn waits_are_the_conflicts_that_nothing_implies() {
    let (base, mut random) = (empty(), Random(7));
    let mut found = 0;
    for case in 0..1500 {
        let mut schedule = drawn(&base, &mut random);
        let cells = Cells::new(&schedule);
        let writes = Writes::new(&schedule, &cells);
        derive(&mut schedule, (&cells, &writes));
        let derived: Vec<Vec<Wait>> =
            schedule.actions.values().map(|action| action.after.to_vec()).collect();
        assert_eq!(derived, defined(&schedule), "case {case}: {schedule:#?}");
        found += derived.iter().map(Vec::len).sum::<usize>();
    }
    assert!(found > 1500, "the schedules have waits: {found}");
}

/// The widest gap between two writes of a cell, seen by turning.
fn widest(schedule: &Schedule) -> u64 {
    let mut last: BTreeMap<(DeviceId, BufferId, u32), i64> = BTreeMap::new();
    let mut most = 1;
    for Unfolded { period, touches, .. } in unfolded(schedule) {
        for touch in touches.iter().filter(|touch| touch.access != Access::Read) {
            let cell = (touch.device, touch.slot.0, touch.slot.1);
            let before = last.insert(cell, period).unwrap_or(period);
            most = most.max(period - before);
        }
    }
    u64::try_from(most).unwrap()
}

#[test]
fn a_cell_recurs_after_the_widest_gap_between_its_writes() {
    let (base, mut random) = (empty(), Random(8));
    for case in 0..1500 {
        let schedule = drawn(&base, &mut random);
        let recurrence = Writes::new(&schedule, &Cells::new(&schedule)).recurrence;
        assert_eq!(recurrence, widest(&schedule), "case {case}: {schedule:#?}");
    }
}

/// The first instance that no later one covers before a period, by the definition.
fn first_open(schedule: &Schedule, period: u64) -> Option<(i64, ActionId)> {
    let all = unfolded(schedule);
    let cell = |touch: &Touched| (touch.device, touch.slot);
    let writes = |one: &Unfolded| -> BTreeSet<_> {
        let writes = one.touches.iter().filter(|touch| touch.access != Access::Read);
        writes.map(cell).collect()
    };
    let ever: BTreeSet<_> = all.iter().flat_map(writes).collect();
    let before = all.iter().take_while(|one| (one.period as u64) < period);
    let before: Vec<&Unfolded> = before.collect();
    let open = |number: &usize| {
        let later: BTreeSet<_> =
            before[number + 1..].iter().flat_map(|one| writes(one)).collect();
        let mut own = before[*number].touches.iter().map(cell);
        own.any(|cell| ever.contains(&cell) && !later.contains(&cell))
    };
    let first = (0..before.len()).find(open)?;
    Some((before[first].period, before[first].action))
}

#[test]
fn the_horizon_is_the_first_instance_that_nobody_covers() {
    let (base, mut random) = (empty(), Random(9));
    let mut above = 0;
    for case in 0..500 {
        let schedule = drawn(&base, &mut random);
        let cells = Cells::new(&schedule);
        let writes = Writes::new(&schedule, &cells);
        let period = writes.recurrence;
        let Horizon { period: found, line } =
            Horizon::before(period, &schedule, (&cells, &writes));
        let (period, action) =
            first_open(&schedule, period).unwrap_or((period as i64, ActionId::new(0)));
        assert_eq!((found as i64, line), (period, action.index()), "case {case}");
        above += line;
    }
    assert!(above > 0, "some instances are above it");
}
