//! One process per device, here a thread for each: replays have the bits of one machine that has all
//! devices, and count what it counts, whatever the rule, the placement and the split of tensors.

use crate::{
    columns::descending,
    models::{gpt, job, mlp, program},
    oracle::STEPS,
    plans::{Kind, kinds, pipelines},
    ports::free_port,
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program, SearchOptions, Seat,
    parts::{
        runtime::{
            self, ArrayNumbers, Control, Cpu, CpuOptions, Dataset, Fill, Loss, Measured,
            State, StateError, Timing,
        },
        schedule::{Float, Sequence, Tensor},
    },
};
use roundelay_schedule::{Order, Placement, Rule, States};
use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// Steps before which a replay rests.
const RESTS: [u64; 2] = [2, STEPS];

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What a training came to: losses by step and micro-batch, the state, and what was counted.
#[derive(Debug, PartialEq)]
struct Trained {
    losses: Vec<(u64, u64, u64)>,
    state: State,
    counted: Measured,
}

impl Trained {
    /// Times are nobody's.
    fn new(mut losses: Vec<Loss>, state: State, measured: Measured) -> Self {
        losses.sort_by_key(|loss| (loss.step, loss.micro_batch));
        let bits = |own: &Loss| (own.step, own.micro_batch, own.loss.to_bits());
        let losses = losses.iter().map(bits).collect();
        let mut counted = measured;
        counted.routines.values_mut().for_each(|(_, time)| time.0 = 0);
        Self { losses, state, counted }
    }
}

fn options(timing: Timing) -> CpuOptions {
    CpuOptions { fill: Fill::Poison, timing, deadline: DEADLINE, ..CpuOptions::default() }
}

fn alone(schedule: &Checked, data: &Dataset) -> Trained {
    let options = options(Timing::Natural);
    let mut cpu = Cpu::new(schedule, Box::new(data.clone()), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let mut losses = Vec::new();
    for end in RESTS {
        cpu.replay(end, &mut |loss| losses.push(loss)).unwrap();
    }
    Trained::new(losses, saved(&mut cpu), cpu.measured().unwrap())
}

/// A state without what only training needs.
fn newest(mut state: State) -> State {
    for tensor in state.tensors.values_mut() {
        tensor.versions.truncate(1);
        tensor.optimizer.clear();
    }
    state
}

/// What the first rank has in the end, and none of the others; and the bytes that this one sent.
fn rank(schedule: &Checked, data: &Dataset, seat: &Seat) -> (Option<Trained>, u64) {
    let control = Arc::new(Control::meet(seat, DEADLINE).unwrap());
    let options = options(Timing::Jittered(u64::from(seat.rank)));
    let mut cpu =
        Cpu::of_rank(schedule, Box::new(data.clone()), options, control).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let mut losses = Vec::new();
    for end in RESTS {
        let mut listen = |loss| losses.push(loss);
        cpu.replay_while(end, &mut listen, &mut || true).unwrap();
    }
    let (state, parameters) = (cpu.save().unwrap(), cpu.newest().unwrap());
    assert!(
        parameters == state.clone().map(newest),
        "what is looked at is what is saved"
    );
    let measured = cpu.measured().unwrap();
    cpu.leave().unwrap();
    assert_eq!(state.is_some(), cpu.is_first());
    let trained = state.map(|state| Trained::new(losses, state, measured));
    (trained, cpu.sent().0)
}

/// What all ranks of a schedule do, each on a thread of its own, in their order.
pub(crate) fn on_ranks<T: Send>(
    schedule: &Checked,
    work: impl Fn(&Seat) -> T + Sync,
) -> Vec<T> {
    let size = schedule.facts().device_arena.len() * schedule.coordinates().len();
    let (host, port) = ("127.0.0.1".to_owned(), free_port());
    let seats = (0..size as u32).map(|rank| Seat {
        rank,
        size: size as u32,
        local: rank,
        host: host.clone(),
        port,
    });
    thread::scope(|scope| {
        let work = &work;
        let threads = seats.map(|seat| scope.spawn(move || work(&seat)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What the first rank has in the end, and the bytes that all sent.
fn together(schedule: &Checked, data: &Dataset) -> (Trained, u64) {
    let ends = on_ranks(schedule, |seat| rank(schedule, data, seat));
    let (mut ends, sent): (Vec<_>, Vec<u64>) = ends.into_iter().unzip();
    let first = ends.remove(0).unwrap();
    assert!(ends.iter().all(Option::is_none));
    (first, sent.iter().sum())
}

fn alike(program: &Program, plan: &Plan) {
    let schedule = compiled(program, plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let (one, (many, sent)) = (alone(&schedule, &data), together(&schedule, &data));
    assert_eq!(many.losses, one.losses, "{plan:?}");
    assert!(many.state == one.state, "{plan:?}");
    assert_eq!(many.counted, one.counted, "{plan:?}");
    let counted: u64 = one.counted.sent.values().map(|bytes| bytes.0).sum();
    // Shares of three parts are counted as long as the longest.
    let shares = if plan.tensor.rows == 3 { counted / 1000 } else { 0 };
    assert!(sent <= counted && counted - sent <= shares, "{sent} {counted} {plan:?}");
}

/// An array that says when it is made.
struct Watched<'a> {
    name: &'a str,
    numbers: &'a Vec<u8>,
    made: &'a Mutex<Vec<String>>,
}

impl ArrayNumbers for Watched<'_> {
    fn length(&self) -> usize {
        self.numbers.length()
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        self.made.lock().unwrap().push(self.name.to_owned());
        self.numbers.bytes()
    }
}

/// A state of which every array that is made is told by its name.
fn watched<'a>(state: &'a State, made: &'a Mutex<Vec<String>>) -> State<Watched<'a>> {
    let State { dtype, step, origin, optimizer_origin, ref tensors } = *state;
    let tensors = tensors.iter().map(|(name, own)| {
        let all = |arrays: &'a [Vec<u8>]| {
            arrays.iter().map(|numbers| Watched { name, numbers, made }).collect()
        };
        let (versions, optimizer) = (all(&own.versions), all(&own.optimizer));
        (
            name.clone(),
            runtime::ParameterState { shape: own.shape.clone(), versions, optimizer },
        )
    });
    State { dtype, step, origin, optimizer_origin, tensors: tensors.collect() }
}

/// The host of a rank needs room for its own part of a state alone.
#[test]
fn a_rank_makes_what_it_holds_once_and_nothing_else() {
    let program = mlp(4, 3);
    let kind = (Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated);
    let schedule = compiled(&program, &plan(&program, kind, 3, 3));
    let data = Dataset::open(&schedule.job, None).unwrap();
    let state = State::initial(&schedule.job);
    let made = on_ranks(&schedule, |seat| {
        let control = Arc::new(Control::meet(seat, DEADLINE).unwrap());
        let (feed, options) = (Box::new(data.clone()), options(Timing::Natural));
        let mut cpu = Cpu::of_rank(&schedule, feed, options, control).unwrap();
        let made = Mutex::new(Vec::new());
        cpu.load(&watched(&state, &made)).unwrap();
        cpu.leave().unwrap();
        let mut made = made.into_inner().unwrap();
        made.sort();
        made
    });
    for (stage, made) in schedule.job.states().zip(made) {
        let arrays = 1 + schedule.job.optimizer.arrays(schedule.job.dtype) as usize;
        let own = schedule.job.parameters_of(stage);
        let mut own: Vec<String> =
            own.flat_map(|own| vec![own.name.clone(); arrays]).collect();
        own.sort();
        assert_eq!(made, own, "{stage:?}");
    }
}

fn on_several((_, placement, ..): &Kind) -> bool {
    !matches!(placement, Placement::Accumulate | Placement::Concurrent)
}

#[test]
fn every_rule_and_placement_trains_in_ranks_like_in_one_process() {
    let program = mlp(4, 3);
    for kind in kinds(3, 3).into_iter().filter(on_several) {
        alike(&program, &plan(&program, kind, 3, 3));
    }
}

/// Units of layers, each with a head of its own, that hand on gradients of their own losses or of the
/// next unit's.
#[test]
fn local_rules_train_in_ranks_like_in_one_process() {
    for rule in
        ["local(units = 2)", "local(units = 2, overlap = 1)", "pairwise(units = 2)"]
    {
        let plan = format!(
            "plan {{ exactness local, rule {rule}, placement pipeline, micro_batches 2, stages 2 }}"
        );
        let units = program(&format!("{UNITS}\n{}\n{plan}", job(4)));
        let ranking = roundelay::plan(&units, &SearchOptions::default()).unwrap();
        alike(&units, ranking.best());
    }
}

const UNITS: &str = "model units {
    input features: real[batch, 12]
    input wanted: real[batch, 12]
    x = features
    repeat 2 as layer {
        x = relu(linear(x, 12))
    }
    loss mse(linear(x, 12), wanted)
}";

#[test]
fn pipelines_train_in_ranks_like_in_one_process() {
    let program = gpt(2, 4);
    let cuts = plan(&program, kinds(4, 4)[0], 4, 4).cuts;
    for plan in pipelines(4, &cuts).into_iter().step_by(3) {
        alike(&program, &plan);
    }
}

#[test]
fn replicas_and_shards_train_in_ranks_like_in_one_process() {
    let program = gpt(2, 8);
    for (states, shards) in [
        (States::Replicated, 1),
        (States::Zero2, 1),
        (States::Zero3, 1),
        (States::Hsdp, 2),
    ] {
        let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
        alike(&program, &plan(&program, kind, 2, 2).replicated(4, shards));
    }
    let clipped = job(8).replace("weight_decay = 0.1", "clip = 0.01");
    let clipped = descending_job(MAPS, &clipped);
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Zero2);
    alike(&clipped, &plan(&clipped, kind, 2, 2).replicated(2, 1));
}

const MAPS: &str = "model maps {
    input features: real[batch, 12]
    input wanted: real[batch, 12]
    x = linear(relu(linear(features, 20)), 12)
    loss mse(linear(relu(linear(x, 20)), 12), wanted)
}";

fn descending_job(model: &str, job: &str) -> Program {
    program(&format!("{model}\n{job}"))
}

/// Windows of seven and three, in steps of one and two, both norms, and padding of both kinds.
const IMAGES: &str = "model images {
    input images: real[batch, 32, 8, 3]
    input wanted: real[batch, 8, 2, 4]
    x = relu(batch_norm(conv2d(images, 4, kernel = 7)))
    x = max_pool(x, 3, stride = 2, padding = 1)
    y = silu(group_norm(conv2d(x, 4, stride = 2), 2))
    loss mse(conv2d(dropout(y, 0.2), 4), wanted)
}";

/// Strips of rows go from neighbour to neighbour, and their gradients back.
#[test]
fn images_of_pixels_train_in_ranks_like_in_one_process() {
    let images = program(&format!("{IMAGES}\n{}", job(4)));
    let pipeline = (Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated);
    let whole =
        (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    for (kind, stages, rows) in [(pipeline, 2, 2), (whole, 1, 4)] {
        let plan = plan(&images, kind, 2, stages).with_tensor(Tensor::pixels(rows));
        alike(&images, &plan);
    }
}

/// Of rows, tokens, grids and halves, with a sum of three parts, which are no equal shares.
#[test]
fn split_tensors_train_in_ranks_like_in_one_process() {
    let program = gpt(2, 4);
    let tensors = [
        Tensor::rows(2, Sequence::Whole),
        Tensor::rows(2, Sequence::Split),
        Tensor::grid(2, 2),
        Tensor::grid(2, 1).in_halves(),
    ];
    let pipeline = (
        Rule::Sync,
        Placement::Pipeline,
        Order::OneForwardOneBackward,
        States::Replicated,
    );
    let cyclic = (Rule::CyclicV2, Placement::Data, Order::Cyclic, States::Replicated);
    for (number, tensor) in tensors.into_iter().enumerate() {
        let kind = if number % 2 == 0 { pipeline } else { cyclic };
        alike(&program, &plan(&program, kind, 2, 2).with_tensor(tensor));
    }
    let maps = descending(MAPS, 4, "1e-2", Float::F64);
    let whole =
        (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    let rows = Tensor::rows(3, Sequence::Whole);
    alike(&maps, &plan(&maps, whole, 2, 1).with_tensor(rows));
}
