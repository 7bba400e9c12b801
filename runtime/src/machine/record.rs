//! When every action and every kernel call ran, for whoever measures.

use roundelay_schedule::{Entry, Nanos};
use std::ops::Range;

/// What a machine did since its last rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Every instance that executed, in the order in which they started.
    pub ran: Vec<Ran>,
    /// Times of kernel calls, as [`Ran::calls`] names them.
    pub times: Vec<Nanos>,
    /// What steady periods took, each from the end of the one before it to its own; known of GPUs.
    pub periods: Vec<Nanos>,
}

/// One instance that executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// What, where and when; times count from the machine's start, or from its last rest.
    pub entry: Entry,
    /// Number of the coordinate; zero for what all coordinates do together.
    pub coordinate: usize,
    /// Times of its kernel calls, in order; empty unless it is a launch.
    pub calls: Range<usize>,
}

impl Record {
    /// Puts instances in the order in which they started.
    pub(crate) fn sort(&mut self) {
        self.ran.sort_by_key(|ran| (ran.entry.start, ran.entry.action));
    }
}
