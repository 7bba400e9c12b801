//! Messages that are given to the device together: a run of transfers of the list that this rank
//! takes part in, with nothing of its own between them and none waiting for another.
//!
//! Why ranks that group differently do not wait for each other in a circle: all connections are made
//! before (see `Peers::join`), so no call waits for another rank. On the device, a group begins when
//! all that its messages wait for is done, which stands before it in the list, and ends when the
//! groups of the other ranks that have its messages have begun. So whatever a group waits for
//! begins at an earlier message than itself.

use super::super::driver::{Address, Communicator, NcclError, Stream};
use crate::machine::Span;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Bytes of this rank go to another.
    Send { from: Address, bytes: u64, to: u32 },
    /// Bytes of another rank come to this one.
    Receive { to: Address, bytes: u64, from: u32 },
}

impl Message {
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

/// Memory of this rank that a message reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) span: Span,
    pub(super) writes: bool,
}

impl Touch {
    fn conflicts(&self, other: &Self) -> bool {
        let (own, theirs) = (&self.span.bytes, &other.span.bytes);
        let apart = own.end <= theirs.start || theirs.end <= own.start;
        !apart && self.span.device == other.span.device && (self.writes || other.writes)
    }
}

/// Messages that wait to be given.
#[derive(Default)]
pub(super) struct Post {
    pub(super) messages: Vec<Message>,
    touches: Vec<Touch>,
    /// Their numbers on the stream of messages.
    pub(super) numbers: Vec<u64>,
}

impl Post {
    /// Whether a message may go with those that wait: it waits for none of them, neither by a
    /// wait (`after` is how far the stream of messages must be for it) nor by what it touches.
    pub(super) fn takes(&self, after: u64, touch: &Touch) -> bool {
        let waits = self.numbers.first().is_some_and(|first| *first <= after);
        !waits && !self.touches.iter().any(|other| other.conflicts(touch))
    }

    /// Adds one.
    pub(super) fn add(&mut self, message: Option<Message>, touch: Touch, number: u64) {
        self.messages.extend(message);
        self.touches.push(touch);
        self.numbers.push(number);
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> (Vec<Message>, Vec<u64>) {
        let Self { messages, numbers, .. } = std::mem::take(self);
        (messages, numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{DeviceId, Id};

    fn touch(start: u64, writes: bool) -> Touch {
        let span = Span { device: DeviceId::new(1), bytes: start..start + 8 };
        Touch { span, writes }
    }

    #[test]
    fn messages_go_together_unless_one_waits_for_another() {
        let mut post = Post::default();
        assert!(post.takes(6, &touch(0, true)));
        let message = Message::Receive { to: Address(0), bytes: 8, from: 2 };
        post.add(Some(message), touch(0, true), 7);
        assert!(post.takes(6, &touch(8, true)));
        assert!(!post.takes(7, &touch(8, true)), "a wait for the first of them");
        assert!(!post.takes(6, &touch(4, false)), "it reads what comes");
        post.add(None, touch(8, false), 8);
        assert!(post.takes(6, &touch(8, false)), "both read");
        assert_eq!(post.take(), (vec![message], vec![7, 8]));
        assert!(post.takes(9, &touch(0, true)));
    }
}
