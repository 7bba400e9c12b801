//! Exchanges between the parts of split tensors where each is another rank's.
//!
//! They are messages of the launch that they are part of, call by call, in the stream of messages: the
//! lane shows what its part brings, that stream sends, receives and adds up, and the lane goes on. All
//! parts launch the same calls in list order, so their messages meet as all others do.

use super::{
    super::{
        Engine,
        arena::ALIGNMENT,
        bounce::Unreached,
        driver::{Address, DeviceFacts, Stream},
        exchange::{Ends, Meeting},
        issue::Bound,
        lanes::Lanes,
        ready::{Code, ReadyCall, Work},
    },
    Rank,
    post::Message,
    strips::{Strip, Strips},
};
use crate::{
    exchange::Way,
    machine::part,
    ranks::{Control, Trouble},
};
use roundelay_kernels::{Store, cuda::Lies};
use roundelay_schedule::{Bytes, Schedule};

/// The ranks of a line of parts, and the place of this one among them.
struct Seats {
    ranks: Vec<u32>,
    own: usize,
}

/// Bytes of this rank's memory.
type Piece = (Address, u64);

/// Looks whether this rank makes the bits that the first part of its line makes. What parts do whole,
/// each does for itself, and its copy meets no other: what differs in bits would drift apart unseen.
///
/// # Errors
/// What differs on which rank, or whatever else goes wrong on one of them.
pub(super) fn agree(
    schedule: &Schedule,
    (control, first): (&Control, u32),
    facts: &DeviceFacts,
    code: &Code,
) -> Result<(), Trouble> {
    if schedule.tensor_parts() < 2 {
        return Ok(());
    }
    let DeviceFacts { name, capability, driver, compiler, .. } = facts;
    let libraries = facts.libraries();
    let [capability, driver, compiler] =
        [capability, driver, compiler].map(|(major, minor)| format!("{major}.{minor}"));
    let facts = [
        ("GPU", format!("{name} {capability}")),
        ("CUDA", format!("driver {driver}, NVRTC {compiler}, {libraries}")),
        ("way of making products", code.ways()),
        ("way of making convolutions", code.convolution_ways()),
        ("way of making attention", code.attention_ways()),
    ];
    let hint = "parts of split tensors have copies that must stay the same: give them equal \
                GPUs and libraries";
    control.agree_on(first, &facts, hint)
}

/// The most that one call takes for what others bring, and for strips that are sent.
pub(super) fn incoming(code: &Code) -> Bytes {
    let calls = code.routines.values().flat_map(|routine| &routine.calls);
    let taken = calls.map(|call| match &call.work {
        Work::Alone(_) => 0,
        Work::Together(meeting) => room(meeting),
    });
    Bytes(taken.max().unwrap_or(0))
}

/// Room for what all parts bring to any one of them, and for what it packs.
fn room(meeting: &Meeting) -> u64 {
    let parts = meeting.exchange.line.parts;
    match meeting.halos() {
        None => u64::from(parts) * slot(meeting),
        Some(halos) => {
            let places = 0..parts as usize;
            let of = |own| Strips::of(halos, (own, parts as usize), meeting.element);
            places.map(|own| of(own).bytes()).max().unwrap_or(0)
        }
    }
}

/// Room for what one part brings to another, where all of them bring as much.
fn slot(meeting: &Meeting) -> u64 {
    let parts = u64::from(meeting.exchange.line.parts);
    let bytes = match meeting.way() {
        Way::Bring => meeting.brought(),
        Way::Share => meeting.brought().div_ceil(parts) + meeting.element,
        Way::Cut => meeting.got(),
        Way::Strips => 0,
    };
    bytes.next_multiple_of(ALIGNMENT)
}

impl Seats {
    fn of(meeting: &Meeting, bound: &Bound) -> Self {
        let part = bound.part as usize;
        let mut lines = meeting.lines(bound.ranks.len());
        let line = lines.find(|line| line.clone().any(|other| other == part));
        let line: Vec<usize> = line.expect("every part is in a line").collect();
        let own = line.iter().position(|other| *other == part);
        Self {
            ranks: line.into_iter().map(|part| bound.ranks[part]).collect(),
            own: own.expect("the line has the part"),
        }
    }

    /// Sends a piece to every other one, and receives a piece of each.
    fn messages(
        &self,
        give: impl Fn(usize) -> Piece,
        take: impl Fn(usize) -> Piece,
    ) -> Vec<Message> {
        let others =
            self.ranks.iter().enumerate().filter(|(place, _)| *place != self.own);
        let both = others.flat_map(|(place, rank)| {
            let ((from, sent), (to, received)) = (give(place), take(place));
            let send = Message::Send { from, bytes: sent, to: *rank };
            let receive = Message::Receive { to, bytes: received, from: *rank };
            [(sent > 0).then_some(send), (received > 0).then_some(receive)]
        });
        both.flatten().collect()
    }
}

impl Engine {
    /// Makes what this rank's part gets from all parts of its line.
    pub(in crate::cuda) fn join_as_rank(
        &mut self,
        call: &ReadyCall,
        meeting: &Meeting,
        bound: &Bound,
    ) -> Result<(), Unreached> {
        let rank = self.share.own();
        let (lane, [shown, made]) =
            (self.lanes.stream(bound.thread), self.lanes.meeting(bound.thread));
        let stream = self.lanes.numbered(rank.messages);
        lane.record(shown)?;
        stream.wait(shown)?;
        let operands = bound.operands(call);
        let round = Round {
            rank,
            lanes: &self.lanes,
            meeting,
            seats: Seats::of(meeting, bound),
            brought: operands[0],
            got: operands[1],
            scratch: self.lanes.scratch(bound.thread)[1],
            stream,
        };
        match meeting.way() {
            Way::Bring => round.bring(&mut self.code)?,
            Way::Share => round.share(&mut self.code)?,
            Way::Cut => round.cut(&mut self.code)?,
            Way::Strips => round.strips(&mut self.code)?,
        }
        stream.record(made)?;
        Ok(lane.wait(made)?)
    }
}

/// One call on this rank's part.
struct Round<'a> {
    rank: &'a Rank,
    lanes: &'a Lanes,
    meeting: &'a Meeting,
    seats: Seats,
    brought: Address,
    got: Address,
    scratch: Address,
    stream: &'a Stream,
}

impl Round<'_> {
    /// Where a part's piece comes in.
    fn received(&self, place: usize) -> Address {
        self.rank.received().plus(place as u64 * slot(self.meeting))
    }

    /// Gives every part a piece, and gets one of each: where they lie, this rank's own among them.
    fn swap(
        &self,
        give: impl Fn(usize) -> Piece,
        bytes: u64,
    ) -> Result<Vec<Address>, Trouble> {
        let own = self.seats.own;
        let mine = give(own).0;
        let messages = self.seats.messages(give, |place| (self.received(place), bytes));
        self.rank.together(&messages, self.lanes)?;
        let at = |place| if place == own { mine } else { self.received(place) };
        Ok((0..self.seats.ranks.len()).map(at).collect())
    }

    fn bring(&self, code: &mut Code) -> Result<(), Unreached> {
        let bytes = self.meeting.brought();
        let brought = self.swap(|_| (self.brought, bytes), bytes)?;
        let ends = Ends {
            brought: &brought,
            part: self.seats.own,
            got: self.got,
            scratch: self.scratch,
        };
        Ok(self.meeting.join(code, ends, self.stream)?)
    }

    fn share(&self, code: &mut Code) -> Result<(), Unreached> {
        let Meeting { element, number, .. } = *self.meeting;
        let (bytes, count) = (self.meeting.brought(), self.seats.ranks.len());
        let share_in = |start: Address, place| {
            let share = part(bytes, count, place, element);
            (start.plus(share.start), share.end - share.start)
        };
        let (to, own) = share_in(self.got, self.seats.own);
        let terms = self.swap(|place| share_in(self.brought, place), own)?;
        if own > 0 {
            let to = (to, own / element);
            code.sum(number, &terms, to, Store::Write, self.stream)?;
        }
        let messages =
            self.seats.messages(|_| (to, own), |place| share_in(self.got, place));
        Ok(self.rank.together(&messages, self.lanes)?)
    }

    fn cut(&self, code: &mut Code) -> Result<(), Unreached> {
        let Meeting { number, .. } = *self.meeting;
        let (bytes, room) = (self.meeting.got(), self.meeting.room());
        let piece = |place: usize| self.scratch.plus(place as u64 * room);
        for place in 0..self.seats.ranks.len() {
            self.meeting.cut((self.brought, place), piece(place), self.stream)?;
        }
        let terms = self.swap(|place| (piece(place), bytes), bytes)?;
        let to = (self.got, self.meeting.elements());
        Ok(code.sum(number, &terms, to, self.meeting.exchange.store, self.stream)?)
    }

    /// The rows that other parts need are packed and sent; what comes lies packed too.
    fn strips(&self, code: &mut Code) -> Result<(), Unreached> {
        let Some(halos) = self.meeting.halos() else { return Ok(()) };
        let (own, parts) = (self.seats.own, self.seats.ranks.len());
        let strips = Strips::of(halos, (own, parts), self.meeting.element);
        let at = |strip: &Strip| (self.rank.received().plus(strip.start), strip.bytes);
        for (to, strip) in strips.sent.iter().enumerate() {
            let pack = halos.pack([own, to]).filter(|_| strip.bytes > 0);
            let ends = [at(strip).0, self.brought];
            code.launch_all(pack.into_iter().collect(), &ends, self.stream)?;
        }
        let messages = self.seats.messages(
            |place| at(&strips.sent[place]),
            |place| at(&strips.received[place]),
        );
        self.rank.together(&messages, self.lanes)?;
        let brought = strips.received.iter().enumerate();
        let brought = brought.map(|(place, strip)| match place == own {
            true => self.brought,
            false => at(strip).0,
        });
        let operands: Vec<Address> = [self.got].into_iter().chain(brought).collect();
        let lies = |place| if place == own { Lies::Whole } else { Lies::Packed };
        Ok(code.launch_all(halos.join(own, lies), &operands, self.stream)?)
    }
}
