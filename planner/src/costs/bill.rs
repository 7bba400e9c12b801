//! What calls come to, for micro-batches of every size.
//!
//! Law: extents of calls are affine in the number of examples of a micro-batch. So what a call
//! computes, moves and exchanges lies on the line through what it takes at two sizes. Workspace is
//! a most of such lines: outside of both sizes it is no less than its line says.

use crate::costs::calls::Priced;
use roundelay_schedule::{Bytes, Exchanged, Flops, Footprint, Tensor};

/// Micro-batches for which something is derived. Sixteen examples of anything are whole cache
/// lines, so no rounding bends the line.
const SIZES: [u32; 2] = [16, 32];

/// For which micro-batches a derivation is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Micro-batches of most sizes. One example alone, in each half where there are halves, is as
    /// large as what examples share, so other calls are one then; and between both sizes no line is
    /// sure.
    Most,
    /// Those of this many examples.
    One(u32),
}

impl Reach {
    /// The widest reach that may hold for micro-batches of this many examples, where tensors are split
    /// like this.
    pub(crate) fn widest(examples: u32, tensor: Tensor) -> Self {
        let [low, high] = SIZES;
        // Halves of fewer examples than the low size has are no whole cache lines.
        let least = if tensor.overdecompose > 1 { low } else { 2 };
        match examples < least || (low < examples && examples < high) {
            true => Reach::One(examples),
            false => Reach::Most,
        }
    }

    /// Whether it is good for micro-batches of this many examples.
    pub(crate) fn holds(self, examples: u32, tensor: Tensor) -> bool {
        match self {
            Reach::Most => Self::widest(examples, tensor) == self,
            Reach::One(own) => examples == own,
        }
    }

    /// The sizes for which to derive; where both are one, once is enough.
    pub(crate) fn sizes(self) -> [u32; 2] {
        match self {
            Reach::Most => SIZES,
            Reach::One(examples) => [examples; 2],
        }
    }

    /// What `derive` makes of both sizes.
    ///
    /// # Errors
    /// Those of `derive`.
    pub(crate) fn derive<T: Clone, E>(
        self,
        derive: impl Fn(u32) -> Result<T, E>,
    ) -> Result<[T; 2], E> {
        let [first, second] = self.sizes();
        let known = derive(first)?;
        let other = if second == first { known.clone() } else { derive(second)? };
        Ok([known, other])
    }
}

/// A size beyond those of [`Reach::Most`], where numbers are looked at again before a line is
/// believed.
pub(crate) const PROOF: u32 = 48;

/// The number at `examples` on the line through those at both sizes, rounded down; what is equal at
/// both is equal everywhere.
pub(crate) fn on_line([first, second]: [u64; 2], examples: u32) -> u64 {
    let [from, to] = SIZES.map(i128::from);
    let (low, high) = (i128::from(first), i128::from(second));
    let rise = ((high - low) * (i128::from(examples) - from)).div_euclid(to - from);
    u64::try_from((low + rise).max(0)).unwrap_or(u64::MAX)
}

/// Bytes on a line.
pub(crate) fn bytes_on_line(at: [Bytes; 2], examples: u32) -> Bytes {
    Bytes(on_line(at.map(|bytes| bytes.0), examples))
}

/// Calls, each with how often it is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bill(Vec<([Priced; 2], u64)>);

impl Bill {
    /// The calls of a routine at both sizes; none if they do not go together.
    pub(crate) fn new([first, second]: [Vec<Priced>; 2]) -> Option<Self> {
        let mut bill = Self::default();
        if first.len() != second.len() {
            return None;
        }
        for pair in first.into_iter().zip(second) {
            if !pair.0.is_like(&pair.1) {
                return None;
            }
            bill.add(pair.into());
        }
        Some(bill)
    }

    fn add(&mut self, pair: [Priced; 2]) {
        match self.0.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, count)) => *count += 1,
            None => self.0.push((pair, 1)),
        }
    }

    /// The calls of a micro-batch of this many examples.
    pub(crate) fn at(&self, examples: u32) -> Vec<(Priced, u64)> {
        self.0.iter().map(|(pair, count)| (between(pair, examples), *count)).collect()
    }
}

fn between([first, second]: &[Priced; 2], examples: u32) -> Priced {
    let flops = [first.footprint.flops.0, second.footprint.flops.0];
    let bytes = [first.footprint.bytes, second.footprint.bytes];
    let exchange = first.exchange.zip(second.exchange).map(|(one, other)| {
        let whole = bytes_on_line([one.whole, other.whole], examples);
        Exchanged { whole, ..one }
    });
    Priced {
        footprint: Footprint {
            flops: Flops(on_line(flops, examples)),
            bytes: bytes_on_line(bytes, examples),
            unit: first.footprint.unit,
        },
        spelled: first.spelled.clone(),
        exchange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_both_sizes_and_is_rounded_down() {
        let [from, to] = SIZES;
        for ends in [[100, 260], [7, 7], [5, 1000], [1000, 5], [0, 16]] {
            assert_eq!(on_line(ends, from), ends[0]);
            assert_eq!(on_line(ends, to), ends[1]);
        }
        assert_eq!(on_line([160, 320], 1), 10);
        assert_eq!(on_line([160, 320], 100), 1000);
        assert_eq!(on_line([7, 7], 1), 7);
        assert_eq!(on_line([0, 1], 8), 0, "below zero there is nothing");
        assert_eq!(on_line([100, 101], 47), 101);
    }
}
