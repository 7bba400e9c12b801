//! What a rank gives its streams of an action: waits for its own streams, and messages for what
//! crosses devices.

use super::{
    super::{
        Engine,
        arena::ALIGNMENT,
        bounce::Unreached,
        code::Code,
        driver::{Address, State, Stream},
        issue::Turn,
        lanes::{Lanes, Mark},
        moves::{Move, moves},
    },
    Rank, Share,
    clocks::Moment,
    post::{Message, Touch},
};
use crate::{
    machine::Span,
    ranks::{Position, Trouble},
};
use roundelay_kernels::cuda::{Accumulation, Number};
use roundelay_schedule::{ActionId, Id, Instance, Work};

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
        let Share::Part(rank) = &mut self.share else { return Ok(()) };
        rank.clocks.gather(turn.queue, after.iter().map(|mark| mark.first));
        if !rank.takes(&self.schedule, &turn.action.work, turn.period) {
            rank.clocks.pass_on(mark.first, turn.queue);
            return Ok(());
        }
        let position = Position::Replaying { period: turn.period, action: turn.id };
        rank.peers.control().at(position);
        let stream = rank.stream(&self.queues, &self.lanes.homes, turn.queue);
        let touch = self.transferred(turn);
        let Share::Part(rank) = &mut self.share else { return Ok(()) };
        let joins = touch.as_ref().is_some_and(|(touch, _)| {
            rank.post.takes(rank.clocks.named(rank.messages), touch)
        });
        if !joins {
            self.flush()?;
        }
        let moment = self.wait_as_rank(turn, mark, stream)?;
        match (touch, turn.instance) {
            (Some((touch, message)), _) => {
                let Share::Part(rank) = &mut self.share else { return Ok(()) };
                rank.post.add(message, touch, moment.number);
                return Ok(());
            }
            (None, Instance::Execute(_)) => self.execute(turn)?,
            (None, Instance::Skip) => {}
        }
        let Share::Part(rank) = &self.share else { return Ok(()) };
        let done = self.lanes.numbered(stream).record(rank.moments.event(moment));
        Ok(done?)
    }

    /// The stream of an instance waits for those of the others that it must.
    fn wait_as_rank(
        &mut self,
        turn: &Turn<'_>,
        mark: Mark,
        stream: usize,
    ) -> Result<Moment, Unreached> {
        let Share::Part(rank) = &mut self.share else {
            unreachable!("the caller is a rank")
        };
        let Rank { clocks, moments, .. } = &mut **rank;
        let lane = self.lanes.numbered(stream);
        let wait = |moment| lane.wait(moments.event(moment));
        Ok(clocks.take(mark.first, turn.queue, stream, wait)?)
    }

    /// What a transfer between this rank and another one touches here, and its message unless it
    /// has no bytes; none for all else.
    fn transferred(&self, turn: &Turn<'_>) -> Option<(Touch, Option<Message>)> {
        let (Share::Part(rank), Work::Transfer { .. }, Instance::Execute(_)) =
            (&self.share, &turn.action.work, turn.instance)
        else {
            return None;
        };
        let (from, to) = self.ends(turn, rank.seated.coordinate);
        if from.device == to.device {
            return None;
        }
        let message = rank.message(&from, &to, |span| self.arenas.of(span));
        let touch = match self.arenas.has(from.device) {
            true => Touch { span: from, writes: false },
            false => Touch { span: to, writes: true },
        };
        Some((touch, message))
    }

    /// Gives the messages that wait to the device.
    pub(in crate::cuda) fn flush(&mut self) -> Result<(), Unreached> {
        let Share::Part(rank) = &mut self.share else { return Ok(()) };
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
        &mut self,
        turn: &Turn<'_>,
    ) -> Result<(), Unreached> {
        let Share::Part(rank) = &self.share else { return Ok(()) };
        let (from, to) = self.ends(turn, rank.seated.coordinate);
        let [source, target] = [&from, &to].map(|span| self.arenas.of(span));
        let stream = self.lanes.numbered(rank.messages);
        Ok(stream.copy(source, target, from.len())?)
    }

    /// A collective: rounds of messages, each with what this rank adds up or copies itself.
    pub(in crate::cuda) fn collective_as_rank(
        &mut self,
        turn: &Turn<'_>,
    ) -> Result<(), Unreached> {
        let all = moves(&self.schedule, &self.coordinates, &self.members, turn);
        let kind = |step: &Move| matches!(step, Move::Sum { .. });
        for round in all.chunk_by(|one, other| kind(one) == kind(other)) {
            let Share::Part(rank) = &self.share else { return Ok(()) };
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
                        if from != to && rank.seated.device == from.device {
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

    /// Where this rank is, seen from a period that is waited for.
    pub(in crate::cuda) fn position(&self, period: i64) -> Position {
        let action = self.first_unfinished(period).0;
        Position::Replaying { period, action }
    }

    /// Whether an instance that this rank takes is not known to be done.
    pub(in crate::cuda) fn is_open(&self, id: ActionId, period: i64) -> bool {
        let Share::Part(rank) = &self.share else { return false };
        let action = &self.schedule.actions[id];
        if !rank.takes(&self.schedule, &action.work, period) {
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
        code.sum(number, &terms, (to, elements), Accumulation::Replace, stream)?;
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
        let (own, bytes) = (self.seated.device, from.len());
        let other = |span: &Span| self.owners[&span.device];
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
        let own = self.seated.device;
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
            let (start, from) = (place, self.owners[&term.device]);
            messages.push(Message::Receive { to: start, bytes: term.len(), from });
            place = place.plus(term.len().next_multiple_of(ALIGNMENT));
            start
        };
        Some(terms.iter().map(&mut here).collect())
    }

    /// Gives messages to the stream of messages.
    pub(super) fn together(
        &self,
        messages: &[Message],
        lanes: &Lanes,
    ) -> Result<(), Trouble> {
        if messages.is_empty() {
            return Ok(());
        }
        let stream = lanes.numbered(self.messages);
        self.peers.together(|own| {
            messages.iter().try_for_each(|message| message.give(own, stream))
        })
    }
}
