//! Where tensors lie inside one argument: packed one after another, or first-fit by liveness.

use super::{call::Tensor, hashed::HashedMap};
use crate::fit::{ALIGNMENT, Taken, lowest_gap};
use roundelay_schedule::Bytes;
use std::{cmp::Reverse, ops::Range};

/// Offsets of the tensors of one argument.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// First byte of each.
    pub(crate) offsets: HashedMap<Tensor, Bytes>,
    /// End of the last.
    pub(crate) size: Bytes,
}

/// When a tensor of workspace is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The tensor.
    pub(crate) tensor: Tensor,
    /// Its size.
    pub(crate) size: Bytes,
    /// First call that touches it.
    pub(crate) first: usize,
    /// Last call that touches it.
    pub(crate) last: usize,
}

impl Packing {
    /// One after another, in the given order.
    pub(crate) fn sequence(tensors: impl IntoIterator<Item = (Tensor, Bytes)>) -> Self {
        let mut packing = Self::default();
        for (tensor, size) in tensors {
            let start = packing.size.align_up(ALIGNMENT);
            packing.offsets.insert(tensor, start);
            packing.size = start + size;
        }
        packing
    }

    /// Largest first, each at the lowest offset where it meets no tensor of an overlapping
    /// life; ties go to the earlier life.
    pub(crate) fn by_liveness(mut lives: Vec<Life>) -> Self {
        lives.sort_unstable_by_key(|life| (Reverse(life.size), life.first, life.tensor));
        Self::first_fit(&[], Bytes(0)..Bytes(u64::MAX), lives).0
    }

    /// Each at the lowest offset in a range where it meets no tensor of an overlapping life, neither of
    /// those before it nor of those that lie there, which are in order of their offsets; and what finds no
    /// place. First come those that live first, so what later ones are changes nothing for them.
    pub(crate) fn among(
        there: &[(Life, Bytes)],
        range: Range<Bytes>,
        mut lives: Vec<Life>,
    ) -> (Self, Vec<Life>) {
        lives.sort_unstable_by_key(|life| (life.first, Reverse(life.size), life.tensor));
        Self::first_fit(there, range, lives)
    }

    fn first_fit(
        there: &[(Life, Bytes)],
        Range { start, end }: Range<Bytes>,
        lives: Vec<Life>,
    ) -> (Self, Vec<Life>) {
        let mut packing = Self::default();
        let mut placed: Vec<(Life, Bytes)> = Vec::new();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for life in lives {
            taken.clear();
            for (other, offset) in there.iter().chain(&placed) {
                if other.meets(&life) {
                    take(&mut taken, (*offset, *offset + other.size));
                }
            }
            let offset = lowest_gap(start, life.size, &mut taken);
            if offset + life.size > end {
                left.push(life);
                continue;
            }
            placed.push((life, offset));
            packing.offsets.insert(life.tensor, offset);
            packing.size = packing.size.max(offset + life.size);
        }
        (packing, left)
    }
}

impl Life {
    /// Whether some call finds both in use.
    fn meets(&self, other: &Self) -> bool {
        other.first <= self.last && self.first <= other.last
    }
}

/// One more range that is taken: a part of the one before where nothing that is aligned fits between.
fn take(taken: &mut Vec<Taken>, (first, end): Taken) {
    match taken.last_mut() {
        Some((_, before)) if *before <= first && first <= before.align_up(ALIGNMENT) => {
            *before = end;
        }
        Some(_) | None => taken.push((first, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roundelay_dsl::NodeId;
    use roundelay_schedule::Id;

    fn lives() -> impl Strategy<Value = Vec<Life>> {
        let life = (1u64..1000, 0usize..20, 0usize..6);
        let number =
            |(index, (size, first, length)): (usize, (u64, usize, usize))| Life {
                tensor: Tensor::Scratch(NodeId::new(index), 0),
                size: Bytes(size),
                first,
                last: first + length,
            };
        let lives = proptest::collection::vec(life, 0..30);
        lives.prop_map(move |rows| rows.into_iter().enumerate().map(number).collect())
    }

    proptest! {
        #[test]
        fn tensors_that_live_together_are_apart(lives in lives()) {
            let packing = Packing::by_liveness(lives.clone());
            let range = |life: &Life| {
                let start = packing.offsets[&life.tensor];
                (start, start + life.size)
            };
            for life in &lives {
                let (start, end) = range(life);
                prop_assert!(start.0.is_multiple_of(ALIGNMENT) && end <= packing.size);
                for other in lives.iter().filter(|other| other.tensor < life.tensor) {
                    let (first, last) = range(other);
                    let apart = end <= first || last <= start;
                    let strangers = other.last < life.first || life.last < other.first;
                    prop_assert!(apart || strangers, "{life:?} and {other:?}");
                }
            }
            let mut reversed = lives;
            reversed.reverse();
            prop_assert_eq!(Packing::by_liveness(reversed).offsets, packing.offsets);
        }
    }
}
