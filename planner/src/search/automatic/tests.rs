//! Found orders as plans: golden numbers of arXiv 2401.10241 on compiled schedules that ran on the
//! clock, and what holds of every program.

use super::{
    pipe::{Half, Kept, Passes, Rooms, StageHalves},
    *,
};
use roundelay_codegen::lower;
use roundelay_dsl::{NoFiles, SourceFile, parse};
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Bytes, BytesPerSecond, Checked, DeviceId, DeviceList, Id, Nanos, Pass, PhysicalQueue,
    Placement, Recompute, Rule, Sequence, States, Tensor, check, listed_in, lists_of,
    plan_faults, simulate, simulate_steady,
};
use std::collections::BTreeMap;

/// `layers` square layers of one width and a mean squared error, on as many devices.
fn program(layers: usize, batch: usize) -> Program {
    let body = vec!["x = linear(x, 16, bias = false)"; layers].join("\n");
    let text = format!(
        "model layers {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = features
            {body}
            loss mse(x, wanted)
        }}
        device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        link bus {{ bandwidth 1 GB/s, latency 1 us }}
        cluster many {{ {layers} x core joined by bus }}
        train {{
            data synthetic
            batch {batch}
            optimizer sgd(lr = 1e-2)
            steps 6
        }}"
    );
    parse(&SourceFile::new("test.rdl", text.as_str()), &NoFiles).unwrap().0
}

fn plan(order: Order, p: usize, n: usize) -> Plan {
    let (p, n) = (u32::try_from(p).unwrap(), u32::try_from(n).unwrap());
    let (rule, placement) = (Rule::Sync, Placement::Pipeline);
    Plan::new(rule, placement, order, States::Replicated, n, (1..p).collect())
}

/// The order of a plan's lists as passes of its devices.
fn passes(lists: &[DeviceList]) -> Passes {
    let half = |pass| match pass {
        Pass::Forward => Half::Forward,
        Pass::WeightGradient => Half::Weight,
        Pass::Backward
        | Pass::InputGradient
        | Pass::Combine
        | Pass::Norm
        | Pass::Update => Half::Input,
    };
    let each = lists.iter();
    each.map(|list| listed_in(list).map(|listed| half(listed.pass)).collect()).collect()
}

/// p equal stages: F, I, W and messages; what is kept between F and I, and F and W; room for so
/// much at one time.
pub(super) fn equal(
    (p, m): (usize, usize),
    [forward, input, weight, message]: [u64; 4],
    [activation, retained]: [u64; 2],
    room: u64,
) -> Limited {
    let kept = Kept {
        activation: Bytes(activation),
        retained: Bytes(retained),
        adjoint: Bytes(0),
    };
    let stage = StageHalves {
        forward: Nanos(forward),
        input: Nanos(input),
        weight: Nanos(weight),
        down: Nanos(message),
        up: Nanos(message),
        kept,
        ..StageHalves::default()
    };
    let pipe = Pipe { stages: vec![stage; p], micro_batches: m };
    Limited { pipe, rooms: Rooms::Live(vec![Bytes(room); p]) }
}

/// The longest time from the first to the last pass of one device when the order that is found
/// for a pipeline has been compiled, and runs on the clock from rest.
fn stage_span(limited: &Limited) -> u64 {
    let pipe = &limited.pipe;
    let (_, found) = find::find(limited, Aim::Time, &[]).unwrap();
    let (p, m) = (pipe.devices(), pipe.micro_batches);
    let lists = lists(&found);
    let plan = Plan { lists, ..plan(Order::ZeroBubbleAuto, p, m) };
    let mut schedule = lower(&program(p, m), &plan).unwrap();
    for (_, routine) in schedule.routines.iter_mut() {
        let stage = &pipe.stages[routine.stage.index()];
        routine.predicted = match routine.pass {
            Pass::Forward => stage.forward,
            Pass::InputGradient => stage.input,
            Pass::WeightGradient => stage.weight,
            Pass::Backward | Pass::Combine | Pass::Norm | Pass::Update => Nanos(0),
        };
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = pipe.stages[0].down;
    }
    let checked = check(schedule, &Kernels).unwrap();
    assert!(limited.fits(&passes(&lists_of(&checked).unwrap())), "what runs has room");
    let (span, step) = (longest(&checked), simulate_steady(&checked));
    // Devices pass from step to step each in its own time, so in the steady state nothing else
    // is lost; messages are rounded up to whole nanoseconds.
    assert!(step.step_time().0 <= span + 1000, "{} of {span}", step.step_time());
    span
}

fn longest(checked: &Checked) -> u64 {
    let mut devices: BTreeMap<DeviceId, (u64, u64)> = BTreeMap::new();
    for entry in simulate(checked, 1).entries() {
        let PhysicalQueue::Lane(device, _) = entry.queue else { continue };
        let task = checked.task(&checked.actions[entry.action]).unwrap();
        if task.micro_batch.is_some() {
            let ends = devices.entry(device).or_insert((u64::MAX, 0));
            *ends = (ends.0.min(entry.start.0), ends.1.max(entry.end.0));
        }
    }
    devices.values().map(|(first, last)| last - first).max().unwrap()
}

/// F = I = 10, W = 6, messages 0.5; I and W give back half of the activations each; room for 1,
/// 1.5 and 2 times p micro-batches. The golden numbers are those of the public search.
#[test]
fn memory_limited_searches() {
    const UNIT: u64 = 1_000_000;
    for (p, m, golden) in [(4, 12, [360, 325, 315]), (8, 24, [736, 661, 639])] {
        for (halves, golden) in [2, 3, 4].into_iter().zip(golden) {
            let times = [10 * UNIT, 10 * UNIT, 6 * UNIT, UNIT / 2];
            let pipe = equal((p, m), times, [1, 1], p as u64 * halves);
            let found = stage_span(&pipe) as f64 / UNIT as f64;
            // Each message is rounded up to a whole nanosecond more.
            assert!(found < golden as f64 + 0.01, "p = {p}, {halves}: {found}, {golden}");
        }
    }
}

/// ZB-1p and ZB-2p with the profiled times of the paper's table 5, and activations of 34 h + 5 a s
/// and 32 h per token until W.
#[test]
fn bubble_rates_of_profiled_models() {
    for (p, m, times, hidden, heads, rates) in [
        (8, 24, [18522, 18086, 9337, 601], 2304, 24, [0.1585, 0.0433]),
        (8, 64, [18522, 18086, 9337, 601], 2304, 24, [0.0660, 0.0018]),
        (8, 24, [29718, 29444, 19927, 527], 4096, 32, [0.1323, 0.0029]),
        (16, 48, [11347, 11248, 8132, 377], 5120, 40, [0.1397, 0.0066]),
        (32, 96, [10419, 10207, 7715, 408], 6144, 48, [0.1421, 0.0038]),
    ] {
        let (retained, all) = (32 * hidden, 34 * hidden + 5 * heads * 1024);
        for (times_p, rate) in [1, 2].into_iter().zip(rates) {
            let room = all * p as u64 * times_p;
            let nanos = times.map(|micro: u64| micro * 1000);
            let pipe = equal((p, m), nanos, [all - retained, retained], room);
            let work = (nanos[0] + nanos[1] + nanos[2]) * m as u64;
            let found = stage_span(&pipe);
            let idle = (found - work) as f64 / found as f64;
            assert!(idle < rate + 6e-5, "p = {p}, m = {m}, {times_p}: {idle:.5}, {rate}");
        }
    }
}

#[test]
fn a_plan_gets_lists_that_fit_and_are_the_same_every_time() {
    let program = program(4, 16);
    for n in [1, 3, 4, 8, 16] {
        let n = if 16 % n == 0 { n } else { 2 };
        for order in [Order::ZeroBubbleOneP, Order::ZeroBubbleTwoP, Order::ZeroBubbleAuto]
        {
            let bare = plan(order, 4, n);
            let found = with_found_lists(&program, &bare).unwrap();
            assert_eq!(plan_faults(&found), [], "{order}, {n}");
            assert_eq!(with_found_lists(&program, &bare), Ok(found.clone()));
            assert_eq!(with_found_lists(&program, &found), Ok(found.clone()));
            check(lower(&program, &found).unwrap(), &Kernels).unwrap();
        }
    }
    let other = plan(Order::ZeroBubbleH1, 4, 8);
    assert_eq!(with_found_lists(&program, &other), Ok(other));
}

/// What the clock says of a plan in the steady state, and the largest arena.
fn clocked(program: &Program, plan: &Plan) -> (Nanos, Bytes) {
    let mut schedule = lower(program, plan).unwrap();
    calls::price(&mut schedule, program).unwrap();
    let checked = check(schedule, &Kernels).unwrap();
    let arenas = plan.devices.iter().map(|device| checked.arena(*device));
    let time = simulate_steady(&checked).step_time();
    (time, arenas.max().unwrap())
}

/// Down to what a device needs for one micro-batch after another; where `zb_h1` fits, it is no
/// faster.
#[test]
fn found_orders_take_the_memory_that_there_is() {
    let mut program = program(4, 512);
    let (step, arena) = clocked(&program, &plan(Order::ZeroBubbleH1, 4, 8));
    let mut before: Option<(Nanos, Bytes)> = None;
    for percent in [90, 100, 120, 150, 200] {
        let limit = Bytes(arena.0 * percent / 100);
        program.search.memory = Some(limit);
        let found =
            with_found_lists(&program, &plan(Order::ZeroBubbleAuto, 4, 8)).unwrap();
        let (time, most) = clocked(&program, &found);
        assert!(most <= limit, "{percent}: {most} of {limit}");
        assert!(percent < 100 || time <= step, "{percent}: {time}, zb_h1 takes {step}");
        assert!(before.is_none_or(|(before, _)| time <= before), "{percent}: {time}");
        before = Some((time, most));
    }
}

/// Where messages wait for each other at slow ports, which a pipeline does not know, nor elsewhere.
#[test]
fn the_order_for_all_memory_is_no_slower_than_those_for_less() {
    for bandwidth in [1_000_000_000, 30_000_000, 3_000_000] {
        for (p, n) in [(4, 8), (8, 16)] {
            let mut program = program(p, 512);
            for (_, link) in program.target.links.iter_mut() {
                link.bandwidth = BytesPerSecond(bandwidth);
            }
            let time = |order| {
                let found = with_found_lists(&program, &plan(order, p, n)).unwrap();
                clocked(&program, &found).0
            };
            let auto = time(Order::ZeroBubbleAuto);
            for order in [Order::ZeroBubbleOneP, Order::ZeroBubbleTwoP] {
                assert!(auto <= time(order), "{bandwidth}, {p}, {n}: {auto}, {order}");
            }
        }
    }
}

/// Values that passes read again, to make activations anew, are there for as long.
#[test]
fn orders_that_are_found_have_room_as_they_were_read() {
    for recompute in Recompute::ALL {
        let bare = plan(Order::ZeroBubbleAuto, 4, 8).recomputing(*recompute);
        let mut program = program(4, 512);
        let (_, arena) = clocked(&program, &plain(&bare));
        for percent in [100, 120, 150] {
            program.search.memory = Some(Bytes(arena.0 * percent / 100));
            let mut schedule = lower(&program, &plain(&bare)).unwrap();
            calls::price(&mut schedule, &program).unwrap();
            let pipe = read::pipe(&program, &schedule);
            let (_, passes) = find::find(&pipe, Aim::Time, &[]).unwrap();
            let found = lower(&program, &listed(&bare, &passes)).unwrap();
            let lacking = memory::lacks(&program, &found);
            assert!(lacking.is_empty(), "{recompute}, {percent}: {lacking:?}");
        }
    }
}

/// Where memory counts, `zb_auto` takes little of it, however much there is.
#[test]
fn a_found_order_follows_the_objective() {
    let mut program = program(4, 512);
    let arena = |program: &Program| {
        let bare = plan(Order::ZeroBubbleAuto, 4, 8);
        clocked(program, &with_found_lists(program, &bare).unwrap()).1
    };
    let fast = arena(&program);
    program.search.objective = Objective::Memory;
    let plain = clocked(&program, &plain(&plan(Order::ZeroBubbleAuto, 4, 8))).1;
    assert!(arena(&program) <= plain && plain < fast);
}

/// With split tensors a stage stands for the devices of its rows; what it sends and keeps is told
/// by the first of them.
#[test]
fn a_stage_with_rows_is_read_like_any_other() {
    let program = program(8, 512);
    let tensor = Tensor::rows(2, Sequence::Whole);
    let bare = plan(Order::ZeroBubbleAuto, 4, 8).with_tensor(tensor);
    let mut schedule = lower(&program, &plain(&bare)).unwrap();
    calls::price(&mut schedule, &program).unwrap();
    let Limited { pipe, rooms } = read::pipe(&program, &schedule);
    let (_, senders) = pipe.stages.split_last().unwrap();
    assert!(senders.iter().all(|stage| stage.down > Nanos(0)), "{pipe:?}");
    assert!(pipe.stages[1..].iter().all(|stage| stage.up > Nanos(0)), "{pipe:?}");
    assert!(
        pipe.stages[1..].iter().all(|stage| stage.values != [Bytes(0); 3]),
        "{pipe:?}"
    );
    let Rooms::Slots(rooms) = rooms else { panic!("{rooms:?}") };
    assert!(rooms.len() == 4 && rooms.iter().all(|room| *room > Bytes(0)), "{rooms:?}");
    let found = with_found_lists(&program, &bare).unwrap();
    let (time, _) = clocked(&program, &found);
    assert!(time < clocked(&program, &plain(&bare)).0, "{time}");
}

/// Rooms that end between what two orders take. Habits fill other rooms otherwise, so by chance
/// more may be slower by little.
#[test]
fn more_memory_makes_no_found_order_slower() {
    for (p, n, examples) in [(4, 8, 512), (8, 8, 512), (6, 12, 96), (8, 16, 64)] {
        let mut program = program(p, examples);
        let bare = plan(Order::ZeroBubbleAuto, p, n);
        let (step, arena) = clocked(&program, &plan(Order::ZeroBubbleH1, p, n));
        let mut least: Option<Nanos> = None;
        for percent in (90..180).step_by(3) {
            let limit = Bytes(arena.0 * percent / 100);
            program.search.memory = Some(limit);
            let found = with_found_lists(&program, &bare).unwrap();
            let (time, most) = clocked(&program, &found);
            let told = format!("{p}, {n}, {percent}: {time}, {most} of {limit}");
            assert!(most <= limit, "{told}");
            assert!(percent < 100 || time <= step, "{told}: zb_h1 takes {step}");
            let slower = least.filter(|least| time.0 > least.0 + least.0 / 50);
            assert_eq!(slower, None, "{told}");
            least = least.min(Some(time)).or(Some(time));
        }
    }
}
