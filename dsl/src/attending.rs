//! What attention reads and how: its heads, how its operands lie, what a position sees, what becomes of
//! scores and of angles.

/// How many heads attention has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heads {
    /// Heads of queries, and so of results.
    pub all: u64,
    /// Heads of keys and values, each read by as many heads of queries; divides `all`.
    pub keys: u64,
}

impl Heads {
    /// Whether this many equal parts have whole heads of both kinds.
    pub fn divide_into(self, parts: u64) -> bool {
        self.all.is_multiple_of(parts) && self.keys.is_multiple_of(parts)
    }

    /// The heads of one of this many equal parts.
    pub fn part(self, parts: u64) -> Self {
        Self { all: self.all / parts, keys: self.keys / parts }
    }
}

/// What a position of a sequence sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whether it sees only itself and the positions before it.
    pub causal: bool,
    /// How far it sees.
    pub window: Window,
}

/// How far a position of a sequence sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// To the ends.
    Open,
    /// Positions less than this many away, its own among them.
    Nearest(u64),
}

/// The factor of q kᵀ in attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// 1/√d with the depth d of a head.
    Depth,
    /// This number, above zero.
    Factor(f64),
}

/// How queries, keys and values of attention lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projections {
    /// In three tensors.
    Apart,
    /// In one (b, s, n + 2 n · key_heads / heads): for every key head, in order, the queries of the
    /// heads that read it, its key and its value. So equal parts of the last extent are equal parts
    /// of the heads.
    Packed,
}

/// What bounds the scores of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cap {
    /// Nothing.
    Open,
    /// Scores become cap · tanh(score / cap); above zero.
    At(f64),
}

/// Which heads rotary positions leave as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Still {
    /// None.
    None,
    /// The last one of every this many, in order, at least 2: values behind packed queries and keys.
    LastOf(u64),
}

impl Still {
    /// How many equal groups of this many heads stay together where heads are divided.
    pub fn groups(self, heads: u64) -> u64 {
        match self {
            Self::None => heads,
            Self::LastOf(count) => heads / count.max(1),
        }
    }
}

/// How pairs of elements of every head are turned by their positions: pairs (i, i + t/2) of the first t
/// elements by the angle position · base^(−2i/t), stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turning {
    /// Number of heads.
    pub heads: u64,
    /// Base of the angles.
    pub base: f64,
    /// Elements of a head that turn, t; even.
    pub turned: u64,
    /// Heads that do not turn; divides `heads`.
    pub still: Still,
    /// How angles are made smaller.
    pub stretch: Stretch,
}

impl Turning {
    /// How many equal groups of heads stay together where heads are divided.
    pub fn groups(self) -> u64 {
        self.still.groups(self.heads)
    }
}

/// How rotary angles are made smaller, so that texts become longer than those of the first training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stretch {
    /// They are not.
    None,
    /// All are divided by one factor: position interpolation (arXiv 2306.15595).
    Even {
        /// The divisor, at least 1.
        factor: f64,
    },
    /// Those of long waves are divided (Llama 3, arXiv 2407.21783): of pairs that turn less than `low`
    /// times within `original` positions. Pairs that turn more than `high` times stay as they are;
    /// between them the share of the divided angle falls in a line.
    Long {
        /// The divisor, at least 1.
        factor: f64,
        /// Positions of the first training, at least 1.
        original: u64,
        /// Turns below which angles are divided, above zero.
        low: f64,
        /// Turns above which they stay, more than `low`.
        high: f64,
    },
}
