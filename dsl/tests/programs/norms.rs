//! What the normalisations of the language become: operations and named parameters.

use roundelay_dsl::{Model, NoFiles, Operation, SourceFile, fingerprint, parse};
use roundelay_schedule::{Float, Initial, Treatment};

fn model(body: &str) -> Model {
    let text = format!("model m {{\n input x: real[batch, 4, 4, 6]\n {body}\n}}");
    let parsed = parse(&SourceFile::new("m.rdl", text), &NoFiles);
    parsed.expect("it is right").0.model
}

#[test]
fn batch_norm_has_running_statistics_that_are_averages() {
    let model = model("loss mse(batch_norm(x, momentum = 0.25), x)");
    let averaged = Treatment::Averaged { momentum: 0.25 };
    let expected = [
        ("gain", 1.0, Treatment::Spared),
        ("bias", 0.0, Treatment::Spared),
        ("running_mean", 0.0, averaged),
        ("running_variance", 1.0, averaged),
    ];
    assert_eq!(model.parameters.len(), expected.len());
    for (parameter, (role, start, treatment)) in model.parameters.values().zip(expected) {
        assert_eq!(parameter.name, format!("batch_norm.{role}"));
        assert_eq!(parameter.shape, [6]);
        assert_eq!(parameter.initial, Initial::Constant(start));
        assert_eq!(parameter.treatment, treatment);
    }
}

#[test]
fn patterns_and_defaults_leave_averages_alone() {
    let text = "model m { input x: real[batch, 6], loss mse(batch_norm(x), x) }
        train { optimizer adamw(1e-3, no_decay = [\"*\"]) }";
    let (program, _) = parse(&SourceFile::new("m.rdl", text), &NoFiles).expect("right");
    let momenta = program.model.parameters.values().map(|p| p.treatment.momentum());
    assert_eq!(momenta.collect::<Vec<_>>(), [None, None, Some(0.1), Some(0.1)]);
}

#[test]
fn every_norm_keeps_the_shape_of_its_operand() {
    let body = "loss mse(batch_norm(x) + group_norm(x, 3), rms_norm(x))";
    let model = model(body);
    let norms = [
        Operation::BatchNorm,
        Operation::GroupNorm { groups: 3 },
        Operation::RmsNorm { epsilon: 1e-5 },
    ];
    let nodes: Vec<_> =
        model.nodes.values().filter(|n| norms.contains(&n.operation)).collect();
    assert_eq!(nodes.len(), 3);
    assert!(
        nodes
            .iter()
            .all(|node| node.shape == model.inputs.values().next().unwrap().shape)
    );
    let names: Vec<&str> = model.parameters.values().map(|p| p.name.as_str()).collect();
    let rest = ["group_norm.gain", "group_norm.bias", "rms_norm.gain"];
    assert_eq!(names[4..], rest);
}

#[test]
fn the_momentum_is_part_of_the_model() {
    let print = |momentum: f64| {
        let text = format!(
            "model m {{ input x: real[batch, 6], loss mse(batch_norm(x, {momentum}), x) }}"
        );
        let parsed = parse(&SourceFile::new("m.rdl", text), &NoFiles);
        fingerprint(&parsed.expect("it is right").0)
    };
    assert_ne!(print(0.1), print(0.2));
}

#[test]
fn wide_numbers_hold_what_narrow_ones_do_not() {
    let read = |dtype: &str| {
        let text = format!(
            "model m {{ input x: real[batch, 6], loss mse(layer_norm(x, 1e-46) / 1e-300, x) }}
            train {{ dtype {dtype}, optimizer adamw(1e-3, epsilon = 1e-46) }}"
        );
        parse(&SourceFile::new("m.rdl", text), &NoFiles)
    };
    let (mut program, _) = read("f64").expect("f64 holds all of them");
    assert_eq!(program.lacking(), []);
    program.train.dtype = Float::F32;
    assert_eq!(program.lacking().len(), 3, "{:?}", program.lacking());
    for dtype in ["f32", "bf16", "f16 { gradients f32 }"] {
        let refused = read(dtype).expect_err("f32 does not");
        assert_eq!(refused.iter().len(), 3, "{refused}");
        assert!(
            refused.iter().all(|said| said.hints.iter().any(|hint| hint.contains("f64")))
        );
    }
}
