//! Models in units: every parameter has the gradient of its own unit's loss, at every cut, and
//! without stops and losses of heads all is as if there were no units.

use crate::support::{
    machine::{Machine, Run, Trace, context},
    residual::residual,
    units::{forward, loss_of},
};
use roundelay_codegen::{Differentiated, Stages, stages};
use roundelay_dsl::{Model, Operation, localised};
use roundelay_schedule::{Float, Hop, Id, Method, Optimizer, Rate, Role, Stage};
use std::collections::BTreeMap;

const EXAMPLES: u64 = 2;
const LAYERS: usize = 5;
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-6;

/// The model whose units are looked at.
fn whole() -> Model {
    residual("layer_norm", LAYERS)
}

fn units(count: u32) -> Model {
    localised(&whole(), count, Hop::None).expect("there are enough layers")
}

fn cut(model: &Model, cuts: &[u32], dtype: Float) -> Stages {
    stages(model, cuts, EXAMPLES, dtype, 16).expect("no parameter is shared")
}

fn train(stages: &Stages) -> Trace {
    let method = Method::Sgd { momentum: 0.9, nesterov: true };
    let rate = Rate::Constant(0.05);
    let optimizer = Optimizer { method, rate, weight_decay: 0.1, clip: 0.0 };
    let form = roundelay_codegen::UpdateForm::InPlace;
    let run = Run { optimizer: &optimizer, micro_batches: 2, steps: 2, form, parts: 1 };
    Machine::new::<f32>(stages, method.states()).train::<f32>(&run)
}

#[test]
fn a_parameter_has_the_gradient_of_its_own_units_loss() {
    for count in 1..=LAYERS {
        let model = units(count as u32);
        let stages = cut(&model, &model.boundaries(), Float::F64);
        let mut machine = forward(&stages, None);
        machine.backward::<f64>(&context(3, 0));
        assert_eq!(stages.stages.len(), count);
        for parameter in &stages.parameters {
            for element in 0..parameter.elements() {
                let place = parameter.offset + element;
                let found = machine.get::<f64>(parameter.stage, Role::Gradient, place);
                let [above, below] = [STEP, -STEP].map(|delta| {
                    let machine = forward(&stages, Some((parameter, element, delta)));
                    loss_of(&machine, parameter.stage.index(), count)
                });
                let expected = (above - below) / (2.0 * STEP);
                let wrong = (found - expected).abs();
                let name = &parameter.name;
                assert!(wrong <= TOLERANCE, "{name}[{element}]: {found}, {expected}");
            }
        }
    }
}

#[test]
fn cuts_change_no_bit_of_a_model_in_units() {
    for count in 2..=4 {
        let model = units(count);
        let whole = train(&cut(&model, &[], Float::F32));
        let end = model.cuttable() as u32;
        let single = (1..end).map(|at| vec![at]);
        for cuts in single.chain([model.boundaries(), (1..end).collect()]) {
            assert!(train(&cut(&model, &cuts, Float::F32)) == whole, "{cuts:?}");
        }
    }
}

#[test]
fn no_gradient_crosses_a_boundary() {
    let model = units(3);
    let boundaries = model.boundaries();
    let all: Vec<u32> = (1..model.cuttable() as u32).collect();
    for cuts in [boundaries.clone(), all] {
        let stages = cut(&model, &cuts, Float::F32);
        let end = |node: u32| boundaries.iter().filter(|b| **b <= node).count();
        let unit = |stage: Stage| end(stages.stages[stage].nodes.start as u32);
        let mut inside = 0;
        for value in stages.values.values() {
            if let Differentiated::From(last) = value.gradient {
                assert_eq!(unit(value.producer), unit(last), "{}", value.name);
                inside += 1;
            }
        }
        assert_eq!(inside > 0, cuts.len() > boundaries.len());
    }
}

#[test]
fn without_stops_and_losses_of_heads_all_is_as_before() {
    let plain = train(&cut(&whole(), &[], Float::F32));
    let mut model = units(3);
    for (_, node) in model.nodes.iter_mut() {
        if node.operation == Operation::Boundary(Hop::None) {
            node.operation = Operation::Reshape;
        }
    }
    model.auxiliary.clear();
    let found = train(&cut(&model, &[], Float::F32));
    let shared = |all: &BTreeMap<String, Vec<u64>>| {
        let own = all.iter().filter(|(name, _)| !name.contains(".head."));
        own.map(|(name, bits)| (name.clone(), bits.clone())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(found.losses, plain.losses);
    assert_eq!(shared(&found.gradients), plain.gradients);
    assert_eq!(shared(&found.parameters), plain.parameters);
    let stopped = train(&cut(&units(3), &[], Float::F32));
    assert_ne!(shared(&stopped.gradients), plain.gradients, "stops change gradients");
}

#[test]
fn one_unit_is_the_model_itself() {
    assert_eq!(units(1), whole());
}
