//! Slots: how many each buffer needs, and which one each action touches.

use super::{
    common::{Common, in_common},
    draft::{Draft, DraftAction, DraftBuffer, DraftWork, Hold, Instance, Slotting},
};
use roundelay_schedule::{BufferId, Id, Kind, MicroBatch, RingId, Row, Subject, Table};
use std::collections::BTreeMap;

/// From the first touch of a value to the last, as places in the endless list of all periods'
/// actions: place k of period p counts p · lines + k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Life {
    /// The life of a value that nobody touches.
    const NONE: Self = Self { first: i64::MAX, last: i64::MIN };

    fn extend(&mut self, place: i64) {
        self.first = self.first.min(place);
        self.last = self.last.max(place);
    }
}

/// The micro-batches that a ring sees, numbered in the order in which they come to a device.
#[derive(Clone, Debug)]
struct Visitors {
    /// How many come to one device.
    count: u32,
    /// Devices that see micro-batches of their own; equally many each, so that slots turn alike.
    streams: u32,
    /// Stream and number of each micro-batch of the cell, if it comes by.
    numbers: Vec<Option<(u32, u32)>>,
}

impl Visitors {
    fn new(draft: &Draft<'_>, ring: RingId) -> Self {
        let streams = draft.sites.visitors(ring);
        let mut numbers = vec![None; draft.sites.micro_batches as usize];
        for (stream, all) in (0..).zip(&streams) {
            for (number, i) in (0..).zip(all) {
                numbers[i.index()] = Some((stream, number));
            }
        }
        let count = streams.first().map_or(0, Vec::len);
        Self { count: count as u32, streams: streams.len() as u32, numbers }
    }

    fn number(&self, i: MicroBatch) -> u32 {
        self.numbers[i.index()].expect("only visitors have values here").1
    }

    /// Where the life of a micro-batch's value stands: stream by stream.
    fn place(&self, i: MicroBatch) -> u32 {
        let (stream, number) =
            self.numbers[i.index()].expect("only visitors have values here");
        stream * self.count + number
    }
}

/// How the values of one buffer take turns in its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    home: RingId,
    /// V.
    pub(crate) slots: u32,
    /// Slots per period.
    pub(crate) turn: u32,
}

/// Where the values of all buffers live, and how long.
pub(crate) struct Rows {
    visitors: Table<RingId, Visitors>,
    /// The values of step (or version) 0: one per visitor, stream by stream, or just one.
    lives: Table<BufferId, Vec<Life>>,
    turns: Table<BufferId, Turns>,
    commons: BTreeMap<BufferId, Common>,
}

impl Draft<'_> {
    /// Calls `visit` with every row that an action names.
    fn each_hold(&self, work: &DraftWork, mut visit: impl FnMut(Hold)) {
        match work {
            DraftWork::Launch { rows, .. } => {
                self.rows(rows).iter().copied().for_each(visit);
            }
            DraftWork::Transfer { from, to, .. } => {
                visit(from.hold);
                visit(to.hold);
            }
            DraftWork::Collective { from, to, .. } => {
                visit(*from);
                visit(*to);
            }
            DraftWork::Feed { row, .. } | DraftWork::Report { row, .. } => visit(*row),
        }
    }
}

impl Rows {
    /// Follows all values of a draft; `order` are the places of its actions in list order.
    pub(crate) fn new(draft: &Draft<'_>, order: &[u32]) -> Self {
        let rings = draft.sites.rings.ids();
        let visitors: Table<RingId, Visitors> =
            rings.map(|ring| Visitors::new(draft, ring)).collect();
        let lives = lives(draft, order, &visitors);
        let period = draft.period();
        let turns = |(id, row): (BufferId, &DraftBuffer)| {
            let home = row.home;
            let (slots, turn) = match row.slots {
                Slotting::PerStep(slots) => (slots, 1 % slots),
                Slotting::InTurn(_) => (1, 0),
                Slotting::PerMicroBatch if draft.sites.turns(home) => (1, 0),
                Slotting::PerMicroBatch => {
                    let count = visitors[home].count;
                    let streams = lives[id].chunks(count as usize);
                    let slots = streams.map(|lives| fewest(lives, period)).max();
                    let least = slots.expect("a buffer is for some micro-batch");
                    let slots = least + u32::from(overlaps(draft, row));
                    (slots, count % slots)
                }
            };
            Turns { home, slots, turn }
        };
        let mut turns: Table<BufferId, Turns> = draft.buffers.iter().map(turns).collect();
        let commons = in_common(draft, (&lives, &turns));
        for (id, Common { slots, .. }) in &commons {
            turns[*id] = Turns { slots: *slots, turn: 0, ..turns[*id] };
        }
        Self { visitors, lives, turns, commons }
    }

    /// The slots that a buffer has in common with others, if it has.
    pub(crate) fn common(&self, buffer: BufferId) -> Option<&Common> {
        self.commons.get(&buffer)
    }

    /// The slots of a buffer.
    pub(crate) fn turns(&self, buffer: BufferId) -> Turns {
        self.turns[buffer]
    }

    /// The lives of a buffer's values of step 0.
    pub(crate) fn lives(&self, buffer: BufferId) -> impl Iterator<Item = Life> {
        self.lives[buffer].iter().copied().filter(|life| *life != Life::NONE)
    }

    /// The slot, in period 0, that an action of this lag means by an instance.
    pub(crate) fn row(&self, hold: Hold, lag: u32) -> Row {
        let Turns { home, slots, turn: _ } = self.turns[hold.buffer];
        if slots == 1 {
            return Row { buffer: hold.buffer, place: 0 };
        }
        let place = match hold.instance {
            Instance::MicroBatch(i) if lag == 0 => {
                let number = self.visitors[home].number(i);
                let common = self.common(hold.buffer);
                common.map_or(number % slots, |own| own.places[number as usize])
            }
            Instance::MicroBatch(i) => {
                let visitors = &self.visitors[home];
                let before = i64::from(lag) * i64::from(visitors.count);
                turned(i64::from(visitors.number(i)) - before, slots)
            }
            Instance::Step(offset) => turned(i64::from(offset) - i64::from(lag), slots),
        };
        Row { buffer: hold.buffer, place }
    }
}

fn turned(number: i64, slots: u32) -> u32 {
    let place = u32::try_from(number.rem_euclid(i64::from(slots)));
    place.expect("a remainder is less than the number of slots")
}

/// First and last touch of every value.
fn lives(
    draft: &Draft<'_>,
    order: &[u32],
    visitors: &Table<RingId, Visitors>,
) -> Table<BufferId, Vec<Life>> {
    let values = draft.buffers.values().map(|buffer| match buffer.slots {
        Slotting::PerMicroBatch | Slotting::InTurn(_) => {
            let Visitors { count, streams, .. } = &visitors[buffer.home];
            vec![Life::NONE; (count * streams) as usize]
        }
        Slotting::PerStep(_) => vec![Life::NONE],
    });
    let mut lives: Table<BufferId, Vec<Life>> = values.collect();
    let period = draft.period();
    for (number, rank) in order.iter().zip(0..) {
        let DraftAction { lag, work, .. } = &draft.actions[*number as usize];
        draft.each_hold(work, |hold| {
            let (number, offset) = match hold.instance {
                Instance::MicroBatch(i) => {
                    (visitors[draft.buffers[hold.buffer].home].place(i), 0)
                }
                Instance::Step(offset) => (0, offset),
            };
            let place = (i64::from(*lag) - i64::from(offset)) * period + rank;
            lives[hold.buffer][number as usize].extend(place);
        });
    }
    lives
}

/// Messages of a pipeline get a slot more than list order needs, so that one is on its way while
/// a pass still reads the one before; what slices of one stage hand each other is no message. So
/// does what the host brings to units of a local rule: it serves all of them in list order, and
/// none is to wait for what another has not read yet.
fn overlaps(draft: &Draft<'_>, row: &DraftBuffer) -> bool {
    let waits = match row.subject.kind() {
        Kind::Boundary => travels(draft, row.subject),
        Kind::Input => !draft.plan.boundaries.is_empty(),
        Kind::Parameter
        | Kind::Gradient
        | Kind::Optimizer
        | Kind::Activation
        | Kind::Workspace
        | Kind::Metric => false,
    };
    waits && draft.plan.order.is_of_pipelines()
}

/// Whether a value goes from one stage to another, slices left out.
fn travels(draft: &Draft<'_>, subject: Subject) -> bool {
    match subject {
        Subject::Value(value) | Subject::ValueGradient(value) => {
            let row = &draft.code.values[value];
            draft.plan.keeper(row.producer) != draft.plan.keeper(row.last)
        }
        _ => true,
    }
}

/// The fewest slots of a buffer with a value per micro-batch. A slot is free for its next value
/// once the last touch of the one before stands above the next one's first: in list order
/// nothing then waits for it. One slot will do where a device never sees some of them.
fn fewest(lives: &[Life], period: i64) -> u32 {
    if lives.contains(&Life::NONE) {
        return 1;
    }
    let count = lives.len();
    let free = |slots: usize| {
        let (later, ahead) = (slots / count, slots % count);
        let shift = |turns: usize| turns as i64 * period;
        let (near, far) = lives.split_at(ahead);
        let follow = |lives: &[Life], next: &[Life], turns: usize| {
            let mut pairs = lives.iter().zip(next);
            pairs.all(|(life, next)| life.last < next.first + shift(turns))
        };
        follow(&lives[..far.len()], far, later)
            && follow(&lives[far.len()..], near, later + 1)
    };
    let slots = (1..).find(|slots| free(*slots)).expect("lives are finite");
    u32::try_from(slots).expect("a buffer has few slots")
}
