//! Bounds by hand, and the most that each law says.

use super::*;
use crate::sample;
use roundelay_schedule::{
    BytesPerSecond, Domain, Id, Link, Order, Placement, States, Target,
};

fn load() -> StageLoad {
    StageLoad {
        forward: Nanos(1),
        backward: Nanos(2),
        parameters: Bytes(8),
        optimizer: Bytes(16),
        activation: Bytes(4),
        reads: [true, true, false],
        down: Some(Bytes(0)),
        up: Some(Bytes(0)),
        ..StageLoad::default()
    }
}

fn bound(rule: Rule, placement: Placement, order: Order) -> Bound {
    let (loads, target) = (vec![load(); 4], sample::target(16));
    let plan = sample::plan(rule, placement, order, 4, 4);
    Bound::of_stages(&plan, &loads, &mut Network::new(&target))
}

#[test]
fn delays_divide_the_path_and_devices_divide_the_work() {
    let sync = bound(Rule::Sync, Placement::Pipeline, Order::Gpipe);
    // The last of four stages waits for three forward passes, then three backward passes follow.
    assert_eq!((sync.work, sync.path), (Nanos(12), Nanos(12 + 9)));
    assert_eq!(sync.memory, Bytes(8 + 16 + 4 * 4));
    let lazy = bound(Rule::CyclicV1, Placement::Data, Order::Cyclic);
    // Four backward passes and three messages between the workers in two steps.
    let relay = Nanos((4 * 2 + 3 * 2_000) / 2);
    assert_eq!((lazy.work, lazy.path), (Nanos(12), relay));
    let shared = bound(Rule::CyclicV2, Placement::Shared, Order::Cyclic);
    assert_eq!((shared.work, shared.path), (Nanos(12), Nanos(12)));
}

/// One of four micro-batches begins the sum and the others add to it; where it is split up at once
/// each begins one; of two pipelines that meet either may be the one that begins it.
#[test]
fn the_first_backward_pass_writes_and_the_others_add() {
    let target = sample::target(16);
    let loads = vec![StageLoad { more: [Nanos(7), Nanos(5)], ..load() }; 4];
    let mut network = Network::new(&target);
    let mut bound = |order, states| {
        let plan = sample::plan(Rule::Sync, Placement::Pipeline, order, 4, 4);
        let plan = Plan { states, ..plan };
        let lists = lists_of(&plan).expect("a synchronous pipeline has lists");
        let own = Bound::of_stages(&plan, &loads, &mut network);
        let followed = own.following(&plan, &loads, &lists, &mut network);
        (own.work, own.path, followed.path)
    };
    let more = 7 + 3 * 5;
    let [work, path] = [12, 12 + 9].map(|alike| Nanos(alike + more));
    let once = bound(Order::Gpipe, States::Replicated);
    assert_eq!((once.0, once.1), (work, path));
    assert!(once.2 > path);
    let alike = vec![load(); 4];
    for rule in [Rule::CyclicV1, Rule::CyclicV2] {
        let plan = sample::plan(rule, Placement::Data, Order::Cyclic, 4, 4);
        let network = &mut Network::new(&target);
        let [own, plain] =
            [&loads, &alike].map(|loads| Bound::of_stages(&plan, loads, network).work);
        assert_eq!(own, plain, "sums of {rule} go from worker to worker");
    }
    let each = bound(Order::Gpipe, States::Zero2);
    assert_eq!(each.0, Nanos(12 + 4 * 7));
    assert_eq!(bound(Order::Chimera, States::Replicated).0, Nanos(12));
}

#[test]
fn lists_add_messages_sums_and_gradients() {
    let mut target = sample::target(8);
    let link = Link::plain("bus", BytesPerSecond(1_000_000_000), Nanos(5));
    target.links = [link].into_iter().collect();
    let mut one = load();
    (one.down, one.up, one.gradient) = (Some(Bytes(0)), Some(Bytes(0)), Bytes(8));
    let loads = vec![one; 2];
    let order = Order::OneForwardOneBackward;
    let plan = sample::plan(Rule::Sync, Placement::Pipeline, order, 3, 2);
    let mut network = Network::new(&target);
    let mut follow = |plan: &Plan| {
        let lists = lists_of(plan).expect("a synchronous pipeline has lists");
        let bound = Bound::of_stages(plan, &loads, &mut network);
        bound.following(plan, &loads, &lists, &mut network)
    };
    // Device 0 has two micro-batches in flight: the third goes there and back after the first.
    let single = follow(&plan);
    assert_eq!(single.path, Nanos(2 * (1 + 5 + 3 + 5 + 2)));
    assert_eq!(single.memory, Bytes(8 + 16 + 8 + 2 * 4));
    // An all-reduce of 8 bytes in a ring of two: 2 · (5 + 4).
    let two = follow(&plan.replicated(2, 1));
    assert_eq!(two.path, single.path + Nanos(18));
}

#[test]
fn what_has_no_room_goes_there_and_back_later() {
    let mut target = sample::target(8);
    let link = Link::plain("bus", BytesPerSecond(1_000_000_000), Nanos(5));
    target.links = [link].into_iter().collect();
    let own = StageLoad { weight: Nanos(1), gradient: Bytes(8), ..load() };
    let linked = vec![own.clone(); 2];
    let mut network = Network::new(&target);
    let mut step = |loads: &[StageLoad], plan: &Plan, micro_batches: u64| {
        let capacity = Bytes(8 + 16 + 8 + 4 * micro_batches);
        let bound = Bound::of_stages(plan, loads, &mut network);
        bound.in_room(plan, loads, |_| capacity, &mut network).path
    };
    let order = Order::ZeroBubbleAuto;
    let plan = sample::plan(Rule::Sync, Placement::Pipeline, order, 4, 2);
    // Both stages and two messages, and at last the weights of the first stage.
    let around = 2 * (1 + 1) + 2 * 5;
    assert_eq!(step(&linked, &plan, 1), Nanos(4 * around + 1));
    assert_eq!(step(&linked, &plan, 2), Nanos(1 + 2 * around + 1));
    assert_eq!(step(&linked, &plan, 3), Nanos(2 * around + 1));
    // Behind one stage there and back, and its messages, the last one is busy.
    assert_eq!(step(&linked, &plan, 4), Nanos(2 + 2 * 5 + 4 * 2 + 1));
    // Stages that give nothing back do not wait for each other.
    let unlinked = vec![StageLoad { up: None, ..own }; 2];
    assert_eq!(step(&unlinked, &plan, 1), Nanos(4 * 3));
    // An all-reduce of 8 bytes in a ring of two: 2 · (5 + 4).
    assert_eq!(step(&linked, &plan.replicated(2, 1), 1), Nanos(4 * around + 1 + 18));
}

/// Nodes of two devices with 8 bytes per nanosecond, joined by 1 byte per nanosecond.
fn nodes() -> Target {
    let mut target = sample::target(8);
    let link = |name, rate| Link::plain(name, BytesPerSecond(rate), Nanos(0));
    target.links =
        [link("bus", 8_000_000_000), link("net", 1_000_000_000)].into_iter().collect();
    let domain = |link, devices| Domain { link: Id::new(link), devices };
    let nodes = (0..4).map(|node| domain(0, 2 * node..2 * node + 2));
    target.domains = nodes.chain([domain(1, 0..8)]).collect();
    target
}

#[test]
fn collectives_take_the_ports_of_their_members() {
    let (parameters, gradient) = (Bytes(8_000), Bytes(8_000));
    let reads = [true, true, false];
    let load = StageLoad { parameters, gradient, reads, ..StageLoad::default() };
    let (loads, target) = (vec![load; 2], nodes());
    let least = |states, replicas, shards| {
        let (rule, order) = (Rule::Sync, Order::Sequential);
        let plan = Plan::new(rule, Placement::Accumulate, order, states, 2, vec![2]);
        let plan = plan.replicated(replicas, shards);
        Bound::of_stages(&plan, &loads, &mut Network::new(&target)).traffic
    };
    // 2 stages · 2 · 7 rounds of an eighth at 1 byte per nanosecond.
    assert_eq!(least(States::Replicated, 8, 1), Nanos(2 * 2 * 7 * 1_000));
    // Two gathers and one scatter of each of two micro-batches.
    assert_eq!(least(States::Zero3, 8, 1), Nanos(2 * 6 * 7 * 1_000));
    // Inside a node at 8 bytes per nanosecond; across, a half of the sum on four.
    let inside = 2 * 6 * 4_000 / 8;
    assert_eq!(least(States::Hsdp, 8, 2), Nanos(inside + 2 * 2 * 3 * 1_000));
    assert_eq!(least(States::Replicated, 1, 1), Nanos(0));
}

#[test]
fn cyclic_workers_hand_sums_on() {
    let mut target = sample::target(8);
    let link = Link::plain("bus", BytesPerSecond(1_000_000_000), Nanos(5));
    target.links = [link].into_iter().collect();
    let gradient = Bytes(8);
    let loads = vec![StageLoad { gradient, ..load() }; 2];
    let mut network = Network::new(&target);
    let mut path = |n| {
        let (placement, order) = (Placement::Data, Order::Cyclic);
        let plan = sample::plan(Rule::CyclicV1, placement, order, n, 2);
        Bound::of_stages(&plan, &loads, &mut network).path
    };
    // Four backward passes and three messages in two steps.
    assert_eq!(path(4), Nanos((4 * 2 + 3 * (5 + 8)) / 2));
    assert_eq!(path(2), Nanos((2 * 2 + (5 + 8)) / 2));
}

#[test]
fn the_most_of_each_kind_adds_up() {
    let scratch = [Bytes(1), Bytes(3), Bytes(0)];
    let one = StageLoad { gradient: Bytes(8), scratch, ..load() };
    let loads = vec![one; 2];
    let fullest = |states, replicas| {
        let (rule, order) = (Rule::Sync, Order::Sequential);
        let plan = Plan::new(rule, Placement::Accumulate, order, states, 2, vec![2]);
        let plan = plan.replicated(replicas, 1);
        let lists = lists_of(&plan).expect("one device has a list");
        flight::fullest(&plan, &loads, &lists.passes).0
    };
    let (states, kept, scratch) = (2 * (8 + 16), 2 * 4, 3);
    // Both sums are there when the second micro-batch comes back.
    assert_eq!(fullest(States::Replicated, 1), Bytes(states + kept + 16 + scratch));
    // Whole sums stay until the step ends; the optimizer's part is split.
    let split = 2 * (8 + 16 / 2);
    assert_eq!(fullest(States::Zero1, 2), Bytes(split + kept + 16 + scratch));
    // Two stages are whole, one sum leaves, one is made, and the first has left its shard.
    let shards = 2 * (4 + 8);
    let whole = 2 * 8;
    let sums = 8 + 8 + 4;
    assert_eq!(fullest(States::Zero3, 2), Bytes(shards + kept + whole + sums + scratch));
}
