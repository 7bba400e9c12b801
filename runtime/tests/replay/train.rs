//! The training loop: rests for evaluation and checkpoints change no number, and a run goes on
//! from a checkpoint as if it had never stopped.

use crate::support::{
    models::gpt,
    runs::{compile, plan},
};
use roundelay_runtime::{
    ArrayNumbers, Checkpointing, Checkpoints, Cpu, CpuOptions, Dataset, Evaluating,
    Evaluator, Every, HeldOut, Interrupt, Measures, Oracle, Progress, Provenance, Rests,
    Resumed, Resumption, State, TrainObserver, Trainer,
};
use roundelay_schedule::{Checked, Order, Placement, Rule, States};
use std::{env, fs, path::PathBuf, process};

const STEPS: u64 = 6;

/// Writes down what it is told, and wishes that the run ends with step `last`.
#[derive(Default)]
struct Witness {
    steps: Vec<(u64, u64)>,
    evaluated: Vec<(u64, u64)>,
    rested: Vec<u64>,
    last: Option<u64>,
    interrupt: Interrupt,
}

impl TrainObserver for Witness {
    fn step(&mut self, progress: &Progress) {
        assert!(progress.samples_per_s > 0.0);
        self.steps.push((progress.step, progress.loss.to_bits()));
        if self.last == Some(progress.step) {
            self.interrupt.raise();
        }
    }
    fn evaluated(&mut self, step: u64, measures: &Measures) {
        self.evaluated.push((step, measures.loss.to_bits()));
    }
    fn rested(&mut self, step: u64) {
        self.rested.push(step);
    }
}

fn schedule() -> Checked {
    let program = gpt(2, 12);
    let kind = (Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, States::Replicated);
    compile(&program, &plan(&program, kind, (3, 3)))
}

fn data(schedule: &Checked) -> (Dataset, HeldOut) {
    let data = Dataset::open(&schedule.job, None).expect("drawn data is always there");
    let held_out = data.held_out(24).expect("drawn data is always there");
    (data, held_out)
}

fn trainer<A: ArrayNumbers>(
    schedule: &Checked,
    state: &State<A>,
    checkpoint: Checkpointing,
) -> Trainer {
    let (data, held_out) = data(schedule);
    let mut cpu =
        Cpu::new(schedule, Box::new(data), CpuOptions::default()).expect("threads start");
    cpu.load(state).expect("the state fits");
    let held_out = Box::new(held_out);
    let steps = Every::new(2).expect("two steps are some");
    let evaluate = Evaluating::Every { steps, held_out };
    Trainer::new(cpu, Rests { evaluate, checkpoint })
}

/// Step losses and held-out losses of the plain recursion.
fn expected(schedule: &Checked) -> [Vec<(u64, u64)>; 2] {
    let (mut data, mut held_out) = data(schedule);
    let mut oracle =
        Oracle::new(schedule, &State::initial(&schedule.job)).expect("a new state fits");
    let mut evaluator = Evaluator::new(schedule).expect("kernels are well formed");
    let [mut steps, mut evaluations] = [Vec::new(), Vec::new()];
    for step in 0..STEPS {
        let losses = oracle.advance(&mut data);
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        steps.push((step, mean.to_bits()));
        if (step + 1) % 2 == 0 {
            let count = held_out.micro_batches();
            let found = evaluator.measure(&oracle.state(), &mut held_out, count);
            evaluations
                .push((step + 1, found.expect("its own state fits").loss.to_bits()));
        }
    }
    [steps, evaluations]
}

fn folder(name: &str) -> PathBuf {
    env::temp_dir().join(format!("roundelay-{name}-{}", process::id()))
}

#[test]
fn evaluation_and_checkpoints_between_segments_change_nothing() {
    let schedule = schedule();
    let folder = folder("train");
    let run = Provenance::new(&schedule, &data(&schedule).0);
    let checkpoints = Checkpoints::start(&folder, run.clone()).unwrap();
    let steps = Every::new(3).unwrap();
    let checkpoint = Checkpointing::Every { steps, checkpoints };
    let state = State::initial(&schedule.job);
    let mut witness = Witness { last: Some(3), ..Witness::default() };
    let first = trainer(&schedule, &state, checkpoint)
        .interruptible(witness.interrupt.clone())
        .run(STEPS, &mut witness)
        .unwrap();
    assert_eq!((first.first, first.end, first.losses.len()), (0, 4, 4));
    assert_eq!(witness.rested, [2, 3, 4]);

    let resumption = Resumption::of(&folder, &schedule, &run).unwrap();
    assert_eq!((resumption.state.step, &resumption.resumed), (4, &Resumed::Exactly));
    let mut rest = Witness::default();
    let mut second = trainer(&schedule, &resumption.state, Checkpointing::Never);
    let report = second.run(STEPS, &mut rest).unwrap();
    fs::remove_dir_all(&folder).unwrap();

    let [steps, evaluations] = expected(&schedule);
    assert_eq!(witness.steps, steps[..4]);
    assert_eq!(rest.steps, steps[4..]);
    assert_eq!(witness.evaluated, evaluations[..2]);
    assert_eq!(rest.evaluated, evaluations[2..]);
    assert_eq!(report.measured.steps, 2);
}
