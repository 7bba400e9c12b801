//! A cluster with more or fewer devices: its last unit, the largest group short of the whole that
//! ends it, is repeated with the links and memories of its own, or left out. A group is joined by a
//! link, or shares a memory.

use super::objective::kind_of;
use crate::{Code, Mistake, Program};
use roundelay_schedule::{DeviceId, Domain, Id, Pool, PoolId, Table, Target};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Changes the number of devices of a program's cluster.
///
/// # Errors
/// When the number is no whole number of units.
pub(super) fn resize(program: &mut Program, count: u32) -> Result<(), Mistake> {
    let target = &program.target;
    let now = crate::source::count(target.devices.len());
    let joined = |domain: &Domain| domain.devices == (0..now);
    if count > now && !target.domains.iter().any(joined) {
        let message = "no link joins the devices of the cluster, so it cannot grow";
        return Err(Mistake::new(Code::Missing, message));
    }
    let unit = unit(target);
    let size = unit.end - unit.start;
    if !count.abs_diff(now).is_multiple_of(size) {
        let message =
            format!("the cluster grows and shrinks by {size} devices at a time");
        let near =
            if count > now { now + size } else { now.saturating_sub(size).max(size) };
        let hint = format!("from {now} devices the next number is {near}");
        return Err(Mistake::new(Code::Value, message).hint(hint));
    }
    if count < now {
        shrink(program, count);
    }
    if count > now {
        let copies = (count - now) / size;
        repeat(program, &unit, copies);
        widen(&mut program.target, &unit, copies);
    }
    Ok(())
}

/// The largest group short of the whole cluster that ends with its last device; that device alone
/// when there is none.
fn unit(target: &Target) -> Range<u32> {
    let count = crate::source::count(target.devices.len());
    let joined = target.domains.iter().map(|domain| domain.devices.clone());
    let ends = joined.filter(|devices| devices.end == count).chain(sharing(target));
    let inner = ends.filter(|devices| devices.start > 0);
    inner.min_by_key(|devices| devices.start).unwrap_or(count - 1..count)
}

/// The devices that share the memory of the last one.
fn sharing(target: &Target) -> Option<Range<u32>> {
    let (_, last) = target.devices.iter().next_back()?;
    let first = target.devices.iter().find(|(_, device)| device.pool == last.pool)?.0;
    let [first, end] = [first.index(), target.devices.len()].map(crate::source::count);
    Some(first..end)
}

fn shrink(program: &mut Program, count: u32) {
    let target = &mut program.target;
    let kept = |id: &DeviceId| id.index() < count as usize;
    let mut pools: Table<PoolId, Pool> = Table::new();
    let mut moved: BTreeMap<PoolId, PoolId> = BTreeMap::new();
    let devices: Vec<_> = target.devices.iter().filter(|(id, _)| kept(id)).collect();
    let devices = devices.into_iter().map(|(_, device)| {
        let old = device.pool;
        let new =
            *moved.entry(old).or_insert_with(|| pools.push(target.pools[old].clone()));
        roundelay_schedule::Device { pool: new, ..device.clone() }
    });
    target.devices = devices.collect();
    target.pools = pools;
    target.domains.retain(|domain| domain.devices.start < count);
    target.domains.iter_mut().for_each(|domain| {
        domain.devices.end = domain.devices.end.min(count);
    });
    program.profiles.retain(|id, _| kept(id));
    program.prices.retain(|id, _| kept(id));
    program.peaks.retain(|id, _| kept(id));
}

/// Adds the devices of a unit this many times more.
fn repeat(program: &mut Program, unit: &Range<u32>, copies: u32) {
    let target = &mut program.target;
    let shared = shared(target, unit);
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for device in target.devices.values() {
        *kinds.entry(kind_of(&device.name).to_owned()).or_default() += 1;
    }
    for _ in 0..copies {
        let mut pools: BTreeMap<PoolId, PoolId> = BTreeMap::new();
        for number in unit.clone() {
            let old = DeviceId::new(number as usize);
            let mut device = target.devices[old].clone();
            let name = numbered(&mut kinds, &device.name);
            if !shared.contains(&device.pool) {
                let mut pool = target.pools[device.pool].clone();
                if pool.name == device.name {
                    pool.name.clone_from(&name);
                }
                let new = pools.entry(device.pool);
                device.pool = *new.or_insert_with(|| target.pools.push(pool));
            }
            device.name = name;
            let new = target.devices.push(device);
            let profile = program.profiles.get(&old).cloned();
            program.profiles.extend(profile.map(|profile| (new, profile)));
            let price = program.prices.get(&old).copied();
            program.prices.extend(price.map(|price| (new, price)));
            let peak = program.peaks.get(&old).copied();
            program.peaks.extend(peak.map(|peak| (new, peak)));
        }
    }
}

/// Memories of devices outside of the unit, and that of a cluster which is one unit; all others
/// are repeated with it.
fn shared(target: &Target, unit: &Range<u32>) -> BTreeSet<PoolId> {
    let around = |id: DeviceId, pool: PoolId| match unit.start {
        0 => target.pools[pool].name == target.name,
        _ => !unit.contains(&crate::source::count(id.index())),
    };
    let devices = target.devices.iter().map(|(id, device)| (id, device.pool));
    devices.filter(|(id, pool)| around(*id, *pool)).map(|(_, pool)| pool).collect()
}

/// Groups inside the unit are repeated before those around it, which grow.
fn widen(target: &mut Target, unit: &Range<u32>, copies: u32) {
    let end = crate::source::count(target.devices.len());
    let whole = |domain: &Domain| unit.start == 0 && domain.devices == *unit;
    let around = |domain: &Domain| {
        domain.devices.start < unit.start && domain.devices.end >= unit.end
            || whole(domain)
    };
    let inside = |domain: &&Domain| {
        let Range { start, end } = domain.devices;
        start >= unit.start && end <= unit.end && !whole(domain)
    };
    let inner: Vec<Domain> = target.domains.iter().filter(inside).cloned().collect();
    let first = target.domains.iter().position(around).unwrap_or(target.domains.len());
    let mut outer = target.domains.split_off(first);
    outer.iter_mut().for_each(|domain| domain.devices.end = end);
    for copy in 1..=copies {
        let offset = copy * (unit.end - unit.start);
        target.domains.extend(inner.iter().map(|domain| Domain {
            link: domain.link,
            devices: domain.devices.start + offset..domain.devices.end + offset,
        }));
    }
    target.domains.append(&mut outer);
}

/// The next free name of a kind of device: `core.4` after `core.3`.
fn numbered(kinds: &mut BTreeMap<String, u32>, name: &str) -> String {
    let kind = kind_of(name);
    let number = kinds.entry(kind.to_owned()).or_default();
    let name = format!("{kind}.{number}");
    *number += 1;
    name
}
