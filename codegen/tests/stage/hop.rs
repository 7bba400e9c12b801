//! Units between which a gradient hops back: every parameter has the gradient that the rule says,
//! against finite differences, which is not that of the summed losses.

use crate::support::{
    machine::context,
    residual::residual,
    units::{forward, loss_of},
};
use roundelay_codegen::{BackwardCode, StageError, Stages, stages};
use roundelay_dsl::{Extent, Mistake, Model, ModelBuilder, TensorValue, localised};
use roundelay_schedule::{Element, Float, Hop, Id, Parameter, Role, Treatment};

const EXAMPLES: u64 = 3;
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-6;

/// Convolutions with batch normalisation, whose kernels make gradients of values and of parameters
/// in one call.
fn images(activation: &str) -> Model {
    let build = || -> Result<Model, Mistake> {
        let mut model = ModelBuilder::new("images");
        let shape = [Extent::batch(), 4u64.into(), 4u64.into(), 2u64.into()];
        let images = model.input("images", Element::Real, &shape)?;
        let classes = model.input("classes", Element::I32, &[Extent::batch()])?;
        let layer = |model: &mut ModelBuilder, x: TensorValue, width: i64| {
            let x = model.call("conv2d", vec![x.into(), width.into()])?;
            let x = model.call("batch_norm", vec![x.into()])?;
            model.call(activation, vec![x.into()])
        };
        let x = layer(&mut model, images, 2)?;
        let x = layer(&mut model, x, 3)?;
        let x = layer(&mut model, x, 2)?;
        let pooled = model.call("global_pool", vec![x.into()])?;
        let logits = model.call("linear", vec![pooled.into(), 3.into()])?;
        let loss = model.call("cross_entropy", vec![logits.into(), classes.into()])?;
        model.loss(&loss)
    };
    build().expect("the model is right")
}

fn cut(model: &Model, units: u32, hop: Hop) -> Stages {
    let model = localised(model, units, hop).expect("there are enough layers");
    let cuts = model.boundaries();
    stages(&model, &cuts, EXAMPLES, Float::F64, 16).expect("units are stages")
}

/// The losses of all units, when one element is moved.
fn losses(stages: &Stages, moved: Option<(&Parameter, u64, f64)>) -> Vec<f64> {
    let machine = forward(stages, moved);
    let units = stages.stages.len();
    (0..units).map(|unit| loss_of(&machine, unit, units)).collect()
}

/// Every element of what is trained by gradients, with the gradient that backward passes make and
/// the differences of the losses of all units.
fn gradients(stages: &Stages) -> Vec<(&Parameter, f64, Vec<f64>)> {
    let mut machine = forward(stages, None);
    machine.backward::<f64>(&context(3, 0));
    let trained = |own: &&Parameter| !matches!(own.treatment, Treatment::Averaged { .. });
    let each = stages.parameters.iter().filter(trained).flat_map(|parameter| {
        (0..parameter.elements()).map(move |element| (parameter, element))
    });
    let one = |(parameter, element): (&'_ Parameter, u64)| {
        let place = parameter.offset + element;
        let [above, below] =
            [STEP, -STEP].map(|delta| losses(stages, Some((parameter, element, delta))));
        let slopes =
            above.iter().zip(below).map(|(above, below)| (above - below) / (2.0 * STEP));
        (machine.get::<f64>(parameter.stage, Role::Gradient, place), slopes.collect())
    };
    let all = each.map(|(parameter, element)| {
        let (found, slopes) = one((parameter, element));
        (parameter, found, slopes)
    });
    all.collect()
}

/// The units whose losses train a parameter of a unit.
fn trainers(hop: Hop, parameter: &Parameter, units: usize) -> Vec<usize> {
    let own = parameter.stage.index();
    let next = (own + 1 < units).then_some(own + 1);
    let is_of_head = parameter.name.contains(".head.");
    match (hop, next) {
        _ if is_of_head => vec![own],
        (Hop::None, _) | (_, None) => vec![own],
        (Hop::Added, Some(next)) => vec![own, next],
        (Hop::Alone, Some(next)) => vec![next],
    }
}

#[test]
fn a_parameter_has_the_gradient_that_the_rule_says() {
    let mut compared = 0;
    let [smooth, kinked] = ["gelu", "relu"].map(images);
    for (model, all) in
        [(residual("rms_norm", 5), 2..=5), (smooth, 2..=3), (kinked, 2..=3)]
    {
        for units in all {
            for hop in [Hop::Added, Hop::Alone] {
                let stages = cut(&model, units, hop);
                for (parameter, found, slopes) in gradients(&stages) {
                    let trainers = trainers(hop, parameter, units as usize);
                    let expected: f64 = trainers.iter().map(|unit| slopes[*unit]).sum();
                    let wrong = (found - expected).abs();
                    let name = &parameter.name;
                    assert!(
                        wrong <= TOLERANCE,
                        "{hop:?} {units} {name}: {found}, {expected}"
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// Plain differentiation of the summed losses hands on what hopped back, so it trains all but the
/// last two units, and what is in front of them, by more than the rule does.
#[test]
fn it_is_not_the_gradient_of_the_summed_losses() {
    let units = 4;
    let stages = cut(&residual("rms_norm", 5), units, Hop::Added);
    let mut apart = [0; 4];
    for (parameter, found, slopes) in gradients(&stages) {
        let own = parameter.stage.index();
        if parameter.name.contains(".head.") {
            continue;
        }
        let summed: f64 = slopes[own..].iter().sum();
        apart[own] += usize::from((found - summed).abs() > 1e3 * TOLERANCE);
    }
    assert!(apart[0] > 20 && apart[1] > 20, "{apart:?}");
    assert_eq!(apart[2..], [0, 0], "the last two units have no third behind them");
}

/// A running average takes one statistic of each micro-batch, though the trunk goes back twice.
#[test]
fn running_averages_take_each_micro_batch_once() {
    let averages = |hop| {
        let stages = cut(&images("gelu"), 3, hop);
        let mut machine = forward(&stages, None);
        machine.backward::<f64>(&context(3, 0));
        let named = machine.named::<f64>(Role::Gradient);
        let all = stages.parameters.iter();
        let own = all.filter(|own| matches!(own.treatment, Treatment::Averaged { .. }));
        own.map(|own| named[&own.name].clone()).collect::<Vec<_>>()
    };
    let expected = averages(Hop::None);
    assert_eq!(expected.len(), 6);
    assert_eq!(averages(Hop::Added), expected);
    assert_eq!(averages(Hop::Alone), expected);
}

/// I of the last unit is that of a unit on its own, and every backward pass is in halves.
#[test]
fn every_backward_pass_is_in_halves() {
    let stages = cut(&residual("rms_norm", 4), 4, Hop::Added);
    for (stage, code) in stages.stages.iter() {
        let BackwardCode::Split { input, weight_first, .. } = &code.backward else {
            panic!("{stage} has a whole backward pass")
        };
        let gradients = |routine: &roundelay_schedule::Routine| {
            let roles = routine.arguments.iter().map(|argument| argument.role);
            roles.filter(|role| matches!(role, Role::ValueGradient(_))).count()
        };
        let (first, last) = (stage.index() == 0, stage.index() == 3);
        assert_eq!(gradients(input), usize::from(!first), "what is handed on");
        assert_eq!(gradients(weight_first), usize::from(!last), "what hops back");
    }
}

#[test]
fn units_are_whole_stages() {
    let model = localised(&residual("rms_norm", 3), 3, Hop::Alone)
        .expect("there are enough layers");
    let boundaries = model.boundaries();
    for cuts in [vec![], vec![boundaries[0]], vec![boundaries[0] + 1, boundaries[1]]] {
        let wrong = stages(&model, &cuts, EXAMPLES, Float::F32, 16).unwrap_err();
        assert!(matches!(wrong, StageError::Units { .. }), "{wrong}");
    }
    let (first, middle) = (boundaries[0], boundaries[0] / 2);
    for cuts in [[middle, first, boundaries[1]], [first, first + 1, boundaries[1]]] {
        let wrong = stages(&model, &cuts, EXAMPLES, Float::F32, 16).unwrap_err();
        assert!(matches!(wrong, StageError::Parted { stage: 1 | 2, .. }), "{wrong}");
    }
}
