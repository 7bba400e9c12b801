//! Whole models against PyTorch: ten training steps from the same numbers give the same losses.
//!
//! The expected losses were computed by `benches/pytorch_losses.py`, which states the models, the
//! optimizers and the formula of all numbers once more, in PyTorch and 64 bits.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod formula;
mod losses;

use formula::Examples;
use losses::{
    GPT, GPT2, HYBRID, LLAMA, MLP, RESNET, RESNET_EVALUATED, RESNET_UNSPLIT, VIT,
};
use roundelay::{
    Checked, Program, SearchOptions, SourceFile,
    parts::{
        dsl::Numbers,
        runtime::{Cpu, CpuOptions, Evaluator, Loss, State},
        schedule::{Float, Treatment},
    },
};

const STEPS: usize = 10;

/// A program, and what PyTorch says about it.
struct Case {
    name: &'static str,
    source: &'static str,
    losses: [f64; STEPS],
}

impl Case {
    fn program(&self) -> Program {
        roundelay::parse(&SourceFile::new(self.name, self.source)).unwrap()
    }
}

fn compiled(program: &Program) -> Checked {
    let ranking = roundelay::plan(program, &SearchOptions::default()).unwrap();
    roundelay::compile(program, ranking.best()).unwrap()
}

/// The mean loss of every step, replayed on one CPU device, and the state after the last.
fn replayed(schedule: &Checked) -> ([f64; STEPS], State) {
    let feed = Box::new(Examples::of(schedule));
    let mut cpu = Cpu::new(schedule, feed, CpuOptions::default()).unwrap();
    cpu.load(&formula::state(&schedule.job)).unwrap();
    let share = 1.0 / f64::from(schedule.cell_micro_batches());
    let mut losses = [0.0; STEPS];
    let mut gather = |loss: Loss| losses[loss.step as usize] += loss.loss * share;
    cpu.replay(STEPS as u64, &mut gather).unwrap();
    (losses, cpu.save().unwrap().expect("it is the only rank"))
}

/// Largest difference of a program's losses from PyTorch's, relative; what is not a number
/// counts as infinite.
fn error(case: &Case, program: &Program) -> f64 {
    let (losses, _) = replayed(&compiled(program));
    let errors = losses.iter().zip(&case.losses).map(|(own, other)| own / other - 1.0);
    let finite = |error: f64| if error.is_nan() { f64::INFINITY } else { error.abs() };
    errors.map(finite).fold(0.0, f64::max)
}

/// Element types, and how far from PyTorch's 64 bits they may be, relative.
const PRECISIONS: [(Float, f64); 2] = [(Float::F64, 1e-9), (Float::F32, 1e-4)];

/// With two micro-batches, so that gradients accumulate.
fn agrees(case: &Case) {
    for (dtype, tolerance) in PRECISIONS {
        let mut program = case.program();
        program.train.dtype = dtype;
        assert_eq!(compiled(&program).cell_micro_batches(), 2);
        let error = error(case, &program);
        assert!(error <= tolerance, "{} in {dtype:?}: off by {error:e}", case.name);
    }
}

#[test]
fn an_mlp_under_sgd_learns_as_in_pytorch() {
    agrees(&MLP);
}

#[test]
fn transformers_under_adamw_learn_as_in_pytorch() {
    for case in [GPT, GPT2, LLAMA, VIT] {
        agrees(&case);
    }
}

#[test]
fn convolutions_learn_as_in_pytorch() {
    agrees(&HYBRID);
}

/// The last layers normalise over four numbers, which amplifies rounding: PyTorch's own 32 bits
/// are off by 3.1e-3 here.
#[test]
fn batches_are_normalised_per_micro_batch() {
    for (dtype, tolerance) in [(Float::F64, 1e-9), (Float::F32, 1e-2)] {
        let mut program = RESNET.program();
        program.train.dtype = dtype;
        assert_eq!(compiled(&program).cell_micro_batches(), 2);
        let error = error(&RESNET, &program);
        assert!(error <= tolerance, "{dtype:?}: off by {error:e}");
    }
}

/// PyTorch averages the statistics of one micro-batch after another, a training step here those
/// of all its micro-batches at once: with one micro-batch both are the same.
#[test]
fn running_averages_evaluate_as_in_pytorch() {
    for (dtype, tolerance) in PRECISIONS {
        let mut program = RESNET_UNSPLIT.program();
        program.train.dtype = dtype;
        program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
        let error = error(&RESNET_UNSPLIT, &program);
        assert!(error <= tolerance, "{dtype:?}: off by {error:e}");
        let schedule = compiled(&program);
        let (_, state) = replayed(&schedule);
        let mut evaluator = Evaluator::new(&schedule).unwrap();
        let measures = evaluator.measure(&state, &mut Examples::of(&schedule), 1);
        let error = (measures.unwrap().loss / RESNET_EVALUATED - 1.0).abs();
        assert!(error <= tolerance, "{dtype:?}: evaluation off by {error:e}");
    }
}

#[test]
fn another_decay_would_be_seen() {
    for case in [MLP, GPT] {
        let mut stronger = case.program();
        stronger.train.optimizer.weight_decay *= 1.01;
        let mut wider = case.program();
        wider
            .model
            .parameters
            .iter_mut()
            .for_each(|(_, p)| p.treatment = Treatment::Decayed);
        for program in [stronger, wider] {
            assert!(error(&case, &program) > 1e-7, "{}", case.name);
        }
    }
}
