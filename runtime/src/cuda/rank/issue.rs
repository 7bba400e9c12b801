//! What a rank gives its streams of an action: waits for its own streams, and messages for what
//! crosses devices.

use super::{
    super::{
        Engine,
        arena::ALIGNMENT,
        bounce::Unreached,
        driver::{Address, DriverError, State, Stream},
        issue::Turn,
        lanes::{Lanes, Mark},
        moves::Move,
        ready::Code,
    },
    Rank,
    clocks::Moment,
    post::{Message, are_apart},
    sets::{Crossing, Seen},
};
use crate::{
    machine::{Joint, Span},
    ranks::{Position, Trouble},
};
use roundelay_kernels::{Store, cuda::Number};
use roundelay_schedule::{ActionId, Id, Instance, Place, Work};

/// A sum over ranks whose terms are here.
struct Sum {
    terms: Vec<Address>,
    number: Number,
    elements: u64,
    to: Address,
}

impl Engine {
    /// Gives an instance to the streams of this rank, or notes what it waits for if it is another
    /// rank's.
    pub(in crate::cuda) fn give_as_rank(
        &mut self,
        turn: &Turn<'_>,
        after: &[Mark],
        mark: Mark,
    ) -> Result<(), Unreached> {
        let waited_for = after.iter().map(|mark| mark.first);
        self.share.own_mut().clocks.gather(turn.queue, waited_for);
        let seen = self.seen(turn);
        let message = self.message_of(&seen);
        if self.see(turn, seen) {
            self.flush()?;
        }
        let rank = self.share.own_mut();
        if !rank.among.seated.takes(&self.schedule, &turn.action.work, turn.period) {
            rank.clocks.pass_on(mark.first, turn.queue);
            return Ok(());
        }
        let position = Position::Replaying { period: turn.period, action: turn.id };
        rank.among.control.at(position);
        let stream = rank.stream(&self.queues, &self.lanes.homes, turn.queue);
        // What must be before it on the stream of messages does not wait to be given.
        debug_assert!({
            let waits_for = rank.clocks.named(rank.messages);
            rank.post.numbers.iter().all(|number| *number > waits_for)
        });
        let moment = self.wait_as_rank(turn, mark, stream)?;
        match (message, turn.instance) {
            (Some(message), _) => {
                self.share.own_mut().post.add(message, moment.number);
                return Ok(());
            }
            (None, Instance::Execute(_)) => self.execute(turn)?,
            (None, Instance::Skip) => {}
        }
        let event = self.share.own().moments.event(moment);
        let done = self.lanes.numbered(stream).record(event);
        Ok(done?)
    }

    /// What an instance is to sets of transfers. Coordinates of axes are alike, and no transfer goes
    /// from one to another, so that of this rank stands for all.
    fn seen(&self, turn: &Turn<'_>) -> Seen {
        let coordinate = self.share.own().among.seated.coordinate;
        if let (Work::Transfer { from, to, .. }, Instance::Execute(_)) =
            (&turn.action.work, turn.instance)
        {
            let (from, to) = self.ends([*from, *to], turn.period, coordinate);
            if from.device != to.device {
                return Seen::Transfer(Crossing { from, to });
            }
        }
        let device = |at: &Place| {
            let cell = self.schedule.rings[at.ring].device(at.place, turn.period);
            self.schedule.device_at(cell, &self.coordinates[coordinate])
        };
        Seen::Other(match &turn.action.work {
            Work::Launch { at, .. } | Work::Feed { at, .. } | Work::Report { at, .. } => {
                vec![device(at)]
            }
            Work::Transfer { from, to, .. } => vec![device(&from.at), device(&to.at)],
            Work::Collective { group, .. } => {
                self.schedule.groups[*group].places.iter().map(device).collect()
            }
        })
    }

    /// Whether the messages that wait must be given before the instance is issued.
    fn see(&mut self, turn: &Turn<'_>, seen: Seen) -> bool {
        let waits = turn.action.after.iter().filter(|wait| wait.distance == 0);
        let waits = waits.map(|wait| wait.action.index());
        self.share.own_mut().post.see((turn.id.index(), turn.queue), waits, seen)
    }

    /// The stream of an instance waits for those of the others that it must.
    fn wait_as_rank(
        &mut self,
        turn: &Turn<'_>,
        mark: Mark,
        stream: usize,
    ) -> Result<Moment, Unreached> {
        let Rank { clocks, moments, .. } = self.share.own_mut();
        let lane = self.lanes.numbered(stream);
        let wait = |moment| lane.wait(moments.event(moment));
        Ok(clocks.take(mark.first, turn.queue, stream, wait)?)
    }

    /// The message of a transfer between this rank and another one, which is none where that has no
    /// bytes; none for all else.
    fn message_of(&self, seen: &Seen) -> Option<Option<Message>> {
        let Seen::Transfer(Crossing { from, to }) = seen else { return None };
        let here = [from, to].iter().any(|span| self.arenas.has(span.device));
        here.then(|| self.share.own().message(from, to, |span| self.arenas.of(span)))
    }

    /// Gives the messages that wait to the device, and ends the period for those to come.
    pub(in crate::cuda) fn end_messages(&mut self) -> Result<(), Unreached> {
        self.flush()?;
        self.share.own_mut().post.end_period();
        Ok(())
    }

    /// Gives the messages that wait to the device.
    fn flush(&mut self) -> Result<(), Unreached> {
        let rank = self.share.own_mut();
        let (messages, numbers) = rank.post.take();
        rank.together(&messages, &self.lanes)?;
        let stream = rank.messages;
        for number in numbers {
            let event = rank.moments.event(Moment { stream, number });
            self.lanes.numbered(stream).record(event)?;
        }
        Ok(())
    }

    /// A transfer within this rank's device.
    pub(in crate::cuda) fn copy_as_rank(
        &self,
        rank: &Rank,
        from: &Span,
        to: &Span,
    ) -> Result<(), DriverError> {
        let [source, target] = [from, to].map(|span| self.arenas.of(span));
        let stream = self.lanes.numbered(rank.messages);
        stream.copy(source, target, from.len())
    }

    /// A collective: rounds of messages, each with what this rank adds up or copies itself.
    pub(in crate::cuda) fn collective_as_rank(
        &mut self,
        joint: Joint,
    ) -> Result<(), Unreached> {
        let all = self.moves(joint);
        let kind = |step: &Move| matches!(step, Move::Sum { .. });
        for round in all.chunk_by(|one, other| kind(one) == kind(other)) {
            let rank = self.share.own();
            let at = |span: &Span| self.arenas.of(span);
            let (mut messages, mut sums, mut copies) =
                (Vec::new(), Vec::new(), Vec::new());
            for step in round {
                match step {
                    Move::Sum { terms, number, elements, to } if *elements > 0 => {
                        let number = *number;
                        let terms = rank.terms(terms, to, &at, &mut messages);
                        sums.extend(terms.map(|terms| Sum {
                            terms,
                            number,
                            elements: *elements,
                            to: at(to),
                        }));
                    }
                    Move::Sum { .. } => {}
                    Move::Copy { from, to } if from.device == to.device => {
                        if from != to && rank.among.seated.device == from.device {
                            copies.push((at(from), at(to), from.len()));
                        }
                    }
                    Move::Copy { from, to } => {
                        messages.extend(rank.message(from, to, at));
                    }
                }
            }
            rank.together(&messages, &self.lanes)?;
            let stream = self.lanes.numbered(rank.messages);
            add_up(&mut self.code, sums, stream)?;
            for (from, to, bytes) in copies {
                stream.copy(from, to, bytes)?;
            }
        }
        Ok(())
    }

    /// Whether an instance that this rank takes is not known to be done.
    pub(in crate::cuda) fn is_open_as_rank(
        &self,
        rank: &Rank,
        id: ActionId,
        period: i64,
    ) -> bool {
        let action = &self.schedule.actions[id];
        if !rank.among.seated.takes(&self.schedule, &action.work, period) {
            return false;
        }
        let queue = self.queues.number(self.schedule.queue(action, period));
        let stream = rank.stream(&self.queues, &self.lanes.homes, queue);
        let moment = rank.clocks.moment(rank.clocks.row(id.index(), period), stream);
        let waits = stream == rank.messages && rank.post.numbers.contains(&moment.number);
        waits || rank.moments.event(moment).state() != Ok(State::Passed)
    }
}

fn add_up(code: &mut Code, sums: Vec<Sum>, stream: &Stream) -> Result<(), Unreached> {
    for Sum { terms, number, elements, to } in sums {
        code.sum(number, &terms, (to, elements), Store::Write, stream)?;
    }
    Ok(())
}

impl Rank {
    /// Where the mark of an instance is.
    pub(in crate::cuda) fn row(&self, id: ActionId, period: i64) -> usize {
        self.clocks.row(id.index(), period)
    }

    /// The message of a copy that this rank has one end of.
    fn message(
        &self,
        from: &Span,
        to: &Span,
        at: impl Fn(&Span) -> Address,
    ) -> Option<Message> {
        let (own, bytes) = (self.among.seated.device, from.len());
        let other = |span: &Span| self.among.owners.rank(span.device);
        match (from.device == own, to.device == own) {
            _ if bytes == 0 => None,
            (true, _) => Some(Message::Send { from: at(from), bytes, to: other(to) }),
            (_, true) => Some(Message::Receive { to: at(to), bytes, from: other(from) }),
            (false, false) => None,
        }
    }

    /// What this rank has to do with a sum: sends what it brings to it, or receives what others
    /// bring, and then has all terms in group order.
    fn terms(
        &self,
        terms: &[Span],
        to: &Span,
        at: &impl Fn(&Span) -> Address,
        messages: &mut Vec<Message>,
    ) -> Option<Vec<Address>> {
        let own = self.among.seated.device;
        if to.device != own {
            let brought = terms.iter().filter(|term| term.device == own);
            messages.extend(brought.filter_map(|term| self.message(term, to, at)));
            return None;
        }
        let mut place = self.received();
        let mut here = |term: &Span| {
            if term.device == own {
                return at(term);
            }
            let (start, from) = (place, self.among.owners.rank(term.device));
            messages.push(Message::Receive { to: start, bytes: term.len(), from });
            place = place.plus(term.len().next_multiple_of(ALIGNMENT));
            start
        };
        Some(terms.iter().map(&mut here).collect())
    }

    /// Gives messages to the stream of messages, at most one to a rank and one from it.
    pub(super) fn together(
        &self,
        messages: &[Message],
        lanes: &Lanes,
    ) -> Result<(), Trouble> {
        if messages.is_empty() {
            return Ok(());
        }
        debug_assert!(are_apart(messages), "{messages:?}");
        let stream = lanes.numbered(self.messages);
        self.peers.together(|own| {
            messages.iter().try_for_each(|message| message.give(own, stream))
        })
    }
}
