//! Cuts, shards and the form of the update change no bit of losses, gradients and parameters.

use crate::support::{
    build::{Numbers, nodes},
    machine::{Machine, Run, Trace, context},
    random::random_model,
};
use roundelay_codegen::{StageError, Stages, UpdateForm, combine, stages};
use roundelay_dsl::Model;
use roundelay_kernels::Real;
use roundelay_schedule::{Float, Id, Method, Optimizer, Rate, Role, Stage};

const EXAMPLES: u64 = 2;

fn optimizer(method: Method) -> Optimizer {
    Optimizer { method, rate: Rate::Constant(0.05), weight_decay: 0.1, clip: 0.0 }
}

const ADAMW: Method = Method::Adamw { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };
const SGD: Method = Method::Sgd { momentum: 0.9, nesterov: true };
const PLAIN: Method = Method::Sgd { momentum: 0.0, nesterov: false };

fn cut(model: &Model, cuts: &[u32], padding: u64) -> Result<Stages, StageError> {
    stages(model, cuts, EXAMPLES, Float::F32, padding)
}

fn train(stages: &Stages, method: Method, form: UpdateForm, parts: u64) -> Trace {
    let optimizer = optimizer(method);
    let run = Run { optimizer: &optimizer, micro_batches: 2, steps: 2, form, parts };
    Machine::new::<f32>(stages, method.states()).train::<f32>(&run)
}

/// Ascending node numbers, each taken with a chance of one in `sparse`.
fn random_cuts(numbers: &mut Numbers, end: u32, sparse: u64) -> Vec<u32> {
    (1..end).filter(|_| numbers.below(sparse) == 0).collect()
}

fn is_defined(trace: &Trace) -> bool {
    let rows = trace.gradients.values().chain(trace.parameters.values());
    rows.flatten().chain(&trace.losses).all(|bits| f64::from_bits(*bits).is_finite())
}

#[test]
fn cuts_change_no_bit_of_random_models() {
    let mut compared = 0;
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let size = 2 + numbers.below(10) as usize;
        let model = random_model(&mut numbers, size);
        let method = numbers.pick(&[ADAMW, SGD, PLAIN]);
        let whole = cut(&model, &[], 16).expect("an uncut model has no ties");
        let expected = train(&whole, method, UpdateForm::InPlace, 1);
        assert!(is_defined(&expected), "model {seed}: something undefined was read");
        let end = nodes(&model);
        for sparse in [1, 2, 4, 8] {
            let cuts = random_cuts(&mut numbers, end, sparse);
            let found = match cut(&model, &cuts, 16) {
                // Ties are summed stage by stage.
                Ok(stages) if !stages.ties.is_empty() => continue,
                Ok(stages) => train(&stages, method, UpdateForm::Next, 1),
                Err(error) => panic!("model {seed} at {cuts:?}: {error}"),
            };
            assert!(found == expected, "model {seed} at {cuts:?}");
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} cuts had no ties");
}

#[test]
fn shards_and_forms_change_no_bit() {
    for (seed, method) in [(3, ADAMW), (4, SGD), (5, PLAIN)] {
        let model = random_model(&mut Numbers(seed), 8);
        let stages = cut(&model, &[], 48).expect("an uncut model has no ties");
        let expected = train(&stages, method, UpdateForm::InPlace, 1);
        for (form, parts) in
            [(UpdateForm::Next, 1), (UpdateForm::InPlace, 3), (UpdateForm::Next, 3)]
        {
            let found = train(&stages, method, form, parts);
            assert!(found == expected, "{method:?}, {form:?}, {parts} parts");
        }
    }
}

#[test]
fn the_whole_flat_gradient_is_defined() {
    for seed in 0..20 {
        let model = random_model(&mut Numbers(seed), 6);
        let end = nodes(&model);
        for cuts in [vec![], vec![end / 2], vec![1, end - 1]] {
            let Ok(stages) = cut(&model, &cuts, 80) else { continue };
            let mut machine = Machine::new::<f32>(&stages, 0);
            machine.feed::<f32>(1);
            machine.forward::<f32>(&context(0, 0));
            machine.backward::<f32>(&context(0, 0));
            for (stage, elements) in stages.elements.iter() {
                assert_eq!(elements % 80, 0);
                let element = |k| machine.get::<f32>(stage, Role::Gradient, k);
                assert!((0..*elements).all(|k| element(k).is_finite()), "{stage}");
            }
        }
    }
}

/// The gradient after the backward passes of some micro-batches.
fn gradient(stages: &Stages, micro_batches: &[u64]) -> Vec<f32> {
    let mut machine = Machine::new::<f32>(stages, 0);
    for (place, micro_batch) in micro_batches.iter().enumerate() {
        machine.feed::<f32>(*micro_batch);
        machine.forward::<f32>(&context(0, place as u64));
        machine.backward::<f32>(&context(0, place as u64));
    }
    let stage = Stage::new(0);
    let element = |k| machine.get::<f32>(stage, Role::Gradient, k);
    (0..stages.elements[stage]).map(element).collect()
}

#[test]
fn combine_adds_the_received_gradient() {
    let model = random_model(&mut Numbers(9), 3);
    let stages = cut(&model, &[], 16).expect("an uncut model has no ties");
    let stage = Stage::new(0);
    let [own, received] = [gradient(&stages, &[1]), gradient(&stages, &[2])];
    let mut machine = Machine::new::<f32>(&stages, 0);
    machine.put::<f32>(stage, Role::Gradient, &own);
    machine.put::<f32>(stage, Role::Received, &received);
    machine.launch::<f32>(&combine(&stages, stage, Float::F32), &context(0, 0));
    for (k, (own, received)) in own.iter().zip(&received).enumerate() {
        let sum = machine.get::<f32>(stage, Role::Gradient, k as u64);
        assert_eq!(sum.widen().to_bits(), (own + received).widen().to_bits());
    }
}
