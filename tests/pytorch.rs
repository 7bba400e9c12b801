//! Whole models against PyTorch: ten training steps from the same numbers give the same losses.
//!
//! The expected losses were computed by `benches/pytorch_losses.py`, which states the models, the
//! optimizers and the formula of all numbers once more, in PyTorch and 64 bits.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

#[path = "pytorch/formula.rs"]
mod formula;

use formula::Examples;
use roundelay::{
    Checked, Program, Search, SourceFile,
    parts::{
        runtime::{Cpu, CpuOptions, Loss},
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

const MLP: Case = Case {
    name: "mlp.rdl",
    source: include_str!("pytorch/mlp.rdl"),
    losses: [
        0.6082849244188422,
        0.49537815174700056,
        0.3583574278867047,
        0.30967277800483883,
        0.1936983000229875,
        0.21032305344417637,
        0.19149610969163033,
        0.1928875018021393,
        0.22344414054630005,
        0.14863120787984535,
    ],
};

const GPT: Case = Case {
    name: "gpt.rdl",
    source: include_str!("pytorch/gpt.rdl"),
    losses: [
        4.611763684258484,
        4.337897276369672,
        4.423463397045177,
        4.052473403653947,
        3.7259649220431053,
        3.5126238471390505,
        3.416808695067049,
        3.1958499953178516,
        3.0315399933986766,
        2.9914754057537336,
    ],
};

impl Case {
    fn program(&self) -> Program {
        roundelay::parse(&SourceFile::new(self.name, self.source)).unwrap()
    }
}

fn compiled(program: &Program) -> Checked {
    let ranking = roundelay::plan(program, &Search::default()).unwrap();
    roundelay::compile(program, ranking.best()).unwrap()
}

/// The mean loss of every step, replayed on one CPU device.
fn replayed(schedule: &Checked) -> [f64; STEPS] {
    let feed = Box::new(Examples::of(schedule));
    let mut cpu = Cpu::new(schedule, feed, CpuOptions::default()).unwrap();
    cpu.load(&formula::state(&schedule.job)).unwrap();
    let share = 1.0 / f64::from(schedule.cell_micro_batches());
    let mut losses = [0.0; STEPS];
    let mut gather = |loss: Loss| losses[loss.step as usize] += loss.loss * share;
    cpu.replay(STEPS as u64, &mut gather).unwrap();
    losses
}

/// Largest difference of a program's losses from PyTorch's, relative; what is not a number
/// counts as infinite.
fn error(case: &Case, program: &Program) -> f64 {
    let losses = replayed(&compiled(program));
    let errors = losses.iter().zip(&case.losses).map(|(own, other)| own / other - 1.0);
    let finite = |error: f64| if error.is_nan() { f64::INFINITY } else { error.abs() };
    errors.map(finite).fold(0.0, f64::max)
}

fn agrees(case: &Case, dtype: Float, tolerance: f64) {
    let mut program = case.program();
    program.train.dtype = dtype;
    assert_eq!(compiled(&program).cell_micro_batches(), 2, "gradients accumulate");
    let error = error(case, &program);
    assert!(error <= tolerance, "{} in {dtype:?}: off by {error:e}", case.name);
}

#[test]
fn an_mlp_under_sgd_learns_as_in_pytorch() {
    agrees(&MLP, Float::F64, 1e-9);
    agrees(&MLP, Float::F32, 1e-4);
}

#[test]
fn a_gpt_under_adamw_learns_as_in_pytorch() {
    agrees(&GPT, Float::F64, 1e-9);
    agrees(&GPT, Float::F32, 1e-4);
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
