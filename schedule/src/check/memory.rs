//! Rule 1 for rings, groups and buffers: they exist, fit each other, and fit the memory.

use super::{Culprit, Violation, faults::Faults, limit};
use crate::{
    AxisId, Buffer, BufferId, Bytes, DeviceId, Element, Group, Id, Rest, Ring, RingId,
    Schedule, Slice, Splits, Subject, Table,
};
use std::collections::{BTreeMap, BTreeSet};

/// Checks rings; the other tables rely on them.
pub(super) fn rings(schedule: &Schedule, faults: &mut Faults) {
    for (id, ring) in schedule.rings.iter() {
        let culprit = Culprit::Ring(id);
        let length = ring.devices.len() as u64;
        faults.limit((1..=limit::PERIODS).contains(&length), culprit, || {
            format!("has {length} devices; 1 to {} are possible", limit::PERIODS)
        });
        faults.limit((1..=limit::LANES_MAX).contains(&ring.lanes), culprit, || {
            format!("has {} lanes; 1 to {} are possible", ring.lanes, limit::LANES_MAX)
        });
        for device in &ring.devices {
            faults.require(
                schedule.target.devices.get(*device).is_some(),
                culprit,
                || format!("names {device}; name a device of the target"),
            );
        }
        let distinct: BTreeSet<_> = ring.devices.iter().collect();
        faults.require(distinct.len() as u64 == length, culprit, || {
            "names a device twice; places of a ring are different devices".into()
        });
    }
    if faults.is_empty() {
        turning(&schedule.rings, faults);
    }
}

/// A device that turns under a frame belongs to that frame alone.
fn turning(rings: &Table<RingId, Ring>, faults: &mut Faults) {
    let rate = |ring: &Ring| u64::from(ring.turn) % ring.devices.len() as u64;
    let mut frames: BTreeMap<DeviceId, (RingId, &Ring)> = BTreeMap::new();
    for (id, ring) in rings.iter() {
        for device in &ring.devices {
            let (first, other) = *frames.entry(*device).or_insert((id, ring));
            let still = rate(ring) == 0 && rate(other) == 0;
            let same = rate(ring) == rate(other) && ring.devices == other.devices;
            faults.require(still || same, Culprit::Ring(id), || {
                format!(
                    "turns otherwise than {first}, which has {device} too: rings that turn \
                     share devices only with rings of the same devices and turn"
                )
            });
        }
    }
}

/// Checks groups; needs sound rings and axes.
pub(super) fn groups(schedule: &Schedule, faults: &mut Faults) {
    for (id, group) in schedule.groups.iter() {
        let Group { places, axes } = group;
        let culprit = Culprit::Group(id);
        let ring = places.first().and_then(|place| schedule.rings.get(place.ring));
        let inside = ring.is_some_and(|ring| {
            let length = ring.devices.len();
            let own = |place: &crate::Place| place.ring == places[0].ring;
            places.iter().all(|place| own(place) && (place.place as usize) < length)
        });
        faults.require(inside, culprit, || {
            "needs places of one ring, at least one, each below its length".into()
        });
        let distinct: BTreeSet<_> = places.iter().collect();
        faults.require(distinct.len() == places.len(), culprit, || {
            "names a place twice; members are different devices".into()
        });
        let ascending = axes.windows(2).all(|pair| pair[0] < pair[1]);
        let known = axes.iter().all(|axis| schedule.axes.get(*axis).is_some());
        faults.require(ascending && known, culprit, || {
            format!("runs along {axes:?}; name axes of the header, each once, in order")
        });
        let split = |axis: &AxisId| schedule.parts_axis() == Some(*axis);
        faults.require(!axes.iter().any(split), culprit, || {
            "runs along the axis of split tensors, where members hold different things; only \
             exchanges inside of routines go there"
                .into()
        });
    }
}

/// Checks buffers; needs sound rings, axes and job.
pub(super) fn buffers(schedule: &Schedule, faults: &mut Faults) {
    let mut cells = 0u64;
    for (id, buffer) in schedule.buffers.iter() {
        let before = faults.is_empty();
        shape(schedule, id, buffer, faults);
        subject(schedule, id, buffer, faults);
        if before && faults.is_empty() {
            size(schedule, id, buffer, faults);
            rest(schedule, id, buffer, faults);
            let devices = schedule.rings[buffer.home].devices.len() as u64;
            cells = cells.saturating_add(devices * u64::from(buffer.slots));
        }
    }
    faults.limit(cells <= limit::CELLS, Culprit::Header("buffers"), || {
        format!("{cells} slots on all devices; at most {} are possible", limit::CELLS)
    });
}

fn shape(schedule: &Schedule, id: BufferId, buffer: &Buffer, faults: &mut Faults) {
    let culprit = Culprit::Buffer(id);
    faults.require(schedule.rings.get(buffer.home).is_some(), culprit, || {
        format!("has its home on {}; name a ring that is listed", buffer.home)
    });
    faults.limit((1..=limit::SLOTS).contains(&buffer.slots), culprit, || {
        format!("has {} slots; 1 to {} are possible", buffer.slots, limit::SLOTS)
    });
    let total = buffer.size.0.checked_mul(u64::from(buffer.slots));
    let end = total.and_then(|total| total.checked_add(buffer.offset.0));
    faults.limit(end.is_some_and(|end| end < limit::BYTES), culprit, || {
        "ends past 2^48 bytes; make it smaller".into()
    });
    let alignment = match buffer.subject {
        Subject::Input(input) => {
            let input = schedule.job.inputs.get(input);
            input.map_or(1, |input| input.element.size(schedule.job.dtype))
        }
        _ => schedule.job.dtype.size().max(Element::I32.size(schedule.job.dtype)),
    };
    let aligned = |bytes: Bytes| bytes.0.is_multiple_of(alignment);
    faults.require(aligned(buffer.offset) && aligned(buffer.size), culprit, || {
        format!("offset and size must be multiples of {alignment} bytes")
    });
}

fn subject(schedule: &Schedule, id: BufferId, buffer: &Buffer, faults: &mut Faults) {
    let stages = schedule.job.elements.len();
    let known = match buffer.subject {
        Subject::Parameter(stage, slice)
        | Subject::Gradient(stage, slice)
        | Subject::Optimizer(stage, slice) => {
            is_axis(schedule, slice) && stage.index() < stages
        }
        Subject::Squares(slice) => is_axis(schedule, slice),
        Subject::Activation(stage)
        | Subject::Retained(stage)
        | Subject::Adjoint(stage) => stage.number() < schedule.plan.pass_stages(),
        Subject::Value(value) | Subject::ValueGradient(value) => {
            value.index() < limit::VALUES
        }
        Subject::Input(input) => schedule.job.inputs.get(input).is_some(),
        Subject::Metric | Subject::Workspace => true,
    };
    faults.require(known, Culprit::Buffer(id), || {
        format!(
            "holds {}; name a stage, axis, value or input that exists",
            buffer.subject
        )
    });
}

/// Whether shards of a slice are those of an axis along which members have micro-batches.
fn is_axis(schedule: &Schedule, slice: Slice) -> bool {
    match slice {
        Slice::Whole => true,
        Slice::Shard(axis) => {
            let axis = schedule.axes.get(axis);
            axis.is_some_and(|axis| axis.splits == Splits::Batch)
        }
    }
}

/// Bytes that a buffer of this subject needs at least, and of which slice they are.
fn needed(schedule: &Schedule, subject: Subject) -> Option<(u64, Slice)> {
    let job = &schedule.job;
    match subject {
        Subject::Parameter(..) | Subject::Gradient(..) | Subject::Optimizer(..) => {
            job.state_bytes(subject).map(|bytes| bytes.0).zip(subject.slice())
        }
        Subject::Squares(..) => Some((job.dtype.wide_size(), Slice::Whole)),
        Subject::Input(input) => {
            Some((job.inputs[input].bytes(job.dtype).0, Slice::Whole))
        }
        Subject::Metric => Some((job.measured().0, Slice::Whole)),
        Subject::Activation(_)
        | Subject::Retained(_)
        | Subject::Adjoint(_)
        | Subject::Value(_)
        | Subject::ValueGradient(_)
        | Subject::Workspace => None,
    }
}

fn size(schedule: &Schedule, id: BufferId, buffer: &Buffer, faults: &mut Faults) {
    let Some((whole, slice)) = needed(schedule, buffer.subject) else { return };
    let culprit = Culprit::Buffer(id);
    let size = buffer.size.0;
    match slice {
        Slice::Whole => faults.require(size >= whole, culprit, || {
            format!("has {size} bytes a slot, but what it holds takes {whole}")
        }),
        Slice::Shard(axis) => {
            let extent = u64::from(schedule.axes[axis].extent);
            let unit = schedule.job.dtype.size();
            let even = (whole / unit).is_multiple_of(extent);
            faults.require(even && size == whole / extent, culprit, || {
                format!("has {size} bytes a slot; one of {extent} parts of {whole} bytes is needed")
            });
        }
    }
}

fn rest(schedule: &Schedule, id: BufferId, buffer: &Buffer, faults: &mut Faults) {
    let Rest::Carried(ages) = &buffer.rest else { return };
    let culprit = Culprit::Buffer(id);
    let oldest = match buffer.subject {
        Subject::Parameter(stage, _) => schedule.plan.staleness(stage),
        Subject::Optimizer(..) => 0,
        _ => {
            return faults.malformed(
                culprit,
                "is carried; only parameters and optimizer state cross training steps",
            );
        }
    };
    let devices = schedule.rings[buffer.home].devices.len();
    let shaped = ages.len() == devices
        && ages.iter().all(|slots| slots.len() == buffer.slots as usize);
    faults.require(shaped, culprit, || {
        format!("needs an age for each of {devices} devices and {} slots", buffer.slots)
    });
    let young = ages.iter().flatten().flatten().all(|age| *age <= oldest);
    faults.require(young, culprit, || {
        format!(
            "is carried with an age above {oldest}; no step reads that, none keeps it"
        )
    });
}

/// Arenas within devices and pools; needs sound buffers and coordinates.
pub(super) fn capacity(schedule: &Schedule, faults: &mut Faults) {
    let target = &schedule.target;
    let shifts = schedule.shifts();
    let mut pools = BTreeMap::new();
    for (device, (arena, last)) in schedule.arenas() {
        for shift in &shifts {
            let real = &target.devices[device.shifted(*shift)];
            let (taken, _) = pools.entry(real.pool).or_insert((Bytes(0), last));
            *taken += arena;
            if arena > real.memory {
                faults.push(Violation::Overfull {
                    memory: format!("device {}", real.name),
                    buffer: last,
                    needed: arena,
                    capacity: real.memory,
                });
            }
        }
    }
    for (pool, (needed, buffer)) in pools {
        let pool = &target.pools[pool];
        if needed > pool.capacity {
            let (memory, capacity) = (format!("pool {}", pool.name), pool.capacity);
            faults.push(Violation::Overfull { memory, buffer, needed, capacity });
        }
    }
}
