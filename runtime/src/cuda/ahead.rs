//! Inputs that are sent to the device ahead of the work that takes them, so that the link is busy
//! while the period before computes.
//!
//! A feed is an action like others: it writes a row of an arena when that is free, and what a
//! graph records begins when everything before it is done. So a large input would cross the link
//! inside of its step. It is sent to memory beside the arenas instead, on a stream of its own,
//! and the feed copies it from there. The memory is there twice, as the host's is, and a half is
//! written again once all of its period is done.

use super::{
    CudaError,
    arena::{ALIGNMENT, allocate},
    driver::{Address, Device, DeviceMemory},
    staging::{HALVES, Slot},
};
use roundelay_schedule::{ActionId, Bytes};
use std::collections::BTreeMap;

/// Fewest bytes of an input that is sent ahead. A link of 25 GB/s takes 42 µs for this many, by
/// arithmetic; to hide less is not worth a copy and a wait more.
const FEWEST: usize = 1 << 20;

/// Memory of both halves, and where in a half each action has its inputs.
pub(super) struct Ahead {
    memory: DeviceMemory,
    half: u64,
    /// First byte, and bytes from one coordinate to the next.
    places: BTreeMap<ActionId, (u64, u64)>,
}

impl Ahead {
    /// Memory for the large ones of these inputs, each with its bytes at one of this many
    /// coordinates.
    ///
    /// # Errors
    /// When there is too little memory.
    pub(super) fn new(
        inputs: impl Iterator<Item = (ActionId, usize)>,
        device: &Device,
        coordinates: usize,
    ) -> Result<Self, CudaError> {
        let mut half = 0;
        let mut places = BTreeMap::new();
        for (action, bytes) in inputs.filter(|(_, bytes)| *bytes >= FEWEST) {
            let each = (bytes as u64).next_multiple_of(ALIGNMENT);
            places.insert(action, (half, each));
            half += each * coordinates as u64;
        }
        let bytes = Bytes(half * HALVES as u64);
        let memory = allocate(device, "inputs that are sent ahead", bytes)?;
        Ok(Self { memory, half, places })
    }

    /// Bytes of both halves.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.half * HALVES as u64)
    }

    /// Whether an action's inputs are sent ahead.
    pub(super) fn has(&self, action: ActionId) -> bool {
        self.places.contains_key(&action)
    }

    /// Where an input of a half is, if it is sent ahead.
    pub(super) fn place(
        &self,
        Slot { action, half, coordinate }: Slot,
    ) -> Option<Address> {
        let (first, each) = self.places.get(&action)?;
        let within = first + each * coordinate as u64;
        Some(self.memory.start().plus(half as u64 * self.half + within))
    }
}
