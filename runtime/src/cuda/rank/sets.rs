//! Which transfers go together: the list is cut into sets of transfers, alike on all ranks, because
//! every rank goes through the whole list. A rank gives the messages that it has in a set to the
//! device as one group.
//!
//! A transfer joins the open sets of its two devices, which thereby become one. Whatever else touches
//! a device closes its set, as does a transfer that cannot join: one that waits for a transfer of the
//! set, touches what that touches, or goes the same way from device to device.
//!
//! NCCL does not keep the order of calls in a group (`scheduleP2pTasksToPlan` of its `enqueue.cc`). It
//! goes through the other ranks by distance, takes the first message to the rank so far ahead and the
//! first from the rank so far behind, and begins anew until none is left. On each of its channels it
//! makes batches of them, in that order. The messages of a batch move on each by itself; a batch begins
//! when the one before it is done. Which distances are one batch depends on the version: no distance
//! twice, eight at most, in some versions only those of one multiple of eight. So a message may wait for one that stands later in
//! the list, and ranks that group the same messages differently may wait for each other in a circle.
//!
//! Law: they do not, for both ends of a message are in groups of one set. A device has one open set
//! at a time; so all that a rank issues before its messages of a set is messages of sets that closed
//! earlier, and work that waits for such messages alone. Take the set that closed first of those that
//! are not done: it has begun on all its ranks. Of its messages that are not done, take one of the
//! least distance, which is the same at both ends. On either rank the batches before its own have
//! lesser distances, and are done; so it moves on, whatever the others do. No call waits for another
//! rank: all connections are made before (see `Peers::join`).
//!
//! A message is the only one of its set on its way, so that no group takes several turns of distances:
//! where NCCL makes several kernels of one group, each begins anew with the nearest. All messages of
//! one round of a collective, or of an exchange of split tensors, are such a set too.

use crate::machine::Span;
use roundelay_schedule::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// A transfer from one device to another: what it reads, and what it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub(super) from: Span,
    pub(super) to: Span,
}

impl Crossing {
    fn ends(&self) -> [DeviceId; 2] {
        [self.from.device, self.to.device]
    }

    /// Whether one writes what the other reads or writes.
    fn conflicts(&self, other: &Self) -> bool {
        overlap(&self.to, &other.to)
            || overlap(&self.to, &other.from)
            || overlap(&self.from, &other.to)
    }
}

fn overlap(one: &Span, other: &Span) -> bool {
    let apart = one.bytes.end <= other.bytes.start || other.bytes.end <= one.bytes.start;
    !apart && one.device == other.device
}

/// What an instance of the list is to sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A transfer between two devices.
    Transfer(Crossing),
    /// Anything else that touches these devices, or keeps its place in their queues.
    Other(Vec<DeviceId>),
}

/// Transfers that go together.
#[derive(Default)]
struct Set {
    crossings: Vec<Crossing>,
    is_closed: bool,
    /// The one that it has become part of.
    part_of: Option<usize>,
}

impl Set {
    fn takes(&self, new: &Crossing) -> bool {
        let joins = |own: &Crossing| own.ends() != new.ends() && !own.conflicts(new);
        self.crossings.iter().all(joins)
    }
}

/// All sets of a period.
#[derive(Default)]
pub(super) struct Sets {
    sets: Vec<Set>,
    /// The open set of a device.
    open: BTreeMap<DeviceId, usize>,
    /// By action, the sets of which it comes after a transfer, unless there are none.
    after: BTreeMap<usize, BTreeSet<usize>>,
    /// The last action of each queue.
    tails: BTreeMap<usize, usize>,
}

impl Sets {
    /// The set that a device has open.
    pub(super) fn of(&self, device: DeviceId) -> Option<usize> {
        self.open.get(&device).copied()
    }

    /// Whether no transfer joins a set any more.
    pub(super) fn is_closed(&self, set: usize) -> bool {
        self.sets[self.whole(set)].is_closed
    }

    /// The next instance of the list: an action and its queue, and the actions of the same period
    /// that it waits for.
    pub(super) fn see(
        &mut self,
        (action, queue): (usize, usize),
        waits: impl Iterator<Item = usize>,
        seen: Seen,
    ) {
        let named = self.past(waits);
        let tail = self.tails.insert(queue, action);
        let mut past = self.past(tail.into_iter());
        past.extend(&named);
        match seen {
            Seen::Transfer(crossing) => {
                past.insert(self.join(crossing, &named));
            }
            Seen::Other(devices) => {
                for device in devices {
                    self.of(device).into_iter().for_each(|set| self.close(set));
                }
            }
        }
        if past.is_empty() {
            self.after.remove(&action);
        } else {
            self.after.insert(action, past);
        }
    }

    /// The open sets that some actions come after.
    fn past(&self, actions: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let sets = actions.filter_map(|action| self.after.get(&action)).flatten();
        let sets = sets.map(|set| self.whole(*set));
        sets.filter(|set| !self.sets[*set].is_closed).collect()
    }

    fn whole(&self, mut set: usize) -> usize {
        while let Some(larger) = self.sets[set].part_of {
            set = larger;
        }
        set
    }

    /// A transfer joins the sets of its devices as far as it can, and the others close.
    fn join(&mut self, crossing: Crossing, named: &BTreeSet<usize>) -> usize {
        let ends = crossing.ends();
        let met: BTreeSet<usize> = ends.iter().filter_map(|end| self.of(*end)).collect();
        let mut joined = None;
        for set in met {
            match (named.contains(&set) || !self.sets[set].takes(&crossing), joined) {
                (true, _) => self.close(set),
                (false, None) => joined = Some(set),
                (false, Some(first)) => self.unite(first, set),
            }
        }
        let set = joined.unwrap_or_else(|| {
            self.sets.push(Set::default());
            self.sets.len() - 1
        });
        self.open.extend(ends.map(|end| (end, set)));
        self.sets[set].crossings.push(crossing);
        set
    }

    fn unite(&mut self, set: usize, other: usize) {
        for device in self.open_ends(other) {
            self.open.insert(device, set);
        }
        let moved = std::mem::take(&mut self.sets[other].crossings);
        self.sets[other].part_of = Some(set);
        self.sets[set].crossings.extend(moved);
    }

    fn close(&mut self, set: usize) {
        self.sets[set].is_closed = true;
        for device in self.open_ends(set) {
            self.open.remove(&device);
        }
    }

    /// The devices that have a set open: ends of its own transfers, and no others.
    fn open_ends(&self, set: usize) -> Vec<DeviceId> {
        let ends = self.sets[set].crossings.iter().flat_map(Crossing::ends);
        ends.filter(|end| self.of(*end) == Some(set)).collect()
    }
}

#[cfg(test)]
mod tests;
