//! What every row does whole since rows do not divide its numbers. With one column that is right,
//! but neither work nor weights are divided, so it is told; several columns refuse it.

use super::{
    absorb::Absorb,
    local::{Local, Maps},
    turns::Turns,
};
use roundelay_dsl::{Heads, Model, NodeId, Operation};
use roundelay_schedule::{Direction, Tensor, gcd};
use std::collections::BTreeMap;

/// An operation that every row does whole, since rows do not divide what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undivided {
    /// The operation.
    pub node: NodeId,
    /// Its kind, in words.
    pub kind: &'static str,
    /// What is counted.
    pub what: &'static str,
    /// How many there are.
    pub size: u64,
    /// What rows must divide so that the operation is divided.
    pub divisor: u64,
}

/// The attention, affine maps and convolutions that every row does whole for their numbers, each
/// the first of its chain; nothing among several columns, which refuse it.
pub fn undivided(model: &Model, tensor: Tensor) -> Vec<Undivided> {
    if tensor.rows == 1 || tensor.columns > 1 {
        return Vec::new();
    }
    let maps = Maps { absorb: Absorb::new(model, tensor), turns: Turns::new(model) };
    Local::build(model, &[], tensor, (&maps, None), BTreeMap::new()).undivided
}

impl Local<'_> {
    /// Keeps that what is worked on stays whole if rows do not divide what it counts.
    pub(super) fn counted(&mut self, (what, size): (&'static str, u64), divisor: u64) {
        if size.is_multiple_of(self.parts(Direction::Rows)) {
            return;
        }
        let node = self.at;
        if let Some(kind) = kind(self.whole.nodes[node].operation) {
            self.undivided.push(Undivided { node, kind, what, size, divisor });
        }
    }

    /// The same for what is made head by head: rows must divide heads and key heads.
    pub(super) fn counted_heads(&mut self, Heads { all, keys }: Heads) {
        let both = gcd(all, keys);
        if all.is_multiple_of(self.parts(Direction::Rows)) {
            self.counted(("key heads", keys), both);
        } else {
            self.counted(("heads", all), both);
        }
    }
}

/// The kinds of operations that are told. Rotary positions and the mix of values have the heads of
/// their attention.
fn kind(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Attention { .. } | Operation::Scores { .. } => Some("attention"),
        Operation::Linear => Some("the affine map"),
        Operation::Conv2d { .. } => Some("the convolution"),
        _ => None,
    }
}
