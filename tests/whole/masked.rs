//! A masked loss of a step is the mean over all targets of the step, and so are its gradients: however
//! the examples are divided into micro-batches, replicas and devices.

use crate::{
    columns::{descending, parameters},
    models::even_cuts,
    plans::{kinds, pipelines},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Kernels, Measures, Plan, Program, Schedule, check,
    parts::{
        runtime::{Cpu, CpuOptions, Evaluator, Feed, Fill, Oracle, State},
        schedule::{
            Element, Float, GradientSums, Hop, Id, Input, InputId, Order, Origin,
            Placement, Rule, Sequence, States, Tensor,
        },
    },
};
use std::collections::BTreeMap;

const STEPS: u64 = 3;
const BATCH: u64 = 8;
const LENGTH: u64 = 4;
/// Also the target that stands for none.
const CLASSES: u64 = 6;

/// Losses of the logits of the same features.
const LOSSES: [&str; 4] = [
    "cross_entropy(linear(x, weight = table, bias = false), targets, masked = true)",
    "linear_cross_entropy(x, targets, weight = table, chunks = 3, masked = true)",
    "cross_entropy(linear(x, weight = table, bias = false), targets, masked = true) \
     + 0.25 * linear_cross_entropy(x, tokens, weight = table)",
    "0.5 * cross_entropy(linear(gelu(x), weight = table, bias = false), targets, masked = true)",
];

/// A model that ends with a loss, in 64 bits.
fn model(loss: &str) -> Program {
    let text = format!(
        "model masked {{
            input tokens:  i32[batch, {LENGTH}]
            input targets: i32[batch, {LENGTH}]
            param table: [{CLASSES}, 8] = normal(0.5)
            x = embedding(tokens, {CLASSES}, 8)
            repeat 3 as layer {{ x = x + linear(gelu(linear(layer_norm(x), 16)), 8) }}
            loss {loss}
            metric accuracy(linear(x, weight = table, bias = false), targets, masked = true)
        }}"
    );
    descending(&text, BATCH as u32, "0.3", Float::F64)
}

/// Examples by their number in the step, whatever the micro-batches.
#[derive(Clone, Copy)]
struct Examples {
    /// Of one micro-batch.
    together: u64,
    targets: Targets,
}

/// Which examples have targets.
#[derive(Clone, Copy, PartialEq)]
enum Targets {
    /// All but the first two, each another number of them.
    Some,
    None,
}

impl Examples {
    fn of(schedule: &Checked, targets: Targets) -> Self {
        let together = BATCH / u64::from(schedule.plan.all_micro_batches());
        Self { together, targets }
    }
    fn number(self, input: InputId, t: u64, example: u64, place: u64) -> u64 {
        let number =
            (17 + 7 * t + 5 * example + 3 * place * place + example * place) % CLASSES;
        let has_target =
            self.targets == Targets::Some && example >= 2 && place <= example % LENGTH;
        if input.index() == 0 || has_target { number } else { CLASSES }
    }
}

impl Feed for Examples {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        assert!(input.index() < 2, "nobody asks a feed for what data does not bring");
        assert_eq!(bytes.len() as u64, 4 * LENGTH * self.together);
        for (index, bytes) in (0..).zip(bytes.chunks_exact_mut(4)) {
            let example = micro_batch * self.together + index / LENGTH;
            let number = self.number(input, t, example, index % LENGTH) as i32;
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
    }
}

/// The loss of every step and the parameters after the last, of the machine; the recursion has the
/// same bits.
struct Trained {
    losses: Vec<f64>,
    last: State,
}

fn trained(schedule: &Checked, targets: Targets) -> Trained {
    let mut feed = Examples::of(schedule, targets);
    let start = State::initial(&schedule.job);
    let mut oracle = Oracle::new(schedule, &start).unwrap();
    let expected: Vec<_> = (0..STEPS).map(|_| oracle.advance(&mut feed)).collect();
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(feed), options).unwrap();
    cpu.load(&start).unwrap();
    let all = schedule.plan.all_micro_batches() as usize;
    let mut losses = vec![vec![0.0; all]; STEPS as usize];
    cpu.replay(STEPS, &mut |loss| {
        losses[loss.step as usize][loss.micro_batch as usize] = loss.loss;
    })
    .unwrap();
    let last = saved(&mut cpu);
    assert_eq!(losses, expected, "{:?}", schedule.plan);
    assert!(last == oracle.state(), "{:?}", schedule.plan);
    let mean = |own: Vec<f64>| own.iter().sum::<f64>() / all as f64;
    Trained { losses: losses.into_iter().map(mean).collect(), last }
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-12 * (1.0 + expected.abs())
}

fn hold(program: &Program, plan: &Plan, expected: &Trained) {
    let found = trained(&compiled(program, plan), Targets::Some);
    for (found, expected) in found.losses.iter().zip(&expected.losses) {
        assert!(near(*found, *expected), "{plan:?}: {found} for {expected}");
    }
    let all: [BTreeMap<&str, Vec<f64>>; 2] =
        [&found.last, &expected.last].map(parameters);
    for (name, own) in &all[0] {
        for (found, expected) in own.iter().zip(&all[1][name]) {
            assert!(
                near(*found, *expected),
                "{plan:?}: {found} for {expected} in {name}"
            );
        }
    }
}

/// On one device, with this many micro-batches.
fn alone(program: &Program, n: u32) -> Plan {
    plan(program, kinds(1, 1)[0], n, 1)
}

fn replicated(program: &Program, n: u32, replicas: u32) -> Plan {
    let (placement, order) = (Placement::Pipeline, Order::OneForwardOneBackward);
    let cuts = even_cuts(program, 2);
    Plan::new(Rule::Sync, placement, order, States::Replicated, n, cuts)
        .replicated(replicas, 1)
}

/// Up to four micro-batches: the first of them has no target.
#[test]
fn steps_are_the_same_however_examples_are_divided() {
    for loss in LOSSES {
        let program = model(loss);
        let expected = trained(&compiled(&program, &alone(&program, 1)), Targets::Some);
        for n in [2, 4, 8] {
            hold(&program, &alone(&program, n), &expected);
        }
        let synchronous = |kind: &crate::plans::Kind| kind.0 == Rule::Sync;
        for kind in kinds(4, 2).into_iter().filter(synchronous) {
            hold(&program, &plan(&program, kind, 4, 2), &expected);
        }
        for plan in pipelines(4, &even_cuts(&program, 3)) {
            hold(&program, &plan, &expected);
        }
        for (n, replicas) in [(1, 2), (2, 2), (2, 4)] {
            hold(&program, &replicated(&program, n, replicas), &expected);
        }
    }
}

/// Classes of logits are divided among the rows of a grid.
#[test]
fn steps_are_the_same_however_tensors_are_divided() {
    for loss in LOSSES {
        let program = model(loss);
        let expected = trained(&compiled(&program, &alone(&program, 1)), Targets::Some);
        for tensor in [Tensor::grid(2, 1), Tensor::grid(1, 2), Tensor::grid(2, 2)] {
            for n in [1, 4] {
                let plan = alone(&program, n).with_tensor(tensor);
                hold(&program, &plan, &expected);
                let split = Tensor { sequence: Sequence::Split, ..tensor };
                hold(&program, &Plan { tensor: split, ..plan }, &expected);
            }
        }
    }
}

#[test]
fn a_loss_that_makes_its_logits_is_the_loss_of_logits() {
    let [whole, chunked] = [LOSSES[0], LOSSES[1]].map(model);
    let expected = trained(&compiled(&whole, &alone(&whole, 1)), Targets::Some);
    for n in [1, 2, 4] {
        hold(&chunked, &alone(&chunked, n), &expected);
    }
}

/// Without any target nothing is lost and nothing is learned.
#[test]
fn steps_without_targets_change_nothing() {
    for loss in &LOSSES[..2] {
        let program = model(loss);
        for plan in [alone(&program, 1), alone(&program, 4), replicated(&program, 2, 2)] {
            let schedule = compiled(&program, &plan);
            let found = trained(&schedule, Targets::None);
            assert_eq!(found.losses, [0.0; STEPS as usize]);
            let first = State::initial(&schedule.job);
            assert_eq!(parameters(&found.last), parameters(&first));
        }
    }
}

fn measured(schedule: &Checked, targets: Targets) -> Measures {
    let mut feed = Examples::of(schedule, targets);
    let state = State::initial(&schedule.job);
    let micro_batches = BATCH / feed.together;
    let mut evaluator = Evaluator::new(schedule).unwrap();
    evaluator.measure(&state, &mut feed, micro_batches).unwrap()
}

/// Losses, sums of losses and metrics are means over all targets on held-out data too.
#[test]
fn held_out_means_do_not_depend_on_micro_batches() {
    for loss in LOSSES {
        let program = model(loss);
        let first = trained(&compiled(&program, &alone(&program, 1)), Targets::Some);
        let expected = measured(&compiled(&program, &alone(&program, 1)), Targets::Some);
        assert!(near(expected.loss, first.losses[0]), "step 0 has the same targets");
        for n in [2, 4, 8] {
            let schedule = compiled(&program, &alone(&program, n));
            let found = measured(&schedule, Targets::Some);
            assert!(near(found.loss, expected.loss), "{loss} {n}");
            assert!(near(found.metrics["accuracy"], expected.metrics["accuracy"]));
            assert!(measured(&schedule, Targets::None).loss.is_nan());
        }
    }
}

/// Of this many rows that count a whole number is right.
#[test]
fn masked_accuracy_is_a_share_of_the_rows_that_count() {
    let program = model(LOSSES[0]);
    let schedule = compiled(&program, &alone(&program, 4));
    let accuracy = measured(&schedule, Targets::Some).metrics["accuracy"];
    let all: u64 = (2..BATCH).map(|example| example % LENGTH + 1).sum();
    let right = accuracy * all as f64;
    assert!((right - right.round()).abs() < 1e-12, "{right} of {all}");
    assert!(right > 0.5 && accuracy < 1.0, "{right} of {all}");
}

/// Heads of units have masked losses of their own, with the shares of the model's targets.
#[test]
fn units_have_masked_losses() {
    for loss in [LOSSES[0], LOSSES[3]] {
        let whole = model(loss);
        let rule = Rule::Local { units: 3, hop: Hop::None };
        let program = whole.under(rule).unwrap().into_owned();
        let boundaries = program.model.boundaries();
        let plan = |n| {
            let (placement, order) = (Placement::Accumulate, Order::Sequential);
            let cuts = boundaries.clone();
            Plan::new(rule, placement, order, States::Replicated, n, cuts)
                .with_boundaries(boundaries.clone())
        };
        let expected = trained(&compiled(&program, &plan(1)), Targets::Some);
        for n in [2, 4] {
            hold(&program, &plan(n), &expected);
        }
    }
}

#[test]
fn files_say_where_inputs_come_from() {
    let mut program = model(LOSSES[0]);
    let narrow = Float::Bf16(GradientSums::Same);
    for (dtype, element) in [(Float::F64, Element::Real), (narrow, Element::Wide)] {
        program.train.dtype = dtype;
        let schedule = compiled(&program, &alone(&program, 2));
        let text = roundelay::write(&schedule);
        assert!(roundelay::read(&text).unwrap() == *schedule);
        let shares = schedule.job.inputs.values().find(|input| !input.origin.is_data());
        let shares = shares.expect("they are an input");
        let expected = Input {
            name: "targets.shares.6".to_owned(),
            element,
            shape: vec![BATCH / 2],
            bound: 0,
            origin: Origin::Shares { of: "targets".to_owned(), mask: CLASSES },
        };
        assert_eq!(*shares, expected);
    }
}

/// Shares are those of the targets that they are read with.
#[test]
fn shares_of_something_else_are_refused() {
    let program = model(LOSSES[0]);
    let schedule = compiled(&program, &alone(&program, 2));
    let refused = |change: &dyn Fn(&mut Input)| {
        let mut schedule = Schedule::clone(&schedule);
        change(&mut schedule.job.inputs[InputId::new(2)]);
        check(schedule, &Kernels).expect_err("it is wrong").to_string()
    };
    let of = |of: &str, mask| {
        let origin = Origin::Shares { of: of.to_owned(), mask };
        refused(&|input| input.origin = origin.clone())
    };
    for (found, expected) in [
        (
            of("nothing", 6),
            "`targets.shares.6` has shares of `nothing`, which is not an input",
        ),
        (of("targets.shares.6", 6), "which is not an input that data brings"),
        (of("tokens", 6), "does not look up by them or leaves out another number"),
        (of("targets", 5), "the shares of `targets` where 5 stands for none"),
        (refused(&|input| input.element = Element::I32), "write real[4] below 0"),
        (refused(&|input| input.bound = 3), "write real[4] below 0"),
        (refused(&|input| input.shape.push(1)), "write real[4] below 0"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
    let mut others = Schedule::clone(&schedule);
    others.job.inputs[InputId::new(1)].element = Element::Real;
    let found = check(others, &Kernels).expect_err("reals are not counted").to_string();
    assert!(found.contains("only those of an i32 input are counted"), "{found}");
    let mut others = Schedule::clone(&schedule);
    others.job.inputs[InputId::new(0)].origin =
        Origin::Shares { of: "targets".to_owned(), mask: CLASSES };
    let found = check(others, &Kernels).expect_err("they come last").to_string();
    assert!(found.contains("must come behind those that it does"), "{found}");
}
