//! A model while it is drawn: what its running value is, and the statements so far.

use crate::random::Random;

/// Extents of a value behind its examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Features(usize),
    Sequence {
        length: usize,
        width: usize,
    },
    Images {
        height: usize,
        width: usize,
        channels: usize,
    },
    /// Features of so many rows for each example, which stand where examples do.
    Folded {
        times: usize,
        width: usize,
    },
}

impl Shape {
    /// The last extent.
    pub(crate) fn width(self) -> usize {
        match self {
            Shape::Features(width)
            | Shape::Sequence { width, .. }
            | Shape::Folded { width, .. } => width,
            Shape::Images { channels, .. } => channels,
        }
    }

    /// The same with another last extent.
    pub(crate) fn with_width(self, wanted: usize) -> Self {
        match self {
            Shape::Features(_) => Shape::Features(wanted),
            Shape::Sequence { length, .. } => Shape::Sequence { length, width: wanted },
            Shape::Images { height, width, .. } => {
                Shape::Images { height, width, channels: wanted }
            }
            Shape::Folded { times, .. } => Shape::Folded { times, width: wanted },
        }
    }

    /// All extents but the last, as the language spells them.
    pub(crate) fn rows(self) -> String {
        match self {
            Shape::Features(_) => "batch".to_owned(),
            Shape::Sequence { length, .. } => format!("batch, {length}"),
            Shape::Images { height, width, .. } => format!("batch, {height}, {width}"),
            Shape::Folded { times, .. } => format!("{times} * batch"),
        }
    }

    /// All extents, as the language spells them.
    pub(crate) fn spelled(self) -> String {
        format!("[{}, {}]", self.rows(), self.width())
    }
}

/// A model under construction.
pub(crate) struct Draft<'a> {
    pub(crate) random: &'a mut Random,
    /// Blocks before the model.
    pub(crate) blocks: Vec<String>,
    /// Inputs and parameters at its head.
    pub(crate) head: Vec<String>,
    /// What it computes.
    pub(crate) lines: Vec<String>,
    /// What counts the passes of repeats, and the shape of `x` there.
    pub(crate) passes: Vec<(String, Shape)>,
    /// The shape of `x`, on which all statements work.
    pub(crate) shape: Shape,
    /// Names that were given.
    pub(crate) names: usize,
}

impl Draft<'_> {
    /// One of a list that has some.
    pub(crate) fn of<T: Clone>(&mut self, list: &[T]) -> T {
        self.random.pick(list).expect("a list has something to pick")
    }

    /// True once in this many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.random.below(times) == 0
    }

    /// One of the divisors of a number, up to `most`.
    pub(crate) fn divisor(&mut self, number: usize, most: usize) -> usize {
        let all: Vec<usize> =
            (1..=number.min(most)).filter(|one| number.is_multiple_of(*one)).collect();
        self.of(&all)
    }

    /// A name that no other statement has.
    pub(crate) fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names)
    }

    /// An argument that is there once in this many times.
    pub(crate) fn maybe(&mut self, times: usize, argument: &str) -> String {
        if self.once_in(times) { format!(", {argument}") } else { String::new() }
    }
}
