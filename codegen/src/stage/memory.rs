//! Where tensors lie inside one argument: packed one after another, or first-fit by liveness.

use super::{call::Tensor, hashed::HashedMap};
use crate::fit::{ALIGNMENT, lowest_gap};
use roundelay_schedule::Bytes;

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
        lives.sort_by_key(|life| (u64::MAX - life.size.0, life.first, life.tensor));
        let mut packing = Self::default();
        let mut placed: Vec<(Life, Bytes)> = Vec::new();
        let mut taken = Vec::new();
        for life in lives {
            let meets =
                |other: &Life| other.first <= life.last && life.first <= other.last;
            let met = placed.iter().filter(|(other, _)| meets(other));
            taken.clear();
            taken.extend(met.map(|(other, offset)| (*offset, *offset + other.size)));
            let offset = lowest_gap(Bytes(0), life.size, &mut taken);
            placed.push((life, offset));
            packing.offsets.insert(life.tensor, offset);
            packing.size = packing.size.max(offset + life.size);
        }
        packing
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
