//! Slots: how many each buffer needs, and which one each action touches.

use super::draft::{Draft, DraftAction, DraftWork, Hold, Instance, Moment, Slotting};
use roundelay_schedule::{BufferId, Kind, MicroBatch, Row, Table};
use std::collections::BTreeMap;

/// How the values of one buffer take turns in its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// Micro-batches with a value of their own, stream by stream; streams are on different
    /// devices. None when values are numbered by step.
    streams: Vec<Vec<MicroBatch>>,
    /// V.
    pub(crate) slots: u32,
    /// Slots per period.
    pub(crate) turn: u32,
}

/// From the first touch of a value to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) first: Moment,
    pub(crate) last: Moment,
}

/// The lives of each buffer's values of step (or version) 0, one per micro-batch or just one.
pub(crate) type Lives = BTreeMap<BufferId, BTreeMap<Option<MicroBatch>, Life>>;

impl DraftAction {
    /// Every row that it names.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        match &self.work {
            DraftWork::Launch { rows, .. } => rows.clone(),
            DraftWork::Transfer { from, to, .. } => vec![from.1, to.1],
            DraftWork::Collective { from, to, .. } => vec![*from, *to],
            DraftWork::Feed { row, .. } | DraftWork::Report { row, .. } => vec![*row],
        }
    }

    /// When it touches the value of step 0 that an instance names.
    fn moment(&self, instance: Instance) -> Moment {
        let offset = match instance {
            Instance::MicroBatch(_) => 0,
            Instance::Step(offset) => offset,
        };
        Moment { period: i64::from(self.lag) - i64::from(offset), key: self.key }
    }
}

/// First and last touch of every value.
pub(crate) fn lives(actions: &[DraftAction]) -> Lives {
    let mut lives = Lives::new();
    for action in actions {
        for hold in action.holds() {
            let which = match hold.instance {
                Instance::MicroBatch(i) => Some(i),
                Instance::Step(_) => None,
            };
            let moment = action.moment(hold.instance);
            let row = lives.entry(hold.buffer).or_default();
            let life = row.entry(which).or_insert(Life { first: moment, last: moment });
            life.first = life.first.min(moment);
            life.last = life.last.max(moment);
        }
    }
    lives
}

/// The slots of every buffer. A slot is free for its next value once the last touch of the one
/// before stands above the next one's first: in list order nothing then waits for it.
pub(crate) fn turns(draft: &Draft<'_>, lives: &Lives) -> Table<BufferId, Turns> {
    let of = |(id, row): (BufferId, &super::draft::DraftBuffer)| match row.slots {
        Slotting::PerStep(slots) => Turns { streams: Vec::new(), slots, turn: 1 % slots },
        Slotting::PerMicroBatch => {
            let streams = draft.sites.visitors(row.home);
            if draft.sites.turns(row.home) {
                return Turns { streams, slots: 1, turn: 0 };
            }
            let count = i64::try_from(streams[0].len()).unwrap_or(i64::MAX);
            let slots = streams.iter().map(|stream| fewest(&lives[&id], stream));
            let slots = slots.max().expect("a ring has a stream");
            let slots = slots + u32::from(overlaps(draft, row));
            let turn = count.rem_euclid(i64::from(slots));
            Turns { streams, slots, turn: u32::try_from(turn).unwrap_or(0) }
        }
    };
    draft.buffers.iter().map(of).collect()
}

/// Messages of a pipeline get a slot more than list order needs, so that one is on its way while
/// a pass still reads the one before.
fn overlaps(draft: &Draft<'_>, row: &super::draft::DraftBuffer) -> bool {
    row.subject.kind() == Kind::Boundary && draft.plan.order.is_of_pipelines()
}

/// All streams of a ring are equally long, so that their slots turn alike.
fn fewest(lives: &BTreeMap<Option<MicroBatch>, Life>, stream: &[MicroBatch]) -> u32 {
    let count = stream.len();
    let known = stream.iter().all(|i| lives.contains_key(&Some(*i)));
    if !known {
        return 1;
    }
    let life = |number: usize| lives[&Some(stream[number % count])];
    let free = |slots: usize| {
        (0..count).all(|number| {
            let later = (number + slots) / count;
            let mut next = life(number + slots).first;
            next.period += i64::try_from(later).unwrap_or(i64::MAX);
            life(number).last < next
        })
    };
    let slots = (1..).find(|slots| free(*slots)).expect("lives are finite");
    u32::try_from(slots).expect("a buffer has few slots")
}

impl Turns {
    /// The slot, in period 0, that an action of this lag means by an instance.
    pub(crate) fn row(&self, hold: Hold, lag: u32) -> Row {
        let number = match hold.instance {
            Instance::Step(offset) => i64::from(offset) - i64::from(lag),
            Instance::MicroBatch(i) => {
                let stream = |stream: &Vec<MicroBatch>| {
                    let own = stream.iter().position(|visitor| *visitor == i)?;
                    Some(own as i64 - i64::from(lag) * stream.len() as i64)
                };
                let number = self.streams.iter().find_map(stream);
                number.expect("only visitors have values here")
            }
        };
        let place = if self.turn == 0 && self.slots == 1 { 0 } else { number };
        let place = place.rem_euclid(i64::from(self.slots));
        Row { buffer: hold.buffer, place: u32::try_from(place).unwrap_or(0) }
    }
}
