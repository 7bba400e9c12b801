//! Terms of e-graphs: arrays as the parts of a grid hold them, and leaves, which say along what and by
//! which operation arrays are made ([`super::rules`]). Laws are written with the names that stand here.
//!
//! Law: terms are ordered by their names, and those of one name by what they are made of. So of ways
//! that cost the same the same one is taken.

use egg::{Id, Language};
use roundelay_schedule::Direction;
use std::{fmt, str::FromStr};

/// The arrays of a region.
pub(super) type Terms = egg::EGraph<Term, ()>;

egg::define_language! {
    /// What makes an array, or a leaf.
    pub(super) enum Term {
        "attend" = Attend([Id; 5]),
        "attend_own" = AttendOwn([Id; 5]),
        "attend_packed" = AttendPacked([Id; 3]),
        "attend_packed_own" = AttendPackedOwn([Id; 3]),
        "channels" = Channels([Id; 3]),
        "channels_own" = ChannelsOwn([Id; 3]),
        "cut" = Cut([Id; 3]),
        Extent(Extent),
        "each" = Each([Id; 2]),
        "gather" = Gather([Id; 3]),
        "gather_vary" = GatherVary([Id; 3]),
        "loss" = Loss([Id; 3]),
        "loss_own" = LossOwn([Id; 3]),
        "map" = Map([Id; 3]),
        "mix" = Mix([Id; 4]),
        "mix_own" = MixOwn([Id; 4]),
        "norm" = Norm([Id; 3]),
        "norm_part" = NormPart([Id; 3]),
        Operation(Operation),
        "pair" = Pair([Id; 3]),
        "pool" = Pool([Id; 3]),
        "pool_own" = PoolOwn([Id; 3]),
        Along(Along),
        "rotary" = Rotary([Id; 3]),
        "rotary_own" = RotaryOwn([Id; 3]),
        "scatter" = Scatter([Id; 3]),
        "scores" = Scores([Id; 4]),
        "scores_own" = ScoresOwn([Id; 4]),
        "split" = Split([Id; 4]),
        "sum" = Sum([Id; 2]),
        Value(Value),
        "vary" = Vary([Id; 2]),
        "whole" = Whole([Id; 3]),
    }
}

/// Who divides something, or along what it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Along {
    Columns,
    Rows,
    /// All parts of the grid.
    Both,
    Nobody,
}

/// A number behind a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lettered<N, const LETTER: char>(pub(super) N);

/// An extent of an array, by its place.
pub(super) type Extent = Lettered<u32, 'e'>;

/// An operation of a region.
pub(super) type Operation = Lettered<usize, 'o'>;

/// A fixed value that a region reads.
pub(super) type Value = Lettered<usize, 'v'>;

/// The leaves that stand in front of the arrays that a term reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Along,
    Extent,
    Operation,
}

impl Term {
    /// What stands in front of the arrays that a term reads.
    pub(super) fn places(&self) -> &'static [Place] {
        use Term::*;
        match self {
            Along(_) | Extent(_) | Operation(_) | Value(_) => &[],
            Sum(_) | Vary(_) => &[Place::Along],
            Cut(_) | Gather(_) | GatherVary(_) | Scatter(_) => {
                &[Place::Along, Place::Extent]
            }
            Each(_) | Pair(_) | Whole(_) => &[Place::Operation],
            Attend(_) | AttendPacked(_) | Channels(_) | Loss(_) | Map(_) | Mix(_)
            | Norm(_) | Pool(_) | Rotary(_) | Scores(_) => {
                &[Place::Operation, Place::Extent]
            }
            AttendOwn(_) | AttendPackedOwn(_) | ChannelsOwn(_) | LossOwn(_)
            | MixOwn(_) | NormPart(_) | PoolOwn(_) | RotaryOwn(_) | ScoresOwn(_) => {
                &[Place::Along, Place::Operation]
            }
            Split(_) => &[Place::Along, Place::Along, Place::Operation],
        }
    }

    /// The operation that a term does.
    pub(super) fn operation(&self) -> Option<Id> {
        let place = self.places().iter().position(|own| *own == Place::Operation)?;
        Some(self.children()[place])
    }

    /// Who divides an operation among themselves, or along what a term moves an array.
    pub(super) fn sides(&self) -> &[Id] {
        let sides = self.places().iter().take_while(|own| **own == Place::Along);
        &self.children()[..sides.count()]
    }

    /// The arrays that a term reads.
    pub(super) fn arrays(&self) -> &[Id] {
        &self.children()[self.places().len()..]
    }

    /// Along what a term moves an array of which it computes nothing.
    pub(super) fn moves(&self) -> Option<[Id; 2]> {
        match (self.sides(), self.operation()) {
            ([along], None) => Some([*along, *self.arrays().last()?]),
            _ => None,
        }
    }
}

/// What a leaf says. Every term has leaves at its places: a test holds laws to that, and none of them
/// makes anything equal to a leaf.
fn leaf<L>(terms: &Terms, id: Id, says: impl Fn(&Term) -> Option<L>) -> L {
    terms[id].nodes.iter().find_map(says).expect("terms have leaves at their places")
}

/// The direction that a leaf says.
pub(super) fn along(terms: &Terms, id: Id) -> Along {
    let says = |term: &Term| match term {
        Term::Along(own) => Some(*own),
        _ => None,
    };
    leaf(terms, id, says)
}

/// The extent that a leaf says.
pub(super) fn extent(terms: &Terms, id: Id) -> Extent {
    let says = |term: &Term| match term {
        Term::Extent(own) => Some(*own),
        _ => None,
    };
    leaf(terms, id, says)
}

/// The number of the operation that a leaf says.
pub(super) fn operation(terms: &Terms, id: Id) -> usize {
    let says = |term: &Term| match term {
        Term::Operation(own) => Some(own.0),
        _ => None,
    };
    leaf(terms, id, says)
}

impl From<Direction> for Along {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Rows => Self::Rows,
            Direction::Columns => Self::Columns,
            Direction::Both => Self::Both,
        }
    }
}

impl fmt::Display for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Columns => "c",
            Self::Rows => "r",
            Self::Both => "rc",
            Self::Nobody => "w",
        })
    }
}

impl FromStr for Along {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        let all = [Self::Columns, Self::Rows, Self::Both, Self::Nobody];
        all.into_iter().find(|own| own.to_string() == name).ok_or(())
    }
}

impl<N: fmt::Display, const LETTER: char> fmt::Display for Lettered<N, LETTER> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LETTER}{}", self.0)
    }
}

impl<N: FromStr, const LETTER: char> FromStr for Lettered<N, LETTER> {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        let number = name.strip_prefix(LETTER).ok_or(())?;
        number.parse().map(Self).map_err(|_| ())
    }
}
