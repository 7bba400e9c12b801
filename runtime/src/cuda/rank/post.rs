//! Messages that are given to the device together: those that this rank has in one set of transfers
//! (see `sets`).

use super::{
    super::driver::{Address, Communicator, NcclError, Stream},
    sets::{Seen, Sets},
};
use roundelay_schedule::DeviceId;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Bytes of this rank go to another.
    Send { from: Address, bytes: u64, to: u32 },
    /// Bytes of another rank come to this one.
    Receive { to: Address, bytes: u64, from: u32 },
}

/// Another rank, and which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    To(u32),
    From(u32),
}

impl Message {
    fn course(&self) -> Course {
        match self {
            Message::Send { to, .. } => Course::To(*to),
            Message::Receive { from, .. } => Course::From(*from),
        }
    }

    pub(super) fn give(
        self,
        own: &Communicator,
        stream: &Stream,
    ) -> Result<(), NcclError> {
        match self {
            Message::Send { from, bytes, to } => own.send(from, bytes, to, stream),
            Message::Receive { to, bytes, from } => own.receive(to, bytes, from, stream),
        }
    }
}

/// Whether no two messages go to one rank, and no two come from one.
pub(super) fn are_apart(messages: &[Message]) -> bool {
    let mut courses: Vec<Course> = messages.iter().map(Message::course).collect();
    courses.sort_unstable();
    courses.windows(2).all(|pair| pair[0] != pair[1])
}

/// Messages that wait to be given.
pub(super) struct Post {
    /// The device of this rank.
    own: DeviceId,
    sets: Sets,
    messages: Vec<Message>,
    /// Their numbers on the stream of messages.
    pub(super) numbers: Vec<u64>,
}

impl Post {
    /// Nothing waits.
    pub(super) fn new(own: DeviceId) -> Self {
        let (messages, numbers) = (Vec::new(), Vec::new());
        Self { own, sets: Sets::default(), messages, numbers }
    }

    /// The next instance of the list, as [`Sets::see`] takes it, and whether what waits must be given
    /// before it is issued.
    pub(super) fn see(
        &mut self,
        place: (usize, usize),
        waits: impl Iterator<Item = usize>,
        seen: Seen,
    ) -> bool {
        let before = self.sets.of(self.own);
        self.sets.see(place, waits, seen);
        before.is_some_and(|set| self.sets.is_closed(set))
    }

    /// Adds this rank's message of the transfer that was seen last, unless it has no bytes.
    pub(super) fn add(&mut self, message: Option<Message>, number: u64) {
        self.messages.extend(message);
        self.numbers.push(number);
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> (Vec<Message>, Vec<u64>) {
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.numbers))
    }

    /// No set goes on into the next period.
    pub(super) fn end_period(&mut self) {
        self.sets = Sets::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sets::Crossing, *};
    use crate::machine::Span;
    use roundelay_schedule::Id;

    fn launch(device: usize) -> Seen {
        Seen::Other(vec![DeviceId::new(device)])
    }

    fn transfer(from: usize, to: usize) -> Seen {
        let span = |device| Span { device: DeviceId::new(device), bytes: 0..8 };
        Seen::Transfer(Crossing { from: span(from), to: span(to) })
    }

    #[test]
    fn what_waits_is_given_when_its_set_closes_anywhere() {
        let mut post = Post::new(DeviceId::new(1));
        let see = |post: &mut Post, number, seen| {
            post.see((number, number), [].into_iter(), seen)
        };
        let message = Message::Receive { to: Address(0), bytes: 8, from: 0 };
        assert!(!see(&mut post, 0, transfer(0, 1)));
        post.add(Some(message), 7);
        assert!(!see(&mut post, 1, launch(2)), "another set, or none");
        assert!(!see(&mut post, 2, transfer(0, 3)));
        assert!(see(&mut post, 3, launch(3)), "it has come into the set");
        assert_eq!(post.take(), (vec![message], vec![7]));
        assert!(!see(&mut post, 4, launch(1)), "nothing waits");
        assert!(!see(&mut post, 5, transfer(0, 1)));
        post.add(None, 8);
        assert_eq!(post.take(), (vec![], vec![8]), "no bytes, no message");
    }

    #[test]
    fn two_messages_on_a_way_are_not_apart() {
        let receive = |from| Message::Receive { to: Address(0), bytes: 8, from };
        let send = |to| Message::Send { from: Address(0), bytes: 8, to };
        assert!(are_apart(&[receive(2), send(2), send(3)]));
        assert!(!are_apart(&[send(3), receive(2), send(2), receive(2)]));
        assert!(!are_apart(&[send(3), receive(2), send(3)]));
    }
}
