//! The golden tables of cyclic data parallelism (arXiv 2403.08837), on compiled schedules that
//! ran on the clock with one time step per pass. Tables count from one, as in the paper.

use crate::support::{plan, program};
use roundelay_codegen::lower;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    BytesPerSecond, Checked, Content, DeviceId, Id, Nanos, Order, Pass, PhysicalQueue,
    Placement, Plan, Rule, States, Subject, Task, Work, check, simulate,
};
use std::collections::{BTreeMap, BTreeSet};

/// One time step, long against the nanosecond that a message is rounded up to.
const STEP: u64 = 1_000_000;

/// One pass of the steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// Time step; worker 1 starts its pass of training step t at 2Nt.
    time: i64,
    pass: Pass,
    stage: i64,
    worker: i64,
    step: i64,
    device: DeviceId,
}

/// Compiles S = N stages with one time step per pass and messages that take none.
fn compiled(rule: Rule, placement: Placement, states: States, n: u32) -> Checked {
    timed(&plan((rule, placement, Order::Cyclic, states), n, n))
}

/// Compiles a plan in the same way.
fn timed(plan: &Plan) -> Checked {
    let program = program(plan.stages, plan.all_micro_batches());
    let mut schedule = lower(&program, plan).unwrap();
    for (_, routine) in schedule.routines.iter_mut() {
        routine.predicted = match routine.pass {
            Pass::Forward | Pass::Backward => Nanos(STEP),
            Pass::InputGradient | Pass::WeightGradient => Nanos(STEP / 2),
            Pass::Combine | Pass::Norm | Pass::Update => Nanos(0),
        };
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = Nanos(0);
    }
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// All passes and updates of a long run, timed so that worker 1 starts step `origin` at
/// 2N · `origin`.
fn events(schedule: &Checked, n: u32) -> Vec<Event> {
    let origin = 12;
    let timeline = simulate(schedule, 24);
    let mut events = Vec::new();
    for entry in timeline.entries() {
        let PhysicalQueue::Lane(device, _) = entry.queue else { continue };
        let Some(task) = schedule.task(&schedule.actions[entry.action]) else { continue };
        events.push(Event {
            time: ((entry.start.0 + STEP / 2) / STEP) as i64,
            pass: task.pass,
            stage: task.stage.index() as i64 + 1,
            worker: task.micro_batch.map_or(0, |i| i.index() as i64 + 1),
            step: entry.step,
            device,
        });
    }
    let starts = |e: &&Event| {
        e.pass == Pass::Forward && (e.stage, e.worker, e.step) == (1, 1, origin)
    };
    let shift = 2 * i64::from(n) * origin - events.iter().find(starts).unwrap().time;
    events.iter_mut().for_each(|event| event.time += shift);
    events
}

fn steady(n: i64) -> impl Fn(&&Event) -> bool {
    move |event| (2 * n * 12..2 * n * 16).contains(&event.time)
}

fn passes(event: &&Event) -> bool {
    matches!(event.pass, Pass::Forward | Pass::Backward)
}

/// The rows of one period: `F2`, or `B1'` while a worker is still in its previous pass.
fn rows(events: &[Event], n: i64) -> Vec<String> {
    let of = |worker: i64| {
        let own = events.iter().filter(passes).filter(|e| e.worker == worker);
        let mut own: Vec<&Event> =
            own.filter(|e| (2 * n * 14..2 * n * 15).contains(&e.time)).collect();
        own.sort();
        let cell = |e: &&Event| {
            format!("{}{}{}", e.pass, e.stage, if e.step < 14 { "'" } else { "" })
        };
        format!("W{worker} {}", own.iter().map(cell).collect::<Vec<_>>().join(" "))
    };
    (1..=n).map(of).collect()
}

#[test]
fn the_timeline_of_three_and_four_workers() {
    let three =
        ["W1 F1 F2 F3 B3 B2 B1", "W2 B2' B1' F1 F2 F3 B3", "W3 F3' B3' B2' B1' F1 F2"];
    let four = [
        "W1 F1 F2 F3 F4 B4 B3 B2 B1",
        "W2 B2' B1' F1 F2 F3 F4 B4 B3",
        "W3 B4' B3' B2' B1' F1 F2 F3 F4",
        "W4 F3' F4' B4' B3' B2' B1' F1 F2",
    ];
    for (placement, states) in [
        (Placement::Data, States::Handoff),
        (Placement::Shared, States::Replicated),
        (Placement::Pipeline, States::Replicated),
    ] {
        let table = |n| {
            let schedule = compiled(Rule::CyclicV2, placement, states, n);
            rows(&events(&schedule, n), i64::from(n))
        };
        assert_eq!(table(3), three, "{placement}");
        assert_eq!(table(4), four, "{placement}");
    }
}

#[test]
fn each_stage_has_exactly_one_user_at_every_time_step() {
    for n in 2..=8 {
        let schedule = compiled(Rule::CyclicV2, Placement::Data, States::Handoff, n);
        let mut users = BTreeMap::<i64, BTreeSet<i64>>::new();
        let size = i64::from(n);
        for event in events(&schedule, n).iter().filter(passes).filter(steady(size)) {
            assert!(users.entry(event.time).or_default().insert(event.stage));
        }
        assert_eq!(users.len() as i64, 8 * size);
        assert!(users.values().all(|stages| stages.len() as i64 == size), "N = {n}");
    }
}

#[test]
fn live_counts_are_n_minus_j_plus_one() {
    for n in 2..=8 {
        let size = i64::from(n);
        for placement in [Placement::Shared, Placement::Pipeline] {
            let schedule = compiled(Rule::CyclicV2, placement, States::Replicated, n);
            let events = events(&schedule, n);
            for time in 2 * size * 13..2 * size * 14 {
                for stage in 1..=size {
                    let live = in_flight(&events, stage, time);
                    assert_eq!(live, size - stage + 1, "N = {n}, {placement}, {time}");
                }
            }
        }
    }
}

/// Micro-batches of a stage at a time step whose backward pass is not over.
fn in_flight(events: &[Event], stage: i64, time: i64) -> i64 {
    let own = || events.iter().filter(|e| e.stage == stage);
    let begun = own().filter(|e| e.pass == Pass::Forward && e.time <= time);
    let over = own().filter(|e| e.pass == Pass::Backward && e.time < time);
    begun.count() as i64 - over.count() as i64
}

#[test]
fn fresh_and_stale_maps() {
    let map = |rule: Rule, n: u32| -> Vec<String> {
        let schedule = compiled(rule, Placement::Shared, States::Replicated, n);
        let cell = |i, j| if schedule.plan.delays.delay(i, j) == 0 { 'f' } else { 's' };
        let n = n as usize;
        (0..n).map(|i| (0..n).map(|j| cell(i, j)).collect()).collect()
    };
    assert_eq!(map(Rule::CyclicV2, 3), ["ssf", "sff", "fff"]);
    assert_eq!(map(Rule::CyclicV2, 4), ["sssf", "ssff", "sfff", "ffff"]);
    assert_eq!(map(Rule::CyclicV1, 3), ["sss"; 3]);
    for n in 2..=8u32 {
        let stale = compiled(Rule::CyclicV2, Placement::Data, States::Replicated, n);
        let expected = (n * (n - 1) / 2, n * n);
        let (found, all) = stale.plan.delays.stale();
        assert_eq!((found as u32, all as u32), expected);
    }
}

/// Which worker's pass a device of a pool runs at a time step, `.` while it holds activations.
fn pool_rows(schedule: &Checked, n: u32, times: std::ops::Range<i64>) -> Vec<String> {
    let events = events(schedule, n);
    let shift = 2 * i64::from(n) * 12;
    let mut rows = Vec::new();
    for (stage, (_, ring)) in (1..).zip(schedule.rings.iter()) {
        for device in &ring.devices {
            let of = |time: i64| cell(&events, *device, shift + time);
            let cells: Vec<String> = times.clone().map(of).collect();
            rows.push(format!("S{stage} {}", cells.join(" ")));
        }
    }
    rows.sort();
    rows
}

fn cell(events: &[Event], device: DeviceId, time: i64) -> String {
    let own = || events.iter().filter(passes).filter(|e| e.device == device);
    if let Some(now) = own().find(|e| e.time == time) {
        return format!("{}{}", now.worker, now.pass);
    }
    let holder = own().filter(|e| e.time < time).max_by_key(|e| e.time);
    format!("{}.", holder.map_or(0, |e| e.worker))
}

/// The paper's pools start where step 12 starts here, for N = 3, 4: the pattern of a pool
/// repeats after lcm(N, L) micro-batches, which divides 12 N.
#[test]
fn pools_hand_over_without_a_gap() {
    let rows = |n, times| {
        let schedule = compiled(Rule::CyclicV2, Placement::Shared, States::Replicated, n);
        pool_rows(&schedule, n, times)
    };
    let three = [
        "S1 1F 1. 1. 1. 1. 1B",
        "S1 2. 2B 2F 2. 2. 2.",
        "S1 3. 3. 3. 3B 3F 3.",
        "S2 2B 1F 1. 1. 1B 3F",
        "S2 3. 3. 3B 2F 2. 2.",
        "S3 3F 3B 1F 1B 2F 2B",
    ];
    assert_eq!(rows(3, 0..6), three);
    let four = [
        "S1 1F 1. 1. 1. 1. 1. 1. 1B",
        "S1 2. 2B 2F 2. 2. 2. 2. 2.",
        "S1 3. 3. 3. 3B 3F 3. 3. 3.",
        "S1 4. 4. 4. 4. 4. 4B 4F 4.",
        "S2 2B 1F 1. 1. 1. 1. 1B 4F",
        "S2 3. 3. 3B 2F 2. 2. 2. 2.",
        "S2 4. 4. 4. 4. 4B 3F 3. 3.",
        "S3 3. 3B 1F 1. 1. 1B 3F 3.",
        "S3 4F 4. 4. 4B 2F 2. 2. 2B",
        "S4 3B 4F 4B 1F 1B 2F 2B 3F",
    ];
    assert_eq!(rows(4, 0..8), four);
}

#[test]
fn pools_use_micro_batch_number_modulo_their_length() {
    for n in 2..=8u32 {
        let schedule = compiled(Rule::CyclicV2, Placement::Shared, States::Replicated, n);
        for event in events(&schedule, n).iter().filter(passes) {
            let ring = schedule.rings.values().nth(event.stage as usize - 1).unwrap();
            let number = event.step * i64::from(n) + event.worker - 1;
            let index = number.rem_euclid(ring.devices.len() as i64) as usize;
            assert_eq!(event.device, ring.devices[index]);
            assert_eq!(ring.devices.len() as i64, i64::from(n) - event.stage + 1);
        }
        assert_eq!(schedule.plan.devices.len() as u32, n * (n + 1) / 2);
    }
}

/// A message between workers after a time step: from, to, stage.
type Message = (i64, i64, i64);

/// Who sends a stage, or its whole gradient sum, to whom after each time step of one period, in
/// list order; on the clock a message may start earlier, when its row is free.
fn messages(schedule: &Checked, n: i64) -> BTreeMap<i64, BTreeSet<Message>> {
    let mut all = BTreeMap::<i64, BTreeSet<Message>>::new();
    let mut time = -1;
    for action in schedule.actions.values() {
        if let Some(Task { pass, stage, micro_batch: Some(i) }) = schedule.task(action) {
            let (i, j) = (i.index() as i64, stage.index() as i64);
            let step = if pass == Pass::Forward { j } else { 2 * n - 1 - j };
            time = (2 * i + step) % (2 * n);
        }
        let Work::Transfer { from, to, content, .. } = &action.work else { continue };
        let Some(stage) = carried(content, n) else { continue };
        let worker = |place: roundelay_schedule::Place| place.ring.index() as i64 + 1;
        let message = (worker(from.at), worker(to.at), stage);
        assert!(all.entry(time).or_default().insert(message), "{message:?} goes once");
    }
    all
}

fn carried(content: &Content, n: i64) -> Option<i64> {
    match content {
        Content::Parameter(stage) => Some(stage.index() as i64 + 1),
        Content::Gradient(stage, sum) => {
            let whole = sum.count() as i64 == n;
            whole.then_some(stage.index() as i64 + 1)
        }
        Content::Optimizer(_)
        | Content::Squares(..)
        | Content::Value(..)
        | Content::ValueGradient(..) => None,
    }
}

/// The hand-over rule from closed forms: a stage goes from the last user of a version to its next
/// user, but the owner, worker N + 1 − j, keeps the version that it made; the last worker sends
/// it the whole sum.
fn expected_messages(n: i64) -> BTreeMap<i64, BTreeSet<Message>> {
    let mut all = BTreeMap::<i64, BTreeSet<Message>>::new();
    for (stage, version) in (1..=n).flat_map(|j| (-3..3).map(move |v| (j, v))) {
        let owner = n + 1 - stage;
        let mut users = Vec::new();
        for worker in 1..=n {
            let step = version + i64::from(worker + stage < n + 1);
            let start = 2 * n * step + 2 * (worker - 1);
            users.push((start + stage - 1, worker));
            users.push((start + 2 * n - stage, worker));
        }
        users.sort_unstable();
        let hops = users.windows(2).map(|pair| (pair[0].0, pair[0].1, pair[1].1));
        let hops = hops.filter(|(_, from, to)| from != to && *to != owner);
        let sum = (2 * n * version + 4 * n - 2 - stage, n, owner);
        for (time, from, to) in hops.chain((owner != n).then_some(sum)) {
            if (0..2 * n).contains(&time) {
                all.entry(time).or_default().insert((from, to, stage));
            }
        }
    }
    all
}

#[test]
fn handoff_exchanges_follow_the_versions() {
    for n in 2..=6 {
        let schedule =
            compiled(Rule::CyclicV2, Placement::Data, States::Handoff, n as u32);
        assert_eq!(messages(&schedule, n), expected_messages(n), "N = {n}");
    }
}

#[test]
fn handoff_sends_as_much_as_zero3() {
    for n in 2..=8u32 {
        let schedule = compiled(Rule::CyclicV2, Placement::Data, States::Handoff, n);
        let count = |wanted: fn(&Content) -> bool| {
            let hit = |action: &&roundelay_schedule::Action| matches!(&action.work, Work::Transfer { content, .. } if wanted(content));
            schedule.actions.values().filter(hit).count() as u32
        };
        let parameters = count(|content| matches!(content, Content::Parameter(_)));
        let sums = count(|content| matches!(content, Content::Gradient(..)));
        assert_eq!(parameters + (n - 1), 2 * n * (n - 1), "with the whole sums, N = {n}");
        assert_eq!(parameters + sums, 3 * n * (n - 1), "stage messages, N = {n}");
    }
}

#[test]
fn owners_update_when_the_last_gradient_is_there() {
    for n in 2..=8u32 {
        let schedule = compiled(Rule::CyclicV2, Placement::Data, States::Handoff, n);
        let size = i64::from(n);
        let events = events(&schedule, n);
        for event in events.iter().filter(|e| e.pass == Pass::Update).filter(steady(size))
        {
            let owner = event.device.index() as i64 + 1;
            assert_eq!(owner, size + 1 - event.stage, "N = {n}");
            let possible = 2 * size * event.step + 4 * size - 2 - event.stage;
            assert_eq!(event.time, possible + 1, "N = {n}, stage {}", event.stage);
        }
    }
}

/// PipeDream (arXiv 1806.03377) is a flush-free pipeline of which every micro-batch is a step of its
/// own: a stage is updated after each backward pass, keeps the version that each micro-batch in
/// flight began with, and is late by as many updates as there are stages behind it.
#[test]
fn one_micro_batch_a_step_is_pipe_dream() {
    let kind = (Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, States::Replicated);
    let schedule = timed(&plan(kind, 1, 8));
    let delays: Vec<u32> =
        (0..8).map(|stage| schedule.plan.delays.delay(0, stage)).collect();
    assert_eq!(delays, [7, 6, 5, 4, 3, 2, 1, 0]);
    let mut versions = BTreeMap::new();
    for buffer in schedule.buffers.values() {
        if let Subject::Parameter(stage, _) = buffer.subject {
            versions.insert(stage, buffer.slots);
        }
    }
    assert_eq!(versions.into_values().collect::<Vec<_>>(), [8, 7, 6, 5, 4, 3, 2, 1]);
    let events = events(&schedule, 1);
    for time in 2 * 12..2 * 16 {
        let live: Vec<i64> =
            (1..=8).map(|stage| in_flight(&events, stage, time)).collect();
        assert_eq!(live, [8, 7, 6, 5, 4, 3, 2, 1], "{time}");
        let busy = events.iter().filter(passes).filter(|e| e.time == time).count();
        assert_eq!(busy, 8, "no device is idle at {time}");
    }
}
