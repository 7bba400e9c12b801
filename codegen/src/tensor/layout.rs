//! How an array lies on the devices that split tensors, and what makes one layout of another.

use roundelay_dsl::{Extent, Motion, Share};

/// How a value and its gradient lie on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layout {
    /// Everybody has all of both.
    Whole,
    /// Everybody has all of the value, and adds its share to the gradient.
    Varying,
    /// Everybody has its part of one extent, of both.
    Split(u32),
    /// Everybody has its share of the tokens, of both.
    Tokens,
    /// Everybody has its share of a sum; the gradient is whole.
    Partial,
}

/// How one array lies on the devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    All,
    Summand,
    Part(Share),
}

impl Layout {
    fn value(self) -> Held {
        match self {
            Layout::Whole | Layout::Varying => Held::All,
            Layout::Split(extent) => Held::Part(Share::Extent(extent)),
            Layout::Tokens => Held::Part(Share::Tokens),
            Layout::Partial => Held::Summand,
        }
    }

    fn gradient(self) -> Held {
        match self {
            Layout::Whole | Layout::Partial => Held::All,
            Layout::Varying => Held::Summand,
            Layout::Split(extent) => Held::Part(Share::Extent(extent)),
            Layout::Tokens => Held::Part(Share::Tokens),
        }
    }

    /// What makes values of another layout from values of this one, and gradients the other way
    /// round. None when it takes two steps, or when there is no way.
    pub(crate) fn exchange(self, to: Layout) -> Option<[Motion; 2]> {
        let value = motion(self.value(), to.value())?;
        Some([value, motion(to.gradient(), self.gradient())?])
    }

    /// Extents of the own part of an array.
    pub(crate) fn own(self, shape: &[Extent], rows: u64) -> Vec<Extent> {
        let mut own = shape.to_vec();
        let divided = match self {
            Layout::Whole | Layout::Varying | Layout::Partial => None,
            Layout::Split(extent) => Some(extent as usize),
            Layout::Tokens => Some(SEQUENCE),
        };
        if let Some(extent) = divided {
            own[extent].size = own[extent].size.div_ceil(rows);
        }
        own
    }

    /// Where the own part lies.
    pub(crate) fn share(self) -> Share {
        match self {
            Layout::Whole | Layout::Varying | Layout::Partial => Share::Whole,
            Layout::Split(extent) => Share::Extent(extent),
            Layout::Tokens => Share::Tokens,
        }
    }
}

/// The extent of (batch, sequence, width) that counts tokens. A share of the tokens is one of all
/// examples one behind the other; its shape only says how many there are.
const SEQUENCE: usize = 1;

/// Whether an array is a sequence of tokens for each example that can be shared out.
pub(crate) fn has_tokens(shape: &[Extent], rows: u64) -> bool {
    match shape {
        [batch, sequence, _] => batch.per_example && sequence.size.is_multiple_of(rows),
        _ => false,
    }
}

fn motion(from: Held, to: Held) -> Option<Motion> {
    match (from, to) {
        (Held::All, Held::All) | (Held::Summand, Held::Summand) => Some(Motion::Keep),
        (Held::All, Held::Part(share)) => Some(Motion::Cut(share)),
        (Held::Part(share), Held::All) => Some(Motion::Gather(share)),
        (Held::Summand, Held::All) => Some(Motion::Sum),
        (Held::Summand, Held::Part(share)) => Some(Motion::Scatter(share)),
        (Held::Part(one), Held::Part(other)) => (one == other).then_some(Motion::Keep),
        (Held::All | Held::Part(_), Held::Summand) => None,
    }
}
