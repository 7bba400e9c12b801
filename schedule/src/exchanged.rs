//! Calls that parts of a split tensor make together: what is made of what they bring, and how many
//! bytes they send.

use crate::{Bytes, Collective, Line};

/// A call that the parts of a line make together, on an array of real numbers; all lines of the
/// grid make it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// What is made of what they bring.
    pub kind: Exchanging,
    /// Who takes part.
    pub line: Line,
    /// The whole array, in the element in which parts bring it.
    pub whole: Bytes,
    /// What a part does until it is done.
    pub meanwhile: Meanwhile,
}

/// What is made of what the parts of a line bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanging {
    /// Sums of all, or the parts of all side by side.
    Collective(Collective),
    /// Rows of images that others need, from those who have them (halos), or sums of their gradients
    /// on the way back.
    Strips(Strips),
}

/// Rows of pixels that parts send each other, of images whose rows they divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strips {
    /// Rows of the whole image.
    pub height: u64,
    /// Rows that leave the part that sends most, each as often as it is sent.
    pub most: u64,
    /// Rows that leave all parts of a line together; those at the edges send less than others.
    pub all: u64,
}

/// What a part does while an array is exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meanwhile {
    /// It waits.
    #[default]
    Waits,
    /// It makes the calls that follow, up to the first that needs the exchange to be done
    /// ([`crate::needed_by`]).
    GoesOn,
}

impl Exchanged {
    /// Bytes that leave the part that sends most: (n − 1)/n of the whole as in a ring, for an
    /// all-reduce twice; rounded up. Of strips, its rows.
    pub fn sent(&self) -> Bytes {
        let parts = u64::from(self.line.parts.max(1));
        match self.kind {
            Exchanging::Collective(kind) => {
                let all = self.whole.0 * kind.rounds() * (parts - 1);
                Bytes(all.div_ceil(parts))
            }
            Exchanging::Strips(strips) => self.rows(strips, strips.most),
        }
    }

    /// Bytes that leave all parts of a line together.
    pub fn sent_by_all(&self) -> Bytes {
        match self.kind {
            Exchanging::Collective(_) => self.sent() * u64::from(self.line.parts),
            Exchanging::Strips(strips) => self.rows(strips, strips.all),
        }
    }

    /// Bytes of this many rows of all images.
    fn rows(&self, strips: Strips, rows: u64) -> Bytes {
        Bytes((self.whole.0 * rows).div_ceil(strips.height.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_strips_edges_send_less_than_others() {
        let strips = Strips { height: 16, most: 2, all: 6 };
        let (kind, line) = (Exchanging::Strips(strips), Line { parts: 4, stride: 1 });
        let (whole, meanwhile) = (Bytes(16 * 40), Meanwhile::Waits);
        let exchanged = Exchanged { kind, line, whole, meanwhile };
        assert_eq!((exchanged.sent(), exchanged.sent_by_all()), (Bytes(80), Bytes(240)));
        let kind = Exchanging::Collective(Collective::AllReduce);
        let exchanged = Exchanged { kind, ..exchanged };
        assert_eq!(
            (exchanged.sent(), exchanged.sent_by_all()),
            (Bytes(960), Bytes(3840))
        );
    }
}
