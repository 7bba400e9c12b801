//! Replicas of a cell, and states that they split: replays, memory and traffic.

use crate::{
    models::{even_cuts, gpt, mlp, program},
    oracle::{RESTS, recursion, replay},
    support::compiled,
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        codegen::lower,
        kernels::Kernels,
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{
            Bytes, BytesPerSecond, Collective, Exactness, Kind, Nanos, Order, Pass,
            Placement, Reduction, Rule, Slice, States, Subject, Work, check, simulate,
        },
    },
};

/// Placements with replicas, and the order that each takes.
const PLACED: [(Placement, Order); 5] = [
    (Placement::Accumulate, Order::Sequential),
    (Placement::Data, Order::Parallel),
    (Placement::Pipeline, Order::Gpipe),
    (Placement::Pipeline, Order::OneForwardOneBackward),
    (Placement::Pipeline, Order::ZeroBubbleH1),
];

fn plan(
    program: &Program,
    placed: (Placement, Order),
    (states, shards): (States, u32),
    (n, s, r): (u32, u32, u32),
) -> Plan {
    let (placement, order) = placed;
    let cuts = even_cuts(program, s);
    Plan::new(Rule::Sync, placement, order, states, n, cuts).replicated(r, shards)
}

/// Every way to split states among this many members.
fn splits(members: u32) -> Vec<(States, u32)> {
    let mut all = vec![(States::Replicated, 1)];
    if members > 1 {
        all.extend(
            [States::Zero1, States::Zero2, States::Zero3].map(|states| (states, 1)),
        );
        let divisors = (1..=members).filter(|shards| members.is_multiple_of(*shards));
        all.extend(divisors.map(|shards| (States::Hsdp, shards)));
    }
    all
}

fn compare(program: &Program, plan: &Plan, rests: &[u64]) {
    let schedule = compiled(program, plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let state = State::initial(&schedule.job);
    let expected = recursion(&schedule, &data, &state);
    let found = replay(&schedule, &data, &state, rests);
    assert_eq!(found.losses, expected.losses, "losses of {plan:?}");
    assert!(found.state == expected.state, "state of {plan:?}");
}

#[test]
fn replicas_replay_like_the_recursion() {
    for (n, s, r) in [(1, 2, 2), (2, 2, 2), (3, 2, 2), (2, 3, 3), (1, 3, 4), (2, 1, 4)] {
        let program = mlp(6, 2 * n * r);
        for placed in PLACED {
            let members = if placed.0 == Placement::Data { n * r } else { r };
            for split in splits(members) {
                let plan = plan(&program, placed, split, (n, s, r));
                compare(&program, &plan, RESTS[2]);
            }
        }
    }
}

#[test]
fn replicas_of_lanes_and_rings_replay_like_the_recursion() {
    let placed =
        [(Placement::Concurrent, Order::Parallel), (Placement::Shared, Order::Parallel)];
    for (n, s, r) in [(2, 2, 2), (3, 2, 2)] {
        let program = mlp(6, 2 * n * r);
        for placed in placed {
            let plan = plan(&program, placed, (States::Replicated, 1), (n, s, r));
            compare(&program, &plan, RESTS[2]);
        }
    }
}

#[test]
fn cyclic_replicas_replay_like_the_recursion() {
    let placed = [
        (Placement::Accumulate, Order::Sequential),
        (Placement::Concurrent, Order::Cyclic),
        (Placement::Pipeline, Order::Cyclic),
    ];
    let slack = [1, 3].map(Rule::CyclicSlack);
    for rule in [Rule::CyclicV2, Rule::CyclicV1].into_iter().chain(slack) {
        let sizes = [(2, 2, 2), (3, 3, 2), (3, 2, 3), (2, 3, 2), (1, 4, 2), (2, 5, 2)];
        for (n, s, r) in sizes {
            // Without a flush one update of delay is too short for this many stages.
            if rule == Rule::CyclicV1 && n + 1 < s {
                continue;
            }
            let program = mlp(6, 2 * n * r);
            for (placement, order) in placed {
                let cuts = even_cuts(&program, s);
                let plan = Plan::new(rule, placement, order, States::Replicated, n, cuts);
                compare(&program, &plan.replicated(r, 1), RESTS[1]);
            }
        }
    }
}

#[test]
fn language_models_replicate() {
    let program = gpt(2, 8);
    for placed in PLACED {
        for split in [(States::Zero2, 1), (States::Zero3, 1), (States::Hsdp, 2)] {
            let plan = plan(&program, placed, split, (2, 2, 4));
            compare(&program, &plan, RESTS[0]);
        }
    }
}

#[test]
fn the_tree_follows_the_collectives() {
    let program = mlp(6, 24);
    let tree = |placed, split, counts| {
        let plan = plan(&program, placed, split, counts);
        (plan.reduction, plan.exactness())
    };
    let accumulate = PLACED[0];
    let exact = (Reduction::Sequential, Exactness::Exact);
    let other = |reduction| (reduction, Exactness::Reordered);
    for states in [States::Replicated, States::Zero1, States::Zero2, States::Zero3] {
        assert_eq!(tree(accumulate, (states, 1), (1, 1, 4)), exact, "{states}");
        assert_eq!(tree(PLACED[1], (states, 1), (3, 1, 4)), exact, "{states}");
        let more = tree(accumulate, (states, 1), (3, 1, 4));
        let expected = match states {
            States::Replicated | States::Zero1 => Reduction::ByReplica,
            _ => Reduction::ByMicroBatch,
        };
        assert_eq!(more, other(expected), "{states}");
    }
    let grouped = other(Reduction::ByShard);
    assert_eq!(tree(accumulate, (States::Hsdp, 2), (1, 1, 4)), grouped);
    assert_eq!(tree(accumulate, (States::Hsdp, 2), (3, 1, 4)), grouped);
}

/// Elements of all stages.
fn elements(schedule: &Checked) -> u64 {
    schedule.job.elements.values().sum()
}

/// Bytes of one kind and slice on the first device that live on through the step.
fn kept(schedule: &Checked, holds: impl Fn(&Subject) -> bool) -> u64 {
    let own = schedule.buffers.values().filter(|buffer| holds(&buffer.subject));
    own.map(|buffer| buffer.total().0).sum()
}

/// Bytes per parameter as ZeRO counts them (arXiv 1910.02054), for 4-byte numbers with the
/// parameters as their own master copy: what is split is 1/D of the whole.
#[test]
fn members_keep_their_share_of_the_state() {
    let (n, s, r) = (2, 3, 4);
    let program = mlp(6, 2 * n * r);
    for split in splits(r).into_iter().skip(1) {
        let schedule = compiled(&program, &plan(&program, PLACED[0], split, (n, s, r)));
        let parts = u64::from(schedule.plan.parts());
        let whole = 4 * elements(&schedule);
        let states = schedule.job.optimizer.method.states();
        let parameter = |slice: fn(&Slice) -> bool| {
            kept(
                &schedule,
                |subject| matches!(subject, Subject::Parameter(_, own) if slice(own)),
            )
        };
        let shard: fn(&Slice) -> bool = |slice| matches!(slice, Slice::Shard(_));
        assert_eq!(parameter(shard), whole / parts, "{split:?}");
        let optimizer =
            kept(&schedule, |subject| matches!(subject, Subject::Optimizer(..)));
        assert_eq!(optimizer, states * whole / parts, "{split:?}");
        let once: fn(&Slice) -> bool = |slice| *slice == Slice::Whole;
        match split.0 {
            States::Zero1 | States::Zero2 => assert_eq!(parameter(once), whole),
            _ => assert_eq!(segment(&schedule, Kind::Parameter).0, unit_peak(&schedule)),
        }
    }
}

/// From the first to the last byte of a kind on the first device.
fn segment(schedule: &Checked, kind: Kind) -> Bytes {
    let own = || schedule.buffers.values().filter(|b| b.subject.kind() == kind);
    let start = own().map(|buffer| buffer.offset).min().unwrap();
    let end = own().map(|buffer| buffer.offset + buffer.total()).max().unwrap();
    end - start
}

/// FSDP (arXiv 2304.11277): a share of all units, and whole the unit in use and the next one.
fn unit_peak(schedule: &Checked) -> u64 {
    let units: Vec<u64> = schedule.job.elements.values().map(|e| 4 * e).collect();
    let shares = units.iter().sum::<u64>() / u64::from(schedule.plan.parts());
    let neighbours = units.windows(2).map(|pair| pair[0] + pair[1]);
    // The last unit turns from forward to backward, and its gather for the one stands beside
    // that for the other.
    let turns = [units[0] * 2, units[units.len() - 1] * 2];
    shares + neighbours.chain(turns).max().unwrap()
}

/// Elements that one device sends for a stage's state in a step, in units of Ψ (D − 1)/D.
fn sent(schedule: &Checked) -> u64 {
    let moved = schedule.actions.values().filter_map(|action| match &action.work {
        Work::Collective { kind, from, to, group, .. } => {
            let whole = [from, to].map(|row| schedule.buffers[row.buffer].size.0);
            let group = &schedule.groups[*group];
            let members: u64 =
                group.axes.iter().map(|a| u64::from(schedule.axes[*a].extent)).product();
            let turns = if *kind == Collective::AllReduce { 2 } else { 1 };
            Some(turns * whole[0].max(whole[1]) * (members - 1) / members)
        }
        _ => None,
    });
    moved.sum()
}

/// `facts` of sharded data parallelism: 2Ψ for DDP and ZeRO-1; with m micro-batches each member
/// splits up m gradients from ZeRO-2 on, (1 + m)Ψ; ZeRO-3 gathers for each pass, 3mΨ.
#[test]
fn members_send_what_their_collectives_must() {
    for (n, s, r) in [(1, 3, 4), (3, 2, 2), (2, 2, 4)] {
        let program = mlp(6, 2 * n * r);
        for placed in [PLACED[0], PLACED[3]] {
            for (states, times) in [
                (States::Replicated, 2),
                (States::Zero1, 2),
                (States::Zero2, 1 + u64::from(n)),
                (States::Zero3, 3 * u64::from(n)),
            ] {
                let plan = plan(&program, placed, (states, 1), (n, s, r));
                let schedule = compiled(&program, &plan);
                let stages = schedule.job.elements.values();
                let each = |e: &u64| 4 * e * u64::from(r - 1) / u64::from(r);
                let expected: u64 = stages.map(each).sum();
                assert_eq!(sent(&schedule), times * expected, "{states} {placed:?}");
                assert_eq!(
                    moved(&schedule),
                    u64::from(r) * sent(&schedule) + boundary(&schedule)
                );
            }
        }
    }
}

/// HSDP: 3Ψ inside a group of K, and an all-reduce of Ψ/K across groups.
#[test]
fn groups_exchange_only_their_shards() {
    let (n, s, r, k) = (1, 3, 4, 2);
    let program = mlp(6, 2 * n * r);
    let plan = plan(&program, PLACED[0], (States::Hsdp, k), (n, s, r));
    let schedule = compiled(&program, &plan);
    let whole = 4 * elements(&schedule);
    assert_eq!(sent(&schedule), 3 * whole / 2 + 2 * (whole / 2) / 2);
    let names: Vec<&str> =
        schedule.axes.values().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["replica", "shard"]);
}

/// Two nodes of some devices, joined by something slower.
fn nodes(batch: u32, devices: u32) -> Program {
    let layer = "x = gelu(linear(x, 16))";
    program(&format!(
        "model layers {{
            input features: real[batch, 16]
            input wanted: real[batch, 16]
            x = features
            {}
            loss mse(linear(x, 16), wanted)
        }}
        device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 1 us }}
        link net {{ bandwidth 1 GB/s, latency 20 us }}
        cluster two {{ node = {devices} x core joined by bus, 2 x node joined by net }}
        train {{ data synthetic, batch {batch}, optimizer sgd(lr = 0.1), steps 4 }}",
        [layer; 5].join("\n")
    ))
}

#[test]
fn groups_inside_a_node_use_its_link() {
    let program = nodes(8, 2);
    let used = |split| {
        let plan = plan(&program, PLACED[0], split, (2, 2, 4));
        let schedule = compiled(&program, &plan);
        let bytes = &schedule.facts().link_bytes;
        let name = |link| schedule.target.links[link].name.clone();
        bytes.iter().map(|(link, bytes)| (name(*link), bytes.0)).collect::<Vec<_>>()
    };
    let all = used((States::Zero3, 1));
    assert_eq!(all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["net"]);
    let grouped = used((States::Hsdp, 2));
    let bytes = |name: &str| grouped.iter().find(|(link, _)| link == name).unwrap().1;
    assert!(bytes("net") * 4 < all[0].1, "{grouped:?} against {all:?}");
    assert!(bytes("bus") > bytes("net"));
}

#[test]
fn what_has_no_replicas_is_refused_by_name() {
    let across = nodes(12, 3);
    let across_nodes = plan(&across, PLACED[2], (States::Replicated, 1), (2, 2, 3));
    let refused = lower(&across, &across_nodes).unwrap_err().to_string();
    assert!(refused.contains("joined by another link level"), "{refused}");
    let program = nodes(8, 2);
    let mut scattered = plan(&program, PLACED[0], (States::Replicated, 1), (2, 1, 2));
    scattered.devices.swap(0, 1);
    let refused = lower(&program, &scattered).unwrap_err().to_string();
    assert!(refused.contains("parts of tensors lie side by side"), "{refused}");
    let cyclic = Plan::new(
        Rule::CyclicV2,
        Placement::Data,
        Order::Cyclic,
        States::Replicated,
        2,
        even_cuts(&program, 2),
    );
    let refused = lower(&program, &cyclic.replicated(2, 1)).unwrap_err().to_string();
    assert!(refused.contains("has no replicas"), "{refused}");
}

/// Bytes of one training step over all devices, as the machine counts them.
fn moved(schedule: &Checked) -> u64 {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let mut sent = |end| {
        cpu.replay(end, &mut |_| {}).unwrap();
        cpu.measured().unwrap().link_bytes.values().map(|bytes| bytes.0).sum::<u64>()
    };
    let first = sent(2);
    let all: u64 = schedule.facts().link_bytes.values().map(|bytes| bytes.0).sum();
    assert_eq!(sent(5) - first, 3 * all);
    all
}

/// Bytes that cross stage boundaries of all replicas.
fn boundary(schedule: &Checked) -> u64 {
    let moved = schedule.actions.values().map(|action| match &action.work {
        Work::Transfer { from, .. } => schedule.buffers[from.row.buffer].size.0,
        _ => 0,
    });
    moved.sum::<u64>() * u64::from(schedule.plan.replicas)
}

/// With fast links and slow ones, gathers run while units compute: the clock shows no unit that
/// waits for its own gather when a pass takes longer than a gather.
#[test]
fn gathers_hide_behind_the_pass_before() {
    let (n, s, r) = (2, 4, 2);
    let program = mlp(6, 2 * n * r);
    let plan = plan(&program, PLACED[0], (States::Zero3, 1), (n, s, r));
    let mut schedule = compiled(&program, &plan).into_inner();
    for (_, routine) in schedule.routines.iter_mut() {
        routine.predicted = match routine.pass {
            Pass::Forward | Pass::Backward => Nanos(1_000_000),
            _ => Nanos(0),
        };
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = Nanos(200_000);
    }
    let checked = check(schedule, &Kernels).unwrap();
    let step = simulate(&checked, 8).step_time().0;
    let passes = u64::from(2 * n * s) * 1_000_000;
    // What no pass hides: the first gather of a step, and the last reductions of the one before.
    assert!(step < passes + 4 * 200_000, "{step} against {passes}");
}
