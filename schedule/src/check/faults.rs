//! All faults of one schedule, in list order.

use super::{Culprit, Violation, limit};
use std::fmt;

/// Why a schedule was refused: at least one violation, in list order; the first 50 are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Violations {
    kept: Vec<Violation>,
    total: usize,
}

impl Violations {
    /// The first violations: those of header and tables, then by line.
    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.kept.iter()
    }
    /// The first of all.
    pub fn first(&self) -> &Violation {
        &self.kept[0]
    }
    /// Whether anything is beyond limits. If nothing is, whoever made the schedule made it wrong.
    pub fn exceed_limits(&self) -> bool {
        self.kept.iter().any(|own| matches!(own, Violation::Beyond { .. }))
    }
    /// How many there are, those included that were not kept.
    pub fn total(&self) -> usize {
        self.total
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, violation) in self.kept.iter().enumerate() {
            write!(f, "{}{violation}", if place == 0 { "" } else { "\n" })?;
        }
        match self.total - self.kept.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Violations {}

/// Violations while they are collected.
#[derive(Debug, Default)]
pub(super) struct Faults {
    list: Vec<Violation>,
    total: usize,
}

impl Faults {
    const COLLECTED: usize = 64 * limit::KEPT;

    /// What `look` returns, and the faults that it finds.
    pub(super) fn collect<T>(look: impl FnOnce(&mut Self) -> T) -> (T, Self) {
        let mut faults = Self::default();
        (look(&mut faults), faults)
    }

    /// Takes one more.
    pub(super) fn push(&mut self, violation: Violation) {
        self.push_with(|| violation);
    }

    /// Takes one more, which is only made where there is room.
    pub(super) fn push_with(&mut self, violation: impl FnOnce() -> Violation) {
        self.total += 1;
        if self.list.len() < Self::COLLECTED {
            self.list.push(violation());
        }
    }

    /// Takes a malformed thing unless `holds`.
    #[inline]
    pub(super) fn require(
        &mut self,
        holds: bool,
        culprit: Culprit,
        problem: impl FnOnce() -> String,
    ) {
        if !holds {
            self.malformed(culprit, problem());
        }
    }

    /// Takes a malformed thing.
    pub(super) fn malformed(&mut self, culprit: Culprit, problem: impl Into<String>) {
        self.push(Violation::Malformed { culprit, problem: problem.into() });
    }

    /// Takes a thing that is beyond a limit unless `holds`.
    #[inline]
    pub(super) fn limit(
        &mut self,
        holds: bool,
        culprit: Culprit,
        problem: impl FnOnce() -> String,
    ) {
        if !holds {
            self.beyond(culprit, problem());
        }
    }

    /// Takes a thing that is beyond a limit.
    pub(super) fn beyond(&mut self, culprit: Culprit, problem: impl Into<String>) {
        self.push(Violation::Beyond { culprit, problem: problem.into() });
    }

    /// Takes those that were found elsewhere.
    pub(super) fn append(&mut self, later: Faults) {
        self.total += later.total;
        let room = Self::COLLECTED.saturating_sub(self.list.len());
        self.list.extend(later.list.into_iter().take(room));
    }

    /// How many were found so far.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Whether nothing was found so far.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Goes on only when nothing was found; what comes next relies on it.
    pub(super) fn stop(&mut self) -> Result<(), Violations> {
        if self.is_empty() {
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.list);
        kept.sort_by_key(Violation::action);
        kept.truncate(limit::KEPT);
        Err(Violations { kept, total: self.total })
    }
}
