//! The memory of the devices of the target that are here, all on one GPU: one block per pool, in
//! which the arenas of its devices lie one behind the other, each with exactly the schedule's
//! offsets.

use super::{
    CudaError,
    driver::{Address, Device, DeviceMemory, DriverError},
};
use crate::machine::{Span, arena_sizes};
use roundelay_schedule::{Bytes, DeviceId, PoolId, Schedule};
use std::collections::{BTreeMap, BTreeSet};

/// What arenas and scratch start at multiples of.
pub(super) const ALIGNMENT: u64 = 256;

/// Blocks of memory, and where the arena of each device is.
pub(super) struct Arenas {
    blocks: Vec<DeviceMemory>,
    arenas: BTreeMap<DeviceId, (Address, Bytes)>,
}

impl Arenas {
    /// Arenas of the size that the schedule gives, for all devices that are `here`; what they hold
    /// is undefined.
    ///
    /// # Errors
    /// When the GPU has too little memory.
    pub(super) fn new(
        schedule: &Schedule,
        device: &Device,
        here: impl Fn(DeviceId) -> bool,
    ) -> Result<Self, CudaError> {
        let mut pools: BTreeMap<PoolId, Vec<(DeviceId, Bytes)>> = BTreeMap::new();
        for (own, size) in arena_sizes(schedule).into_iter().filter(|(own, _)| here(*own))
        {
            pools.entry(schedule.target.devices[own].pool).or_default().push((own, size));
        }
        let mut all = Self { blocks: Vec::new(), arenas: BTreeMap::new() };
        for (pool, devices) in pools {
            let name = &schedule.target.pools[pool].name;
            all.add(device, &format!("the memory of `{name}`"), &devices)?;
        }
        Ok(all)
    }

    fn add(
        &mut self,
        device: &Device,
        what: &str,
        devices: &[(DeviceId, Bytes)],
    ) -> Result<(), CudaError> {
        let rounded = |size: &Bytes| size.0.next_multiple_of(ALIGNMENT);
        let total = devices.iter().map(|(_, size)| rounded(size)).sum();
        let block = allocate(device, what, Bytes(total))?;
        let mut start = block.start();
        for (own, size) in devices {
            self.arenas.insert(*own, (start, *size));
            start = start.plus(rounded(size));
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Bytes of each arena.
    pub(super) fn sizes(&self) -> BTreeMap<DeviceId, Bytes> {
        self.arenas.iter().map(|(device, (_, size))| (*device, *size)).collect()
    }

    /// What the driver handed out for all arenas.
    pub(super) fn handed(&self) -> Bytes {
        Bytes(self.blocks.iter().map(|block| block.handed().0).sum())
    }

    /// What each block was rounded up to.
    pub(super) fn page(&self) -> Bytes {
        let pages = self.blocks.iter().map(|block| block.handed().1);
        Bytes(pages.fold(ALIGNMENT, u64::max))
    }

    /// Whether a device is here.
    pub(super) fn has(&self, device: DeviceId) -> bool {
        self.arenas.contains_key(&device)
    }

    /// The devices that are here.
    pub(super) fn devices(&self) -> BTreeSet<DeviceId> {
        self.arenas.keys().copied().collect()
    }

    /// All arenas.
    pub(super) fn all(&self) -> impl Iterator<Item = (Address, Bytes)> {
        self.arenas.values().copied()
    }

    /// A byte of a device's arena.
    pub(super) fn at(&self, device: DeviceId, byte: u64) -> Address {
        self.arenas[&device].0.plus(byte)
    }

    /// Where a row starts.
    pub(super) fn of(&self, span: &Span) -> Address {
        self.at(span.device, span.bytes.start)
    }
}

/// Device memory for a purpose.
///
/// # Errors
/// When there is too little.
pub(super) fn allocate(
    device: &Device,
    what: &str,
    bytes: Bytes,
) -> Result<DeviceMemory, CudaError> {
    let refused = |reason: DriverError| match reason.is_out_of_memory() {
        true => CudaError::Memory {
            device: device.facts().to_string(),
            what: what.to_owned(),
            wanted: bytes,
            free: device.free().unwrap_or_default(),
        },
        false => {
            CudaError::refused(device.facts(), format!("{bytes} for {what}"), reason)
        }
    };
    DeviceMemory::new(device, bytes.0).map_err(refused)
}
