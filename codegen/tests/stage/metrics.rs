//! Metrics change no bit of losses, gradients and parameters, and measure the same at every cut,
//! also where they are the last to read a value of an early stage.

use crate::support::{
    build::{Build, Numbers, fixed, per_example},
    machine::{Machine, Run, Trace},
    random::random_model,
};
use roundelay_codegen::{Differentiated, StageError, Stages, UpdateForm, stages};
use roundelay_dsl::{Extent, Masked, Model, ModelMetric, Operation, Source};
use roundelay_schedule::{
    Access, Float, Id, Method, Optimizer, Rate, Reading, Role, Stage, ValueId,
};

const ROWS: [Extent; 2] =
    [Extent { size: 2, per_example: true }, Extent { size: 4, per_example: false }];

fn cut(model: &Model, cuts: &[u32]) -> Result<Stages, StageError> {
    stages(model, cuts, 2, Float::F32, 16)
}

fn train(stages: &Stages) -> Trace {
    let method = Method::Sgd { momentum: 0.9, nesterov: true };
    let rate = Rate::Constant(0.05);
    let optimizer = Optimizer { method, rate, weight_decay: 0.1, clip: 0.0 };
    let form = UpdateForm::InPlace;
    let run = Run { optimizer: &optimizer, micro_batches: 2, steps: 2, form, parts: 1 };
    Machine::new::<f32>(stages, method.states()).train::<f32>(&run)
}

/// The values that the loss depends on; metrics of others would bring parameters of their own.
fn trained(model: &Model) -> Vec<Source> {
    let mut trained: Vec<Source> = model.loss.map(Source::Node).into_iter().collect();
    for (id, node) in model.nodes.iter().rev() {
        if trained.contains(&Source::Node(id)) {
            trained.extend(&node.operands);
        }
    }
    let values = model.nodes.iter().filter(|(_, node)| node.shape == ROWS);
    let values = values.map(|(id, _)| Source::Node(id));
    values.filter(|value| trained.contains(value)).collect()
}

/// Metrics of random values, of the first value that has a parameter, and of the loss itself.
fn measured(model: &Model, numbers: &mut Numbers) -> Model {
    let mut build = Build { model: model.clone() };
    let values = trained(model);
    let classes = build.tokens("measured", &[per_example(2)], 4);
    let mut nodes = vec![model.loss.expect("it has a loss")];
    for number in 0..4 {
        let x = if number == 0 { values[0] } else { numbers.pick(&values) };
        let (operation, y) = match numbers.below(3) {
            0 => (Operation::MeanSquaredError, numbers.pick(&values)),
            1 => (Operation::CrossEntropy { masked: Masked::No }, classes),
            _ => (Operation::Accuracy { masked: Masked::No }, classes),
        };
        let x = match numbers.below(2) {
            0 => build.node(Operation::Gelu, &[x], &ROWS),
            _ => x,
        };
        if let Source::Node(node) = build.node(operation, &[x, y], &[]) {
            nodes.push(node);
        }
    }
    let metric = |(number, node)| {
        let name = format!("metric {number}");
        ModelMetric { name, node, reading: Reading::Mean }
    };
    build.model.metrics = nodes.into_iter().enumerate().map(metric).collect();
    build.model
}

#[test]
fn metrics_change_no_bit_at_any_cut() {
    let mut compared = 0;
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let size = 2 + numbers.below(8) as usize;
        let plain = random_model(&mut numbers, size);
        let model = measured(&plain, &mut numbers);
        let expected = train(&cut(&plain, &[]).expect("an uncut model has no ties"));
        let whole = train(&cut(&model, &[]).expect("an uncut model has no ties"));
        assert!(whole.metrics.len() == 5 * whole.losses.len(), "model {seed}");
        let defined = |bits: &u64| f64::from_bits(*bits).is_finite();
        assert!(whole.metrics.iter().all(defined), "model {seed}");
        let own = whole.metrics.chunks(5).map(|numbers| numbers[0]);
        assert!(own.eq(whole.losses.iter().copied()), "model {seed}");
        assert!(Trace { metrics: vec![], ..whole.clone() } == expected, "model {seed}");
        let end = plain.nodes.len() as u32;
        let mut all: Vec<Vec<u32>> = (1..end).map(|cut| vec![cut]).collect();
        for sparse in [1, 2, 4] {
            all.push((1..end).filter(|_| numbers.below(sparse) == 0).collect());
        }
        for cuts in all {
            match cut(&model, &cuts) {
                // Ties are summed stage by stage.
                Ok(stages) if !stages.ties.is_empty() => continue,
                Ok(stages) => assert!(train(&stages) == whole, "{seed} at {cuts:?}"),
                Err(error) => panic!("model {seed} at {cuts:?}: {error}"),
            }
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} cuts had no ties");
}

/// Three layers; the metric alone reads the first one's result behind the second.
fn early() -> Model {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let classes = build.tokens("classes", &[per_example(2)], 4);
    let mut values = vec![x];
    for layer in 0..3 {
        let weight = build.parameter(&[4, 4]);
        values.push(build.node(Operation::Linear, &[values[layer], weight], &ROWS));
    }
    let loss = build.cross_entropy(values[3], classes);
    let metric = build.node(
        Operation::Accuracy { masked: Masked::No },
        &[values[1], classes],
        &[],
    );
    let mut model = build.end(loss);
    if let Source::Node(node) = metric {
        let name = "early".to_owned();
        model.metrics.push(ModelMetric { name, node, reading: Reading::Mean });
    }
    model
}

#[test]
fn a_gradient_comes_from_the_last_stage_that_adds_to_it() {
    // Nodes: 0 linear, | 1 linear, | 2 linear, 3 loss, 4 metric.
    let stages = cut(&early(), &[1, 2]).expect("no parameter is shared");
    let first = &stages.values[ValueId::new(0)];
    assert_eq!((first.producer.index(), first.last.index()), (0, 2));
    assert_eq!(first.gradient, Differentiated::From(Stage::new(1)));
    let (value, gradient) =
        (Role::Value(ValueId::new(0)), Role::ValueGradient(ValueId::new(0)));
    let found = [0, 1, 2].map(|index| {
        let code = &stages.stages[Stage::new(index)];
        (code.forward.access(value), code.backward.first()[0].access(gradient))
    });
    let expected = [
        (Some(Access::Write), Some(Access::Read)),
        (Some(Access::Read), Some(Access::Write)),
        (Some(Access::Read), None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_value_that_only_a_metric_takes_along_has_no_gradient_to_send() {
    let stages = cut(&early(), &[2]).expect("no parameter is shared");
    let first = &stages.values[ValueId::new(0)];
    assert_eq!(first.gradient, Differentiated::No);
    let gradient = Role::ValueGradient(ValueId::new(0));
    for code in stages.stages.values() {
        assert_eq!(code.backward.first()[0].access(gradient), None);
    }
}

#[test]
fn cuts_never_fall_behind_the_loss() {
    let model = early();
    assert!(cut(&model, &[3]).is_ok());
    let nodes = model.cuttable();
    assert_eq!(cut(&model, &[4]), Err(StageError::Cuts { cuts: vec![4], nodes }));
}

#[test]
fn a_metric_is_a_single_number_that_a_node_makes() {
    for node in [1, 99] {
        let mut model = early();
        model.metrics[0].node = Id::new(node);
        assert!(matches!(cut(&model, &[]), Err(StageError::Malformed { .. })));
    }
    let mut model = early();
    let one = [fixed(1)];
    let mut build = Build { model: model.clone() };
    let x = build.parameter(&[1]);
    if let Source::Node(node) = build.node(Operation::Reshape, &[x], &one) {
        model = build.model;
        model.metrics[0].node = node;
    }
    assert!(matches!(cut(&model, &[]), Err(StageError::Malformed { .. })));
}
