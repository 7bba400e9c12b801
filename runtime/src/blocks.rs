//! Blocks of memory that messages come and go in, used again and again.

use crate::memory::Memory;
use std::collections::BTreeMap;

/// Blocks that were given back, by length.
#[derive(Default)]
pub(crate) struct Blocks(BTreeMap<u64, Vec<Memory>>);

impl Blocks {
    /// A block of this many bytes, which hold anything, if one was given back.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Memory> {
        self.0.get_mut(&bytes).and_then(Vec::pop)
    }

    /// For those that need as much later.
    pub(crate) fn give_back(&mut self, block: Memory) {
        self.0.entry(block.len()).or_default().push(block);
    }
}
