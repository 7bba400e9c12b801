//! Models built from Rust: those of the text, and refused as there.

use roundelay_dsl::{
    Code, Diagnostics, Extent, Mistake, Model, ModelBuilder, NoFiles, Program,
    SourceFile, TensorValue, parse,
};
use roundelay_schedule::{Element, Initial};

fn resolve(text: &str) -> Result<Program, Diagnostics> {
    parse(&SourceFile::new("test.rdl", text), &NoFiles).map(|(program, _)| program)
}

#[test]
fn a_model_built_from_rust_is_the_model_of_the_text() {
    let text = "model gpt {
        input tokens: i32[batch, 4]
        input targets: i32[batch, 4]
        x = embedding(tokens, 16, 8) + positions(4, 8)
        repeat 2 as layer { x = x + 0.5 * attention(layer_norm(x), 2, causal = true) }
        head = linear(x, 16, bias = false)
        loss cross_entropy(head, targets)
    }";
    let build = || {
        let mut gpt = ModelBuilder::new("gpt");
        let shape = [Extent::batch(), Extent::fixed(4)];
        let tokens = gpt.input("tokens", Element::I32, &shape)?;
        let targets = gpt.input("targets", Element::I32, &shape)?;
        let embedded = gpt.call("embedding", vec![tokens.into(), 16.into(), 8.into()])?;
        let positions = gpt.call("positions", vec![4.into(), 8.into()])?;
        let mut x = gpt.add(&embedded, &positions)?;
        x = gpt.repeat("layer", 2, x, |gpt, x| {
            let normal = gpt.call("layer_norm", vec![x.into()])?;
            let arguments = vec![
                (None, normal.into()),
                (None, 2.into()),
                (Some("causal"), true.into()),
            ];
            let mixed = gpt.call_named("attention", "attention", arguments)?;
            let half = gpt.scale(&mixed, 0.5)?;
            gpt.add(x, &half)
        })?;
        let arguments =
            vec![(None, (&x).into()), (None, 16.into()), (Some("bias"), false.into())];
        let head = gpt.call_named("head", "linear", arguments)?;
        let loss = gpt.call("cross_entropy", vec![head.into(), targets.into()])?;
        gpt.loss(&loss)
    };
    let built: Result<Model, Mistake> = build();
    let parsed = resolve(text).unwrap_or_else(|wrong| panic!("{wrong}")).model;
    assert_eq!(built, Ok(parsed));
}

#[test]
fn a_builder_names_the_argument_at_fault() {
    let mut model = ModelBuilder::new("m");
    let shape = [Extent::batch(), Extent::fixed(6)];
    let x = model.input("x", Element::Real, &shape).expect("it is right");
    let mistake =
        model.call("linear", vec![(&x).into(), 2.5.into()]).expect_err("not whole");
    assert_eq!(mistake.argument, Some("width"));
    assert_eq!(
        model.call("lineer", vec![]).expect_err("no such").hints,
        ["did you mean `linear`?"]
    );
    assert!(model.input("x", Element::Real, &shape).is_err());
    assert!(model.input("y", Element::Real, &[Extent::fixed(6)]).is_err());
}

#[test]
fn a_builder_refuses_what_no_program_says() {
    let shape = [Extent::batch(), Extent::fixed(6)];
    let mut model = ModelBuilder::new("m");
    assert!(model.input("x", Element::Real, &[Extent::fixed(6)]).is_err());
    let x = model.input("x", Element::Real, &shape).expect("it was not taken before");
    let none = Initial::Normal(f64::NAN);
    let said =
        |mistake: Result<TensorValue, Mistake>| mistake.expect_err("not so").message;
    let message = said(model.parameter("w", &[6], none));
    assert_eq!(message, "expected a number to begin with, found NaN");
    let mut other = ModelBuilder::new("other");
    let wide = [Extent::batch(), Extent::fixed(9)];
    let far = other.input("x", Element::Real, &wide).expect("it is right");
    let far_down = other.call("relu", vec![(&far).into()]).expect("it is right");
    let strange = "the tensor belongs to another model";
    assert_eq!(said(model.call("relu", vec![(&far).into()])), strange);
    assert_eq!(said(model.add(&x, &far_down)), strange);
    assert_eq!(said(model.scale(&far_down, 2.0)), strange);
    let all = |names: [&str; 2]| {
        let mut model = model.clone();
        let mut y = x.clone();
        for name in names {
            let w = model.parameter(name, &[6], Initial::Constant(1.0))?;
            y = model.within("a", |model| model.multiply(&y, &w))?;
        }
        let b = model
            .within("a", |model| model.parameter("b", &[6], Initial::Constant(0.0)))?;
        y = model.add(&y, &b)?;
        let loss = model.call("mse", vec![(&y).into(), (&x).into()])?;
        model.loss(&loss).map(drop)
    };
    assert_eq!(all(["v", "w"]), Ok(()));
    assert_eq!(all(["v", "a_2.b"]).expect_err("twice").code, Code::Duplicate);
    for name in ["", "a weight", ".w", "größe"] {
        let mistake = all(["v", name]).expect_err("no name");
        assert!(mistake.message.contains("has no name"), "{mistake:?}");
    }
}
