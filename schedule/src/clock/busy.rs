//! Stretches of time in which something runs, or is taken.

use crate::Nanos;

/// From a start to an end, which is outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Busy {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

impl Busy {
    /// What begins at `start` and takes some time.
    pub(crate) fn new(start: Nanos, time: Nanos) -> Self {
        Self { start, end: start + time }
    }

    /// How long it is.
    pub(crate) fn time(self) -> Nanos {
        self.end - self.start
    }

    /// The time that all cover together.
    pub(crate) fn covered(mut all: Vec<Self>) -> Nanos {
        all.sort_unstable();
        let (mut until, mut time) = (Nanos(0), Nanos(0));
        for Self { start, end } in all {
            time += end - start.max(until);
            until = until.max(end);
        }
        time
    }
}
