//! Pieces of work that are not done, each behind others, and which of them may be done now.

use crate::work::Work;
use std::collections::{BTreeMap, BTreeSet};

/// A piece of work that is not done.
pub(crate) struct Pending {
    pub(crate) work: Work,
    /// Where the host was when it was given.
    pub(crate) given: u64,
    /// What it was given behind.
    after: Vec<u64>,
    /// How many of these are not done.
    waits: usize,
    /// The pieces that wait for it.
    behind: Vec<u64>,
}

/// All of them, by number.
#[derive(Default)]
pub(crate) struct Backlog {
    pieces: BTreeMap<u64, Pending>,
    /// Those that wait for none.
    ready: BTreeSet<u64>,
}

impl Backlog {
    /// A piece that waits for others, as far as these are not done.
    pub(crate) fn add(
        &mut self,
        number: u64,
        (work, given): (Work, u64),
        after: Vec<u64>,
    ) {
        let mut waits = 0;
        for other in &after {
            if let Some(other) = self.pieces.get_mut(other) {
                other.behind.push(number);
                waits += 1;
            }
        }
        let behind = Vec::new();
        self.pieces.insert(number, Pending { work, given, after, waits, behind });
        if waits == 0 {
            self.ready.insert(number);
        }
    }

    /// Whether a piece is not done.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.pieces.contains_key(&number)
    }

    /// Whether all is done.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces that may be done, by number.
    pub(crate) fn ready(&self) -> &BTreeSet<u64> {
        &self.ready
    }

    /// A piece that may be done.
    pub(crate) fn get(&self, number: u64) -> Option<&Pending> {
        self.ready.contains(&number).then(|| &self.pieces[&number])
    }

    /// A piece is done.
    pub(crate) fn end(&mut self, number: u64) {
        self.ready.remove(&number);
        let Some(Pending { behind, .. }) = self.pieces.remove(&number) else { return };
        for next in behind {
            if let Some(own) = self.pieces.get_mut(&next) {
                own.waits -= 1;
                if own.waits == 0 {
                    self.ready.insert(next);
                }
            }
        }
    }

    /// All that is not done of some pieces and of what they wait for.
    pub(crate) fn needs(&self, pieces: &[u64]) -> BTreeSet<u64> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<u64> = pieces.to_vec();
        while let Some(piece) = open.pop() {
            if let Some(pending) = self.pieces.get(&piece)
                && needed.insert(piece)
            {
                open.extend(&pending.after);
            }
        }
        needed
    }

    /// All is lost.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
