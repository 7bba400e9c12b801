//! Whether a plan fits: what each device and pool must give, and what is missing.

use crate::{
    bound::Bound,
    reason::{Shortage, Shortfall},
};
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, Device, DeviceId, Kind, PoolId, Schedule};
use std::collections::BTreeMap;

/// What one device may take: its own limit, its pool's, and the program's.
pub(crate) fn device_capacity(program: &Program, device: &Device) -> Bytes {
    let pool = program.target.pools[device.pool].capacity;
    let own = device.memory.min(pool);
    program.search.memory.map_or(own, |bound| own.min(bound))
}

/// Whether a plan may fit, by its bound: all its devices are alike enough that the bound counts
/// against the roomiest.
///
/// # Errors
/// What is missing at least.
pub(crate) fn may_fit(
    program: &Program,
    devices: u32,
    bound: &Bound,
) -> Result<(), Shortfall> {
    let devices = program.target.devices.iter().take(devices as usize);
    let roomiest = devices.max_by_key(|(_, device)| device_capacity(program, device));
    let Some((id, device)) = roomiest else { return Ok(()) };
    let capacity = device_capacity(program, device);
    if bound.memory <= capacity {
        return Ok(());
    }
    Err(Shortfall {
        missing: bound.memory - capacity,
        needed: bound.memory,
        capacity,
        place: Shortage::Device(id, device.name.clone()),
        kind: bound.kind,
    })
}

/// Whether a lowered plan fits every device and pool.
///
/// # Errors
/// What is missing where most is missing.
pub(crate) fn fits(program: &Program, schedule: &Schedule) -> Result<(), Shortfall> {
    let cells = cells(schedule);
    let arenas = || cells.iter().map(|(id, cell)| (*id, schedule.arena(*cell), *cell));
    let device_shortfall = |(id, needed, cell): (DeviceId, Bytes, DeviceId)| {
        let device = &schedule.target.devices[id];
        let capacity = device_capacity(program, device);
        let place = Shortage::Device(id, device.name.clone());
        shortfall(needed, capacity, place, || fullest_kind(schedule, cell))
    };
    let mut pools: BTreeMap<PoolId, (Bytes, DeviceId)> = BTreeMap::new();
    for (id, arena, cell) in arenas() {
        let entry =
            pools.entry(schedule.target.devices[id].pool).or_insert((Bytes(0), cell));
        entry.0 += arena;
    }
    let pool_shortfall = |(id, (needed, cell)): (&PoolId, &(Bytes, DeviceId))| {
        let pool = &schedule.target.pools[*id];
        let place = Shortage::Pool(pool.name.clone());
        shortfall(*needed, pool.capacity, place, || fullest_kind(schedule, *cell))
    };
    let devices = arenas().filter_map(device_shortfall);
    let all = devices.chain(pools.iter().filter_map(pool_shortfall));
    all.max_by_key(|short| short.missing).map_or(Ok(()), Err)
}

fn shortfall(
    needed: Bytes,
    capacity: Bytes,
    place: Shortage,
    kind: impl FnOnce() -> Kind,
) -> Option<Shortfall> {
    (needed > capacity).then(|| Shortfall {
        missing: needed - capacity,
        needed,
        capacity,
        place,
        kind: kind(),
    })
}

fn fullest_kind(schedule: &Schedule, cell: DeviceId) -> Kind {
    let kinds = Kind::ALL.into_iter();
    kinds.max_by_key(|kind| schedule.bytes_of(cell, *kind)).unwrap_or(Kind::Parameter)
}

/// Every device in use, with the device of the cell that it repeats.
pub(crate) fn cells(schedule: &Schedule) -> BTreeMap<DeviceId, DeviceId> {
    let coordinates = schedule.coordinates();
    let rings = schedule.rings.values().flat_map(|ring| ring.devices.iter().copied());
    let repeated = rings.flat_map(|cell| {
        let at = move |c: &Vec<u32>| (schedule.device_at(cell, c), cell);
        coordinates.iter().map(at).collect::<Vec<_>>()
    });
    repeated.collect()
}
