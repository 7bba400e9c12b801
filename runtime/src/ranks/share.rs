//! Which devices of a schedule a process has.

/// All devices of a schedule, or that of a rank.
pub(crate) enum Share<R> {
    /// All of them.
    Whole,
    /// One, as this rank.
    Part(Box<R>),
}

/// Why what only ranks do is done by a rank.
const ONLY_RANKS: &str = "a process that has all devices has nothing to do with others";

impl<R> Share<R> {
    /// The rank that this process is, if there are several.
    pub(crate) fn rank(&self) -> Option<&R> {
        match self {
            Self::Whole => None,
            Self::Part(rank) => Some(rank),
        }
    }

    /// The rank that this process is, for what only ranks do.
    pub(crate) fn own(&self) -> &R {
        self.rank().expect(ONLY_RANKS)
    }

    /// The same, to change it.
    pub(crate) fn own_mut(&mut self) -> &mut R {
        match self {
            Self::Whole => panic!("{ONLY_RANKS}"),
            Self::Part(rank) => rank,
        }
    }
}
