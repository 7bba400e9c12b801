//! How an array lies on the grid of devices that split tensors, and what makes one layout of
//! another.
//!
//! Along each direction of the grid an array is whole, divided, or a sum of shares, whatever it is
//! along the other one. Two layouts alternate in a stack of affine maps: features divided by the
//! columns and the same in every row, then divided by the rows and the same in every column
//! (arXiv 2305.13525); a map leads from one to the other, so nothing is laid out anew. With one
//! column the first is whole, and the pair is Megatron's (arXiv 1909.08053).

use roundelay_dsl::{Extent, Motion, PartShare};
use roundelay_schedule::{Direction, Tensor};

/// How a value and its gradient lie on the devices of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Along {
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

/// How a value and its gradient lie on the grid. Where both directions divide one extent, the
/// parts of the grid have it one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layout {
    /// Among the devices of a column, one in each row.
    pub(crate) rows: Along,
    /// Among the devices of a row, one in each column.
    pub(crate) columns: Along,
}

/// Where the own part of an array lies in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What is divided.
    pub(crate) share: PartShare,
    /// Who divides it.
    pub(crate) direction: Direction,
    /// Who divides the tokens beside it.
    pub(crate) tokens: Option<Direction>,
}

/// One exchange on the way from one layout to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Who takes part.
    pub(crate) direction: Direction,
    /// What becomes of values, and of gradients on the way back.
    pub(crate) motions: [Motion; 2],
    /// The layout behind it.
    pub(crate) to: Layout,
}

/// How one array lies on the devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    All,
    Summand,
    Part(PartShare),
}

impl Along {
    fn value(self) -> Held {
        match self {
            Along::Whole | Along::Varying => Held::All,
            Along::Split(extent) => Held::Part(PartShare::Extent(extent)),
            Along::Tokens => Held::Part(PartShare::Tokens),
            Along::Partial => Held::Summand,
        }
    }

    fn gradient(self) -> Held {
        match self {
            Along::Whole | Along::Partial => Held::All,
            Along::Varying => Held::Summand,
            Along::Split(extent) => Held::Part(PartShare::Extent(extent)),
            Along::Tokens => Held::Part(PartShare::Tokens),
        }
    }

    /// What makes values of another layout from values of this one, and gradients the other way
    /// round. None when it takes two steps, or when there is no way.
    fn exchange(self, to: Along) -> Option<[Motion; 2]> {
        let value = motion(self.value(), to.value())?;
        Some([value, motion(to.gradient(), self.gradient())?])
    }

    /// The extent that is divided.
    pub(crate) fn extent(self) -> Option<u32> {
        match self {
            Along::Whole | Along::Varying | Along::Partial => None,
            Along::Split(extent) => Some(extent),
            Along::Tokens => Some(SEQUENCE),
        }
    }

    /// Where the own part lies.
    fn share(self) -> PartShare {
        match self {
            Along::Whole | Along::Varying | Along::Partial => PartShare::Whole,
            Along::Split(extent) => PartShare::Extent(extent),
            Along::Tokens => PartShare::Tokens,
        }
    }

    /// The layout of a value with a gradient that is the same everywhere.
    pub(crate) fn of_value(self) -> Along {
        match self {
            Along::Varying => Along::Whole,
            Along::Whole | Along::Split(_) | Along::Tokens | Along::Partial => self,
        }
    }

    /// The layout of what everybody uses alike beside a value: where that is in parts, everybody
    /// has its share of the gradient.
    pub(crate) fn repeated(self) -> Along {
        match self {
            Along::Whole => Along::Whole,
            Along::Varying | Along::Split(_) | Along::Tokens | Along::Partial => {
                Along::Varying
            }
        }
    }
}

impl Layout {
    /// Everybody has all of both.
    pub(crate) const WHOLE: Self = Self::both(Along::Whole);

    /// The same in both directions.
    pub(crate) const fn both(along: Along) -> Self {
        Self { rows: along, columns: along }
    }

    /// Whole but in one direction; in both for all of the grid.
    pub(crate) fn only(direction: Direction, along: Along) -> Self {
        Self::WHOLE.with(direction, along)
    }

    /// The same but in one direction.
    pub(crate) fn with(self, direction: Direction, along: Along) -> Self {
        match direction {
            Direction::Rows => Self { rows: along, ..self },
            Direction::Columns => Self { columns: along, ..self },
            Direction::Both => Self::both(along),
        }
    }

    /// Each direction by itself.
    pub(crate) fn map(self, of: impl Fn(Along) -> Along) -> Self {
        Self { rows: of(self.rows), columns: of(self.columns) }
    }

    /// Who divides an extent.
    pub(crate) fn divides(self, extent: u32) -> Option<Direction> {
        let here = |along| along == Along::Split(extent);
        match (here(self.rows), here(self.columns)) {
            (true, true) => Some(Direction::Both),
            (true, false) => Some(Direction::Rows),
            (false, true) => Some(Direction::Columns),
            (false, false) => None,
        }
    }

    /// The next exchange on the way to another layout; none when that is this one. What makes an
    /// array smaller comes first, what makes it larger last; two steps may not divide one extent
    /// one after another, so whoever lets go of it goes before.
    pub(crate) fn step(self, to: Layout) -> Option<Step> {
        if self == to {
            return None;
        }
        if self.is_crossed() {
            return Some(self.across(Layout::WHOLE));
        }
        if to.is_crossed() {
            return match self == Layout::WHOLE {
                true => Some(self.across(to)),
                false => self.step(Layout::WHOLE),
            };
        }
        let steps = [Direction::Rows, Direction::Columns]
            .into_iter()
            .filter_map(|direction| self.toward(to, direction));
        let next =
            steps.min_by_key(|step| (step.to.divides_twice(), growth(step.motions[0])));
        debug_assert!(
            next.is_none_or(|step| !step.to.divides_twice()),
            "{self:?} {to:?}"
        );
        next
    }

    /// Whether both directions divide one extent alike, the parts one after another.
    fn is_crossed(self) -> bool {
        self.divides_twice() && self.rows == self.columns
    }

    /// Whether both directions divide one extent.
    fn divides_twice(self) -> bool {
        self.rows.extent().is_some() && self.rows.extent() == self.columns.extent()
    }

    /// From or to an extent that both directions divide.
    fn across(self, to: Layout) -> Step {
        let motions = self.rows.exchange(to.rows).expect("parts are made of the whole");
        Step { direction: Direction::Both, motions, to }
    }

    /// One step in a direction, by way of the whole where it takes two.
    fn toward(self, to: Layout, direction: Direction) -> Option<Step> {
        let [from, end] = [self, to].map(|layout| match direction {
            Direction::Rows | Direction::Both => layout.rows,
            Direction::Columns => layout.columns,
        });
        if from == end {
            return None;
        }
        let next = match from.exchange(end) {
            Some(_) => end,
            None => Along::Whole,
        };
        assert_ne!(from, next, "nothing makes shares of a sum from the whole");
        let motions = from.exchange(next).expect("every layout is one step from whole");
        Some(Step { direction, motions, to: self.with(direction, next) })
    }

    /// Extents of the own part of an array.
    pub(crate) fn own(self, shape: &[Extent], tensor: Tensor) -> Vec<Extent> {
        let mut own = shape.to_vec();
        let mut divide = |along: Along, direction| {
            if let Some(extent) = along.extent() {
                let parts = u64::from(tensor.line(direction).parts);
                let size = &mut own[extent as usize].size;
                *size = size.div_ceil(parts);
            }
        };
        if self.is_crossed() {
            divide(self.rows, Direction::Both);
        } else {
            divide(self.rows, Direction::Rows);
            divide(self.columns, Direction::Columns);
        }
        own
    }

    /// Where the own part lies; none when both directions divide something of their own, but for
    /// one that divides the tokens.
    pub(crate) fn place(self) -> Option<Place> {
        let alone = |share, direction| Some(Place { share, direction, tokens: None });
        let beside = |share, direction| {
            let tokens = Some(crossing(direction));
            Some(Place { share, direction, tokens })
        };
        match (self.rows.share(), self.columns.share()) {
            (rows, columns) if rows == columns => alone(rows, Direction::Both),
            (rows, PartShare::Whole) => alone(rows, Direction::Rows),
            (PartShare::Whole, columns) => alone(columns, Direction::Columns),
            (rows, PartShare::Tokens) => beside(rows, Direction::Rows),
            (PartShare::Tokens, columns) => beside(columns, Direction::Columns),
            (PartShare::Extent(_), PartShare::Extent(_)) => None,
        }
    }
}

/// The direction that crosses another one.
pub(crate) fn crossing(direction: Direction) -> Direction {
    match direction {
        Direction::Rows => Direction::Columns,
        Direction::Columns => Direction::Rows,
        Direction::Both => Direction::Both,
    }
}

/// The extent of (batch, sequence, width) that counts tokens. A share of the tokens is one of all
/// examples one behind the other; its shape only says how many there are.
pub(crate) const SEQUENCE: u32 = 1;

/// Whether an array is a sequence of tokens for each example that can be shared out.
pub(crate) fn has_tokens(shape: &[Extent], rows: u64) -> bool {
    match shape {
        [batch, sequence, _] => batch.per_example && sequence.size.is_multiple_of(rows),
        _ => false,
    }
}

/// How much larger an array becomes: less, as much, more.
fn growth(motion: Motion) -> u8 {
    match motion {
        Motion::Cut(_) | Motion::Scatter(_) => 0,
        Motion::Keep | Motion::Sum => 1,
        Motion::Gather(_) => 2,
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
