//! The search against clocking every plan, on random small programs and clusters.

use super::{all, delayed, everything};
use crate::{
    Candidate, Options, plan, sample,
    sample::Random,
    search::{
        progress::Progress,
        ranking::{allowed, best, survey},
    },
};
use roundelay_dsl::{Choice, Learning, NanoDollarsPerHour, Numbers, Objective, Program};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Domain, FlopsPerSecond, Form, Id, Link, Nanos, Order,
    Placement, Protocol, Recompute, Rule, States, Thousandths, Way,
};

/// Programs that are compared.
const PROGRAMS: usize = 200;

/// One of the values.
pub(crate) fn pick<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[usize::try_from(random.below(values.len() as u64)).unwrap()]
}

/// Some of the values, at least one.
pub(crate) fn some<T: Copy + PartialEq>(
    random: &mut Random,
    values: &[T],
    count: usize,
) -> Vec<T> {
    let mut chosen = Vec::new();
    for _ in 0..count {
        let value = pick(random, values);
        if !chosen.contains(&value) {
            chosen.push(value);
        }
    }
    chosen
}

/// A link of any speed, with any of the ways.
fn link(random: &mut Random) -> Link {
    let rate = |random: &mut Random| BytesPerSecond(1_000_000 << random.below(12));
    let mut link = Link::plain("link", rate(random), Nanos(random.below(50_000)));
    link.startup = Nanos(random.below(20_000));
    if random.below(2) == 0 {
        let forms = [Form::Ring, Form::Rails, Form::Tree, Form::Nested];
        link.ways.extend(some(random, &forms, 2).into_iter().map(Way::Form));
    }
    if random.below(2) == 0 {
        let startup = Nanos(random.below(5_000));
        link.ways.push(Way::Short(Protocol { bandwidth: rate(random), startup }));
    }
    link
}

/// Makes the devices from one on others, in speed, memory or both; how often is up to chance, and so is
/// whether those that compute faster move bytes faster too.
pub(super) fn second_kind(random: &mut Random, program: &mut Program) {
    let count = program.target.devices.len();
    let from = if count > 1 { 1 + random.below(count as u64 - 1) } else { 0 };
    let from = usize::try_from(from).unwrap();
    let speed = pick(random, &[1, 3, 8]);
    let stream = pick(random, &[1, 2, 8]);
    let memory = pick(random, &[1, 2, 50, 200]);
    let is_slower = random.below(2) == 0;
    let streams_apart = random.below(2) == 0;
    for (number, (_, device)) in program.target.devices.iter_mut().enumerate() {
        let behind = (number >= from) == is_slower;
        if behind {
            device.compute.0 = (device.compute.0 / speed).max(1);
            device.memory.0 /= memory;
        }
        if behind != streams_apart {
            device.bandwidth.0 = (device.bandwidth.0 / stream).max(1);
        }
    }
}

/// Devices in nodes and racks, in two nodes of unequal size, or on one link.
pub(super) fn cluster(random: &mut Random, program: &mut Program) {
    let devices = u32::try_from(program.target.devices.len()).unwrap();
    let sizes: Vec<u32> = match devices {
        8 => vec![2, 4, 8],
        4 | 6 => vec![2, devices],
        _ => vec![devices],
    };
    let first = usize::try_from(random.below(sizes.len() as u64)).unwrap();
    let sizes = &sizes[first..];
    program.target.links = sizes.iter().map(|_| link(random)).collect();
    let level = |(number, size): (usize, &u32)| {
        let size = *size;
        let unit = move |unit| Domain {
            link: Id::new(number),
            devices: unit * size..(unit + 1) * size,
        };
        (0..devices / size).map(unit).collect::<Vec<_>>()
    };
    program.target.domains = sizes.iter().enumerate().flat_map(level).collect();
    if sizes.len() > 1 && random.below(4) == 0 {
        let link = Id::new(0);
        let nodes = [0..2, 2..devices].map(|devices| Domain { link, devices });
        let own = &mut program.target.domains;
        own.retain(|domain| domain.devices.len() == devices as usize);
        own.splice(0..0, nodes);
    }
    let compute = FlopsPerSecond(1_000_000 << random.below(12));
    let bandwidth = BytesPerSecond(1_000_000 << random.below(12));
    let overlap = pick(random, &[0, 300, 1000]);
    let issue = pick(random, &[Nanos(0), Nanos(700), Nanos(200_000)]);
    let streams = [(); 2].map(|()| pick(random, &[1000, 300, 1700]));
    for (_, device) in program.target.devices.iter_mut() {
        (device.compute, device.bandwidth) = (compute, bandwidth);
        device.overlap = Thousandths(overlap);
        device.issue = issue;
        [device.updates, device.losses] = streams.map(Thousandths);
    }
}

/// A program on a cluster, with some of the decisions left open.
fn random_search(random: &mut Random) -> Program {
    let devices = pick(random, &[1, 2, 3, 4, 6, 8]);
    let mut program = delayed(devices, pick(random, &[1, 2, 4, 6, 8]));
    cluster(random, &mut program);
    if random.below(2) == 0 {
        second_kind(random, &mut program);
    }
    worth(random, &mut program);
    let search = &mut program.search;
    search.objective = pick(random, &Objective::ALL);
    let rules = [Rule::Sync, Rule::Sync, Rule::CyclicV2, Rule::CyclicV1];
    search.rule = Choice::OneOf(some(random, &rules, 2));
    search.placement = Choice::OneOf(some(random, Placement::ALL, 2));
    let mut orders = some(random, &Order::ALL[3..Order::ALL.len() - 1], 3);
    orders.extend([Order::Sequential, Order::Parallel, Order::Cyclic]);
    search.order = Choice::OneOf(orders);
    search.states = Choice::OneOf(some(random, States::ALL, 2));
    search.recompute = Choice::OneOf(some(random, Recompute::ALL, 2));
    if random.below(2) == 0 {
        search.memory = Some(Bytes(2_000 << random.below(6)));
    }
    program.train.optimizer.clip = pick(random, &[0.0, 0.0, 1.0]);
    program
}

/// Prices of devices, and how the model learns.
fn worth(random: &mut Random, program: &mut Program) {
    for id in program.target.devices.ids() {
        let price = NanoDollarsPerHour(1_000_000_000 * (1 + random.below(4)));
        program.prices.insert(id, price);
    }
    program.search.learning = Learning {
        least_steps: Some(1 + random.below(1000)),
        critical_batch: Some(random.below(64)),
        staleness: Some(random.below(2000)),
    };
}

/// Devices, rates, latency, room and objective at random.
pub(crate) fn random_program(random: &mut Random) -> Program {
    let devices = 1 + usize::try_from(random.below(3)).unwrap();
    let batch = [1, 2, 4, 6][usize::try_from(random.below(4)).unwrap()];
    let mut program = delayed(devices, batch);
    program.search.objective = Objective::ALL[usize::try_from(random.below(5)).unwrap()];
    worth(random, &mut program);
    for (_, device) in program.target.devices.iter_mut() {
        device.compute = FlopsPerSecond(1_000_000 << random.below(12));
        device.bandwidth = BytesPerSecond(1_000_000 << random.below(12));
    }
    for (_, link) in program.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(1_000_000 << random.below(12));
        link.latency = Nanos(random.below(100_000));
    }
    if random.below(2) == 0 {
        program.search.memory = Some(Bytes(2_000 << random.below(6)));
    }
    program
}

pub(super) fn within_bounds(candidate: &Candidate) {
    let Candidate { bound, step_time, device_peak, plan, .. } = candidate;
    assert!(bound.step_time() <= *step_time, "{bound:?} {} {plan:?}", step_time.0);
    assert!(bound.memory <= *device_peak, "{bound:?} {device_peak} {plan:?}");
}

/// Writing a table clears all its rows, which later micro-batches of a sum do not: products take as long
/// either way where arithmetic is slow.
#[test]
fn no_plan_beats_its_bound_for_what_it_adds_to_a_table() {
    let mut program = sample::program(2, 8);
    program.model = sample::gpt(1, 8, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    for (_, device) in program.target.devices.iter_mut() {
        (device.compute, device.bandwidth) =
            (FlopsPerSecond(1_000_000), BytesPerSecond(4_000_000));
        (device.overhead, device.issue) = (Nanos(0), Nanos(0));
    }
    let plans = all(&program).plans;
    assert!(plans.len() > 20, "{}", plans.len());
    plans.iter().for_each(within_bounds);
}

/// Tables, norms, heads and a loss, split among devices in all ways.
#[test]
fn no_plan_of_a_transformer_beats_its_bound() {
    let mut random = Random::new(61);
    let mut compared = 0;
    for round in 0..24 {
        let mut program = sample::program([2, 4][round % 2], 8);
        program.model = sample::gpt(2, 8, 16, round % 4 < 2);
        sample::give_room(&mut program, Bytes(1 << 30));
        cluster(&mut random, &mut program);
        second_kind(&mut random, &mut program);
        program.search.placement = Choice::OneOf(some(&mut random, Placement::ALL, 2));
        program.search.states = Choice::OneOf(some(&mut random, States::ALL, 2));
        program.search.stages = Numbers::Ranges(vec![(1, 3)]);
        let plans = allowed(&program, &everything());
        compared += plans.len();
        plans.iter().for_each(within_bounds);
    }
    assert!(compared > 300, "only {compared} plans");
}

#[test]
fn the_search_finds_what_clocking_every_plan_finds() {
    let mut random = Random::new(83);
    let (mut found, mut late) = (0, 0);
    for round in 0..PROGRAMS {
        let program = random_search(&mut random);
        let best_first = Options { top: 1, ..everything() };
        let ranking = survey(&program, &best_first, &mut Progress::default());
        if ranking.plans.is_empty() {
            assert!(
                survey(&program, &everything(), &mut Progress::default())
                    .plans
                    .is_empty(),
                "round {round}"
            );
            continue;
        }
        found += 1;
        let every = all(&program);
        every.plans.iter().for_each(within_bounds);
        let [best, least] = [&ranking.plans[0], &every.plans[0]];
        assert!(ranking.is_optimal(), "round {round}: gap {}", ranking.gap());
        assert_eq!(best.plan, least.plan, "round {round}");
        assert_eq!(best.step_time, least.step_time, "round {round}");
        assert_eq!(best.device_peak, least.device_peak, "round {round}");
        late += usize::from(best.plan.first_device() > 0);
    }
    assert!(found > PROGRAMS / 4, "only {found} programs have a plan");
    assert!(late > 5, "only {late} plans begin behind the first device");
}

/// Of models whose first and last stage use one table too.
#[test]
fn the_search_finds_the_best_pipeline_of_tied_stages() {
    let mut random = Random::new(19);
    let mut parted = 0;
    for round in 0..6 {
        let mut program = sample::program(pick(&mut random, &[2, 3, 4]), 8);
        program.model = sample::gpt(2, 8, 16, true);
        sample::give_room(&mut program, Bytes(60_000 << random.below(5)));
        cluster(&mut random, &mut program);
        program.search.placement =
            Choice::OneOf(vec![Placement::Pipeline, Placement::Accumulate]);
        program.search.stages = Numbers::Ranges(vec![(1, 4)]);
        program.search.objective = pick(&mut random, &Objective::ALL[..2]);
        let best_first = Options { top: 1, ..everything() };
        let ranking = survey(&program, &best_first, &mut Progress::default());
        let every = survey(&program, &everything(), &mut Progress::default()).plans;
        every.iter().for_each(within_bounds);
        let [best, least] = [ranking.plans.first(), every.first()];
        assert!(ranking.is_optimal(), "round {round}: gap {}", ranking.gap());
        assert_eq!(
            best.map(|own| &own.plan),
            least.map(|own| &own.plan),
            "round {round}"
        );
        parted += every.iter().filter(|own| !own.plan.ties.is_empty()).count();
    }
    assert!(parted > 40, "only {parted} plans part a table");
}

/// Where the limit is met, no plan that differs from the first in two decisions at most is better.
#[test]
fn no_plan_near_the_first_is_better_whatever_the_limit() {
    let mut random = Random::new(7);
    let (mut compared, mut moved) = (0, 0);
    for round in 0..60 {
        let mut program = random_search(&mut random);
        program.search.exactness = None;
        let limit = Options { top: 1, clocked_max: 1, ..Options::default() };
        let ranking = survey(&program, &limit, &mut Progress::default());
        let Some(first) = ranking.plans.first().filter(|_| !ranking.is_optimal()) else {
            continue;
        };
        let plans = &ranking.space.plans;
        let near =
            |other: &&Candidate| plans[other.number].differs(&plans[first.number]) <= 2;
        let every = all(&program).plans;
        for other in every.iter().filter(near) {
            let [own, score] = [first, other].map(|plan| plan.score(&ranking.goal));
            assert!(own <= score, "round {round}: {:?} {:?}", first.plan, other.plan);
            compared += 1;
        }
        moved += usize::from(ranking.clocked > 8);
    }
    assert!(compared > 50 && moved > 3, "{compared} compared, {moved} moved");
}

/// What is computed again is not pinned: a space has it only where nothing less fits, and more of
/// it may happen to be faster (`recompute.rs`).
#[test]
fn no_plan_that_is_pinned_beats_an_answer_without_a_gap() {
    let pins: [(&str, &[&str]); 10] = [
        ("tensor.rows", &["1", "2", "4"]),
        ("placement", &["accumulate", "data", "shared", "pipeline"]),
        ("order", &["gpipe", "1f1b", "eager_1f1b", "interleaved", "zb_h1", "zb_h2"]),
        ("order", &["zb_v", "v_min", "wave", "chimera", "dualpipe", "dualpipe_paired"]),
        ("states", &["replicated", "zero1", "zero2", "zero3"]),
        ("micro_batches", &["1", "2", "4", "8"]),
        ("stages", &["1", "2", "3", "4", "8"]),
        ("chunks", &["1", "2", "3", "4"]),
        ("replicas", &["1", "2", "4", "8"]),
        ("devices", &["1", "2", "4"]),
    ];
    let mut random = Random::new(29);
    let mut compared = 0;
    for round in 0..12 {
        let mut program = delayed(pick(&mut random, &[2, 4, 8]), 8);
        program.search.exactness = None;
        cluster(&mut random, &mut program);
        if round % 2 == 0 {
            second_kind(&mut random, &mut program);
        }
        // A limit that is never met, for weaker classes to end early.
        let most = Options { top: 1, clocked_max: 1 << 20, ..everything() };
        let answer = plan(&program, &most).expect("something fits");
        assert!(answer.is_optimal() && answer.gap() == 0.0);
        for _ in 0..40 {
            let mut pinned = program.clone();
            for (name, values) in pins {
                if random.below(2) == 0 {
                    let setting = format!("{name}={}", pick(&mut random, values));
                    pinned.search.set(&setting).expect("these are values");
                }
            }
            let one = Options { top: 1, clocked_max: 4, ..Options::default() };
            let Some(other) = best(&pinned, &one) else { continue };
            compared += 1;
            let [best, other] = [&answer.plans[0], &other];
            let (least, pinned) = (best.step_time, other.step_time);
            let [best, other] = [&best.plan, &other.plan];
            assert!(
                least <= pinned,
                "round {round}: {least} {best:?} {pinned} {other:?}"
            );
        }
    }
    assert!(compared > 50, "only {compared} settings have a plan");
}
