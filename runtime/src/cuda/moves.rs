//! Collectives as sums and copies, in the order in which the CPU machine makes them: member k of n
//! owns part k, adds what all bring to it from the first to the last, and gives it to all.

use super::ready::number_of;
use crate::machine::{Joint, Member, Members, Span, part, placed};
use roundelay_kernels::cuda::Number;
use roundelay_schedule::{Collective, DeviceId, GroupId, Row, Schedule, Table};

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

/// What a collective moves to or from the devices that are here. Of a sum on another device only the terms
/// from here are listed, so that for one of n devices the list grows with n and not with n².
pub(super) fn moves(
    schedule: &Schedule,
    coordinates: &[Vec<u32>],
    members: &Table<GroupId, Members>,
    joint: Joint,
    is_here: impl Fn(DeviceId) -> bool,
) -> Vec<Move> {
    let Joint { kind, group, from, to, period, .. } = joint;
    let mut all: Vec<Move> = Vec::new();
    for members in &members[group] {
        let span = |row: Row| {
            let of = |&Member { coordinate, place }: &Member| {
                Span::of(schedule, place, row, period, &coordinates[coordinate])
            };
            members.iter().map(of).collect::<Vec<_>>()
        };
        let to_all = span(to);
        let here: Vec<usize> =
            (0..to_all.len()).filter(|member| is_here(to_all[*member].device)).collect();
        if here.is_empty() {
            continue;
        }
        let (job, dtype) = (&schedule.job, schedule.job.dtype);
        let element = schedule.buffers[to.buffer].subject.element(job);
        let (number, size) = (number_of(dtype, element), element.size(dtype));
        let rows = Rows { number, size, from: span(from), to: to_all, here };
        match kind {
            Collective::AllReduce => {
                all.extend(rows.reduced());
                all.extend(rows.gathered(&rows.to));
            }
            Collective::ReduceScatter => all.extend(rows.reduced()),
            Collective::AllGather => all.extend(rows.gathered(&rows.from)),
        }
    }
    // Of fewer elements than there are members, some own none.
    all.retain(|one| one.bytes() > 0);
    all
}

/// The rows of all members.
struct Rows {
    number: Number,
    /// Bytes of a number.
    size: u64,
    from: Vec<Span>,
    to: Vec<Span>,
    /// The members that are here, in order.
    here: Vec<usize>,
}

impl Rows {
    /// Of all members those that a move to or from a member is about: all of them where that one is
    /// here.
    fn about<'a>(
        &'a self,
        member: usize,
        rows: &'a [Span],
    ) -> impl Iterator<Item = &'a Span> {
        let (all, here) = match self.here.binary_search(&member) {
            Ok(_) => (rows, [].as_slice()),
            Err(_) => ([].as_slice(), self.here.as_slice()),
        };
        all.iter().chain(here.iter().map(move |own| &rows[*own]))
    }

    /// Every member's part becomes the sum over all members.
    fn reduced(&self) -> impl Iterator<Item = Move> {
        let (count, size) = (self.from.len(), self.size);
        (0..count).map(move |owner| {
            let whole = self.from[owner].len();
            let own = part(whole, count, owner, size);
            let to = placed(&self.to[owner], whole, &own);
            let terms = self.about(owner, &self.from);
            Move::Sum {
                terms: terms.map(|row| row.part(own.clone())).collect(),
                number: self.number,
                elements: to.len() / size,
                to,
            }
        })
    }

    /// Every member gets the parts of all others; `source` has the rows that hold them.
    fn gathered<'a>(&'a self, source: &'a [Span]) -> impl Iterator<Item = Move> + 'a {
        let (count, size) = (self.to.len(), self.size);
        (0..count).flat_map(move |owner| {
            let length = self.to[owner].len();
            let own = part(length, count, owner, size);
            let from = placed(&source[owner], length, &own);
            let rows = self.about(owner, &self.to);
            rows.map(move |row| Move::Copy {
                from: from.clone(),
                to: row.part(own.clone()),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::Id;

    /// Members of a group, with rows of this many bytes, of which some are here.
    fn rows(members: usize, bytes: u64, here: Vec<usize>) -> Rows {
        let row = |start: u64| {
            let row = move |member| Span {
                device: DeviceId::new(member),
                bytes: start..start + bytes,
            };
            (0..members).map(row).collect::<Vec<_>>()
        };
        Rows { number: Number::F32, size: 4, from: row(0), to: row(1_000), here }
    }

    /// All that a group sends: from where to where, and which bytes of the sender.
    fn sent(moves: Vec<Move>) -> Vec<(Span, DeviceId)> {
        let of = |one: Move| match one {
            Move::Sum { terms, to, .. } => {
                terms.into_iter().map(|term| (term, to.device)).collect::<Vec<_>>()
            }
            Move::Copy { from, to } => vec![(from, to.device)],
        };
        let mut all: Vec<_> = moves.into_iter().flat_map(of).collect();
        all.retain(|(from, to)| from.device != *to);
        all.sort_by_key(|(from, to)| (*to, from.device, from.bytes.start));
        all
    }

    fn all(rows: &Rows) -> Vec<Move> {
        rows.reduced().chain(rows.gathered(&rows.to)).collect()
    }

    #[test]
    fn a_member_knows_of_its_own_messages_and_of_no_other() {
        let whole = sent(all(&rows(7, 40, (0..7).collect())));
        for member in 0..7 {
            let own = DeviceId::new(member);
            let mut expected = whole.clone();
            expected.retain(|(from, to)| from.device == own || *to == own);
            assert_eq!(sent(all(&rows(7, 40, vec![member]))), expected, "{member}");
        }
    }

    #[test]
    fn what_a_member_builds_grows_with_the_members_and_no_faster() {
        let built = |moves: Vec<Move>| -> usize {
            let spans = |one: &Move| match one {
                Move::Sum { terms, .. } => terms.len(),
                Move::Copy { .. } => 1,
            };
            moves.iter().map(spans).sum()
        };
        for members in [16, 64] {
            let own = rows(members, 4 * 64, vec![3]);
            assert!(built(all(&own)) < 4 * members);
        }
    }
}
