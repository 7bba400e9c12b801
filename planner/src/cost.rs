//! Time of kernel calls: a roofline.
//!
//! Law: a call takes max(FLOPs / compute, bytes / bandwidth) + overhead, each quotient rounded
//! up to whole nanoseconds. A routine takes the sum of its calls. So more FLOPs, more bytes or
//! more calls never take less time, a faster device never takes more, and times of routines add.

use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Call, Device, DeviceId, Float, Footprint, Nanos, Place, RoutineId, Schedule, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// A kernel call that the catalogue does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` cannot be priced: {message}")]
pub struct Unpriced {
    /// Its name.
    pub kernel: String,
    /// What is wrong, as a sentence without full stop.
    pub message: String,
}

/// Time of one call on a device, by the law of this module.
pub fn roofline(footprint: Footprint, device: &Device) -> Nanos {
    let arithmetic = footprint.flops.at(device.compute);
    let traffic = footprint.bytes.at(device.bandwidth);
    arithmetic.max(traffic) + device.overhead
}

/// What a sequence of calls costs, one footprint per call.
///
/// # Errors
/// When the catalogue does not know a call.
pub(crate) fn footprints(
    calls: &[Call],
    dtype: Float,
) -> Result<Vec<Footprint>, Unpriced> {
    let footprint = |call: &Call| {
        let unpriced = |message| Unpriced { kernel: call.kernel.clone(), message };
        Ok(Kernel::parse(call).map_err(unpriced)?.footprint(dtype))
    };
    calls.iter().map(footprint).collect()
}

/// Time of a sequence of calls on a device.
pub(crate) fn total(calls: &[Footprint], device: &Device) -> Nanos {
    calls.iter().map(|footprint| roofline(*footprint, device)).sum()
}

/// Fills in the predicted time of every routine: that on the slowest device that launches it.
///
/// # Errors
/// When the catalogue does not know a call.
pub fn price(schedule: &mut Schedule) -> Result<(), Unpriced> {
    let places = launch_places(schedule);
    let dtype = schedule.job.dtype;
    let mut predicted = Vec::with_capacity(schedule.routines.len());
    for (id, routine) in schedule.routines.iter() {
        let calls = footprints(&routine.calls, dtype)?;
        let devices = places.get(&id).map(|places| devices_of(schedule, places));
        let times = devices.into_iter().flatten();
        let times = times.map(|device| total(&calls, &schedule.target.devices[device]));
        predicted.push(times.max().unwrap_or_default());
    }
    for ((_, routine), time) in schedule.routines.iter_mut().zip(predicted) {
        routine.predicted = time;
    }
    Ok(())
}

fn launch_places(schedule: &Schedule) -> BTreeMap<RoutineId, BTreeSet<Place>> {
    let mut places: BTreeMap<RoutineId, BTreeSet<Place>> = BTreeMap::new();
    for action in schedule.actions.values() {
        if let Work::Launch { at, routine, .. } = &action.work {
            places.entry(*routine).or_default().insert(*at);
        }
    }
    places
}

/// Every device at these places, at every coordinate; places turn, so the whole ring counts.
fn devices_of(schedule: &Schedule, places: &BTreeSet<Place>) -> BTreeSet<DeviceId> {
    let rings: BTreeSet<_> = places.iter().map(|place| place.ring).collect();
    let coordinates = schedule.coordinates();
    let cell = rings.iter().flat_map(|ring| &schedule.rings[*ring].devices);
    let at_all = |device: &DeviceId| {
        let at = |coordinate: &Vec<u32>| schedule.device_at(*device, coordinate);
        coordinates.iter().map(at).collect::<Vec<_>>()
    };
    cell.flat_map(at_all).collect()
}

/// The device that is at least as fast as every device of a cluster in every respect.
pub(crate) fn ideal(devices: &[&Device]) -> Option<Device> {
    let first = (*devices.first()?).clone();
    Some(devices.iter().fold(first, |best, device| Device {
        compute: best.compute.max(device.compute),
        bandwidth: best.bandwidth.max(device.bandwidth),
        overhead: best.overhead.min(device.overhead),
        memory: best.memory.max(device.memory),
        ..best
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Random, device};
    use roundelay_codegen::lower;
    use roundelay_dsl::Program;
    use roundelay_schedule::{
        Bytes, BytesPerSecond, Flops, FlopsPerSecond, Id, Order, Pass, Placement, Rule,
    };

    #[test]
    fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
        let device = Device {
            compute: FlopsPerSecond(1_000_000_000),
            bandwidth: BytesPerSecond(500_000_000),
            overhead: Nanos(7),
            ..device()
        };
        let time = |flops, bytes| {
            roofline(Footprint { flops: Flops(flops), bytes: Bytes(bytes) }, &device)
        };
        assert_eq!(time(100, 10), Nanos(107));
        assert_eq!(time(10, 100), Nanos(207));
        assert_eq!(time(0, 0), Nanos(7));
    }

    #[test]
    fn a_routine_takes_as_long_as_on_the_slowest_device_that_launches_it() {
        let mut program = sample::program(2, 4);
        let plan = sample::plan(Rule::CyclicV2, Placement::Data, Order::Cyclic, 2, 2);
        let priced = |program: &Program| {
            let mut schedule = lower(program, &plan).unwrap();
            price(&mut schedule).unwrap();
            schedule
        };
        let even = priced(&program);
        let slow = &mut program.target.devices[DeviceId::new(1)];
        slow.compute = FlopsPerSecond(slow.compute.0 / 3);
        let slow = slow.clone();
        let uneven = priced(&program);
        for (before, after) in even.routines.values().zip(uneven.routines.values()) {
            let calls = footprints(&after.calls, Float::F32).unwrap();
            assert!(before.predicted > Nanos(0) && before.predicted <= after.predicted);
            if matches!(after.pass, Pass::Forward | Pass::Backward) {
                assert!(after.predicted <= total(&calls, &slow));
            }
        }
        let forward = uneven.routines.values().find(|row| row.pass == Pass::Forward);
        let forward = forward.unwrap();
        let calls = footprints(&forward.calls, Float::F32).unwrap();
        assert_eq!(forward.predicted, total(&calls, &slow));
    }

    #[test]
    fn more_work_never_takes_less_and_calls_add() {
        let mut random = Random::new(3);
        for _ in 0..500 {
            let mut draw = || random.below(1_000_000);
            let device = Device {
                compute: FlopsPerSecond(1 + draw()),
                bandwidth: BytesPerSecond(1 + draw()),
                overhead: Nanos(draw()),
                ..device()
            };
            let small = Footprint { flops: Flops(draw()), bytes: Bytes(draw()) };
            let large = Footprint {
                flops: small.flops + Flops(draw()),
                bytes: small.bytes + Bytes(draw()),
            };
            assert!(roofline(small, &device) <= roofline(large, &device));
            let slower = Device { compute: FlopsPerSecond(1), ..device.clone() };
            let best = ideal(&[&slower, &device]).unwrap();
            assert!(roofline(small, &best) <= roofline(small, &device));
            let both = total(&[small, large], &device);
            assert_eq!(both, roofline(small, &device) + roofline(large, &device));
        }
    }
}
