//! Laws of the clock on small schedules whose times are computed by hand.

mod steady;

use super::*;
use crate::{
    Axis, AxisId, Buffer, BufferId, BytesPerSecond, Collective, Content, Data, Device,
    Domain, Endless, Evaluation, Float, FlopsPerSecond, Form, Id, Job, Link, Method,
    MicroBatch, Optimizer, Order, Pass, Placement, Plan, Pool, Rate, Recompute,
    Reduction, Rest, Ring, RingId, Routine, RoutineId, Rule, Shared, Stage, States,
    Subject, Target, Thousandths, Timeline, Wait, Way, grid, simulate_steady,
};

/// Devices d0, d1, … with ring r0, r1, … each and 1,000 B/us memory; link x0 with 100 B/us
/// and 7 ns; a buffer of 50 B on every ring.
fn schedule(devices: usize, lanes: u32) -> Schedule {
    Schedule {
        fingerprint: String::new(),
        target: target(devices),
        plan: plan(),
        job: job(),
        axes: Table::new(),
        rings: (0..devices)
            .map(|k| Ring { devices: vec![DeviceId::new(k)], turn: 0, lanes })
            .collect(),
        groups: Table::new(),
        routines: Table::new(),
        buffers: (0..devices).map(|k| buffer(RingId::new(k), 50)).collect(),
        actions: Table::new(),
    }
}

fn target(devices: usize) -> Target {
    let device = |k: usize| Device {
        name: format!("core{k}"),
        pool: crate::PoolId::new(0),
        memory: Bytes(1 << 20),
        compute: FlopsPerSecond(1),
        bandwidth: BytesPerSecond(1_000_000_000),
        updates: Thousandths::ALL,
        losses: Thousandths::ALL,
        threads: 1,
        overhead: Nanos(0),
        issue: Nanos(0),
        products: crate::Products::default(),
        reserved: Bytes(0),
        overlap: Thousandths::NONE,
    };
    let bandwidth = BytesPerSecond(100_000_000);
    let link = Link::plain("bus", bandwidth, Nanos(7));
    Target {
        name: "laptop".to_owned(),
        pools: [Pool { name: "all".to_owned(), capacity: Bytes(1 << 20) }]
            .into_iter()
            .collect(),
        devices: (0..devices).map(device).collect(),
        links: [link].into_iter().collect(),
        domains: vec![Domain { link: LinkId::new(0), devices: 0..16 }],
        host: crate::Host::default(),
    }
}

fn plan() -> Plan {
    Plan {
        rule: Rule::Sync,
        placement: Placement::Pipeline,
        order: Order::Gpipe,
        replicas: 1,
        shards: 1,
        tensor: crate::Tensor::WHOLE,
        stages: 1,
        chunks: 1,
        slices: 1,
        cuts: vec![],
        ties: vec![],
        boundaries: Vec::new(),
        micro_batches: 1,
        states: States::Replicated,
        recompute: vec![Recompute::None],
        reduction: Reduction::Sequential,
        delays: Rule::Sync.delays(Timeline::Workers, 1, 1),
        devices: vec![],
        lists: vec![],
        rewrites: crate::Rewrites::default(),
        maps: crate::MapWays::default(),
    }
}

fn job() -> Job {
    Job {
        model: String::new(),
        data: Data::Synthetic,
        batch: 1,
        seed: 0,
        steps: 1,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Sgd { momentum: 0.0, nesterov: false },
            rate: Rate::Constant(0.1),
            weight_decay: 0.0,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
        inputs: Table::new(),
        metrics: Vec::new(),
        parameters: vec![],
        elements: Table::new(),
    }
}

fn buffer(home: RingId, size: u64) -> Buffer {
    Buffer {
        home,
        subject: Subject::Workspace,
        offset: Bytes(0),
        size: Bytes(size),
        slots: 1,
        turn: 0,
        rest: Rest::Transient,
    }
}

fn place(ring: usize) -> Place {
    Place { ring: RingId::new(ring), place: 0 }
}

fn row(buffer: usize) -> Row {
    Row { buffer: BufferId::new(buffer), place: 0 }
}

fn routine(schedule: &mut Schedule, pass: Pass, stage: usize, nanos: u64) -> RoutineId {
    schedule.routines.push(Routine {
        name: String::new(),
        pass,
        stage: Stage::new(stage),
        arguments: vec![],
        calls: Shared::default(),
        predicted: Nanos(nanos),
    })
}

fn push(schedule: &mut Schedule, work: Work, after: &[(ActionId, u32)]) -> ActionId {
    let wait = |(action, distance): &(ActionId, u32)| Wait {
        action: *action,
        distance: *distance,
    };
    let after = after.iter().map(wait).collect();
    schedule.actions.push(Action { lag: 0, reach: 0, after, work })
}

fn launch(ring: usize, lane: u32, routine: RoutineId, micro_batch: usize) -> Work {
    let micro_batch = Some(MicroBatch::new(micro_batch));
    Work::Launch {
        at: place(ring),
        lane,
        routine,
        micro_batch,
        rows: [].into(),
        beside: None,
    }
}

fn transfer(from: usize, to: usize) -> Work {
    let spot = |k: usize| Spot { at: place(k), row: row(k) };
    let content = Content::Parameter(Stage::new(0));
    Work::Transfer { link: LinkId::new(0), from: spot(from), to: spot(to), content }
}

/// (start, end) of every executed instance, in order of issue.
fn times(schedule: Schedule, steps: u64) -> Vec<(u64, u64)> {
    let checked = Checked::unproven_for_tests(schedule);
    let run = simulate(&checked, steps);
    run.entries().iter().map(|entry| (entry.start.0, entry.end.0)).collect()
}

/// Two stages on two devices, `micro_batches` forward then backward, activations sent on.
fn pipeline(micro_batches: usize, [forward, backward]: [u64; 2]) -> Schedule {
    let mut s = schedule(2, 1);
    let f = [0, 1].map(|stage| routine(&mut s, Pass::Forward, stage, forward));
    let b = [0, 1].map(|stage| routine(&mut s, Pass::Backward, stage, backward));
    let u = [0, 1].map(|stage| routine(&mut s, Pass::Update, stage, 10));
    let mut ahead = Vec::new();
    for i in 0..micro_batches {
        let first = push(&mut s, launch(0, 0, f[0], i), &[]);
        let sent = push(&mut s, transfer(0, 1), &[(first, 0)]);
        ahead.push(push(&mut s, launch(1, 0, f[1], i), &[(sent, 0)]));
    }
    for (i, done) in ahead.iter().enumerate() {
        let last = push(&mut s, launch(1, 0, b[1], i), &[(*done, 0)]);
        let sent = push(&mut s, transfer(1, 0), &[(last, 0)]);
        push(&mut s, launch(0, 0, b[0], i), &[(sent, 0)]);
    }
    for stage in [1, 0] {
        push(&mut s, launch(stage, 0, u[stage], 0), &[]);
    }
    s
}

#[test]
fn a_two_stage_pipeline_takes_what_is_computed_by_hand() {
    // A message takes 7 + 500 ns.
    let expected = [
        (0, 1000),
        (1000, 1507),
        (1507, 2507),
        (1000, 2000),
        (2000, 2507),
        (2507, 3507),
        (3507, 5507),
        (5507, 6014),
        (6014, 8014),
        (5507, 7507),
        (7507, 8014),
        (8014, 10014),
        (7507, 7517),
        (10014, 10024),
    ];
    assert_eq!(times(pipeline(2, [1000, 2000]), 1), expected);
}

#[test]
fn steps_of_a_flushed_pipeline_follow_each_other() {
    let mut s = pipeline(2, [1000, 2000]);
    let last = ActionId::new(s.actions.len() - 1);
    s.actions[ActionId::new(0)].after.push(Wait { action: last, distance: 1 });
    let checked = Checked::unproven_for_tests(s);
    let run = simulate_steady(&checked);
    assert_eq!(run.step_time(), Nanos(10024));
    assert_eq!(run.makespan(), Nanos(10024 * run.steps()));
    let busy = 2.0 * (2.0 * (1000.0 + 2000.0) + 10.0);
    assert!((run.bubble() - (1.0 - busy / (2.0 * 10024.0))).abs() < 1e-12);
    assert_eq!(run.busy()[&DeviceId::new(0)], run.busy()[&DeviceId::new(1)]);
}

#[test]
fn what_waits_for_another_queue_goes_on_a_wake_up_later() {
    let mut s = pipeline(1, [1000, 2000]);
    s.target.host.wake = Nanos(40);
    let expected = [
        (0, 1000),
        (1040, 1547),
        (1587, 2587),
        (2587, 4587),
        (4627, 5134),
        (5174, 7174),
        (4587, 4597),
        (7174, 7184),
    ];
    assert_eq!(times(s, 1), expected);
}

#[test]
fn lanes_of_a_device_share_it() {
    let mut s = schedule(1, 2);
    let f = routine(&mut s, Pass::Forward, 0, 30);
    push(&mut s, launch(0, 0, f, 0), &[]);
    push(&mut s, launch(0, 1, f, 1), &[]);
    assert_eq!(times(s, 2), [(0, 30), (30, 60), (60, 90), (90, 120)]);
}

/// F takes 30, I and W 20 and 40, a half of the shorter one hides: 30 + 60 − 15. What waits for any
/// of them waits for the end of all.
#[test]
fn a_pair_is_one_launch_that_hides_what_the_device_says() {
    let mut s = schedule(2, 2);
    s.target.devices[DeviceId::new(0)].overlap = Thousandths(500);
    let f = routine(&mut s, Pass::Forward, 0, 30);
    let i = routine(&mut s, Pass::InputGradient, 0, 20);
    let w = routine(&mut s, Pass::WeightGradient, 0, 40);
    let late = push(&mut s, transfer(1, 0), &[]);
    let head = push(&mut s, launch(0, 0, f, 1), &[(late, 0)]);
    let mut beside = |routine| {
        let mut work = launch(0, 1, routine, 0);
        if let Work::Launch { beside, .. } = &mut work {
            *beside = Some(head);
        }
        push(&mut s, work, &[(late, 0)])
    };
    let (input, _) = (beside(i), beside(w));
    push(&mut s, launch(0, 0, f, 2), &[]);
    push(&mut s, launch(1, 0, f, 2), &[(input, 0)]);
    let start = 507;
    let end = start + 75;
    let expected = [
        (0, start),
        (start, end),
        (start, start + 25),
        (start + 25, end),
        (end, end + 30),
        (end, end + 30),
    ];
    assert_eq!(times(s.clone(), 1), expected);
    let checked = Checked::unproven_for_tests(s);
    let busy = simulate(&checked, 1).busy();
    assert_eq!(busy[&DeviceId::new(0)], Nanos(75 + 30), "what runs at once counts once");
}

#[test]
fn devices_do_not_wait_for_each_other() {
    let mut s = schedule(2, 1);
    let f = routine(&mut s, Pass::Forward, 0, 30);
    push(&mut s, launch(0, 0, f, 0), &[]);
    push(&mut s, launch(1, 0, f, 1), &[]);
    assert_eq!(times(s, 2), [(0, 30), (0, 30), (30, 60), (30, 60)]);
}

#[test]
fn a_transfer_takes_latency_and_rate_and_within_a_device_memory_alone() {
    let mut s = schedule(2, 1);
    push(&mut s, transfer(0, 1), &[]);
    push(&mut s, transfer(0, 0), &[]);
    assert_eq!(times(s, 1), [(0, 7 + 500), (0, 50)]);
}

#[test]
fn a_sender_sends_one_message_at_a_time() {
    let mut s = schedule(3, 1);
    push(&mut s, transfer(0, 1), &[]);
    push(&mut s, transfer(0, 2), &[]);
    push(&mut s, transfer(1, 0), &[]);
    assert_eq!(times(s, 1), [(0, 507), (507, 1014), (0, 507)]);
}

#[test]
fn a_receiver_receives_one_message_at_a_time() {
    let mut s = schedule(3, 1);
    push(&mut s, transfer(1, 0), &[]);
    push(&mut s, transfer(2, 0), &[]);
    assert_eq!(times(s, 1), [(0, 507), (507, 1014)]);
}

fn collective(kind: Collective) -> Work {
    let content = Content::Gradient(Stage::new(0), Box::default());
    let (link, group) = (LinkId::new(0), GroupId::new(0));
    Work::Collective { link, kind, group, from: row(0), to: row(0), content }
}

#[test]
fn collectives_take_the_time_of_a_ring_and_the_ports_of_their_members() {
    let mut s = schedule(3, 1);
    s.groups.push(Group { places: vec![place(0), place(1)], axes: vec![] });
    push(&mut s, collective(Collective::AllReduce), &[]);
    push(&mut s, collective(Collective::AllGather), &[]);
    push(&mut s, collective(Collective::ReduceScatter), &[]);
    push(&mut s, transfer(2, 1), &[]);
    let round = 7 + 250;
    assert_eq!(
        times(s, 1),
        [
            (0, 2 * round),
            (2 * round, 3 * round),
            (3 * round, 4 * round),
            (4 * round, 4 * round + 507)
        ]
    );
}

#[test]
fn collectives_count_members_at_all_coordinates() {
    let mut s = schedule(2, 1);
    s.axes.push(Axis {
        name: "replicas".to_owned(),
        extent: 5,
        stride: 2,
        splits: crate::Splits::Batch,
    });
    let axes = vec![AxisId::new(0)];
    s.groups.push(Group { places: vec![place(0), place(1)], axes });
    push(&mut s, collective(Collective::AllGather), &[]);
    assert_eq!(times(s, 1), [(0, 9 * (7 + 50))]);
}

#[test]
fn collectives_take_a_form_of_the_levels_that_join_their_members() {
    let mut s = schedule(2, 1);
    s.axes.push(Axis {
        name: "replicas".to_owned(),
        extent: 5,
        stride: 2,
        splits: crate::Splits::Batch,
    });
    let inner = Link::plain("inside", BytesPerSecond(1_000_000_000), Nanos(1));
    let inner = s.target.links.push(inner);
    s.target.links[LinkId::new(0)].ways.push(Way::Form(Form::Rails));
    let pairs =
        (0..5).map(|pair| Domain { link: inner, devices: 2 * pair..2 * pair + 2 });
    s.target.domains.splice(0..0, pairs);
    let axes = vec![AxisId::new(0)];
    s.groups.push(Group { places: vec![place(0), place(1)], axes: axes.clone() });
    s.groups.push(Group { places: vec![place(0)], axes });
    push(&mut s, collective(Collective::AllGather), &[]);
    // Five pairs: nine rounds of 5 B through two ports of 100 B/us, five hops inside, four out.
    assert_eq!(times(s.clone(), 1), [(0, 225 + 5 + 4 * 7)]);
    // One of each pair: four rounds of 10 B through one port each.
    let Work::Collective { group, .. } = &mut s.actions[ActionId::new(0)].work else {
        panic!("it is a collective")
    };
    *group = GroupId::new(1);
    assert_eq!(times(s, 1), [(0, 400 + 4 * 7)]);
}

#[test]
fn a_collective_of_one_takes_no_time() {
    let mut s = schedule(1, 1);
    s.groups.push(Group { places: vec![place(0)], axes: vec![] });
    push(&mut s, collective(Collective::AllReduce), &[]);
    assert_eq!(times(s, 1), [(0, 0)]);
}

#[test]
fn a_skipped_instance_takes_no_time_but_passes_its_waits_on() {
    // In period 0 only a0 and a2 execute; a2 waits for a0 through a1, which is skipped.
    let mut s = schedule(3, 1);
    let f = routine(&mut s, Pass::Forward, 0, 30);
    let first = push(&mut s, launch(0, 0, f, 0), &[]);
    let through = push(&mut s, launch(1, 0, f, 0), &[(first, 0)]);
    push(&mut s, launch(2, 0, f, 0), &[(through, 0)]);
    s.actions[through].lag = 1;
    // Period 0: a0, a2. Period 1, for step 0: a1; a0 and a2 are skipped.
    assert_eq!(times(s, 1), [(0, 30), (30, 60), (30, 60)]);
}

#[test]
fn a_skipped_instance_keeps_its_place_in_its_queue() {
    let mut s = schedule(2, 1);
    let f = routine(&mut s, Pass::Forward, 0, 30);
    let first = push(&mut s, launch(0, 0, f, 0), &[]);
    let skipped = push(&mut s, launch(1, 0, f, 0), &[(first, 0)]);
    push(&mut s, launch(1, 0, f, 1), &[]);
    s.actions[skipped].lag = 1;
    // The second launch on d1 stands behind the skipped one, which waits for d0.
    assert_eq!(times(s, 1), [(0, 30), (30, 60), (60, 90)]);
}

#[test]
fn a_place_of_a_turning_ring_is_another_device_in_each_period() {
    let mut s = schedule(2, 1);
    let devices = vec![DeviceId::new(0), DeviceId::new(1)];
    let ring = s.rings.push(Ring { devices, turn: 1, lanes: 1 });
    let f = routine(&mut s, Pass::Forward, 0, 30);
    push(&mut s, launch(ring.index(), 0, f, 0), &[]);
    let checked = Checked::unproven_for_tests(s);
    let run = simulate(&checked, 3);
    let queues: Vec<_> = run.entries().iter().map(|e| (e.queue, e.start.0)).collect();
    let lane = |k| PhysicalQueue::Lane(DeviceId::new(k), 0);
    assert_eq!(queues, [(lane(0), 0), (lane(1), 0), (lane(0), 30)]);
}

#[test]
fn a_run_of_no_steps_takes_no_time() {
    let checked = Checked::unproven_for_tests(pipeline(2, [1000, 2000]));
    let run = simulate(&checked, 0);
    assert_eq!((run.makespan(), run.step_time()), (Nanos(0), Nanos(0)));
    assert_eq!(run.bubble(), 0.0);
    assert!(grid(&run, &run, Nanos(0), Nanos(0)).contains("makespan 0 ns"));
}

#[test]
fn a_link_without_bandwidth_never_ends_and_is_still_shown() {
    let mut s = pipeline(2, [1000, 2000]);
    s.target.links[LinkId::new(0)].bandwidth = BytesPerSecond(0);
    let checked = Checked::unproven_for_tests(s);
    let run = simulate(&checked, 4);
    assert_eq!(run.makespan(), Nanos(u64::MAX));
    let text = grid(&run, &run, Nanos(0), run.makespan());
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
}

#[test]
fn what_takes_longest_is_to_blame_where_the_clock_stands_still() {
    let blamed = |schedule: Schedule, steps| {
        simulate(&Checked::unproven_for_tests(schedule), steps).endless()
    };
    let usual = pipeline(2, [1000, 2000]);
    assert_eq!(blamed(usual.clone(), 8), None);
    let mut cut = usual.clone();
    let link = &mut cut.target.links[LinkId::new(0)];
    link.bandwidth = BytesPerSecond(0);
    let link = Endless::from(&*link);
    assert_eq!(blamed(cut, 8), Some(link));
    // Two steps are counted, eight are not.
    let slow = pipeline(2, [1000, u64::MAX / 12]);
    let device = Endless::from(&slow.target.devices[DeviceId::new(1)]);
    assert_eq!(blamed(slow.clone(), 2), None);
    let blamed = blamed(slow, 8).expect("the clock stands still");
    assert_eq!(blamed, device);
    assert!(blamed.to_string().contains("584 years that are counted: device"));
}

#[test]
fn no_window_of_a_grid_is_too_wide() {
    let checked = Checked::unproven_for_tests(pipeline(3, [1009, 2003]));
    let run = simulate(&checked, 3);
    for (from, to) in (0..40).flat_map(|k| [(k * 700, k * 1500), (k, k + 1)]) {
        let text = grid(&run, &run, Nanos(from), Nanos(to));
        assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    }
}

#[test]
fn passes_that_a_grid_has_no_column_for_are_counted() {
    let hidden = |schedule| {
        let checked = Checked::unproven_for_tests(schedule);
        let run = simulate(&checked, 3);
        let text = grid(&run, &run, Nanos(0), run.makespan());
        let told = text.lines().last().expect("there are lines").to_owned();
        told.strip_suffix(" passes stand behind longer ones in their columns")
            .map(|number| number.parse::<usize>().expect("a number"))
    };
    assert_eq!(hidden(cyclic(3)), None);
    assert!(hidden(pipeline(2, [1, 100_003])).is_some_and(|hidden| hidden > 4));
}

/// N workers that carry a micro-batch through N stages each, staggered by two units.
fn cyclic(n: usize) -> Schedule {
    let mut s = schedule(n, 1);
    let f: Vec<_> = (0..n).map(|j| routine(&mut s, Pass::Forward, j, 10)).collect();
    let b: Vec<_> = (0..n).map(|j| routine(&mut s, Pass::Backward, j, 10)).collect();
    let u = routine(&mut s, Pass::Update, 0, 0);
    let mut second = None;
    for i in 0..n {
        let after: Vec<(ActionId, u32)> = second.map(|id| (id, 0)).into_iter().collect();
        push(&mut s, launch(i, 0, f[0], i), &after);
        for (k, routine) in f[1..].iter().chain(b.iter().rev()).enumerate() {
            let id = push(&mut s, launch(i, 0, *routine, i), &[]);
            second = if k == 0 { Some(id) } else { second };
        }
    }
    push(&mut s, launch(n - 1, 0, u, n - 1), &[]);
    s
}

#[test]
fn the_grid_of_cyclic_workers_is_the_golden_table() {
    let checked = Checked::unproven_for_tests(cyclic(3));
    let run = simulate(&checked, 4);
    let text = grid(&run, &run, Nanos(120), Nanos(180));
    let rows: Vec<&str> = text.lines().take(4).collect();
    assert_eq!(
        rows,
        [
            "      0   1   2   3   4   5",
            "d0 i0 F0  F1  F2  B2  B1  B0",
            "d1 i1 B1' B0' F0  F1  F2  B2",
            "d2 i2 F2' B2' B1' B0' F0  F1",
        ],
        "{text}"
    );
}

#[test]
fn the_grid_of_a_pipeline_names_micro_batches_and_stays_narrow() {
    let checked = Checked::unproven_for_tests(pipeline(2, [1000, 2000]));
    let run = simulate(&checked, 1);
    let text = grid(&run, &run, Nanos(0), run.makespan());
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    assert!(text.contains("\nd0 s0 0F "), "{text}");
    assert!(text.contains("makespan 10.02 us"), "{text}");
    for cell in ["0F", "1F", "0B", "1B"] {
        assert_eq!(text.matches(cell).count(), 2, "{text}");
    }
}
