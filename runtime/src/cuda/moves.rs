//! Collectives as sums and copies, in the order in which the CPU machine makes them: member k of n
//! owns part k, adds what all bring to it from the first to the last, and gives it to all.

use super::{code::number_of, issue::Turn};
use crate::machine::{Members, Span, part, placed};
use roundelay_kernels::cuda::Number;
use roundelay_schedule::{
    Collective, DeviceId, Element, GroupId, Row, Schedule, Subject, Table, Work,
};

/// One thing that a collective does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// A part becomes the sum of what all members bring.
    Sum { terms: Vec<Span>, number: Number, elements: u64, to: Span },
    /// A part gets to a member.
    Copy { from: Span, to: Span },
}

impl Move {
    /// Bytes that it makes.
    fn bytes(&self) -> u64 {
        let (Move::Sum { to, .. } | Move::Copy { to, .. }) = self;
        to.len()
    }

    /// Who sends how many bytes to another device.
    pub(super) fn sent(&self) -> impl Iterator<Item = (DeviceId, u64)> {
        let (from, to) = match self {
            Move::Sum { terms, to, .. } => (terms.as_slice(), to),
            Move::Copy { from, to } => (std::slice::from_ref(from), to),
        };
        let others = from.iter().filter(|span| span.device != to.device);
        others.map(|span| (span.device, to.len()))
    }
}

/// All instances of a collective in one period.
pub(super) fn moves(
    schedule: &Schedule,
    coordinates: &[Vec<u32>],
    members: &Table<GroupId, Members>,
    turn: &Turn<'_>,
) -> Vec<Move> {
    let Work::Collective { kind, group, from, to, .. } = &turn.action.work else {
        unreachable!("the caller matched a collective")
    };
    let mut all: Vec<Move> = Vec::new();
    for members in &members[*group] {
        let span = |row: Row| {
            let place = |(coordinate, place): &(usize, _)| {
                Span::of(schedule, *place, row, turn.period, &coordinates[*coordinate])
            };
            members.iter().map(place).collect::<Vec<_>>()
        };
        let element = element(schedule, *to);
        let ends = Rows { schedule, element, from: span(*from), to: span(*to) };
        match kind {
            Collective::AllReduce => {
                all.extend(ends.reduced());
                all.extend(ends.gathered(&ends.to));
            }
            Collective::ReduceScatter => all.extend(ends.reduced()),
            Collective::AllGather => all.extend(ends.gathered(&ends.from)),
        }
    }
    // Of fewer elements than there are members, some own none.
    all.retain(|one| one.bytes() > 0);
    all
}

/// The element type of what a row holds.
fn element(schedule: &Schedule, row: Row) -> Element {
    match schedule.buffers[row.buffer].subject {
        Subject::Gradient(..) => schedule.job.dtype.gradient(),
        Subject::Optimizer(..) | Subject::Squares(..) | Subject::Metric => Element::Wide,
        Subject::Parameter(..)
        | Subject::Activation(_)
        | Subject::Retained(_)
        | Subject::Adjoint(_)
        | Subject::Value(_)
        | Subject::ValueGradient(_)
        | Subject::Input(_)
        | Subject::Workspace => Element::Real,
    }
}

/// The rows of all members.
struct Rows<'a> {
    schedule: &'a Schedule,
    element: Element,
    from: Vec<Span>,
    to: Vec<Span>,
}

impl Rows<'_> {
    fn size(&self) -> u64 {
        self.element.size(self.schedule.job.dtype)
    }

    /// Every member's part becomes the sum over all members.
    fn reduced(&self) -> impl Iterator<Item = Move> {
        let (count, size) = (self.from.len(), self.size());
        (0..count).map(move |owner| {
            let whole = self.from[owner].len();
            let own = part(whole, count, owner, size);
            let to = placed(&self.to[owner], whole, &own);
            Move::Sum {
                terms: self.from.iter().map(|row| row.part(own.clone())).collect(),
                number: number_of(self.schedule.job.dtype, self.element),
                elements: to.len() / size,
                to,
            }
        })
    }

    /// Every member gets the parts of all others; `source` has the rows that hold them.
    fn gathered(&self, source: &[Span]) -> impl Iterator<Item = Move> {
        let (count, size) = (self.to.len(), self.size());
        (0..count).flat_map(move |owner| {
            let length = self.to[owner].len();
            let own = part(length, count, owner, size);
            let from = placed(&source[owner], length, &own);
            let copy = move |row: &Span| Move::Copy {
                from: from.clone(),
                to: row.part(own.clone()),
            };
            self.to.iter().map(copy).collect::<Vec<_>>()
        })
    }
}
