//! Slots that the stages of one device have in common for what their passes keep.
//!
//! Stages of one device seldom keep most at one time: in an order with two chunks the first one keeps
//! most before the second one begins. One lane makes all passes of the device, so what they keep may take
//! turns in the same slots, each in the lowest one that is free when it begins. Where all of it ends within
//! the period, lives are intervals of the list, and no more slots are needed than are ever taken at one time. A
//! slot is as large as the largest stage needs, so slots are in common only where that takes less memory
//! than slots of their own.

use super::{
    draft::{Draft, Slotting},
    rows::{Life, Turns},
};
use crate::fit::ALIGNMENT;
use roundelay_schedule::{BufferId, Bytes, KeptKind, Placement, RingId, Table};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

/// The slots that a buffer has in common with others.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// The first of the buffers: all lie where it lies.
    pub(crate) first: BufferId,
    /// Of one slot.
    pub(crate) size: Bytes,
    /// How many there are.
    pub(crate) slots: u32,
    /// The slot of each micro-batch, by its number.
    pub(crate) places: Vec<u32>,
}

/// The buffers that have slots in common.
pub(super) fn in_common(
    draft: &Draft<'_>,
    (lives, turns): (&Table<BufferId, Vec<Life>>, &Table<BufferId, Turns>),
) -> BTreeMap<BufferId, Common> {
    // Pairs have two lanes on a device, and one would wait for slots of the other.
    if draft.plan.placement != Placement::Pipeline || draft.plan.has_pairs() {
        return BTreeMap::new();
    }
    let size = |id: BufferId| draft.buffers[id].size.align_up(ALIGNMENT);
    let mut commons = BTreeMap::new();
    for own in kinds(draft, lives).into_values() {
        let apart: Bytes = own.iter().map(|id| size(*id) * turns[*id].slots.into()).sum();
        let all: Vec<&[Life]> = own.iter().map(|id| &*lives[*id]).collect();
        let (slots, places) = taken(&all);
        let (first, size) = (own[0], own.iter().map(|id| size(*id)).max());
        let Some(size) = size.filter(|size| *size * slots.into() < apart) else {
            continue;
        };
        let common = |places| Common { first, size, slots, places };
        commons.extend(own.into_iter().zip(places.into_iter().map(common)));
    }
    commons
}

/// The buffers of each kind on each device whose values all end within the period, where there are
/// several.
fn kinds(
    draft: &Draft<'_>,
    lives: &Table<BufferId, Vec<Life>>,
) -> BTreeMap<(RingId, KeptKind), Vec<BufferId>> {
    let period = draft.period();
    let ends_within = |life: &Life| life.first >= 0 && life.last < period;
    let mut kinds: BTreeMap<(RingId, KeptKind), Vec<BufferId>> = BTreeMap::new();
    for (id, buffer) in draft.buffers.iter() {
        let kept = match buffer.slots {
            Slotting::PerMicroBatch => buffer.subject.kept(),
            Slotting::PerStep(_) | Slotting::InTurn(_) => None,
        };
        let is_alone = draft.sites.rings[buffer.home].devices.len() == 1;
        let shares = is_alone && lives[id].iter().all(ends_within);
        if let Some((_, kind)) = kept.filter(|_| shares) {
            kinds.entry((buffer.home, kind)).or_default().push(id);
        }
    }
    kinds.retain(|_, own| own.len() > 1);
    kinds
}

/// How many slots some buffers take in common, and of each the slots of its values.
fn taken(buffers: &[&[Life]]) -> (u32, Vec<Vec<u32>>) {
    let mut values = Vec::new();
    for (buffer, lives) in buffers.iter().enumerate() {
        let own = lives.iter().enumerate();
        values.extend(own.map(|(n, life)| (life.first, life.last, buffer, n)));
    }
    values.sort_unstable();
    let (mut slots, mut free) = (0, BTreeSet::new());
    let mut busy: BinaryHeap<Reverse<(i64, u32)>> = BinaryHeap::new();
    let mut places: Vec<Vec<u32>> =
        buffers.iter().map(|lives| vec![0; lives.len()]).collect();
    for (first, last, buffer, number) in values {
        while let Some(Reverse((until, place))) = busy.peek().copied()
            && until < first
        {
            free.insert(place);
            busy.pop();
        }
        let place = free.pop_first().unwrap_or_else(|| {
            slots += 1;
            slots - 1
        });
        busy.push(Reverse((last, place)));
        places[buffer][number] = place;
    }
    (slots, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_lowest_slot_that_is_free() {
        let lives = |ends: &[(i64, i64)]| -> Vec<Life> {
            ends.iter().map(|(first, last)| Life { first: *first, last: *last }).collect()
        };
        let (one, other) = (lives(&[(0, 5), (1, 2), (6, 9)]), lives(&[(3, 8), (2, 4)]));
        let (slots, places) = taken(&[&one, &other]);
        assert_eq!((slots, places), (3, vec![vec![0, 1, 0], vec![1, 2]]));
    }
}
