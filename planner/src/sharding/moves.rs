//! Where lowering moves arrays: what maps read, what is added to something that lies otherwise, and
//! what an operation needs whole. All other operations follow how what they read lies, and a value
//! lies as it is made; terms that say otherwise are equal, but not what would be lowered. On the way
//! from one layout to another what makes an array smaller comes first and what makes it larger last,
//! unless two directions would divide one extent (`codegen/src/tensor/layout.rs`).

use super::{
    costs::Facts,
    fits::is_divided,
    region::{Grid, Kind, Part},
    term::{Along, Term},
};
use roundelay_codegen::Lie;
use std::{
    iter,
    ops::{BitOr, BitOrAssign},
};

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
        use Term::*;
        let pick = |all: Self| Self(self.0 & all.0);
        let below = Self(pick(Self::CUT_OF_GATHER).0 >> Self::ABOVE);
        match *term {
            // A single part moves nothing.
            Gather([along, ..]) if facts.parts(along) == 1 => {
                pick(Self::AGAIN | Self::CUT_OF_GATHER)
            }
            Cut([along, ..]) if facts.parts(along) == 1 => pick(Self::AGAIN) | below,
            Cut(_) => below,
            // It is the same memory.
            Vary(_) => pick(Self::AGAIN | Self::CUT),
            Attend(_) | AttendOwn(_) | AttendPacked(_) | AttendPackedOwn(_)
            | Channels(_) | ChannelsOwn(_) | Each(_) | Gather(_) | GatherVary(_)
            | Loss(_) | LossOwn(_) | Map(_) | Mix(_) | MixOwn(_) | Norm(_)
            | NormPart(_) | Pair(_) | Pool(_) | PoolOwn(_) | Rotary(_) | RotaryOwn(_)
            | Scatter(_) | Scores(_) | ScoresOwn(_) | Split(_) | Sum(_) | Whole(_)
            | Along(_) | Extent(_) | Operation(_) | Value(_) => Self::default(),
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

const DIRECTIONS: [Along; 3] = [Along::Rows, Along::Columns, Along::Both];

fn along([rows, columns, both]: [Asked; 3], along: Along) -> Asked {
    match along {
        Along::Rows => rows,
        Along::Columns => columns,
        Along::Both => both,
        Along::Nobody => Asked::default(),
    }
}

/// Whether a term may not make an array of which this is asked.
pub(super) fn is_refused(facts: &Facts<'_>, asked: Asked, term: &Term) -> bool {
    use Term::*;
    let Grid { rows, columns, .. } = facts.region.grid;
    match *term {
        // Where there are rows and columns, heads are divided.
        Attend(_) | AttendPacked(_) | Scores(_) | Mix(_) | Rotary(_) => {
            rows > 1 && columns > 1
        }
        Gather([own, extent, array]) => asked.has(match facts.is_last(extent, array) {
            true => along(Asked::GATHERS, facts.along(own)),
            false => Asked::GATHER_OF_OTHERS,
        }),
        Cut(_) => asked.has(Asked::CUT),
        Vary(_) => asked.has(Asked::VARY),
        GatherVary(_) => asked.has(Asked::GATHER_VARY),
        AttendOwn(_) | AttendPackedOwn(_) | Channels(_) | ChannelsOwn(_) | Each(_)
        | Loss(_) | LossOwn(_) | Map(_) | MixOwn(_) | Norm(_) | NormPart(_) | Pair(_)
        | Pool(_) | PoolOwn(_) | RotaryOwn(_) | Scatter(_) | ScoresOwn(_) | Split(_)
        | Sum(_) | Whole(_) | Along(_) | Extent(_) | Operation(_) | Value(_) => false,
    }
}

/// What a term asks of the arrays that it reads: in one of these ways.
pub(super) fn asked_by(facts: &Facts<'_>, term: &Term) -> Vec<Vec<Asked>> {
    let reads = facts.operation(term).map_or(&[][..], |part| &part.reads);
    let again = |place| match reads.get(place) {
        Some(true) => Asked::AGAIN,
        Some(false) | None => Asked::default(),
    };
    let with = |moves: Vec<Asked>| {
        let moves = moves.into_iter().chain(iter::repeat(Asked::default()));
        let each = moves.take(term.arrays().len()).enumerate();
        each.map(|(place, moves)| moves | again(place)).collect()
    };
    moves_asked(facts, term).into_iter().map(with).collect()
}

/// Moves that do not make the arrays that a term reads, in each of the ways in which it reads them;
/// none where it asks nothing.
fn moves_asked(facts: &Facts<'_>, term: &Term) -> Vec<Vec<Asked>> {
    use Term::*;
    let grid = facts.region.grid;
    let only = |asked| vec![vec![asked]];
    match *term {
        // A sum lies as its first term, or as its second one where nobody divides the first.
        Pair(_) => vec![
            vec![Asked::GATHER | Asked::CUT, Asked::GATHER],
            vec![Asked::GATHER | Asked::CUT_OF_GATHER, Asked::GATHER | Asked::CUT],
        ],
        Attend([own, ..])
        | AttendPacked([own, ..])
        | Scores([own, ..])
        | Mix([own, ..])
        | Rotary([own, ..]) => heads(grid, facts.part(own)),
        Each(_) => only(Asked::GATHER | Asked::CUT),
        NormPart(_) | ChannelsOwn(_) | PoolOwn(_) | Gather(_) | GatherVary(_) => {
            only(Asked::CUT)
        }
        Norm([own, ..]) => {
            only(divided(grid, &facts.part(own).kind) | Asked::GATHER_OF_OTHERS)
        }
        Loss(_) => only(along(Asked::GATHERS, own_classes(grid))),
        Channels([own, ..]) | Pool([own, ..]) => {
            only(divided(grid, &facts.part(own).kind))
        }
        Cut(_) => only(Asked::VARY),
        Vary([own, _]) => only(asked_by_shares(facts.along(own))),
        AttendOwn(_) | AttendPackedOwn(_) | LossOwn(_) | Map(_) | MixOwn(_)
        | RotaryOwn(_) | Scatter(_) | ScoresOwn(_) | Split(_) | Sum(_) | Whole(_)
        | Along(_) | Extent(_) | Operation(_) | Value(_) => vec![vec![]],
    }
}

/// Moves that do not make what gets a share of a gradient from everybody along a direction.
fn asked_by_shares(direction: Along) -> Asked {
    let second = match direction {
        Along::Rows => Asked::VARY,
        Along::Columns | Along::Both | Along::Nobody => Asked::default(),
    };
    let anew = along(Asked::CUTS_OF_GATHERS, direction);
    let [rows, columns, _] = Asked::GATHERS;
    rows | columns | Asked::GATHER_VARY | anew | second
}

/// Gathers of what an operation on heads reads that does all of them. Whichever of several columns divide
/// its first operand divide its heads as well, or lowering refuses them by name; one column of rows
/// that could divide them does so where all its operands are divided, so one of them is not.
fn heads(grid: Grid, part: &Part) -> Vec<Vec<Asked>> {
    let [rows, columns, _] = Asked::GATHERS;
    let operands = part.operands.len();
    let of = |place: usize| {
        let mut asked = vec![Asked::default(); operands];
        asked[place] = rows | columns | Asked::GATHER_OF_OTHERS;
        asked
    };
    match grid.columns {
        1 if is_divided(&part.kind, grid, Along::Rows) => (0..operands).map(of).collect(),
        1 => vec![vec![Asked::default(); operands]],
        _ => vec![of(0)],
    }
}

/// Along which direction classes are divided that a loss reads as they lie: such are not gathered.
fn own_classes(grid: Grid) -> Along {
    match grid {
        Grid { columns: 1, .. } => Along::Rows,
        Grid { idle: Some(_), .. } => Along::Columns,
        Grid { idle: None, .. } => Along::Both,
    }
}

/// Gathers of what an operation would do in parts.
fn divided(grid: Grid, kind: &Kind) -> Asked {
    let is_divided = |along: Along| match kind {
        Kind::Norm { sums } => sums.is_some() && grid.columns > 1 && along != Along::Both,
        kind => is_divided(kind, grid, along),
    };
    let all = DIRECTIONS.iter().zip(Asked::GATHERS);
    let all = all.filter(|(direction, _)| is_divided(**direction));
    all.fold(Asked::default(), |asked, (_, gather)| asked | gather)
}

/// What is asked of a value that others count on to lie like this. One column has one direction
/// alone, and what lies otherwise there is moved where it is read.
pub(super) fn asked_of_needed(grid: Grid, lie: Lie) -> Asked {
    let moves = match lie {
        _ if grid.columns == 1 => Asked::default(),
        Lie::Split { direction, .. } if grid.idle != Some(direction) => Asked::CUT,
        Lie::Whole | Lie::Otherwise | Lie::Split { .. } => Asked::GATHER,
    };
    // Whoever reads it may read it again.
    moves | Asked::AGAIN
}
