//! Where lowering moves arrays: what maps read, what is added to something that lies otherwise, and
//! what an operation needs whole. All other operations follow how what they read lies, and a value
//! lies as it is made; terms that say otherwise are equal, but not what would be lowered.

use super::{
    costs::Facts,
    fits::is_divided,
    region::{Grid, Kind},
};
use egg::SymbolLang;
use roundelay_codegen::Lie;
use std::ops::{BitOr, BitOrAssign};

/// Moves that may not make an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Banned(u8);

impl Banned {
    /// From parts along rows, columns or both.
    const GATHERS: [Self; 3] = [Self(1), Self(2), Self(4)];
    const GATHER: Self = Self(7);
    /// To parts.
    const CUT: Self = Self(8);
    /// To parts, of what is gathered.
    const CUT_OF_GATHER: Self = Self(16);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What may not make the array that a term reads which makes one for which this is banned.
    pub(super) fn passed_by(self, term: &SymbolLang) -> Self {
        match term.op.as_str() {
            "cut" if self.has(Self::CUT_OF_GATHER) => Self::GATHER,
            _ => Self::default(),
        }
    }
}

impl BitOr for Banned {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Banned {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

const DIRECTIONS: [&str; 3] = ["r", "c", "rc"];

/// Whether a term may not make an array.
pub(super) fn is_banned(facts: &Facts<'_>, banned: Banned, term: &SymbolLang) -> bool {
    match term.op.as_str() {
        "gather" => {
            let along = DIRECTIONS.iter().position(|own| *own == facts.name(term, 0));
            along.is_some_and(|along| banned.has(Banned::GATHERS[along]))
        }
        "cut" => banned.has(Banned::CUT),
        _ => false,
    }
}

/// What may not make the arrays that a term reads, by their places.
pub(super) fn banned_by<'f>(
    facts: &'f Facts<'_>,
    term: &'f SymbolLang,
) -> impl Fn(usize) -> Banned + use<'f> {
    let last = term.children.len().saturating_sub(1);
    let by = match term.op.as_str() {
        "each" => [Banned::GATHER | Banned::CUT; 2],
        // A sum lies as its first term, or as its second one where that is whole, unless a single row
        // or column divides it.
        "pair" => {
            let second = match facts.region.grid.idle() {
                Some(_) => Banned::default(),
                None => Banned::GATHER,
            };
            [Banned::GATHER | Banned::CUT_OF_GATHER, second]
        }
        "norm_part" | "channels_own" | "pool_own" => [Banned::CUT; 2],
        "norm" | "channels" | "pool" => [divided(facts, term); 2],
        _ => [Banned::default(); 2],
    };
    move |place| match place {
        place if place == last => by[1],
        place if place + 1 == last => by[0],
        _ => Banned::default(),
    }
}

/// Gathers of what an operation would do in parts.
fn divided(facts: &Facts<'_>, term: &SymbolLang) -> Banned {
    let number = super::fits::operation(facts.name(term, 0));
    let Some(kind) = number.map(|number| &facts.region.operations[number].kind) else {
        return Banned::default();
    };
    let grid = facts.region.grid;
    let is_divided = |direction: &str| match kind {
        Kind::Norm { sums } => sums.is_some() && grid.columns > 1 && direction != "rc",
        kind => is_divided(kind, grid, direction),
    };
    let all = DIRECTIONS.iter().zip(Banned::GATHERS);
    let all = all.filter(|(direction, _)| is_divided(direction));
    all.fold(Banned::default(), |banned, (_, gather)| banned | gather)
}

/// What may not make a value that others count on to lie like this. One column has one direction
/// alone, and what lies otherwise there is moved where it is read.
pub(super) fn banned_of_needed(grid: Grid, lie: Lie) -> Banned {
    match lie {
        _ if grid.columns == 1 => Banned::default(),
        Lie::Split { direction, .. }
            if grid.idle() != Some(super::sketch::name(direction)) =>
        {
            Banned::CUT
        }
        Lie::Whole | Lie::Otherwise | Lie::Split { .. } => Banned::GATHER,
    }
}
