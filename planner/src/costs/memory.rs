//! Whether a plan fits: what each device and pool must give, and what is missing.

use crate::{
    search::bound::Bound,
    space::{
        reason::{Shortage, Shortfall},
        spread::Spread,
    },
};
use roundelay_dsl::{Program, kind_of};
use roundelay_schedule::{Bytes, Device, DeviceId, Id, Kind, PoolId, Schedule, Target};
use std::{collections::BTreeMap, ops::Range};

/// What a device has: its own limit, and its pool's.
fn own_capacity(program: &Program, device: &Device) -> Bytes {
    device.memory.min(program.target.pools[device.pool].capacity)
}

/// What one device may take: what it has, and no more than the program allows.
pub(crate) fn device_capacity(program: &Program, device: &Device) -> Bytes {
    let own = own_capacity(program, device);
    program.search.memory.map_or(own, |bound| own.min(bound))
}

impl Shortfall {
    /// What is missing.
    pub fn missing(&self) -> Bytes {
        self.needed - self.capacity
    }

    /// What the device has that a program keeps from giving all of it; none where nothing but the
    /// device or a pool is too small.
    pub fn kept_back(&self, program: &Program) -> Option<Bytes> {
        let Shortage::Device(id, _) = self.place else { return None };
        let own = own_capacity(program, &program.target.devices[id]);
        (program.search.memory == Some(self.capacity) && own > self.capacity)
            .then_some(own)
    }
}

/// What the devices of a cluster may take.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    each: Vec<Bytes>,
    /// Devices that follow each other and may take as much.
    alike: Vec<Range<usize>>,
}

impl Room {
    /// Of a program's devices.
    pub(crate) fn new(program: &Program) -> Self {
        let devices = program.target.devices.values();
        Self::of(devices.map(|device| device_capacity(program, device)).collect())
    }

    fn of(each: Vec<Bytes>) -> Self {
        let mut end = 0;
        let run = |own: &[Bytes]| {
            let start = end;
            end += own.len();
            start..end
        };
        let alike = each.chunk_by(|one, next| one == next).map(run).collect();
        Self { each, alike }
    }

    /// The roomiest device of some, the last of those that are, and what it may take.
    fn roomiest(&self, devices: Range<u32>) -> Option<(DeviceId, Bytes)> {
        let (first, end) = (devices.start as usize, devices.end as usize);
        let within = |run: &Range<usize>| run.start.max(first)..run.end.min(end);
        let from = self.alike.partition_point(|run| run.end <= first);
        let runs = self.alike[from..].iter().take_while(|run| run.start < end);
        let runs = runs.map(within).filter(|run| !run.is_empty());
        let last = runs.max_by_key(|run| self.each[run.start])?.end - 1;
        Some((DeviceId::new(last), self.each[last]))
    }

    /// Whether some devices may take more than others.
    pub(crate) fn is_uneven(&self) -> bool {
        self.alike.len() > 1
    }

    /// What the smallest of some devices may take.
    pub(crate) fn least(&self, devices: impl Iterator<Item = DeviceId>) -> Bytes {
        let own = devices.filter_map(|id| self.each.get(id.index()).copied());
        own.min().unwrap_or(Bytes(u64::MAX))
    }

    fn smallest(&self, spread: Spread, seat: u32) -> Option<(Bytes, DeviceId)> {
        let own = |id: DeviceId| Some((*self.each.get(id.index())?, id));
        spread.at(seat).filter_map(own).min()
    }

    /// Whether a plan may fit, by its bound, which counts against the roomiest of its devices.
    ///
    /// # Errors
    /// What is missing at least.
    pub(crate) fn for_bound(
        &self,
        program: &Program,
        devices: Range<u32>,
        bound: &Bound,
    ) -> Result<(), Shortfall> {
        let Some((id, capacity)) = self.roomiest(devices) else { return Ok(()) };
        shortfall(program, (id, capacity), (bound.memory, bound.kind)).map_or(Ok(()), Err)
    }

    /// Whether a plan may fit whose devices of a cell hold so much at least, each against the smallest
    /// of those that hold the same at other coordinates.
    ///
    /// # Errors
    /// What is missing where most is missing.
    pub(crate) fn for_each(
        &self,
        program: &Program,
        spread: Spread,
        held: &[(Bytes, Kind)],
    ) -> Result<(), Shortfall> {
        let short = |(seat, held): (u32, &(Bytes, Kind))| {
            let (capacity, id) = self.smallest(spread, seat)?;
            shortfall(program, (id, capacity), *held)
        };
        let all = (0..).zip(held).filter_map(short);
        all.max_by_key(Shortfall::missing).map_or(Ok(()), Err)
    }
}

/// What a device lacks that holds so much.
fn shortfall(
    program: &Program,
    (id, capacity): (DeviceId, Bytes),
    (needed, kind): (Bytes, Kind),
) -> Option<Shortfall> {
    (needed > capacity).then(|| Shortfall {
        needed,
        capacity,
        place: Shortage::Device(id, program.target.devices[id].name.clone()),
        kind,
    })
}

/// Whether a lowered plan fits every device and pool.
///
/// # Errors
/// What is missing where most is missing; a pool comes before a device.
pub(crate) fn fits(program: &Program, schedule: &Schedule) -> Result<(), Shortfall> {
    let worst = lacking(program, schedule).max_by_key(Lacking::missing);
    worst.map_or(Ok(()), |worst| Err(worst.told(schedule)))
}

/// What is missing where a lowered plan does not fit: of each kind of device at the one that misses
/// most, and in each memory that several devices share.
pub fn shortfalls(program: &Program, schedule: &Schedule) -> Vec<Shortfall> {
    let mut kinds: BTreeMap<&str, Lacking> = BTreeMap::new();
    let mut shared = Vec::new();
    for lacking in lacking(program, schedule) {
        match lacking.at {
            At::Device(id) => {
                let kind = kind_of(&schedule.target.devices[id].name);
                let known = kinds.entry(kind).or_insert(lacking);
                if lacking.missing() > known.missing() {
                    *known = lacking;
                }
            }
            At::Pool { users: 1, .. } => {}
            At::Pool { .. } => shared.push(lacking),
        }
    }
    let all = kinds.into_values().chain(shared);
    all.map(|lacking| lacking.told(schedule)).collect()
}

/// A place where a lowered plan does not fit.
#[derive(Clone, Copy, Debug)]
struct Lacking {
    needed: Bytes,
    capacity: Bytes,
    at: At,
    /// A device of the cell that takes some of it.
    cell: DeviceId,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Device(DeviceId),
    /// With the number of devices that take from it.
    Pool {
        id: PoolId,
        users: u64,
    },
}

impl Lacking {
    fn missing(&self) -> Bytes {
        self.needed - self.capacity
    }

    fn told(self, schedule: &Schedule) -> Shortfall {
        let Self { needed, capacity, at, cell } = self;
        let Target { devices, pools, .. } = &schedule.target;
        let place = match at {
            At::Device(id) => Shortage::Device(id, devices[id].name.clone()),
            At::Pool { id, .. } => Shortage::Pool(pools[id].name.clone()),
        };
        Shortfall { needed, capacity, place, kind: fullest_kind(schedule, cell) }
    }
}

/// All places where a lowered plan does not fit: devices, then pools.
fn lacking(program: &Program, schedule: &Schedule) -> impl Iterator<Item = Lacking> {
    let Target { devices, pools, .. } = &schedule.target;
    let used = used(schedule);
    let pooled = pooled(schedule, &used).into_iter();
    let own = used.into_iter().map(|Used { device, cell, taken }| Lacking {
        needed: taken,
        capacity: device_capacity(program, &devices[device]),
        at: At::Device(device),
        cell,
    });
    let shared = pooled.map(|(id, Pooled { taken, users, cell })| Lacking {
        needed: taken,
        capacity: pools[id].capacity,
        at: At::Pool { id, users },
        cell,
    });
    own.chain(shared).filter(|one| one.needed > one.capacity)
}

/// A device in use: the one of the cell that it repeats, and what it takes.
struct Used {
    device: DeviceId,
    cell: DeviceId,
    taken: Bytes,
}

fn used(schedule: &Schedule) -> Vec<Used> {
    let arena = arenas(schedule);
    let used = |(device, cell)| Used { device, cell, taken: arena(cell) };
    cells(schedule).into_iter().map(used).collect()
}

/// What is taken from a pool, by how many devices, and the first of the cell that does.
struct Pooled {
    taken: Bytes,
    users: u64,
    cell: DeviceId,
}

fn pooled(schedule: &Schedule, used: &[Used]) -> BTreeMap<PoolId, Pooled> {
    let mut pools = BTreeMap::new();
    for Used { device, cell, taken } in used {
        let none = Pooled { taken: Bytes(0), users: 0, cell: *cell };
        let pool = pools.entry(schedule.target.devices[*device].pool).or_insert(none);
        pool.taken += *taken;
        pool.users += 1;
    }
    pools
}

/// How much each device of the cell lacks in a lowered plan; those that lack nothing are not
/// there. In a pool that is too small those lack something that take more than an equal share.
pub(crate) fn lacks(program: &Program, schedule: &Schedule) -> BTreeMap<DeviceId, Bytes> {
    let used = used(schedule);
    let pools = pooled(schedule, &used);
    let mut lacks: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
    for Used { device, cell, taken } in used {
        let device = &schedule.target.devices[device];
        let pool = &pools[&device.pool];
        let whole = schedule.target.pools[device.pool].capacity;
        let share = if pool.taken > whole { Bytes(whole.0 / pool.users) } else { whole };
        let missing = taken - device_capacity(program, device).min(share);
        if missing > Bytes(0) {
            let known = lacks.entry(cell).or_default();
            *known = missing.max(*known);
        }
    }
    lacks
}

fn fullest_kind(schedule: &Schedule, cell: DeviceId) -> Kind {
    let kinds = Kind::ALL.iter().copied();
    kinds.max_by_key(|kind| schedule.bytes_of(cell, *kind)).unwrap_or(Kind::Parameter)
}

/// What each device of the cell takes.
pub(crate) fn arenas(schedule: &Schedule) -> impl Fn(DeviceId) -> Bytes + use<> {
    let arenas = schedule.arenas();
    move |device| arenas.get(&device).map_or(Bytes(0), |(end, _)| *end)
}

/// Every device in use, with the device of the cell that it repeats.
pub(crate) fn cells(schedule: &Schedule) -> BTreeMap<DeviceId, DeviceId> {
    let shifts = &schedule.shifts();
    let rings = schedule.rings.values().flat_map(|ring| ring.devices.iter().copied());
    let repeated = rings
        .flat_map(|cell| shifts.iter().map(move |shift| (cell.shifted(*shift), cell)));
    repeated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Random;

    #[test]
    fn the_roomiest_of_a_window_is_the_last_that_may_take_most() {
        let mut random = Random::new(3);
        for _ in 0..100 {
            let count = random.below(8);
            let each: Vec<Bytes> = (0..count).map(|_| Bytes(random.below(3))).collect();
            let room = Room::of(each.clone());
            for first in 0..10 {
                for devices in 0..10 {
                    let window = first..(first + devices).min(each.len());
                    let best = window.max_by_key(|device| (each[*device], *device));
                    let best = best.map(|device| (DeviceId::new(device), each[device]));
                    let window = first as u32..(first + devices) as u32;
                    assert_eq!(
                        room.roomiest(window.clone()),
                        best,
                        "{each:?}, {window:?}"
                    );
                }
            }
        }
    }
}
