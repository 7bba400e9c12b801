//! Small models of every family train: the step that their gradients say is the change of the
//! loss that it makes.

use super::{accepted, small::small};
use roundelay::{
    Checked, Program, RunEvent, RunOptions, SearchOptions, SourceFile, State,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset},
        schedule::{Float, Rate, Rule},
    },
};

const RATE: f64 = 1e-6;

/// The small program on two devices of this machine, with plain descent in f64.
pub(crate) fn program(text: &str) -> Program {
    let (model, _) = text.split_once("\ncluster ").expect("a cluster follows the model");
    let text = format!(
        "{model}
         device core {{ memory 2 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
         link bus {{ bandwidth 8 GB/s, latency 2 us }}
         cluster two {{ 2 x core joined by bus }}
         train {{ data synthetic, batch 4, optimizer sgd(lr = {RATE}), steps 2, seed 5 }}
         plan {{ micro_batches 2 }}"
    );
    let source = SourceFile::new("small.rdl", text);
    roundelay::parse(&source).unwrap_or_else(|wrong| panic!("{wrong}"))
}

pub(crate) fn compiled(program: &Program) -> Checked {
    let ranking =
        roundelay::plan(program, &SearchOptions { top: 1, ..SearchOptions::default() });
    let ranking = ranking.unwrap_or_else(|refusal| panic!("{refusal}"));
    let best = ranking.best();
    assert_eq!(best.rule, Rule::Sync);
    roundelay::compile(program, best).unwrap_or_else(|error| panic!("{error}"))
}

/// The loss of the first step from a state, and the state after it.
fn step(schedule: &Checked, state: &State) -> (f64, State) {
    let data = Dataset::open(&schedule.job, None).expect("it is drawn");
    let mut cpu =
        Cpu::new(schedule, Box::new(data), CpuOptions::default()).expect("small");
    cpu.load(state).expect("a state of this model");
    let mut losses = Vec::new();
    cpu.replay(1, &mut |loss| losses.push(loss.loss)).expect("nothing fails");
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    let state = cpu.save().expect("it is at rest");
    (loss, state.expect("it is the only rank"))
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| f64::from_ne_bytes(*word))
}

/// The squared length of the way from one state to another; every parameter must have moved,
/// but for biases of keys, to which softmax is blind.
fn moved(name: &str, from: &State, to: &State) -> f64 {
    let mut total = 0.0;
    for (parameter, old) in &from.tensors {
        let new = &to.tensors[parameter];
        let pairs = numbers(&old.versions[0]).zip(numbers(&new.versions[0]));
        let square: f64 = pairs.map(|(old, new)| (new - old).powi(2)).sum();
        let is_blind = parameter.ends_with("key.bias");
        assert!(square > 0.0 || is_blind, "{name}: `{parameter}` does not move");
        total += square;
    }
    total
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (name, text) in small() {
        let mut program = program(&accepted(&text).text);
        program.train.dtype = Float::F64;
        program.train.optimizer.rate = Rate::Constant(RATE);
        let schedule = compiled(&program);
        let start = State::initial(&schedule.job);
        let (before, after) = step(&schedule, &start);
        let along = moved(name, &start, &after) / RATE;
        let mut again = after;
        (again.step, again.origin) = (0, 0);
        let (less, _) = step(&schedule, &again);
        let fallen = before - less;
        let error = (fallen - along).abs() / along;
        assert!(along > 1e-9 && error < 1e-3, "{name}: fell by {fallen}, slope {along}");
    }
}

#[test]
fn small_models_run_as_they_were_written() {
    for (name, text) in small() {
        let schedule = compiled(&program(&accepted(&text).text));
        let mut losses = Vec::new();
        let outcome = roundelay::run(&schedule, &RunOptions::default(), |event| {
            if let RunEvent::Step { loss, .. } = event {
                losses.push(loss);
            }
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(losses.len(), 2, "{name}");
        assert!(losses.iter().all(|loss| loss.is_finite()), "{name}: {losses:?}");
    }
}
