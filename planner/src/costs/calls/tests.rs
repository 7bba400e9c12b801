//! The laws of the cost model, with and without tables.

use super::*;
use crate::sample::{self, Random, device};
use roundelay_codegen::lower;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Attribute, Bytes, BytesPerSecond, CallTime, Catalogue, Constants, Element, Flops,
    FlopsPerSecond, GradientSums, Id, Operand, Order, Pass, Placement, Rule, Tensor,
    Unit,
};

#[test]
fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
    let device = Device {
        compute: FlopsPerSecond(1_000_000_000),
        bandwidth: BytesPerSecond(500_000_000),
        overhead: Nanos(7),
        ..device()
    };
    let time = |flops, bytes| roofline(footprint(flops, bytes, Unit::Vector), &device);
    assert_eq!(time(100, 10), Nanos(107));
    assert_eq!(time(10, 100), Nanos(207));
    assert_eq!(time(0, 0), Nanos(7));
}

fn footprint(flops: u64, bytes: u64, unit: Unit) -> Footprint {
    Footprint { flops: Flops(flops), bytes: Bytes(bytes), unit }
}

#[test]
fn a_product_of_half_size_reaches_half_of_the_rate() {
    let device = Device {
        compute: FlopsPerSecond(1_000_000_000),
        overhead: Nanos(0),
        products: Products {
            ramp: Nanos(400),
            attention: Thousandths(500),
            unaligned: Thousandths(250),
        },
        ..device()
    };
    let time = |flops, unit| roofline(footprint(flops, 0, unit), &device);
    assert_eq!(time(400, Unit::Product), Nanos(800));
    assert_eq!(time(400, Unit::Attention), Nanos(1200));
    assert_eq!(time(400, Unit::Unaligned), Nanos(2000));
    assert_eq!(time(400, Unit::Vector), Nanos(400));
}

/// Updates pass over long arrays at a rate of their own, above or below that of other calls, and so
/// do losses over classes.
#[test]
fn updates_and_losses_have_rates_of_memory_of_their_own() {
    let device = Device {
        compute: FlopsPerSecond(1_000_000_000),
        bandwidth: BytesPerSecond(500_000_000),
        overhead: Nanos(0),
        ..device()
    };
    let others = [Unit::Vector, Unit::Product, Unit::Unaligned, Unit::Attention];
    for (share, nanos) in [(1000, 600), (1500, 400), (500, 1200), (100_000, 30)] {
        let share = Thousandths(share);
        let updates = Device { updates: share, ..device.clone() };
        let losses = Device { losses: share, ..device.clone() };
        for (device, own, other) in
            [(updates, Unit::Update, Unit::Loss), (losses, Unit::Loss, Unit::Update)]
        {
            let time = |unit| roofline(footprint(30, 300, unit), &device);
            assert_eq!(time(own), Nanos(nanos));
            for unit in others.into_iter().chain([other]) {
                assert_eq!(time(unit), Nanos(600));
            }
        }
    }
}

/// Hosts that are ahead of their devices wait at an exchange for the slowest: issuing it counts
/// besides what its links take, as a whole and as a bound.
#[test]
fn issuing_an_exchange_stands_before_it() {
    let mut program = sample::program(2, 8);
    let plan = sample::plan(Rule::Sync, Placement::Accumulate, Order::Sequential, 1, 1);
    let plan = plan.with_tensor(Tensor { rows: 2, ..Tensor::WHOLE });
    let schedule = lower(&program, &plan).unwrap();
    let exchanges = |call: &&Call| Kernels.exchange(call, Float::F32).is_some();
    let calls = schedule.routines.values().flat_map(|routine| &routine.calls);
    let calls: Vec<Call> = calls.filter(exchanges).cloned().collect();
    let mut floor = |issue| {
        for (_, device) in program.target.devices.iter_mut() {
            device.issue = Nanos(issue);
        }
        let costs = Costs::new(&program);
        let calls = costs.priced(&calls).unwrap();
        let calls: Vec<_> = calls.into_iter().map(|call| (call, 1)).collect();
        costs.floor(&calls).time()
    };
    let (wires, count) = (floor(0), calls.len() as u64);
    assert!(wires > Nanos(0) && count > 0);
    for issue in [1, 2_000, 1_000_000] {
        assert_eq!(floor(issue), wires + Nanos(issue * count));
    }
}

/// As many as its numbers have, where gradients are summed in 32 bits: half of these in 16.
#[test]
fn an_exchange_takes_the_bytes_that_its_schedule_counts() {
    let mut program = sample::program(2, 8);
    program.train.dtype = Float::Bf16(GradientSums::F32);
    for (element, bytes) in [(Element::Real, 2), (Element::Wide, 4)] {
        let operand = |columns| Operand {
            argument: 0,
            offset: Bytes(0),
            element,
            shape: [3, columns][..].into(),
        };
        let call = Call {
            kernel: "reduce_scatter".into(),
            attributes: [
                ("parts".into(), Attribute::Integer(2)),
                ("accumulate".into(), Attribute::Flag(true)),
            ]
            .into_iter()
            .collect(),
            operands: [10, 5].map(operand).into(),
        };
        let costs = Costs::new(&program);
        let priced = costs.priced(std::slice::from_ref(&call)).unwrap();
        let counted = Kernels.exchange(&call, program.train.dtype);
        let whole = counted.map(|exchanged| exchanged.whole);
        assert_eq!(whole, Some(Bytes(bytes * 3 * 10)));
        assert_eq!(priced[0].exchange, counted);
    }
}

fn priced(program: &Program) -> Schedule {
    let plan = sample::plan(Rule::CyclicV2, Placement::Data, Order::Cyclic, 2, 2);
    let mut schedule = lower(program, &plan).unwrap();
    price(&mut schedule, program).unwrap();
    schedule
}

#[test]
fn a_routine_takes_as_long_as_on_the_slowest_device_that_launches_it() {
    let mut program = sample::program(2, 4);
    let even = priced(&program);
    let slow = &mut program.target.devices[DeviceId::new(1)];
    slow.compute = FlopsPerSecond(slow.compute.0 / 3);
    let slow = slow.clone();
    let uneven = priced(&program);
    let costs = Costs::new(&program);
    let total = |calls: &[Call]| -> Nanos {
        let calls = costs.priced(calls).unwrap();
        calls.iter().map(|call| roofline(call.footprint, &slow)).sum()
    };
    for (before, after) in even.routines.values().zip(uneven.routines.values()) {
        assert!(before.predicted > Nanos(0) && before.predicted <= after.predicted);
        if matches!(after.pass, Pass::Forward | Pass::Backward) {
            assert!(after.predicted <= total(&after.calls));
        }
    }
    let forward = uneven.routines.values().find(|row| row.pass == Pass::Forward);
    let forward = forward.unwrap();
    assert_eq!(forward.predicted, total(&forward.calls));
}

/// Small calls take what issuing them takes, large ones hide it; both as a whole and as a bound.
#[test]
fn a_routine_takes_no_less_than_issuing_its_calls() {
    let mut program = sample::program(2, 4);
    let times = |program: &Program| -> Vec<Nanos> {
        priced(program).routines.values().map(|routine| routine.predicted).collect()
    };
    for issue in [1, 2_000, 1_000_000] {
        for (_, device) in program.target.devices.iter_mut() {
            device.issue = Nanos(issue);
        }
        let costs = Costs::new(&program);
        let device = program.target.devices[DeviceId::new(0)].clone();
        let no_less = |call: &Priced| roofline(call.footprint, &device).max(Nanos(issue));
        let expected = priced(&program);
        let expected = expected.routines.values().map(|routine| -> Nanos {
            costs.priced(&routine.calls).unwrap().iter().map(no_less).sum()
        });
        assert_eq!(times(&program), expected.collect::<Vec<_>>(), "{issue}");
        for routine in priced(&program).routines.values() {
            let calls = costs.priced(&routine.calls).unwrap();
            let calls: Vec<_> = calls.into_iter().map(|call| (call, 1)).collect();
            assert_eq!(costs.floor(&calls).time(), routine.predicted);
            assert!(costs.part(On::Any, &calls) <= routine.predicted);
        }
    }
}

#[test]
fn more_work_never_takes_less_and_a_faster_device_never_takes_more() {
    let mut random = Random::new(3);
    for _ in 0..500 {
        let mut draw = || random.below(1_000_000);
        let device = Device {
            compute: FlopsPerSecond(1 + draw()),
            bandwidth: BytesPerSecond(1 + draw()),
            overhead: Nanos(draw()),
            products: Products {
                ramp: Nanos(draw()),
                attention: Thousandths(300),
                unaligned: Thousandths(200),
            },
            updates: Thousandths(u32::try_from(1 + draw()).unwrap()),
            losses: Thousandths(u32::try_from(1 + draw()).unwrap()),
            ..device()
        };
        let products = [Unit::Product, Unit::Unaligned, Unit::Attention];
        for unit in products.into_iter().chain([Unit::Vector, Unit::Update, Unit::Loss]) {
            let small = footprint(draw(), draw(), unit);
            let flops = small.flops + Flops(draw());
            let large = Footprint { flops, bytes: small.bytes + Bytes(draw()), unit };
            assert!(roofline(small, &device) <= roofline(large, &device));
            let slower = Device { compute: FlopsPerSecond(1), ..device.clone() };
            assert!(roofline(small, &device) <= roofline(small, &slower));
            let ideal = Device { products: Products::default(), ..device.clone() };
            assert!(roofline(small, &ideal) <= roofline(small, &device));
        }
    }
}

/// Rows for a share of the calls of some routines, drawn at random.
fn rows(random: &mut Random, schedule: &Schedule, busy: u32) -> Vec<CallTime> {
    let calls = schedule.routines.values().flat_map(|routine| &routine.calls);
    let texts: BTreeMap<String, &Call> = calls.map(|call| (call.text(), call)).collect();
    let mut rows = Vec::new();
    for (text, call) in texts {
        if random.below(3) > 0 {
            let footprint = Kernel::parse(call).unwrap().footprint(Float::F32);
            rows.push(CallTime {
                busy,
                nanos: Nanos(1 + random.below(100_000)),
                samples: 1,
                spread: 0.0,
                flops: footprint.flops,
                bytes: footprint.bytes,
                call: text,
            });
        }
    }
    rows
}

/// A program whose devices have a table of some of the calls of a schedule.
pub(crate) fn measured(random: &mut Random, devices: usize) -> Program {
    let mut program = sample::program(devices, 8);
    let schedule = priced(&program);
    let mut all = rows(random, &schedule, 1);
    all.extend(rows(random, &schedule, 2));
    let profile = Arc::new(sample::profile(all));
    let ids: Vec<DeviceId> = program.target.devices.ids().collect();
    program.profiles = ids.into_iter().map(|id| (id, Arc::clone(&profile))).collect();
    program
}

#[test]
fn no_device_is_below_the_floor() {
    let mut random = Random::new(23);
    for round in 0..40 {
        let mut program = measured(&mut random, 2);
        if round % 2 == 0 {
            program.profiles.remove(&DeviceId::new(1));
        }
        let costs = Costs::new(&program);
        let schedule = priced(&program);
        for routine in schedule.routines.values() {
            let calls = costs.priced(&routine.calls).unwrap();
            let needed = vec![Vec::new(); calls.len() + 1];
            for busy in 1..4 {
                let busy: Vec<_> = (0..busy).map(DeviceId::new).collect();
                for device in [0, 1].map(DeviceId::new) {
                    let kinds = [costs.of[device]].into();
                    let (time, _) = costs.slowest(&kinds, (&calls, &needed), &busy);
                    let each: Vec<_> =
                        calls.iter().map(|call| (call.clone(), 1)).collect();
                    assert!(costs.floor(&each).time() <= time);
                }
            }
        }
    }
}

#[test]
fn a_schedule_says_where_its_times_come_from() {
    let mut program = sample::program(2, 4);
    let plan = sample::plan(Rule::CyclicV2, Placement::Data, Order::Cyclic, 2, 2);
    let mut schedule = lower(&program, &plan).unwrap();
    let guessed = price(&mut schedule, &program).unwrap();
    assert_eq!((guessed.measured, guessed.scaled), (0, 0));
    let calls: usize = schedule.routines.values().map(|row| row.calls.len()).sum();
    assert!(guessed.guessed > 0 && guessed.guessed <= calls);
    let footprint = footprint(1, 1, Unit::Vector);
    let row = |call: &Call| CallTime {
        busy: 2,
        nanos: Nanos(5),
        samples: 1,
        spread: 0.0,
        flops: footprint.flops,
        bytes: footprint.bytes,
        call: call.text(),
    };
    let one = schedule.routines.values().find(|row| row.pass == Pass::Forward).unwrap();
    let profile = Arc::new(sample::profile(vec![row(&one.calls[0])]));
    for id in [0, 1].map(DeviceId::new) {
        program.profiles.insert(id, Arc::clone(&profile));
    }
    let told = price(&mut schedule, &program).unwrap();
    assert!(told.measured > 0 && told.guessed > 0, "{told}");
    assert_eq!(told.measured + told.scaled + told.guessed, guessed.guessed);
}

/// Later micro-batches of a sum add to it, and a table may say that this takes less than to write it.
#[test]
fn nodes_are_bounded_by_the_faster_of_writing_and_adding() {
    let operand = |rows| Operand {
        argument: 0,
        offset: Bytes(0),
        element: Element::Real,
        shape: [rows, 4][..].into(),
    };
    let written = Call {
        kernel: "matmul".into(),
        attributes: Constants::default(),
        operands: vec![operand(3), operand(4), operand(3)],
    };
    let mut added = written.clone();
    added.attributes.insert("accumulate".into(), Attribute::Flag(true));
    let row = |(call, nanos): (&Call, u64)| CallTime {
        busy: 1,
        nanos: Nanos(nanos),
        samples: 1,
        spread: 0.0,
        flops: Flops(1),
        bytes: Bytes(1),
        call: call.text(),
    };
    for [writing, adding] in [[900, 500], [500, 900]] {
        let mut program = sample::program(1, 8);
        let rows = [(&written, writing), (&added, adding)].map(row);
        let profile = Arc::new(sample::profile(rows.to_vec()));
        program.profiles.insert(DeviceId::new(0), profile);
        let costs = Costs::new(&program);
        let part = |calls: Vec<Priced>| {
            let calls: Vec<_> = calls.into_iter().map(|call| (call, 1)).collect();
            costs.part(On::Any, &calls)
        };
        assert_eq!(part(costs.surely_priced([&written]).unwrap()), Nanos(500));
        assert_eq!(part(costs.priced([&written]).unwrap()), Nanos(writing));
    }
}
