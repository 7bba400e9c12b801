//! In which order the messages of a group are sent and received: not in that of the calls.
//!
//! NCCL goes through the other ranks by their distance, and takes for each the first message that is
//! left to the rank so far ahead and the first from the rank so far behind; then it begins anew with
//! the nearest (`scheduleP2pTasksToPlan` of its `enqueue.cc`). What it takes becomes batches: one ends
//! before a distance comes a second time, and has distances of one multiple of eight alone, as in the
//! strictest version. The messages of a batch move on together, each by itself; a batch begins when the
//! one before it is done. (There, each channel has batches of its own. Here there is one channel, so
//! that more waits for more.)

use std::collections::BTreeMap;

/// Distances that may be in one batch (`NCCL_MAX_DEV_WORK_P2P_PER_BATCH`).
const TOGETHER: usize = 8;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Send,
    Receive,
}

/// A message as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ask {
    pub(crate) peer: usize,
    pub(crate) way: Way,
}

/// The batch of every message of a group.
pub(crate) fn batches(rank: usize, size: usize, asked: &[Ask]) -> Vec<usize> {
    let mut earlier: BTreeMap<Ask, usize> = BTreeMap::new();
    let place = |ask: &Ask| {
        let turn = earlier.entry(*ask).or_default();
        let distance = match ask.way {
            Way::Send => (ask.peer + size - rank) % size,
            Way::Receive => (rank + size - ask.peer) % size,
        };
        *turn += 1;
        (*turn, distance)
    };
    let places: Vec<(usize, usize)> = asked.iter().map(place).collect();
    let mut order = places.clone();
    order.sort_unstable();
    order.dedup();
    let (mut of, mut batch, mut within) = (BTreeMap::new(), 0, Vec::new());
    for (turn, distance) in order {
        let apart =
            |other: &usize| *other == distance || other / TOGETHER != distance / TOGETHER;
        if within.iter().any(apart) {
            (batch, within) = (batch + 1, Vec::new());
        }
        within.push(distance);
        of.insert((turn, distance), batch);
    }
    places.iter().map(|place| of[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn to(peer: usize) -> Ask {
        Ask { peer, way: Way::Send }
    }

    const fn from(peer: usize) -> Ask {
        Ask { peer, way: Way::Receive }
    }

    #[test]
    fn a_second_message_of_a_peer_goes_after_the_first_of_all() {
        assert_eq!(batches(0, 3, &[from(1), from(1), to(2)]), [0, 1, 0]);
        assert_eq!(batches(0, 3, &[to(1), from(1), to(2), from(2)]), [0; 4]);
        assert_eq!(batches(2, 4, &[to(1), to(1), to(1), from(1)]), [0, 1, 2, 0]);
    }

    #[test]
    fn a_batch_has_distances_of_one_multiple_of_eight() {
        let all: Vec<Ask> =
            (1..12).flat_map(|peer| [to(peer), from(12 - peer)]).collect();
        let first = |place: usize| usize::from(place >= 14);
        assert_eq!(batches(0, 12, &all), (0..22).map(first).collect::<Vec<_>>());
    }
}
