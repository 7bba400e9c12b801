//! Where lowering moves arrays: what maps read, what is added to something that lies otherwise, and
//! what an operation needs whole. All other operations follow how what they read lies, and a value
//! lies as it is made; terms that say otherwise are equal, but not what would be lowered. On the way
//! from one layout to another what makes an array smaller comes first and what makes it larger last,
//! unless two directions would divide one extent (`codegen/src/tensor/layout.rs`).

use super::{
    costs::Facts,
    fits::is_divided,
    region::{Grid, Kind, Part},
};
use crate::rewrite::Term;
use roundelay_codegen::Lie;
use std::ops::{BitOr, BitOrAssign};

/// What readers ask of an array: moves that may not make it, and whether backward reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked(u16);

impl Asked {
    /// Not from parts of the last extent, along rows, columns or both.
    const GATHERS: [Self; 3] = [Self(1), Self(1 << 1), Self(1 << 2)];
    /// Not from parts of another extent.
    const GATHER_OF_OTHERS: Self = Self(1 << 3);
    const GATHER: Self = Self(0b1111);
    /// Not to parts.
    const CUT: Self = Self(1 << 4);
    /// Not to parts of what is gathered, each so far above the gather.
    const ABOVE: u16 = 5;
    const CUTS_OF_GATHERS: [Self; 3] = [Self(1 << 5), Self(1 << 6), Self(1 << 7)];
    const CUT_OF_GATHER: Self = Self(0b1111 << Self::ABOVE);
    /// Not with shares of the gradient, but where something is gathered.
    const VARY: Self = Self(1 << 9);
    /// Nor there.
    const GATHER_VARY: Self = Self(1 << 10);
    /// Backward reads it, and gathers it again if it was gathered.
    const AGAIN: Self = Self(1 << 11);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether backward reads the array.
    pub(super) fn is_read_again(self) -> bool {
        self.has(Self::AGAIN)
    }

    /// What is asked of the array that a term reads which makes one of which this is asked.
    pub(super) fn passed_by(self, facts: &Facts<'_>, term: &Term) -> Self {
        let pick = |all: Self| Self(self.0 & all.0);
        let below = Self(pick(Self::CUT_OF_GATHER).0 >> Self::ABOVE);
        let is_single = || facts.parts(facts.name(term, 0)) == 1;
        match term.op {
            // A single part moves nothing.
            "gather" if is_single() => pick(Self::AGAIN | Self::CUT_OF_GATHER),
            "cut" if is_single() => pick(Self::AGAIN) | below,
            "cut" => below,
            // It is the same memory.
            "vary" => pick(Self::AGAIN | Self::CUT),
            _ => Self::default(),
        }
    }
}

impl BitOr for Asked {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Asked {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

const DIRECTIONS: [&str; 3] = ["r", "c", "rc"];

fn along(all: [Asked; 3], direction: &str) -> Asked {
    let mut each = DIRECTIONS.iter().zip(all);
    each.find(|(own, _)| **own == direction).map_or(Asked::default(), |(_, own)| own)
}

/// Whether a term may not make an array of which this is asked.
pub(super) fn is_refused(facts: &Facts<'_>, asked: Asked, term: &Term) -> bool {
    let Grid { rows, columns, .. } = facts.region.grid;
    match term.op {
        // Where there are rows and columns, heads are divided.
        "attend" | "attend_packed" | "scores" | "mix" | "rotary" => {
            rows > 1 && columns > 1
        }
        "gather" => asked.has(match facts.gathers_last(term) {
            true => along(Asked::GATHERS, facts.name(term, 0)),
            false => Asked::GATHER_OF_OTHERS,
        }),
        "cut" => asked.has(Asked::CUT),
        "vary" => asked.has(Asked::VARY),
        "gather_vary" => asked.has(Asked::GATHER_VARY),
        _ => false,
    }
}

/// What a term asks of the arrays that it reads, by their places: in one of these ways.
pub(super) fn asked_by(facts: &Facts<'_>, term: &Term) -> Vec<Vec<Asked>> {
    let (part, grid) = (facts.operation(term), facts.region.grid);
    let mut again = vec![Asked::default(); term.children.len()];
    let reads = part.map_or(&[][..], |part| &part.reads).iter();
    let reads =
        reads.map(|is_read| if *is_read { Asked::AGAIN } else { Asked::default() });
    ask(&mut again, reads);
    let with = |moves: &[Asked]| {
        let mut asked = again.clone();
        ask(&mut asked, moves.iter().copied());
        asked
    };
    match term.op {
        // A sum lies as its first term, or as its second one where nobody divides the first.
        "pair" => {
            let as_first = [Asked::GATHER | Asked::CUT, Asked::GATHER];
            let as_second =
                [Asked::GATHER | Asked::CUT_OF_GATHER, Asked::GATHER | Asked::CUT];
            vec![with(&as_first), with(&as_second)]
        }
        "attend" | "attend_packed" | "scores" | "mix" | "rotary" => {
            heads(grid, part).iter().map(|moves| with(moves)).collect()
        }
        _ => vec![with(&[moves_asked(facts, term, part)])],
    }
}

/// Asks more of the last arrays that a term reads: names of directions and operations stand first.
fn ask(asked: &mut [Asked], more: impl DoubleEndedIterator<Item = Asked>) {
    for (asked, more) in asked.iter_mut().rev().zip(more.rev()) {
        *asked |= more;
    }
}

/// Moves that do not make the last array that a term reads.
fn moves_asked(facts: &Facts<'_>, term: &Term, part: Option<&Part>) -> Asked {
    match term.op {
        "each" => Asked::GATHER | Asked::CUT,
        "norm_part" | "channels_own" | "pool_own" | "gather" | "gather_vary" => {
            Asked::CUT
        }
        "norm" => divided(facts, part) | Asked::GATHER_OF_OTHERS,
        "loss" => along(Asked::GATHERS, own_classes(facts.region.grid)),
        "channels" | "pool" => divided(facts, part),
        "cut" => Asked::VARY,
        "vary" => {
            let direction = facts.name(term, 0);
            let second = if direction == "r" { Asked::VARY } else { Asked::default() };
            let anew = along(Asked::CUTS_OF_GATHERS, direction);
            let [rows, columns, _] = Asked::GATHERS;
            rows | columns | Asked::GATHER_VARY | anew | second
        }
        _ => Asked::default(),
    }
}

/// Gathers of what an operation on heads reads that does all of them. Whichever of several columns divide
/// its first operand divide its heads as well, or lowering refuses them by name; one column of rows
/// that could divide them does so where all its operands are divided, so one of them is not.
fn heads(grid: Grid, part: Option<&Part>) -> Vec<Vec<Asked>> {
    let [rows, columns, _] = Asked::GATHERS;
    let operands = part.map_or(0, |part| part.operands.len());
    let of = |place: usize| {
        let mut asked = vec![Asked::default(); operands];
        asked[place] = rows | columns | Asked::GATHER_OF_OTHERS;
        asked
    };
    let divides = || part.is_some_and(|part| is_divided(&part.kind, grid, "r"));
    match grid.columns {
        1 if divides() => (0..operands).map(of).collect(),
        1 => vec![vec![Asked::default(); operands]],
        _ => vec![of(0)],
    }
}

/// Along which direction classes are divided that a loss reads as they lie: such are not gathered.
fn own_classes(grid: Grid) -> &'static str {
    match grid {
        Grid { columns: 1, .. } => "r",
        Grid { idle: Some(_), .. } => "c",
        Grid { idle: None, .. } => "rc",
    }
}

/// Gathers of what an operation would do in parts.
fn divided(facts: &Facts<'_>, part: Option<&Part>) -> Asked {
    let Some(kind) = part.map(|part| &part.kind) else { return Asked::default() };
    let grid = facts.region.grid;
    let is_divided = |direction: &str| match kind {
        Kind::Norm { sums } => sums.is_some() && grid.columns > 1 && direction != "rc",
        kind => is_divided(kind, grid, direction),
    };
    let all = DIRECTIONS.iter().zip(Asked::GATHERS);
    let all = all.filter(|(direction, _)| is_divided(direction));
    all.fold(Asked::default(), |asked, (_, gather)| asked | gather)
}

/// What is asked of a value that others count on to lie like this. One column has one direction
/// alone, and what lies otherwise there is moved where it is read.
pub(super) fn asked_of_needed(grid: Grid, lie: Lie) -> Asked {
    let moves = match lie {
        _ if grid.columns == 1 => Asked::default(),
        Lie::Split { direction, .. }
            if grid.idle() != Some(super::sketch::name(direction)) =>
        {
            Asked::CUT
        }
        Lie::Whole | Lie::Otherwise | Lie::Split { .. } => Asked::GATHER,
    };
    // Whoever reads it may read it again.
    moves | Asked::AGAIN
}
